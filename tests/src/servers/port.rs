//! Ports for servers that may be down for a while and must come back on the same number.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// A number that no other fixture of this process uses, until it is dropped. Nothing listens on it by itself.
///
/// It lies below the range from which the system gives ports to outgoing connections (so none of those can take it
/// while a server is down), and leaves room for a cluster bus 10000 above it.
#[derive(Debug)]
pub struct Port(u16);

const FIRST: u32 = 10_000;
const LAST: u32 = 32_000;

static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
static NEXT: AtomicU32 = AtomicU32::new(0);

impl Port {
    /// Reserves a port on which nothing listens at this moment.
    pub fn reserve() -> Self {
        loop {
            // Test processes that run at the same time start far from each other.
            let step = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(std::process::id().wrapping_mul(7919));
            let number = (FIRST + step % (LAST - FIRST)) as u16;
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok();
            if free && TAKEN.lock().unwrap().insert(number) {
                return Self(number);
            }
        }
    }

    /// The number.
    pub const fn number(&self) -> u16 {
        self.0
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        TAKEN.lock().unwrap().remove(&self.0);
    }
}
