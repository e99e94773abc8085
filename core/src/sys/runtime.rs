//! The background runtime of the process: made on first use, remade in a forked child.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;

use arc_swap::ArcSwapOption;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use super::fork::{LeakAfterFork, ProcessStamp};
use crate::{Error, ErrorKind};

struct RuntimeSlot {
    stamp: ProcessStamp,
    runtime: LeakAfterFork<Running>,
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
        let stamp = ProcessStamp::here();
        let fresh = Arc::new(RuntimeSlot { stamp, runtime: LeakAfterFork::new(make()?, stamp) });
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
