//! The one background runtime for callers without their own: made on first use, remade in a forked child. For bindings
//! to other languages; programs in Rust do not need it.
//!
//! Used by [`blocking`](crate::blocking) and by every binding. One worker thread, named `onelock`. A forked child leaks
//! what it inherited: a dropped socket would leave the epoll set that it shares with its parent.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::driver::process::{Inherited, Stamp};
use crate::{Error, ErrorKind};

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
