//! What stands between a client and a server whose protocol nobody here needs to know: it loses, holds and delays bytes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What happens on the way. Everything is off at first.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Once this has passed to the server, nothing comes back, and the connection is cut soon. Happens once.
    pub lose_reply_to: Option<String>,
    /// What has this in it does not pass to the server, and the connection is cut. Happens once.
    pub lose_request: Option<String>,
    /// Nothing passes in either direction, until it may again.
    pub hold: bool,
    /// From the next loss on nothing passes.
    pub hold_after_loss: bool,
    /// How long replies take.
    pub delay: Duration,
}

impl Rules {
    /// What holds after a loss under these.
    fn lost(&self, rules: &Mutex<Rules>) {
        let mut now = rules.lock().unwrap();
        (now.lose_request, now.lose_reply_to) = (None, None);
        now.hold |= self.hold_after_loss;
    }
}

/// A way to a server.
pub struct Wire {
    port: u16,
    rules: Arc<Mutex<Rules>>,
    /// How many replies and requests were lost.
    pub lost: Arc<AtomicU32>,
    /// How many connections were made.
    pub made: Arc<AtomicU32>,
    /// What clients have sent.
    sent: Arc<Mutex<Vec<u8>>>,
}

impl Wire {
    /// To the server at this port.
    ///
    /// # Panics
    /// When there is no port to listen on.
    pub fn to(server_port: u16) -> Wire {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("it listens").port();
        let wire =
            Wire { port, rules: Arc::default(), lost: Arc::default(), made: Arc::default(), sent: Arc::default() };
        let (rules, lost, made, sent) = (wire.rules.clone(), wire.lost.clone(), wire.made.clone(), wire.sent.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                made.fetch_add(1, Ordering::Relaxed);
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server_port)) else { continue };
                let (rules, lost, sent) = (rules.clone(), lost.clone(), sent.clone());
                std::thread::spawn(move || carry(&client, &server, &rules, (&lost, &sent)));
            }
        });
        wire
    }

    /// The port that clients connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What clients have sent so far, of all connections.
    ///
    /// # Panics
    /// When it is no text.
    pub fn sent(&self) -> String {
        String::from_utf8(self.sent.lock().unwrap().clone()).expect("text")
    }

    /// The same of a protocol that is no text.
    ///
    /// # Panics
    /// When a thread of it has panicked.
    pub fn sent_bytes(&self) -> Vec<u8> {
        self.sent.lock().unwrap().clone()
    }

    /// From now on.
    ///
    /// # Panics
    /// Never.
    pub fn set(&self, rules: Rules) {
        *self.rules.lock().unwrap() = rules;
    }
}

fn contains(bytes: &[u8], text: Option<&String>) -> bool {
    text.is_some_and(|text| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
}

fn wait_while_held(rules: &Mutex<Rules>) {
    while rules.lock().unwrap().hold {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// One connection, in both directions.
fn carry(
    client: &TcpStream,
    server: &TcpStream,
    rules: &Arc<Mutex<Rules>>,
    (lost, sent): (&AtomicU32, &Mutex<Vec<u8>>),
) {
    let is_mute = Arc::new(AtomicBool::new(false));
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let back = {
        let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        let (rules, is_mute) = (rules.clone(), is_mute.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 16_384];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                std::thread::sleep(rules.lock().unwrap().delay);
                wait_while_held(&rules);
                if is_mute.load(Ordering::Acquire) || to.write_all(&buffer[..count]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
        })
    };
    let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let mut buffer = [0; 16_384];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let bytes = &buffer[..count];
        sent.lock().unwrap().extend_from_slice(bytes);
        wait_while_held(rules);
        let present = rules.lock().unwrap().clone();
        if contains(bytes, present.lose_request.as_ref()) {
            present.lost(rules);
            lost.fetch_add(1, Ordering::Relaxed);
            break;
        }
        if contains(bytes, present.lose_reply_to.as_ref()) {
            present.lost(rules);
            is_mute.store(true, Ordering::Release);
            lost.fetch_add(1, Ordering::Relaxed);
            let _ = to.write_all(bytes);
            // the server carries it out meanwhile
            std::thread::sleep(Duration::from_millis(100));
            break;
        }
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
    let _ = back.join();
}
