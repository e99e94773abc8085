//! What stands between a client and the server: it loses, holds and delays bytes, and plays a pooler.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What happens on the way. Everything is off at first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    /// Once this has passed to the server, nothing comes back, and the connection is cut soon. Happens once.
    pub(crate) lose_reply_to: Option<&'static str>,
    /// Nothing passes in either direction, until it may again.
    pub(crate) hold: bool,
    /// How long replies take.
    pub(crate) delay: Duration,
    /// No announcement comes through, as behind a pooler.
    pub(crate) no_announcements: bool,
    /// A startup packet with settings is refused, as poolers do.
    pub(crate) refuse_settings: bool,
    /// New connections are closed at once.
    pub(crate) refuse_all: bool,
    /// How much longer the first reply on a connection takes.
    pub(crate) connect_delay: Duration,
    /// Once this has passed to the server nothing comes back on that connection, which stays open.
    pub(crate) silent_after: Option<&'static str>,
    /// On connections with lower numbers nothing comes back any more; they stay open.
    pub(crate) silent_before: u32,
}

pub(crate) struct Wire {
    port: u16,
    rules: Arc<Mutex<Rules>>,
    /// How many replies were lost, and startup packets refused.
    pub(crate) lost: Arc<AtomicU32>,
    pub(crate) refused: Arc<AtomicU32>,
    /// How many connections were made, and how many of them are open.
    pub(crate) made: Arc<AtomicU32>,
    pub(crate) open: Arc<AtomicU32>,
}

impl Wire {
    pub(crate) fn to(server_port: u16, rules: Rules) -> Wire {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let wire = Wire {
            port,
            rules: Arc::new(Mutex::new(rules)),
            lost: Arc::default(),
            refused: Arc::default(),
            made: Arc::default(),
            open: Arc::default(),
        };
        let (rules, lost, refused) = (wire.rules.clone(), wire.lost.clone(), wire.refused.clone());
        let (made, open) = (wire.made.clone(), wire.open.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if rules.lock().unwrap().refuse_all {
                    continue;
                }
                let number = made.fetch_add(1, Ordering::Relaxed);
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server_port)) else { continue };
                let (rules, lost, refused, open) = (rules.clone(), lost.clone(), refused.clone(), open.clone());
                open.fetch_add(1, Ordering::Relaxed);
                std::thread::spawn(move || {
                    carry(&client, &server, number, &rules, &lost, &refused);
                    open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        wire
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn set(&self, rules: Rules) {
        *self.rules.lock().unwrap() = rules;
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// One connection, in both directions.
fn carry(
    client: &TcpStream,
    server: &TcpStream,
    number: u32,
    rules: &Arc<Mutex<Rules>>,
    lost: &AtomicU32,
    refused: &AtomicU32,
) {
    let mute = Arc::new(Mutex::new(false));
    let back = {
        let (from, to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        let (rules, mute) = (rules.clone(), mute.clone());
        std::thread::spawn(move || replies(from, to, number, &rules, &mute))
    };
    let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let (mut buffer, mut first) = ([0; 16_384], true);
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let bytes = &buffer[..count];
        let present = rules.lock().unwrap().clone();
        while rules.lock().unwrap().hold {
            std::thread::sleep(Duration::from_millis(5));
        }
        if first && present.refuse_settings && contains(bytes, "options\0") {
            refused.fetch_add(1, Ordering::Relaxed);
            let _ = from.write_all(&fatal("08P01", "unsupported startup parameter: options"));
            break;
        }
        // the question for TLS comes before the startup packet
        first = first && bytes == [0, 0, 0, 8, 4, 210, 22, 47];
        if present.lose_reply_to.is_some_and(|text| contains(bytes, text)) {
            rules.lock().unwrap().lose_reply_to = None;
            *mute.lock().unwrap() = true;
            lost.fetch_add(1, Ordering::Relaxed);
            let _ = to.write_all(bytes);
            // the server carries it out meanwhile
            std::thread::sleep(Duration::from_millis(100));
            break;
        }
        if present.silent_after.is_some_and(|text| contains(bytes, text)) {
            *mute.lock().unwrap() = true;
        }
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
    let _ = back.join();
}

/// What comes back, message by message.
fn replies(mut from: TcpStream, mut to: TcpStream, number: u32, rules: &Mutex<Rules>, mute: &Mutex<bool>) {
    let mut first = true;
    let mut pending = Vec::new();
    let mut buffer = [0; 16_384];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        pending.extend_from_slice(&buffer[..count]);
        let present = rules.lock().unwrap().clone();
        std::thread::sleep(present.delay + if first { present.connect_delay } else { Duration::ZERO });
        first = false;
        while rules.lock().unwrap().hold {
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut out = Vec::new();
        if pending == *b"N" {
            // no TLS: the one answer that is no message
            out.append(&mut pending);
        }
        while pending.len() >= 5 {
            let length = 1 + u32::from_be_bytes([pending[1], pending[2], pending[3], pending[4]]) as usize;
            if pending.len() < length {
                break;
            }
            let message: Vec<u8> = pending.drain(..length).collect();
            if message[0] != b'A' || !present.no_announcements {
                out.extend(message);
            }
        }
        let is_silent = *mute.lock().unwrap() || number < rules.lock().unwrap().silent_before;
        if !is_silent && to.write_all(&out).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// An error message with which a server, or a pooler, ends a connection.
fn fatal(code: &str, text: &str) -> Vec<u8> {
    let body = format!("SFATAL\0VFATAL\0C{code}\0M{text}\0\0");
    let mut message = vec![b'E'];
    message.extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
    message.extend(body.as_bytes());
    message
}
