//! `onelock export`: metrics of the locks on a server, in the text form of Prometheus.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use onelock::blocking::Client;
use onelock::{ErrorKind, LockEntry, Origin};

use crate::arguments::Export;
use crate::span::EVERY_MIN;
use crate::status::{Failure, Status};
use crate::{say, server, show};

/// A request is short, and comes soon.
const REQUEST_MAX: usize = 8 * 1024;
const REQUEST_WITHIN: Duration = Duration::from_secs(2);
/// After a connection that could not be taken.
const PAUSE: Duration = Duration::from_millis(20);
/// So many requests are read at the same time; further ones are closed.
const READING_MAX: usize = 64;
const TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// When the metrics were told last, and what they were.
type Last = Option<(Instant, String)>;

pub(crate) fn export(options: &Export) -> Result<Status, Failure> {
    let client = server::client(&options.server)?;
    // what no server will ever answer is no reason to say that it is away
    if let Err(error) = client.list(options.patterns[0].as_encoded_bytes(), 1, None)
        && matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::InvalidArgument)
    {
        return Err(error.into());
    }
    match &options.file {
        Some(file) => write(options, &client, file),
        None => serve(options, &client),
    }
}

fn write(options: &Export, client: &Client, file: &Path) -> Result<Status, Failure> {
    loop {
        let begun = Instant::now();
        let (text, failure) = metrics(options, client);
        replace(file, &text).map_err(|error| Failure::new(Status::Software, format!("{}: {error}", file.display())))?;
        if options.once {
            return failure.map_or(Ok(Status::Done), Err);
        }
        if let Some(text) = failure.and_then(|failure| failure.text) {
            say(&text);
        }
        thread::sleep(options.every.saturating_sub(begun.elapsed()).max(EVERY_MIN));
    }
}

/// Writes the file anew under another name, and gives it its own then: who reads it sees all of it.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let name = file.file_name().ok_or_else(|| io::Error::other("this is no name of a file"))?.to_string_lossy();
    let fresh = file.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, file));
    if written.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    written
}

fn serve(options: &Export, client: &Client) -> Result<Status, Failure> {
    let cannot =
        |error: io::Error| Failure::new(Status::Software, format!("cannot listen on {}: {error}", options.listen));
    let listener = TcpListener::bind(&options.listen).map_err(cannot)?;
    say(&format!("http://{}/metrics", listener.local_addr().map_err(cannot)?));
    let (last, reading) = (Mutex::new(None), AtomicUsize::new(0));
    thread::scope(|scope| {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // one that ended early; or there is no descriptor left for it, which may last
                thread::sleep(PAUSE);
                continue;
            };
            if reading.fetch_add(1, Ordering::SeqCst) >= READING_MAX {
                reading.fetch_sub(1, Ordering::SeqCst);
                continue;
            }
            let (last, reading) = (&last, &reading);
            // one that is slow keeps none of the others waiting
            let answering = thread::Builder::new().spawn_scoped(scope, move || {
                let _ = respond(options, client, last, stream);
                reading.fetch_sub(1, Ordering::SeqCst);
            });
            if let Err(error) = answering {
                reading.fetch_sub(1, Ordering::SeqCst);
                say(&format!("a request was closed: no thread can be made for it: {error}"));
                thread::sleep(PAUSE);
            }
        }
    });
    Ok(Status::Done)
}

/// Reads one request and answers it.
fn respond(options: &Export, client: &Client, last: &Mutex<Last>, mut stream: TcpStream) -> io::Result<()> {
    let (with_body, path) = requested(&mut stream)?;
    if path != "/metrics" {
        return answer(&mut stream, "404 Not Found", "the metrics are at /metrics\n", with_body);
    }
    let text = {
        // those who ask meanwhile are told the same
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = last.take().filter(|(told, _)| told.elapsed() < options.every);
        let (told, text) = fresh.unwrap_or_else(|| {
            let (text, failure) = metrics(options, client);
            if let Some(text) = failure.and_then(|failure| failure.text) {
                say(&text);
            }
            (Instant::now(), text)
        });
        *last = Some((told, text.clone()));
        text
    };
    answer(&mut stream, "200 OK", &text, with_body)
}

/// The path of a GET or a HEAD, and whether it is to be told and not only its length.
fn requested(stream: &mut TcpStream) -> io::Result<(bool, String)> {
    let begun = Instant::now();
    stream.set_write_timeout(Some(REQUEST_WITHIN))?;
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = REQUEST_WITHIN.saturating_sub(begun.elapsed());
        if left.is_zero() || request.len() > REQUEST_MAX {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let mut more = [0; 1024];
        match stream.read(&mut more)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            number => request.extend_from_slice(&more[..number]),
        }
    }
    let line = String::from_utf8_lossy(&request);
    let mut words = line.split([' ', '?']);
    match (words.next(), words.next()) {
        (Some("GET"), Some(path)) => Ok((true, path.to_owned())),
        (Some("HEAD"), Some(path)) => Ok((false, path.to_owned())),
        _ => Ok((true, String::new())),
    }
}

fn answer(stream: &mut TcpStream, status: &str, text: &str, with_body: bool) -> io::Result<()> {
    let length = text.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Type: {TYPE}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    if with_body { stream.write_all(text.as_bytes()) } else { Ok(()) }
}

/// The metrics as they are now, and why the server could not be asked, if it could not.
fn metrics(options: &Export, client: &Client) -> (String, Option<Failure>) {
    let begun = Instant::now();
    let found = entries(options, client);
    let took = begun.elapsed().as_secs_f64();
    let mut text = String::new();
    let mut one = |name: &str, help: &str, value: f64| {
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}\n");
    };
    one("onelock_up", "Whether the server could be asked.", f64::from(u8::from(found.is_ok())));
    one("onelock_scrape_seconds", "How long it took to ask.", took);
    match found {
        Err(failure) => (text, Some(failure)),
        Ok(entries) => {
            one("onelock_locks", "How many locks match.", entries.len() as f64);
            let left_out = entries.len().saturating_sub(options.limit);
            one("onelock_locks_left_out", "How many of them are not told one by one.", left_out as f64);
            each(&mut text, &entries[..entries.len() - left_out]);
            (text, None)
        }
    }
}

/// Every lock that a pattern matches, once, in the order of names.
fn entries(options: &Export, client: &Client) -> Result<Vec<LockEntry>, Failure> {
    let mut all = Vec::new();
    for pattern in &options.patterns {
        for entry in client.listing(pattern.as_encoded_bytes()) {
            let entry = entry?;
            if options.others || entry.inspection.origin != Origin::Other {
                all.push(entry);
            }
        }
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all.dedup_by(|one, other| one.name == other.name);
    Ok(all)
}

/// A metric of each lock that has it.
type Measure = fn(&LockEntry) -> Option<f64>;

fn each(text: &mut String, entries: &[LockEntry]) {
    let metrics: [(&str, &str, Measure); 5] = [
        ("onelock_lock_held", "1 for each lock that stands on the server.", |_| Some(1.0)),
        ("onelock_lock_held_seconds", "For how long it has been held, if the holder told.", |entry| {
            show::held_for(entry.inspection.owner.as_ref()).map(|held| held.as_secs_f64())
        }),
        ("onelock_lock_ttl_seconds", "Until it ends if nobody renews it.", |entry| {
            entry.inspection.ttl_left.map(|left| left.as_secs_f64())
        }),
        ("onelock_lock_waiting", "How many wait for it, if the server tells.", |entry| {
            entry.waiting.map(|number| number as f64)
        }),
        ("onelock_lock_fencing_token", "Its fencing token.", |entry| {
            entry.inspection.fencing_token.map(|token| token as f64)
        }),
    ];
    for (number, (name, help, measure)) in metrics.into_iter().enumerate() {
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n");
        for entry in entries {
            let Some(value) = measure(entry) else { continue };
            // who holds it is told once: a new holder is no new series of the others
            let holder = if number == 0 { holder(entry) } else { String::new() };
            let (kind, client) = (entry.inspection.kind.as_str(), entry.inspection.origin.as_str());
            let lock = escaped(&label(&entry.name));
            let _ = writeln!(text, "{name}{{name=\"{lock}\",kind=\"{kind}\",client=\"{client}\"{holder}}} {value}");
        }
    }
}

/// A name as the value of a label, of which no other name has the same: what is no UTF-8 is spelt out behind a backslash, and
/// a backslash of the name's own is two.
fn label(name: &[u8]) -> String {
    match str::from_utf8(name) {
        Ok(name) => name.replace('\\', "\\\\"),
        Err(_) => name.escape_ascii().to_string(),
    }
}

fn holder(entry: &LockEntry) -> String {
    let owner = entry.inspection.owner.as_ref();
    owner.map_or_else(String::new, |owner| {
        format!(",holder=\"{}@{}\"", escaped(&show::text(&owner.label)), escaped(&show::text(&owner.host)))
    })
}

/// What stands between quotation marks.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
