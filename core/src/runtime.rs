//! The one background runtime for callers without their own: made on first use, remade in a forked child. For bindings
//! to other languages; programs in Rust do not need it.
//!
//! Used by [`blocking`](crate::blocking) and by every binding. One thread, named `onelock`. A forked child leaks what it
//! inherited: a dropped socket would leave the epoll set that it shares with its parent.
//!
//! Where the machine gives no thread or no file descriptor for it, the call says `SystemLimit`, and the next one tries
//! again.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::driver::closing::{self, Telling};
use crate::driver::engine::Engine;
use crate::sys::fork::{Inherited, Stamp};
use crate::{Client, Error, ErrorKind, exit};

/// From now on the caller looks after the end of the program itself, with [`close_all`]. Without it what clients of
/// [`blocking`](crate::blocking) hold, or still have to release, is released when the program ends, within a second.
pub fn leave_exit_to_caller() {
    exit::leave_to_caller();
}

struct RuntimeSlot {
    stamp: Stamp,
    runtime: Inherited<Running>,
}

/// A runtime on a thread of its own, which ends with this.
struct Running {
    handle: Handle,
    /// Its end is the thread's.
    _stop: oneshot::Sender<()>,
}

static SLOT: ArcSwapOption<RuntimeSlot> = ArcSwapOption::const_empty();

/// The runtime of this process. Lock-free, so that a child forked at any moment can call it.
pub fn handle() -> Result<Handle, Error> {
    loop {
        let present = SLOT.load_full();
        if let Some(slot) = &present
            && slot.stamp.is_here()
        {
            return Ok(slot.runtime.handle.clone());
        }
        let stamp = Stamp::here();
        let fresh = Arc::new(RuntimeSlot { stamp, runtime: Inherited::new(make()?, stamp) });
        let seen = SLOT.compare_and_swap(&present, Some(fresh.clone()));
        let won = match (&*seen, &present) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        };
        // the parent's slot is never dropped here: this process must not close what it shares
        std::mem::forget(present);
        if won {
            return Ok(fresh.runtime.handle.clone());
        }
        // another thread was faster: its runtime is the one; ours has no tasks and ends with its thread
    }
}

/// Closes every client of these that is [busy](crate::Stats::is_busy), all at once, and waits for it, `within` at most. For
/// the end of a program; blocks, so not from inside a runtime. What is still held is lost as by [`Client::close`], but
/// callbacks are not called any more.
///
/// A client that a forked child did not use itself has done nothing in it, and is left alone.
pub fn close_all(clients: impl IntoIterator<Item = Client>, within: Duration) {
    close_these(clients, Vec::new(), within);
}

/// As [`close_all`], and beside these clients whatever else the process has on this runtime: a lease may have outlived the
/// last handle of its client. For the end of the whole process.
pub fn close_process(clients: impl IntoIterator<Item = Client>, within: Duration) {
    close_these(clients, exit::busy(), within);
}

fn close_these(clients: impl IntoIterator<Item = Client>, engines: Vec<Arc<Engine>>, within: Duration) {
    let busy: Vec<Client> = clients.into_iter().filter(|client| client.stats().is_busy()).collect();
    // without any, no runtime is made either
    if busy.is_empty() && engines.is_empty() {
        return;
    }
    let Ok(runtime) = handle() else { return };
    let mut closings: Vec<_> =
        busy.into_iter().map(|client| runtime.spawn(async move { client.close_at_exit().await })).collect();
    let close = |engine: Arc<Engine>| async move { closing::close(&engine, Telling::NoCallbacks).await };
    closings.extend(engines.into_iter().map(|engine| runtime.spawn(close(engine))));
    let (sender, done) = sync_channel(1);
    runtime.spawn(async move {
        for closing in closings {
            let _ = closing.await;
        }
        let _ = sender.send(());
    });
    let _ = done.recv_timeout(within);
}

/// A thread is asked for first: tokio panics when it gets none for a worker of its own.
fn make() -> Result<Running, Error> {
    let (made, handle) = sync_channel(1);
    let (stop, stopped) = oneshot::channel();
    let work = move || match Builder::new_current_thread().thread_name("onelock").enable_all().build() {
        Ok(runtime) => {
            let _ = made.send(Ok(runtime.handle().clone()));
            let _ = runtime.block_on(stopped);
        }
        Err(error) => {
            let _ = made.send(Err(error));
        }
    };
    thread::Builder::new().name("onelock".to_owned()).spawn(work).map_err(|error| refused("no thread", &error))?;
    match handle.recv() {
        Ok(Ok(handle)) => Ok(Running { handle, _stop: stop }),
        Ok(Err(error)) => Err(refused("nothing to watch sockets with", &error)),
        Err(_) => Err(refused("no runtime", &"its thread has ended")),
    }
}

fn refused(what: &str, why: &dyn Display) -> Error {
    Error::new(ErrorKind::SystemLimit, "start the background runtime", format!("{what}: {why}"))
}
