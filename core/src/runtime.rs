//! The one background runtime for callers without their own: made on first use, remade in a forked child. For bindings
//! to other languages; programs in Rust do not need it.
//!
//! Used by [`blocking`](crate::blocking) and by every binding. One thread, named `onelock`. A forked child leaks what it
//! inherited: a dropped socket would leave the epoll set that it shares with its parent.
//!
//! Where the machine gives no thread or no file descriptor for it, the call says `SystemLimit`, and the next one tries
//! again.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use crate::driver::close::{self, LossCallbacks};
use crate::driver::engine::Engine;
use crate::exit::{self, EngineSet};
pub use crate::sys::runtime::handle;
use crate::{Client, ClientBuilder, Error};

/// From now on the caller handles the end of the program itself, with [`close_process`]. Without it what clients of
/// [`blocking`](crate::blocking) hold, or still have to release, is released when the program ends, within a second.
pub fn leave_exit_to_caller() {
    exit::leave_to_caller();
}

/// From now on, also before a client is used, the end of the process releases what clients of
/// [`blocking`](crate::blocking) hold, within a second: `exit` and the end of `main`.
pub fn release_at_exit() {
    exit::prepare();
}

/// Closes every client on this runtime that holds, waits for or cleans up something, all at once, and waits for it, at
/// most `within`. For the end of a program; it blocks, so do not call it inside a runtime. Leases are lost as by
/// [`Client::close`], but callbacks are not called any more.
///
/// It also closes clients that have no handle any more: a lease may have outlived the last handle of its client. Clients
/// that a forked child did not use itself are left alone.
pub fn close_process(within: Duration) {
    close(exit::busy(), within);
}

/// Clients that are closed together when a part of the program ends, such as a thread with an event loop. Clones are the
/// same group.
///
/// ```
/// # fn main() -> Result<(), onelock::Error> {
/// let group = onelock::runtime::ClientGroup::new();
/// let client = group.build(onelock::Client::builder(), "memory://")?;
/// drop(client);
/// group.close(std::time::Duration::from_secs(1)); // nothing is held: it returns at once
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ClientGroup(Arc<EngineSet>);

impl ClientGroup {
    /// An empty group.
    pub fn new() -> ClientGroup {
        ClientGroup(Arc::new(EngineSet::new()))
    }

    /// Makes a client of this group; otherwise as [`ClientBuilder::build`]. It must be used on this runtime.
    ///
    /// # Errors
    /// As [`ClientBuilder::build`].
    pub fn build(&self, builder: ClientBuilder, url: &str) -> Result<Client, Error> {
        builder.build_in(self.0.clone(), url)
    }

    /// Closes every client of this group that holds, waits for or cleans up something, as [`close_process`] does.
    pub fn close(&self, within: Duration) {
        close(self.0.busy(), within);
    }
}

impl Default for ClientGroup {
    fn default() -> ClientGroup {
        ClientGroup::new()
    }
}

impl std::fmt::Debug for ClientGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientGroup").finish_non_exhaustive()
    }
}

fn close(engines: Vec<Arc<Engine>>, within: Duration) {
    // without any, no runtime is made either
    if engines.is_empty() {
        return;
    }
    let Ok(runtime) = handle() else { return };
    let close = |engine: Arc<Engine>| async move { close::close(&engine, LossCallbacks::Skip).await };
    let closings: Vec<_> = engines.into_iter().map(|engine| runtime.spawn(close(engine))).collect();
    let (sender, done) = sync_channel(1);
    runtime.spawn(async move {
        for closing in closings {
            let _ = closing.await;
        }
        let _ = sender.send(());
    });
    let _ = done.recv_timeout(within);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Lease;

    fn run<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
        let (sender, done) = sync_channel(1);
        handle().unwrap().spawn(async move {
            let _ = sender.send(work.await);
        });
        done.recv().unwrap()
    }

    /// A lease whose client has no handle any more.
    fn hold(group: &ClientGroup, name: &'static str) -> Lease {
        let client = group.build(Client::builder(), "memory://").unwrap();
        run(async move { client.lock(name).acquire().await.unwrap() })
    }

    #[test]
    fn a_group_closes_its_own_clients_also_those_without_a_handle() {
        let (one, other) = (ClientGroup::new(), ClientGroup::new());
        let (ends, stays) = (hold(&one, "a"), hold(&other, "a"));
        assert!(ends.is_held() && stays.is_held());
        one.close(Duration::from_secs(5));
        assert_eq!(ends.loss(), Some(crate::LossReason::Closed));
        assert!(stays.is_held());
        // again, with nothing left
        one.close(Duration::from_secs(5));
        other.close(Duration::from_secs(5));
        assert!(!stays.is_held());
    }

    #[test]
    fn a_group_forgets_engines_that_have_ended() {
        let group = ClientGroup::new();
        for _ in 0..10 {
            let lease = hold(&group, "a");
            run(async move { lease.release().await.unwrap() });
        }
        assert!(group.0.busy().is_empty());
        let _last = hold(&group, "a");
        assert_eq!(group.0.busy().len(), 1);
        assert!(group.0.len() < 10, "{}", group.0.len());
    }
}
