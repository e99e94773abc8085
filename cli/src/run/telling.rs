//! Tells people what happens, from a thread of its own: whoever reads standard error may be slow, or not read at all, and what
//! has to be done to the command does not wait for that.

#![allow(unsafe_code, reason = "a call of the system for which the safe wrappers would be one more dependency")]

use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};

use crate::say;

/// Dropped when there is nothing else to do any more: what is yet to be said is waited for.
pub(super) struct Telling(Option<(Sender<String>, JoinHandle<()>)>);

impl Telling {
    pub(super) fn start() -> Telling {
        let (sender, texts) = channel::<String>();
        let telling = Builder::new().name("telling".to_owned()).spawn(move || {
            write_in_the_background();
            for text in texts {
                say(&text);
            }
        });
        Telling(telling.ok().map(|thread| (sender, thread)))
    }

    pub(super) fn say(&self, text: String) {
        match &self.0 {
            Some((sender, _)) => drop(sender.send(text)),
            // the system makes no more threads
            None => say(&text),
        }
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.0.take() {
            drop(sender);
            let _ = thread.join();
        }
    }
}

/// While the terminal is the command's, and set so (`stty tostop`), who writes is stopped, with the whole group, unless this
/// signal is blocked.
fn write_in_the_background() {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: a set of our own, filled before it is read; this thread alone is changed.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGTTOU);
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
    }
}
