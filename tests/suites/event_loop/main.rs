//! Event loops that read their own connection: what they gain, and that nothing is lost when the connection is.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails should stop at once, with its message")]

mod clock;
mod handover;
mod together;

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::task::{Poll, Waker};
use std::thread::{self, ThreadId};

use onelock::event_loop::{EventLoop, Socket, Task, is_cancelled};
use onelock::{Client, Lease, Release};
use onelock_tests::proxy::Cut;
use onelock_tests::scripts;
use onelock_tests::stage::{REQUEST, SOON, Stage, ms, quick};
use onelock_tests::wait::{wait_for, wait_until};

/// The smallest event loop there is: it asks every socket in turn.
struct Loop {
    port: EventLoop,
    sockets: Vec<Socket>,
}

impl Loop {
    fn new() -> Loop {
        Loop { port: EventLoop::new(), sockets: Vec::new() }
    }

    fn begin<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> (Arc<Task>, Receiver<T>) {
        let (sender, receiver) = channel();
        let task = self.port.start(async move {
            let _ = sender.send(work.await);
        });
        (task.unwrap(), receiver)
    }

    fn turn(&mut self) {
        self.port.flush();
        self.sockets.extend(self.port.new_sockets());
        self.sockets.retain(|socket| self.port.ready(socket));
    }

    fn wait<T>(&mut self, receiver: &Receiver<T>) -> T {
        wait_for(SOON, "the result", || {
            self.turn();
            match receiver.try_recv() {
                Ok(result) => Some(result),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => panic!("the work ended without a result"),
            }
        })
    }

    fn run<T: Send + 'static>(&mut self, work: impl Future<Output = T> + Send + 'static) -> T {
        let (_, receiver) = self.begin(work);
        self.wait(&receiver)
    }

    /// Goes on until it has a connection of its own.
    fn connected(&mut self, client: &Client) {
        assert!(!self.run(is_locked(client)));
        wait_until(SOON, "a connection for the loop", || {
            self.turn();
            !self.sockets.is_empty()
        });
    }
}

fn is_locked(client: &Client) -> impl Future<Output = bool> + Send + use<> {
    let lock = client.lock("never");
    async move { lock.is_locked().await.unwrap() }
}

/// Acquires, and tells on which thread it was granted.
fn acquire(client: &Client, name: &str) -> impl Future<Output = (Lease, ThreadId)> + Send + use<> {
    let lock = client.lock(name);
    async move {
        let lease = lock.acquire().await.unwrap();
        (lease, thread::current().id())
    }
}

async fn release(lease: Lease) -> (Release, ThreadId) {
    (lease.release().await.unwrap(), thread::current().id())
}

fn set() -> (Stage, Client, Loop) {
    let stage = Stage::valkey();
    let client = quick().build(&stage.proxy.url()).unwrap();
    let mut event_loop = Loop::new();
    event_loop.connected(&client);
    (stage, client, event_loop)
}

/// Nothing of this name is left, and nothing is owed.
fn wait_clean(stage: &Stage, client: &Client, name: &str) {
    wait_until(SOON, "clean-up", || {
        let stats = client.stats();
        (stats.cleaning, stats.held, stats.waiting, stage.exists(name)) == (0, 0, 0, false)
    });
}

/// The connections over which acquires came.
fn ways(stage: &Stage) -> Vec<usize> {
    stage.requests(&scripts::acquire()).iter().map(|passed| passed.connection).collect()
}

#[test]
fn a_call_begins_and_ends_on_the_loops_own_thread() {
    let (stage, client, mut event_loop) = set();
    for _ in 0..3 {
        let (lease, granted_on) = event_loop.run(acquire(&client, "a"));
        let (found, released_on) = event_loop.run(release(lease));
        assert_eq!(
            (found, granted_on, released_on),
            (Release::Released, thread::current().id(), thread::current().id())
        );
    }
    let ways = ways(&stage);
    assert_eq!(ways.len(), 3);
    assert!(ways.iter().all(|way| *way == ways[0]), "{ways:?}");
}

#[test]
fn a_server_that_forgot_the_scripts_is_told_them() {
    let (stage, client, mut event_loop) = set();
    stage.server.cmd(&["SCRIPT", "FLUSH"]);
    let (lease, granted_on) = event_loop.run(acquire(&client, "a"));
    assert_eq!(granted_on, thread::current().id());
    assert_eq!(event_loop.run(release(lease)).0, Release::Released);
}

#[test]
fn cancelled_in_flight_nothing_stays_held_and_the_connection_goes_on() {
    let (stage, client, mut event_loop) = set();
    let held = stage.proxy.on(scripts::acquire()).once().hold_reply();
    let (task, result) = event_loop.begin(acquire(&client, "a"));
    held.wait_hits(1);
    wait_until(SOON, "the grant", || stage.exists("a"));
    task.abort();
    drop(result);
    // not an obligation for a whole ttl: the reply tells what there is to undo
    held.release();
    wait_until(SOON, "clean-up", || {
        event_loop.turn();
        !stage.exists("a") && client.stats().cleaning == 0
    });
    let (lease, granted_on) = event_loop.run(acquire(&client, "b"));
    assert_eq!((lease.name(), granted_on), (b"b".as_slice(), thread::current().id()));
    assert_eq!(event_loop.run(release(lease)).0, Release::Released);
    assert_eq!(event_loop.sockets.len(), 1);
    let ways = ways(&stage);
    assert_eq!(ways[0], ways[1]);
}

#[test]
fn after_a_cancellation_replies_to_other_requests_are_left_to_the_loop() {
    let (stage, client, mut event_loop) = set();
    let held = stage.proxy.on(scripts::acquire()).once().hold_reply();
    let (task, result) = event_loop.begin(acquire(&client, "a"));
    held.wait_hits(1);
    task.abort();
    drop(result);
    // long enough for the pauses between looks at the socket to have grown
    std::thread::sleep(ms(150));
    held.release();
    wait_until(SOON, "clean-up", || {
        event_loop.turn();
        !stage.exists("a") && client.stats().cleaning == 0
    });
    let (_task, result) = event_loop.begin(acquire(&client, "b"));
    wait_until(SOON, "the grant", || stage.exists("b"));
    // time for somebody else to read the reply
    std::thread::sleep(ms(100));
    let (lease, granted_on) = event_loop.wait(&result);
    assert_eq!(granted_on, thread::current().id());
    assert_eq!(event_loop.run(release(lease)).0, Release::Released);
}

#[test]
fn cancelled_in_flight_nothing_stays_held_though_the_loop_is_blocked() {
    let (stage, client, mut event_loop) = set();
    let held = stage.proxy.on(scripts::acquire()).once().hold_reply();
    let (task, result) = event_loop.begin(acquire(&client, "a"));
    held.wait_hits(1);
    wait_until(SOON, "the grant", || stage.exists("a"));
    task.abort();
    drop(result);
    held.release();
    // the loop does not come by once
    wait_clean(&stage, &client, "a");
    assert_eq!(client.stats().renewals, 0);
    let (lease, granted_on) = event_loop.run(acquire(&client, "b"));
    assert_eq!(granted_on, thread::current().id());
    assert_eq!(event_loop.run(release(lease)).0, Release::Released);
    assert_eq!(event_loop.sockets.len(), 1);
}

#[test]
fn what_comes_of_work_that_nobody_wants_knows_it() {
    let (_stage, client, event_loop) = set();
    let (sender, receiver) = channel();
    let lock = client.lock("a");
    let task = event_loop.port.start(async move {
        assert!(!is_cancelled());
        let lease = lock.acquire().await;
        sender.send((lease.is_ok(), is_cancelled())).unwrap();
    });
    task.unwrap().abort();
    assert_eq!(receiver.recv_timeout(SOON).unwrap(), (true, true));
    assert!(!is_cancelled(), "elsewhere there is no such work");
}

#[test]
fn a_connection_that_breaks_in_flight_costs_no_lock() {
    let (stage, client, mut event_loop) = set();
    let rule = stage.proxy.on(scripts::acquire()).once().cut_instead_of_reply(Cut::Close);
    let (lease, _) = event_loop.run(acquire(&client, "a"));
    rule.wait_hits(1);
    assert!(event_loop.sockets.is_empty(), "the loop still watches what is closed");
    assert_eq!(event_loop.run(release(lease)).0, Release::Released);
    wait_clean(&stage, &client, "a");
    // later there is another one
    wait_until(SOON, "another connection", || {
        assert!(!event_loop.run(is_locked(&client)));
        event_loop.turn();
        !event_loop.sockets.is_empty()
    });
    let (lease, granted_on) = event_loop.run(acquire(&client, "a"));
    assert_eq!(granted_on, thread::current().id());
    assert_eq!(event_loop.run(release(lease)).0, Release::Released);
}

#[test]
fn a_connection_that_was_closed_while_idle_is_not_noticed_by_callers() {
    let (stage, client, mut event_loop) = set();
    stage.proxy.cut_all();
    wait_until(SOON, "the end of the connection", || {
        event_loop.turn();
        event_loop.sockets.is_empty()
    });
    let (lease, _) = event_loop.run(acquire(&client, "a"));
    assert_eq!(event_loop.run(release(lease)).0, Release::Released);
}

#[test]
fn time_limits_hold_while_the_loop_stands_still() {
    let (stage, client, mut event_loop) = set();
    let rule = stage.proxy.on(scripts::acquire()).once().swallow();
    let (_task, result) = event_loop.begin(acquire(&client, "a"));
    rule.wait_hits(1);
    // nothing is read here: another thread finds out, and asks again over the shared connection
    let (lease, granted_on) = result.recv_timeout(SOON).unwrap();
    assert_ne!(granted_on, thread::current().id());
    assert!(lease.remaining() > REQUEST);
    event_loop.turn();
    assert!(event_loop.sockets.is_empty(), "a connection that was silent for so long is not used again");
    assert_eq!(event_loop.run(release(lease)).0, Release::Released);
    wait_clean(&stage, &client, "a");
}

#[test]
fn a_closed_client_lets_go_of_the_loop() {
    let (stage, client, mut event_loop) = set();
    let (lease, _) = event_loop.run(acquire(&client, "a"));
    event_loop.run(async move { client.close().await });
    assert!(!lease.is_held());
    wait_until(SOON, "the end of the connection", || {
        event_loop.turn();
        event_loop.sockets.is_empty()
    });
    assert!(!stage.exists("a"));
}

#[test]
fn a_loop_that_ends_takes_its_connection_along() {
    let (stage, client, mut event_loop) = set();
    let open = stage.proxy.open_connections().len();
    let held = stage.proxy.on(scripts::acquire()).once().hold_reply();
    let (task, result) = event_loop.begin(acquire(&client, "a"));
    held.wait_hits(1);
    task.abort();
    drop(result);
    event_loop.sockets.clear();
    drop(event_loop);
    held.release();
    wait_until(SOON, "one connection fewer", || stage.proxy.open_connections().len() < open);
    wait_clean(&stage, &client, "a");
    let mut next = Loop::new();
    next.connected(&client);
    let (lease, granted_on) = next.run(acquire(&client, "a"));
    assert_eq!(granted_on, thread::current().id());
    assert_eq!(next.run(release(lease)).0, Release::Released);
}

/// Wakes whom it belongs to when it goes.
struct LastCry(Option<Waker>);

impl Drop for LastCry {
    fn drop(&mut self) {
        if let Some(waker) = self.0.take() {
            waker.wake();
        }
    }
}

#[test]
fn work_that_wakes_itself_when_it_is_dropped_ends() {
    let (sender, done) = channel();
    thread::spawn(move || {
        let event_loop = Loop::new();
        let mut cry = LastCry(None);
        let (task, _) = event_loop.begin(poll_fn(move |context| {
            let cry: &mut LastCry = &mut cry;
            cry.0 = Some(context.waker().clone());
            Poll::<()>::Pending
        }));
        task.abort();
        sender.send(()).unwrap();
    });
    done.recv_timeout(SOON).expect("it waits for itself");
}
