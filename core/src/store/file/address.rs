//! The address of a directory: `file:///dir?mode=660&sync=0&fs=local`.

use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use percent_encoding::percent_decode_str;

use super::lock_file::Settings;
use super::{CAPABILITIES, FileStore, diagnosis};
use crate::config::Options;
use crate::error::{Error, invalid};
use crate::store::address::StoreAddress;
use crate::store::diagnosis::Finding;
use crate::store::{Boxed, Capabilities, SharedStore};

const TRIED: &str = "make a client";
const EXAMPLE: &str = "for example file:///var/lock/app";
/// Whoever may use the locks has to write to their files.
const MODE_MIN: u32 = 0o600;

/// A directory for the files of locks.
#[derive(Debug)]
struct FileAddress {
    path: PathBuf,
    settings: Settings,
}

fn wrong(detail: &str) -> Error {
    invalid(TRIED, format!("{detail}; {EXAMPLE}"))
}

/// Reads `file:///dir` and its query.
pub(crate) fn read(url: &str, _options: &Options) -> Result<Box<dyn StoreAddress>, Error> {
    Ok(Box::new(parse(url)?))
}

fn parse(url: &str) -> Result<FileAddress, Error> {
    let rest = url.trim().split_once("://").map_or("", |(_, rest)| rest);
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    if rest.contains('#') {
        return Err(wrong("the address of a directory has no part behind #; write a # in a path as %23"));
    }
    let bytes: Vec<u8> = percent_decode_str(path).collect();
    if !bytes.starts_with(b"/") {
        let found = if bytes.is_empty() { "names no directory" } else { "has no absolute path" };
        return Err(wrong(&format!("the address {found}: write three slashes and the path of a directory")));
    }
    if bytes.contains(&0) {
        return Err(wrong("the path has a zero byte in it"));
    }
    if bytes.iter().all(|byte| *byte == b'/') {
        return Err(wrong("the root directory is no place for locks: name a directory of their own"));
    }
    let mut settings = Settings { mode: 0o660, sync: false, any_file_system: false };
    let mut seen = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (word, value) = pair.split_once('=').unwrap_or((pair, ""));
        if seen.contains(&word) {
            return Err(wrong(&format!("{word} stands twice in the address")));
        }
        seen.push(word);
        set(&mut settings, word, value)?;
    }
    // without the slashes at the end, which would make two directories of one
    let path: PathBuf = PathBuf::from(std::ffi::OsString::from_vec(bytes)).components().collect();
    Ok(FileAddress { path, settings })
}

fn set(settings: &mut Settings, word: &str, value: &str) -> Result<(), Error> {
    match (word, value) {
        ("mode", digits) => {
            let mode = u32::from_str_radix(digits, 8).ok().filter(|mode| *mode <= 0o777 && mode & MODE_MIN == MODE_MIN);
            let problem =
                "mode is the permissions of new files, three octal digits of which the first is 6 or 7, as in mode=660";
            settings.mode =
                mode.filter(|_| digits.bytes().all(|digit| digit.is_ascii_digit())).ok_or_else(|| wrong(problem))?;
        }
        ("sync", "0") => settings.sync = false,
        ("sync", "1") => settings.sync = true,
        ("sync", _) => return Err(wrong("sync must be 0 or 1")),
        ("fs", "local") => settings.any_file_system = false,
        ("fs", "any") => settings.any_file_system = true,
        ("fs", _) => return Err(wrong("fs must be local or any")),
        _ => return Err(wrong(&format!("\"{word}\" is no option of this address; there are: mode, sync, fs"))),
    }
    Ok(())
}

impl StoreAddress for FileAddress {
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn open(&self, _options: &Options) -> SharedStore {
        Arc::new(FileStore::new(&self.path, self.settings))
    }

    fn diagnose(&self, options: &Options, name: Vec<u8>) -> Boxed<Vec<Finding>> {
        let found = diagnosis::look(&FileStore::new(&self.path, self.settings), options, &name);
        Box::pin(std::future::ready(found))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn a_directory_and_its_options() {
        let plain = parse("file:///var/lock/app").unwrap();
        assert_eq!(plain.path, PathBuf::from("/var/lock/app"));
        assert_eq!(plain.settings, Settings { mode: 0o660, sync: false, any_file_system: false });
        let full = parse("file:///a%20b//c/?mode=0600&sync=1&fs=any").unwrap();
        assert_eq!(full.path, PathBuf::from("/a b/c"));
        assert_eq!(full.settings, Settings { mode: 0o600, sync: true, any_file_system: true });
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (url, word) in [
            ("file://", "names no directory"),
            ("file://host/dir", "three slashes"),
            ("file://relative", "three slashes"),
            ("file:///", "root directory"),
            ("file:////", "root directory"),
            ("file:///a%00b", "zero byte"),
            ("file:///a#b", "%23"),
            ("file:///a?sink=1", "\"sink\" is no option of this address; there are: mode, sync, fs"),
            ("file:///a?sync=yes", "sync must be 0 or 1"),
            ("file:///a?sync", "sync must be 0 or 1"),
            ("file:///a?fs=nfs", "fs must be local or any"),
            ("file:///a?mode=440", "three octal digits"),
            ("file:///a?mode=888", "three octal digits"),
            ("file:///a?mode=%2B660", "three octal digits"),
            ("file:///a?mode=", "three octal digits"),
            ("file:///a?sync=1&sync=1", "sync stands twice"),
        ] {
            let error = parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{url}");
            assert!(error.to_string().contains(word) && error.to_string().contains(EXAMPLE), "{url}: {error}");
        }
    }
}
