//! The address of a database: `postgres://user:password@host:5432/database?table=onelock_locks`.

use std::net::Ipv6Addr;
use std::sync::Arc;

use percent_encoding::percent_decode_str;

use super::database::{Database, Host, SslMode};
use super::{CAPABILITIES, PostgresStore, diagnosis};
use crate::config::{Options, Secret};
use crate::error::{Error, invalid};
use crate::store::address::StoreAddress;
use crate::store::diagnosis::Finding;
use crate::store::member::MemberAddress;
use crate::store::tls::TlsFiles;
use crate::store::{Boxed, Capabilities, SharedStore};

const TRIED: &str = "make a client";
const EXAMPLE: &str = "for example postgres://user:password@localhost:5432/app";
const PORT: u16 = 5432;
const WORDS: &str = "table, ddl, wake, sslmode, sslrootcert, sslcert, sslkey, host";
/// The server cuts longer names.
const NAME_MAX: usize = 63;

fn wrong(detail: &str) -> Error {
    invalid(TRIED, format!("{detail}; {EXAMPLE}"))
}

/// Reads `postgres://...` and its query.
pub(crate) fn read(url: &str, options: &Options) -> Result<Box<dyn StoreAddress>, Error> {
    let mut database = parse(url, options.credentials.is_some())?;
    secure(&mut database, url, options)?;
    Ok(Box::new(database))
}

/// What the options of the client add to the address.
fn secure(database: &mut Database, url: &str, options: &Options) -> Result<(), Error> {
    if options.credentials.is_some() && database.password.is_some() {
        return Err(wrong("the address has a password, and the option credentials is set too; give one of them"));
    }
    let (given, files) = (&options.tls, &mut database.tls);
    for (file, other) in [
        (&mut files.ca_file, &given.ca_file),
        (&mut files.cert_file, &given.cert_file),
        (&mut files.key_file, &given.key_file),
    ] {
        if file.is_none() {
            file.clone_from(other);
        }
    }
    if files.cert_file.is_some() != files.key_file.is_some() {
        return Err(wrong("sslcert and sslkey belong together: a certificate and its key"));
    }
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let is_named = query.split('&').any(|pair| pair.starts_with("sslmode="));
    if !is_named && files.ca_file.is_some() && !given.insecure {
        // whoever names authorities wants the certificate to be checked
        database.ssl = SslMode::VerifyFull;
    }
    if given.insecure && database.ssl >= SslMode::VerifyCa {
        return Err(wrong("tls_insecure accepts any certificate, and sslmode checks it; give one of them"));
    }
    if database.ssl == SslMode::VerifyCa && files.ca_file.is_none() {
        // any certificate of any authority that the system trusts would do, for whatever host
        return Err(wrong("sslmode=verify-ca needs the authorities: name them with sslrootcert, or write verify-full"));
    }
    let files = TlsFiles { insecure: given.insecure, ..std::mem::take(&mut database.tls) };
    database.tls = database.ssl.checked(files);
    Ok(())
}

fn decoded(what: &str, text: &str) -> Result<String, Error> {
    let text = percent_decode_str(text).decode_utf8().map_err(|_| wrong(&format!("the {what} is no UTF-8")))?;
    if text.contains('\0') {
        return Err(wrong(&format!("the {what} has a zero byte in it")));
    }
    Ok(text.into_owned())
}

/// `has_provider`: a credentials provider may name the user.
fn parse(url: &str, has_provider: bool) -> Result<Database, Error> {
    let rest = url.trim().split_once("://").map_or("", |(_, rest)| rest);
    if rest.contains('#') {
        return Err(wrong("the address of a database has no part behind #; write a # in a password as %23"));
    }
    let (front, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = front.split_once('/').unwrap_or((front, ""));
    if path.contains('@') {
        return Err(wrong("there is an @ behind the first /; write a / in a password as %2F"));
    }
    if query.contains('@') && !authority.contains('@') {
        return Err(wrong("there is an @ behind the ?; write a ? in a password as %3F"));
    }
    let (user_info, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    if user_info.contains('@') {
        return Err(wrong("there are several @; write an @ in a password as %40"));
    }
    let (user, password) = user_info.split_once(':').map_or((user_info, None), |(user, word)| (user, Some(word)));
    let mut database = Database {
        hosts: Vec::new(),
        user: decoded("user name", user)?,
        password: password.map(|word| decoded("password", word).map(Secret::new)).transpose()?,
        name: decoded("name of the database", path)?,
        ssl: SslMode::Prefer,
        tls: TlsFiles::default(),
        table: String::new(),
        makes_table: true,
        listens: true,
    };
    database.table = table("onelock_locks")?;
    for host in hosts.split(',').filter(|host| !host.is_empty()) {
        database.hosts.push(read_host(host)?);
    }
    let mut seen = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (word, value) = pair.split_once('=').unwrap_or((pair, ""));
        if seen.contains(&word) {
            return Err(wrong(&format!("{word} stands twice in the address")));
        }
        set(&mut database, word, &decoded(word, value)?)?;
        seen.push(word);
    }
    if database.hosts.is_empty() {
        return Err(wrong("the address names no host"));
    }
    if database.user.is_empty() && !has_provider {
        return Err(wrong("the address names no user"));
    }
    if database.name.is_empty() && database.user.is_empty() {
        return Err(wrong("the address names no database"));
    }
    if database.name.is_empty() {
        database.name.clone_from(&database.user);
    }
    Ok(database)
}

fn read_host(text: &str) -> Result<Host, Error> {
    let bad_port = || wrong("the port must be a number from 1 to 65535");
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) if host.parse::<Ipv6Addr>().is_ok() => (host, rest.strip_prefix(':')),
        Some(_) => return Err(wrong("what stands in [ ] must be an IPv6 address")),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = match port {
        Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(bad_port)?,
        None => PORT,
    };
    let host = decoded("host", host)?;
    if host.starts_with('/') {
        return Ok(Host::Socket(host, port));
    }
    if host.is_empty() || host.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
        return Err(wrong("a host name is missing or has spaces in it"));
    }
    Ok(Host::Tcp(host, port))
}

fn set(database: &mut Database, word: &str, value: &str) -> Result<(), Error> {
    match (word, value) {
        ("table", name) => database.table = table(name)?,
        ("ddl", "create") => database.makes_table = true,
        ("ddl", "expect") => database.makes_table = false,
        ("ddl", _) => return Err(wrong("ddl must be create or expect")),
        ("wake", "notify") => database.listens = true,
        ("wake", "poll") => database.listens = false,
        ("wake", _) => return Err(wrong("wake must be notify or poll")),
        ("sslmode", word) => match SslMode::read(word) {
            Some(mode) => database.ssl = mode,
            None => return Err(wrong("sslmode must be disable, allow, prefer, require, verify-ca or verify-full")),
        },
        ("sslrootcert" | "sslcert" | "sslkey", "") => return Err(wrong(&format!("{word} names no file"))),
        ("sslrootcert", file) => database.tls.ca_file = Some(file.into()),
        ("sslcert", file) => database.tls.cert_file = Some(file.into()),
        ("sslkey", file) => database.tls.key_file = Some(file.into()),
        ("host", folder) if folder.starts_with('/') && database.hosts.is_empty() => {
            database.hosts.push(Host::Socket(folder.to_owned(), PORT));
        }
        ("host", _) => {
            return Err(wrong("host in the query is the folder of a socket, where the address names no other"));
        }
        // it may be the end of a password with a ? in it, and is not shown
        _ if word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') => {
            return Err(wrong(&format!("\"{word}\" is no option of this address; there are: {WORDS}")));
        }
        _ => {
            return Err(wrong(&format!(
                "what follows the ? is no option of this address; there are: {WORDS}; write a ? in a password as %3F"
            )));
        }
    }
    Ok(())
}

/// The name of a table, perhaps with its schema, quoted.
fn table(name: &str) -> Result<String, Error> {
    let is_word = |word: &str| {
        (1..=NAME_MAX).contains(&word.len())
            && !word.starts_with(|first: char| first.is_ascii_digit())
            && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    let words: Vec<&str> = name.split('.').collect();
    if words.len() > 2 || !words.iter().all(|word| is_word(word)) {
        return Err(wrong("table must be a name of small letters, digits and _, perhaps behind a schema and a dot"));
    }
    Ok(words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join("."))
}

impl StoreAddress for Database {
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn open(&self, options: &Options) -> SharedStore {
        Arc::new(PostgresStore::new(self.clone(), options))
    }

    fn as_member(&self) -> Option<Arc<dyn MemberAddress>> {
        // one that moves on to the next host may not know what it has promised
        let one = self.hosts.len() == 1;
        one.then(|| Arc::new(self.clone()) as Arc<dyn MemberAddress>)
    }

    fn diagnose(&self, options: &Options, name: Vec<u8>) -> Boxed<Vec<Finding>> {
        diagnosis::look(PostgresStore::new(self.clone(), options), name)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::error::ErrorKind;

    fn parse_of(url: &str) -> Result<Database, Error> {
        parse(url, false)
    }

    #[test]
    fn a_database_and_its_options() {
        let plain = parse_of("postgres://app:s%2Fe%40c@db.example/shop").unwrap();
        assert_eq!(plain.hosts, [Host::Tcp("db.example".to_owned(), 5432)]);
        assert_eq!((plain.user.as_str(), plain.name.as_str()), ("app", "shop"));
        assert_eq!(plain.password.as_ref().unwrap().reveal(), "s/e@c");
        assert!(plain.makes_table && plain.listens && plain.table == "\"onelock_locks\"");
        assert_eq!(plain.to_string(), "postgres://db.example:5432/shop");
        let full = parse_of("postgresql://u@a,[::1]:7,b:8?table=s.t_1&ddl=expect&wake=poll&sslmode=disable").unwrap();
        assert_eq!(full.to_string(), "postgres://a:5432,[::1]:7,b:8/u");
        assert!(!full.makes_table && !full.listens && full.table == "\"s\".\"t_1\"");
        let socket = parse_of("postgres://u@/d?host=/run/postgresql").unwrap();
        assert_eq!(socket.hosts, [Host::Socket("/run/postgresql".to_owned(), 5432)]);
        assert_eq!(
            parse_of("postgres://u@%2Frun%2Fpg:6000/d").unwrap().hosts,
            [Host::Socket("/run/pg".to_owned(), 6000)]
        );
    }

    #[test]
    fn what_is_wrong_is_named_and_no_password_is_shown() {
        for (url, word) in [
            ("postgres://", "names no host"),
            ("postgres://h/d", "names no user"),
            ("postgres://u@h:0/d", "from 1 to 65535"),
            ("postgres://u@h:x/d", "from 1 to 65535"),
            ("postgres://u@[x]/d", "IPv6"),
            ("postgres://u:hunter2@x@h/d", "%40"),
            ("postgres://u:hun/ter2@h/d", "%2F"),
            ("postgres://u:hunter2#@h/d", "%23"),
            ("postgres://u:hunter2?@h/d", "%3F"),
            ("postgres://u@h/d?hunter2%40x", "%3F"),
            ("postgres://u@h/d?tables=x", "\"tables\" is no option of this address; there are: table, ddl"),
            ("postgres://u@h/d?table=a;drop", "table must be a name"),
            ("postgres://u@h/d?table=a.b.c", "table must be a name"),
            ("postgres://u@h/d?table=A", "table must be a name"),
            ("postgres://u@h/d?table=", "table must be a name"),
            ("postgres://u@h/d?ddl=yes", "ddl must be create or expect"),
            ("postgres://u@h/d?wake=no", "wake must be notify or poll"),
            ("postgres://u@h/d?sslmode=on", "sslmode must be"),
            ("postgres://u@h/d?wake=poll&wake=poll", "wake stands twice"),
            ("postgres://u@h/d?host=/run", "names no other"),
            ("postgres://u%00@h/d", "zero byte"),
        ] {
            let error = parse_of(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{url}");
            let text = error.to_string();
            assert!(text.contains(word) && text.contains(EXAMPLE) && !text.contains("hunter2"), "{url}: {text}");
        }
        let shown = format!("{:?}", parse_of("postgres://u:hunter2@h/d").unwrap());
        assert!(!shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn what_tls_checks() {
        let read = |query: &str, change: fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            let url = format!("postgres://u@h/d?{query}");
            let mut database = parse(&url, false).unwrap();
            secure(&mut database, &url, &options).map(|()| (database.ssl, database.tls.insecure, database.tls.any_name))
        };
        for (query, expected) in [
            ("", (SslMode::Prefer, true, true)),
            ("sslmode=disable", (SslMode::Disable, true, true)),
            ("sslmode=prefer&sslrootcert=/ca", (SslMode::Prefer, true, true)),
            ("sslmode=require", (SslMode::Require, true, true)),
            ("sslmode=require&sslrootcert=/ca", (SslMode::Require, false, true)),
            ("sslmode=verify-ca&sslrootcert=/ca", (SslMode::VerifyCa, false, true)),
            ("sslmode=verify-full", (SslMode::VerifyFull, false, false)),
            ("sslrootcert=/ca", (SslMode::VerifyFull, false, false)),
        ] {
            assert_eq!(read(query, |_| {}).unwrap(), expected, "{query}");
        }
        let with_file = read("", |options| options.tls.ca_file = Some("/ca".into())).unwrap();
        assert_eq!(with_file, (SslMode::VerifyFull, false, false));
        let insecure = read("sslmode=require&sslrootcert=/ca", |options| options.tls.insecure = true).unwrap();
        assert_eq!(insecure, (SslMode::Require, true, true));
        let error = read("sslmode=verify-full", |options| options.tls.insecure = true).unwrap_err();
        assert!(error.to_string().contains("tls_insecure"), "{error}");
        let error = read("sslmode=verify-ca", |_| {}).unwrap_err();
        assert!(error.to_string().contains("sslrootcert"), "{error}");
        let error = read("sslcert=/c", |_| {}).unwrap_err();
        assert!(error.to_string().contains("belong together"), "{error}");
    }
}
