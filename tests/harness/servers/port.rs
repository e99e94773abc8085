//! Ports for servers that may be down for a while and must come back on the same number.

use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicU32, Ordering};

/// A number that no other fixture of this machine uses, until it is dropped. Nothing listens on it by itself.
///
/// It lies below the range from which the system gives ports to outgoing connections (so none of those can take it
/// while a server is down), and leaves room for a cluster bus 10000 above it.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// Keeps other test processes away: an abstract name can be bound once, and is free again when its process ends.
    _claim: UnixDatagram,
}

const FIRST: u32 = 10_000;
const LAST: u32 = 21_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

impl Port {
    /// Reserves a port on which nothing listens at this moment.
    pub fn reserve() -> Self {
        loop {
            // Test processes that run at the same time start far from each other.
            let step = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(std::process::id().wrapping_mul(7919));
            let number = (FIRST + step % (LAST - FIRST)) as u16;
            let name = SocketAddr::from_abstract_name(format!("onelock-test-port-{number}")).expect("a short name");
            let Ok(claim) = UnixDatagram::bind_addr(&name) else { continue };
            if TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Self { number, _claim: claim };
            }
        }
    }

    /// The number.
    pub const fn number(&self) -> u16 {
        self.number
    }
}
