//! Running the library on the event loop of another language: tasks start on the loop's thread, and their requests are
//! written and their replies read there, without a switch to another thread. For bindings; programs in Rust do not need it.
//!
//! A binding makes one [`EventLoop`] for each event loop, and
//!
//! 1. starts every call with [`EventLoop::start`], on the loop's thread;
//! 2. after that, has the loop watch the sockets from [`EventLoop::new_sockets`] for reading;
//! 3. calls [`EventLoop::ready`] on the loop's thread when one of them is readable, and stops watching and drops it when
//!    that returns `false`;
//! 4. calls [`EventLoop::flush`] on the loop's thread when [`EventLoop::needs_flush`] says so and the loop has run its ready
//!    callbacks;
//! 5. drops the result of a task that [`is_cancelled`] instead of queueing it for the loop, and removes what it has queued
//!    when it [aborts](Task::abort) one.
//!
//! Nothing depends on the loop: a task that waits for anything but such a reply moves to the
//! [background runtime](crate::runtime), requests without such a connection go over the multiplexed one, and so do renewal
//! and cleanup. A loop that never watches a socket is served as well, only slower.

mod task;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

pub use self::task::{Task, begin, is_cancelled};

use crate::Error;
use crate::sys::fork::{LeakAfterFork, ProcessStamp};

thread_local! {
    /// The event loop that runs on this thread.
    static CURRENT_LOOP: RefCell<Option<Arc<LoopState>>> = const { RefCell::new(None) };
    /// The task that runs on this thread.
    static CURRENT_TASK: RefCell<Option<Arc<Task>>> = const { RefCell::new(None) };
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

/// A connection that an event loop reads.
pub(crate) trait LoopSocket: Send + Sync {
    /// The descriptor to watch.
    fn fd(&self) -> i32;

    /// The loop watches it from now on.
    fn watched(&self);

    /// The socket is readable. False when it is closed.
    fn ready(&self) -> bool;

    /// Sends the requests that wait to be sent together.
    fn flush(&self);

    /// Reads what has arrived when the loop is blocked, if `wanted` says so once no other thread reads; from any thread.
    fn read_available(&self, wanted: &dyn Fn() -> bool);
}

/// A connection for the loop to watch. Keep it for as long as the loop watches it: it is not closed before it is dropped.
pub struct Socket(LeakAfterFork<Arc<dyn LoopSocket>>);

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

/// One event loop of another language.
///
/// ```
/// # fn main() -> Result<(), onelock::Error> {
/// let event_loop = onelock::event_loop::EventLoop::new();
/// let (sender, receiver) = std::sync::mpsc::channel();
/// let task = event_loop.start(async move {
///     let client = onelock::Client::connect("memory://").await.expect("a store in memory");
///     let _ = sender.send(client.lock("orders:42").acquire().await.is_ok());
/// })?;
/// for socket in event_loop.new_sockets() {
///     // the loop watches socket.fd(), and calls event_loop.ready(&socket)
///     drop(socket);
/// }
/// assert_eq!(receiver.recv(), Ok(true));
/// task.abort(); // it has ended: nothing happens
/// # Ok(()) }
/// ```
pub struct EventLoop(LeakAfterFork<Arc<LoopState>>);

/// The state of an event loop, as the library sees it.
pub(crate) struct LoopState {
    stamp: ProcessStamp,
    /// Its number in this process; from 1.
    pub(crate) number: u64,
    new_sockets: Mutex<Vec<Arc<dyn LoopSocket>>>,
    /// Every socket that the loop watches or is about to watch.
    sockets: Mutex<Vec<Weak<dyn LoopSocket>>>,
    /// Whether there may be any, so that the mutex is locked only then.
    has_new_sockets: AtomicBool,
    /// Tasks that were woken on the loop's thread and run there.
    run_queue: Mutex<VecDeque<Arc<Task>>>,
    /// Sockets with requests to send after the loop has run its ready callbacks.
    flush_queue: Mutex<Vec<Arc<dyn LoopSocket>>>,
    /// Whether there are any.
    has_flush_queue: AtomicBool,
}

impl LoopState {
    fn new_sockets(&self) -> MutexGuard<'_, Vec<Arc<dyn LoopSocket>>> {
        self.new_sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_queue(&self) -> MutexGuard<'_, VecDeque<Arc<Task>>> {
        self.run_queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a socket to the loop, to be watched.
    pub(crate) fn register(&self, socket: Arc<dyn LoopSocket>) {
        let mut sockets = self.sockets();
        sockets.retain(|known| known.strong_count() > 0);
        sockets.push(Arc::downgrade(&socket));
        drop(sockets);
        self.new_sockets().push(socket);
        self.has_new_sockets.store(true, Ordering::Release);
    }

    /// Asks the loop to [flush](EventLoop::flush) this socket.
    pub(crate) fn request_flush(&self, socket: Arc<dyn LoopSocket>) {
        self.flush_queue().push(socket);
        self.has_flush_queue.store(true, Ordering::Release);
    }

    fn sockets(&self) -> MutexGuard<'_, Vec<Weak<dyn LoopSocket>>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the replies that have arrived, in place of the loop, while they are `wanted`.
    fn read_available(&self, wanted: &dyn Fn() -> bool) {
        let sockets: Vec<_> = self.sockets().iter().filter_map(Weak::upgrade).collect();
        for socket in sockets {
            socket.read_available(wanted);
        }
    }

    fn flush_queue(&self) -> MutexGuard<'_, Vec<Arc<dyn LoopSocket>>> {
        self.flush_queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flush(&self) {
        while self.has_flush_queue.swap(false, Ordering::AcqRel) {
            let owing = mem::take(&mut *self.flush_queue());
            for socket in owing {
                socket.flush();
            }
        }
    }
}

/// The event loop that runs on the calling thread; none in a forked child.
pub(crate) fn current() -> Option<Arc<LoopState>> {
    let current = CURRENT_LOOP.with_borrow(Clone::clone)?;
    current.stamp.is_here().then_some(current)
}

/// Marks the running task as having a request in flight on a connection of the loop, until dropped.
pub(crate) struct InFlightMark(Option<Arc<Task>>);

impl InFlightMark {
    /// For the task that runs on this thread.
    pub(crate) fn begin() -> InFlightMark {
        let task = CURRENT_TASK.with_borrow(Clone::clone);
        if let Some(task) = &task {
            task.request_in_flight.store(true, Ordering::Release);
        }
        InFlightMark(task)
    }
}

impl Drop for InFlightMark {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.request_in_flight.store(false, Ordering::Release);
        }
    }
}

/// Makes an event loop the current one until dropped.
struct CurrentLoopGuard(Option<Arc<LoopState>>);

impl CurrentLoopGuard {
    fn enter(event_loop: &Arc<LoopState>) -> CurrentLoopGuard {
        CurrentLoopGuard(CURRENT_LOOP.replace(Some(event_loop.clone())))
    }
}

impl Drop for CurrentLoopGuard {
    fn drop(&mut self) {
        CURRENT_LOOP.set(self.0.take());
    }
}

impl Default for EventLoop {
    fn default() -> EventLoop {
        EventLoop::new()
    }
}

impl std::fmt::Debug for EventLoop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Port").field(&self.0.number).finish()
    }
}

impl EventLoop {
    /// State for one event loop. No I/O happens.
    pub fn new() -> EventLoop {
        let stamp = ProcessStamp::here();
        let inner = LoopState {
            stamp,
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            new_sockets: Mutex::default(),
            sockets: Mutex::default(),
            has_new_sockets: AtomicBool::new(false),
            run_queue: Mutex::default(),
            flush_queue: Mutex::default(),
            has_flush_queue: AtomicBool::new(false),
        };
        // a forked child that drops what it inherited must touch neither the parent's runtime nor its connections
        EventLoop(LeakAfterFork::new(Arc::new(inner), stamp))
    }

    /// Starts `work` on this thread, which must be the loop's, and runs it until it has to wait. Fails when there is no
    /// background runtime (`SystemLimit`).
    pub fn start(&self, work: impl Future<Output = ()> + Send + 'static) -> Result<Arc<Task>, Error> {
        let task = Task::new(Some(self.0.clone()), work)?;
        let current = CurrentLoopGuard::enter(&self.0);
        task.poll();
        self.run_queued();
        drop(current);
        Ok(task)
    }

    /// The sockets that the loop must watch from now on, in addition to earlier ones. To be called on the loop's
    /// thread, after [`EventLoop::start`]. Usually empty.
    pub fn new_sockets(&self) -> Vec<Socket> {
        if !self.0.has_new_sockets.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        let fresh = mem::take(&mut *self.0.new_sockets());
        let watched = fresh.into_iter().inspect(|socket| socket.watched());
        watched.map(|socket| Socket(LeakAfterFork::new(socket, self.0.stamp))).collect()
    }

    /// A socket is readable, or was closed. To be called on the loop's thread: tasks that waited for it run there. When
    /// this returns `false`, stop watching the socket, and then drop it.
    pub fn ready(&self, socket: &Socket) -> bool {
        if !self.0.stamp.is_here() {
            // a forked child has nothing to do with its parent's connections
            return false;
        }
        let current = CurrentLoopGuard::enter(&self.0);
        let goes_on = socket.0.ready();
        self.run_queued();
        self.0.flush();
        drop(current);
        goes_on
    }

    /// Whether requests wait to be sent together: [`EventLoop::flush`] is to be called soon.
    pub fn needs_flush(&self) -> bool {
        self.0.has_flush_queue.load(Ordering::Acquire)
    }

    /// Sends the requests that wait to be sent together. To be called on the loop's thread, once all tasks that can
    /// start now have started. A request that is not sent within its time limit is sent over another connection.
    pub fn flush(&self) {
        if self.needs_flush() && self.0.stamp.is_here() {
            let current = CurrentLoopGuard::enter(&self.0);
            self.0.flush();
            self.run_queued();
            drop(current);
        }
    }

    fn run_queued(&self) {
        loop {
            let next = self.0.run_queue().pop_front();
            let Some(task) = next else { return };
            task.poll();
        }
    }
}
