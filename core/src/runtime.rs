//! The one background runtime for callers without their own: made on first use, remade in a forked child. For bindings
//! to other languages; programs in Rust do not need it.
//!
//! Used by [`blocking`](crate::blocking) and by every binding. One worker thread, named `onelock`. A forked child leaks
//! what it inherited: a dropped socket would leave the epoll set that it shares with its parent.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::driver::process::{Inherited, Stamp};
use crate::{Client, Error, ErrorKind};

struct Slot {
    stamp: Stamp,
    runtime: Inherited<Runtime>,
}

static SLOT: ArcSwapOption<Slot> = ArcSwapOption::const_empty();

/// The runtime of this process. Lock-free, so that a child forked at any moment can call it.
pub fn handle() -> Result<Handle, Error> {
    loop {
        let present = SLOT.load_full();
        if let Some(slot) = &present
            && slot.stamp.is_here()
        {
            return Ok(slot.runtime.handle().clone());
        }
        let stamp = Stamp::here();
        let fresh = Arc::new(Slot { stamp, runtime: Inherited::new(make()?, stamp) });
        let seen = SLOT.compare_and_swap(&present, Some(fresh.clone()));
        let won = match (&*seen, &present) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        };
        // the parent's slot is never dropped here: this process must not close what it shares
        std::mem::forget(present);
        if won {
            return Ok(fresh.runtime.handle().clone());
        }
        // another thread was faster: its runtime is the one; ours has no tasks and ends in the background
        if let Some(slot) = Arc::into_inner(fresh) {
            slot.shut_down();
        }
    }
}

/// Closes every client of these that is [busy](crate::Stats::is_busy), all at once, and waits for it, `within` at most. For
/// the end of a program; blocks, so not from inside a runtime.
///
/// A client that a forked child did not use itself has done nothing in it, and is left alone.
pub fn close_all(clients: impl IntoIterator<Item = Client>, within: Duration) {
    let busy: Vec<Client> = clients.into_iter().filter(|client| client.stats().is_busy()).collect();
    // without any, no runtime is made either
    if busy.is_empty() {
        return;
    }
    let Ok(runtime) = handle() else { return };
    let closings: Vec<_> = busy.into_iter().map(|client| runtime.spawn(async move { client.close().await })).collect();
    let (sender, done) = sync_channel(1);
    runtime.spawn(async move {
        for closing in closings {
            let _ = closing.await;
        }
        let _ = sender.send(());
    });
    let _ = done.recv_timeout(within);
}

impl Slot {
    fn shut_down(self) {
        // a runtime must not be dropped where blocking is not allowed; a plain thread may
        let _ = std::thread::Builder::new().name("onelock-spare".to_owned()).spawn(move || drop(self));
    }
}

fn make() -> Result<Runtime, Error> {
    Builder::new_multi_thread().worker_threads(1).thread_name("onelock").enable_all().build().map_err(|error| {
        Error::new(ErrorKind::Internal, "start the background runtime", format!("no thread or no epoll: {error}"))
    })
}
