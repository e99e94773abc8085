//! The event loop of another language, as far as the library needs it: work begins on the loop's thread, and its requests
//! are written and their replies read there, without a switch to another thread. For bindings; programs in Rust do not
//! need it.
//!
//! A binding makes one [`Port`] for each event loop, and
//!
//! 1. begins every call with [`Port::start`], on the loop's thread;
//! 2. after that, has the loop watch for reading what [`Port::fresh`] hands out;
//! 3. calls [`Port::ready`] on the loop's thread when one of these can be read, and stops watching and drops it when that
//!    returns `false`;
//! 4. calls [`Port::flush`] on the loop's thread when [`Port::is_owing`] says so and the loop has gone round once;
//! 5. drops what [`is_unwanted`] instead of queueing it for the loop, and what it has queued when it [aborts](Task::abort).
//!
//! Everything goes on without the loop: work that waits for anything else than such a reply becomes a task of the
//! [background runtime](crate::runtime), requests for which there is no such connection go over the one that tasks share,
//! and renewal and clean-up always do. A loop that never watches anything is served as well, only slower.

mod task;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

pub use task::{Task, begin, is_unwanted};

use crate::Error;
use crate::driver::process::{Inherited, Stamp};

thread_local! {
    /// The port whose work this thread is at.
    static CURRENT: RefCell<Option<Arc<Inner>>> = const { RefCell::new(None) };
    /// The work that this thread is at.
    static STEPPING: RefCell<Option<Arc<Task>>> = const { RefCell::new(None) };
}

static NEXT: AtomicU64 = AtomicU64::new(1);

/// A connection that an event loop reads.
pub(crate) trait Moored: Send + Sync {
    /// What to watch.
    fn fd(&self) -> i32;

    /// From now on the loop watches it.
    fn watched(&self);

    /// There is something to read. False when it is over.
    fn ready(&self) -> bool;

    /// What waited to be sent with others is sent.
    fn flush(&self);

    /// Takes in what is there in place of the loop, which may not come by; from any thread.
    fn relieve(&self);
}

/// A connection for the loop to watch. Keep it for as long as the loop watches it: it is not closed before it is dropped.
pub struct Socket(Inherited<Arc<dyn Moored>>);

impl Socket {
    /// The file descriptor, to be watched for reading only.
    pub fn fd(&self) -> i32 {
        self.0.fd()
    }
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Socket").field(&self.fd()).finish()
    }
}

/// The way between one event loop and the library.
///
/// ```
/// # fn main() -> Result<(), onelock::Error> {
/// let port = onelock::port::Port::new();
/// let (sender, receiver) = std::sync::mpsc::channel();
/// let task = port.start(async move {
///     let client = onelock::Client::connect("memory://").await.expect("a store in memory");
///     let _ = sender.send(client.lock("orders:42").acquire().await.is_ok());
/// })?;
/// for socket in port.fresh() {
///     // the loop watches socket.fd(), and calls port.ready(&socket)
///     drop(socket);
/// }
/// assert_eq!(receiver.recv(), Ok(true));
/// task.abort(); // it has ended: nothing happens
/// # Ok(()) }
/// ```
pub struct Port(Inherited<Arc<Inner>>);

/// What a port is for those who come across it.
pub(crate) struct Inner {
    stamp: Stamp,
    /// Its number in this process; from 1.
    pub(crate) number: u64,
    fresh: Mutex<Vec<Arc<dyn Moored>>>,
    /// All that the loop watches or is about to watch.
    moored: Mutex<Vec<Weak<dyn Moored>>>,
    /// Whether there may be any; so that nobody else has to look.
    any_fresh: AtomicBool,
    /// What was woken on the loop's thread, and goes on there.
    going_on: Mutex<VecDeque<Arc<Task>>>,
    /// Those that have something to send when the loop has gone round.
    owing: Mutex<Vec<Arc<dyn Moored>>>,
    /// Whether there are any.
    any_owing: AtomicBool,
}

impl Inner {
    fn fresh(&self) -> MutexGuard<'_, Vec<Arc<dyn Moored>>> {
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn going_on(&self) -> MutexGuard<'_, VecDeque<Arc<Task>>> {
        self.going_on.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The loop is to watch this when it comes by.
    pub(crate) fn moor(&self, socket: Arc<dyn Moored>) {
        let mut moored = self.moored();
        moored.retain(|known| known.strong_count() > 0);
        moored.push(Arc::downgrade(&socket));
        drop(moored);
        self.fresh().push(socket);
        self.any_fresh.store(true, Ordering::Release);
    }

    /// The loop is to [flush](Port::flush) this when it has gone round.
    pub(crate) fn owe(&self, socket: Arc<dyn Moored>) {
        self.owing().push(socket);
        self.any_owing.store(true, Ordering::Release);
    }

    fn moored(&self) -> MutexGuard<'_, Vec<Weak<dyn Moored>>> {
        self.moored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in the replies that are there, in place of the loop.
    fn relieve(&self) {
        let moored: Vec<_> = self.moored().iter().filter_map(Weak::upgrade).collect();
        for socket in moored {
            socket.relieve();
        }
    }

    fn owing(&self) -> MutexGuard<'_, Vec<Arc<dyn Moored>>> {
        self.owing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flush(&self) {
        while self.any_owing.swap(false, Ordering::AcqRel) {
            let owing = mem::take(&mut *self.owing());
            for socket in owing {
                socket.flush();
            }
        }
    }
}

/// The port whose work the calling thread is at; none in a forked child.
pub(crate) fn current() -> Option<Arc<Inner>> {
    let current = CURRENT.with_borrow(Clone::clone)?;
    current.stamp.is_here().then_some(current)
}

/// A request is on its way over a connection of the loop, until dropped.
pub(crate) struct Asking(Option<Arc<Task>>);

impl Asking {
    /// By the work that this thread is at.
    pub(crate) fn begin() -> Asking {
        let task = STEPPING.with_borrow(Clone::clone);
        if let Some(task) = &task {
            task.asking.store(true, Ordering::Release);
        }
        Asking(task)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.asking.store(false, Ordering::Release);
        }
    }
}

/// Makes a port the current one until dropped.
struct Here(Option<Arc<Inner>>);

impl Here {
    fn at(port: &Arc<Inner>) -> Here {
        Here(CURRENT.replace(Some(port.clone())))
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

impl Default for Port {
    fn default() -> Port {
        Port::new()
    }
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Port").field(&self.0.number).finish()
    }
}

impl Port {
    /// A port for one event loop. No I/O happens.
    pub fn new() -> Port {
        let stamp = Stamp::here();
        let inner = Inner {
            stamp,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            fresh: Mutex::default(),
            moored: Mutex::default(),
            any_fresh: AtomicBool::new(false),
            going_on: Mutex::default(),
            owing: Mutex::default(),
            any_owing: AtomicBool::new(false),
        };
        // a forked child that drops what it inherited must touch neither the parent's runtime nor its connections
        Port(Inherited::new(Arc::new(inner), stamp))
    }

    /// Begins `work` on this thread, which must be the loop's, up to where it has to wait. Fails when there is no
    /// background runtime (`SystemLimit`).
    pub fn start(&self, work: impl Future<Output = ()> + Send + 'static) -> Result<Arc<Task>, Error> {
        let task = Task::new(Some(self.0.clone()), work)?;
        let here = Here::at(&self.0);
        task.step();
        self.go_on();
        drop(here);
        Ok(task)
    }

    /// What the loop is to watch from now on, in addition to what it was given before. To be asked on the loop's thread,
    /// after [`Port::start`]. Most of the time there is nothing.
    pub fn fresh(&self) -> Vec<Socket> {
        if !self.0.any_fresh.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        let fresh = mem::take(&mut *self.0.fresh());
        let watched = fresh.into_iter().inspect(|socket| socket.watched());
        watched.map(|socket| Socket(Inherited::new(socket, self.0.stamp))).collect()
    }

    /// Something can be read, or was closed. To be called on the loop's thread: work that waited for it goes on there. When
    /// this returns `false`, it is over: stop watching it, and then drop it.
    pub fn ready(&self, socket: &Socket) -> bool {
        if !self.0.stamp.is_here() {
            // a forked child has nothing to do with its parent's connections
            return false;
        }
        let here = Here::at(&self.0);
        let goes_on = socket.0.ready();
        self.go_on();
        self.0.flush();
        drop(here);
        goes_on
    }

    /// Whether requests wait to be sent together with others: [`Port::flush`] is to be called soon.
    pub fn is_owing(&self) -> bool {
        self.0.any_owing.load(Ordering::Acquire)
    }

    /// Sends what waits to be sent together with others. To be called on the loop's thread, once everything that can
    /// begin now has begun. What is not sent within the time limit of a request is sent in another way.
    pub fn flush(&self) {
        if self.is_owing() && self.0.stamp.is_here() {
            let here = Here::at(&self.0);
            self.0.flush();
            self.go_on();
            drop(here);
        }
    }

    fn go_on(&self) {
        loop {
            let next = self.0.going_on().pop_front();
            let Some(task) = next else { return };
            task.step();
        }
    }
}
