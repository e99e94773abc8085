//! Moves bytes between the socket and the exchange of a multiplexed connection: a task of its own does, and a caller that
//! finds nothing in flight sends its request itself, without a switch to another thread.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::task::{Context, Poll, Waker};

use tokio::io::ReadBuf;
use tokio::sync::Notify;

use super::connect::{AsyncStream, ConnectedStream};
use crate::machine::{Outcome, Time};
use crate::store::redis::address::endpoint::Endpoint;
use crate::store::redis::connection::pending_request::{Completion, PendingRequest, wake_all};
use crate::store::redis::connection::socket::{NO_RESP, broken, reason};
use crate::store::redis::resp::decoder::MAX_READ_BYTES;
use crate::store::redis::resp::exchange::{Exchange, ExchangeError, Received};
use crate::store::redis::resp::push::Push;
use crate::store::redis::resp::request_queue::FailedRequest;
use crate::sys::clock;
use crate::sys::task;

/// With more bytes than this to send, callers wait before they queue theirs.
pub(crate) const MAX_UNSENT_BYTES: usize = 256 << 10;

/// Receives the messages of subscriptions.
pub(crate) trait PushHandler: Send + Sync + 'static {
    /// This was published on `channel`, and came on the connection of this number, 0 for one without. Called on the
    /// connection's task, or by a caller that reads for it: must not block.
    fn on_message(&self, connection: u64, channel: &[u8], payload: &[u8]);
}

/// Whether a request was queued.
#[derive(Debug, PartialEq)]
pub(crate) enum Submitted {
    Queued,
    /// Too much is unsent. [`Transport::space`] is notified when there is room.
    Full,
    /// The connection has ended.
    Ended,
}

/// The socket and the exchange of one connection. Where both locks are needed, that of the socket is taken first.
pub(crate) struct Transport {
    /// That of its connection, for who gets its messages.
    number: u64,
    queue: Mutex<QueueState>,
    socket: Mutex<SocketState>,
    /// Wakes the task; empty before its first poll.
    task: OnceLock<Waker>,
    ended: AtomicBool,
    /// Notified when the connection ends.
    pub(crate) end: Notify,
    /// Notified when there is room for more requests, or the connection has ended.
    pub(crate) space: Notify,
    endpoint: Arc<Endpoint>,
    push_handler: Arc<dyn PushHandler>,
}

struct QueueState {
    exchange: Exchange<Arc<PendingRequest>>,
    ended: bool,
}

struct SocketState {
    /// `None` when the connection has ended.
    stream: Option<Box<dyn AsyncStream>>,
    /// What is being written; the bytes before `written` have left.
    batch: Vec<u8>,
    written: usize,
    flushed: bool,
    received: Box<[u8]>,
}

/// The task of a transport, which ends the connection when it is dropped, as with its runtime.
struct TransportTask(Arc<Transport>);

impl Drop for TransportTask {
    fn drop(&mut self) {
        self.0.stop("the connection was lost");
    }
}

impl Transport {
    /// The transport of a connected stream, and its task.
    pub(crate) fn start(connected: ConnectedStream, number: u64, push_handler: Arc<dyn PushHandler>) -> Arc<Transport> {
        let ConnectedStream { endpoint, stream, exchange, .. } = connected;
        let socket = SocketState {
            stream: Some(stream),
            batch: Vec::new(),
            written: 0,
            flushed: true,
            received: vec![0; MAX_READ_BYTES].into(),
        };
        let exchange = exchange.for_other_callers();
        let transport = Arc::new(Transport {
            number,
            queue: Mutex::new(QueueState { exchange, ended: false }),
            socket: Mutex::new(socket),
            task: OnceLock::new(),
            ended: AtomicBool::new(false),
            end: Notify::new(),
            space: Notify::new(),
            endpoint,
            push_handler,
        });
        let (task, mut wakers) = (TransportTask(transport.clone()), Vec::new());
        task::spawn(poll_fn(move |context| task.0.poll_task(context, &mut wakers)));
        transport
    }

    /// Queues a request with `push`, and sends it at once if no other one is in flight.
    pub(crate) fn submit(
        &self,
        request: &Arc<PendingRequest>,
        push: impl FnOnce(&mut Exchange<Arc<PendingRequest>>, Arc<PendingRequest>),
    ) -> Submitted {
        let alone = {
            let mut queue = self.queue();
            if queue.ended {
                return Submitted::Ended;
            }
            let requests = &mut queue.exchange.requests;
            let alone = requests.len() == 0;
            if requests.unsent().len() > MAX_UNSENT_BYTES {
                requests.retain_unsent(|request| request.is_wanted());
                if requests.unsent().len() > MAX_UNSENT_BYTES {
                    return Submitted::Full;
                }
            }
            push(&mut queue.exchange, request.clone());
            alone
        };
        // the first request is sent on this thread; later ones are sent together while it is in flight
        if !(alone && self.advance(true)) {
            self.wake_task();
        }
        Submitted::Queued
    }

    /// Reads what has arrived, unless the task or another caller is about to. Sends nothing.
    pub(crate) fn read_available(&self) {
        self.advance(false);
    }

    /// When the request was queued whose reply comes next; `None` when the server owes none.
    pub(crate) fn unanswered_since(&self) -> Option<Time> {
        self.queue().exchange.requests.oldest_sent_at()
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Ends the connection: what has left may or may not have happened, and the rest has not.
    pub(crate) fn stop(&self, why: &str) {
        let socket = try_lock(&self.socket);
        let wakers = match socket {
            Some(mut socket) => self.end(Some(&mut socket), why),
            None => self.end(None, why),
        };
        wake_all(wakers);
        self.wake_task();
    }

    /// Reads what has arrived on this thread, and then sends what is queued if `sending`. False when somebody else has
    /// the socket.
    fn advance(&self, sending: bool) -> bool {
        let (Some(task), Some(mut socket)) = (self.task.get(), try_lock(&self.socket)) else { return false };
        let mut wakers = Vec::new();
        // whoever moves the bytes, it is the task that goes on when the socket is ready again
        self.transfer(&mut socket, &mut Context::from_waker(task), sending, &mut wakers);
        let ended = socket.stream.is_none();
        drop(socket);
        wake_all(wakers);
        if ended {
            self.wake_task();
        }
        true
    }

    fn poll_task(&self, context: &mut Context<'_>, wakers: &mut Vec<Waker>) -> Poll<()> {
        // before the queue is looked at: a caller that finds no waker yet has queued its request before that
        let _ = self.task.set(context.waker().clone());
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_ended() {
            socket.stream = None;
        }
        self.transfer(&mut socket, context, true, wakers);
        let ended = socket.stream.is_none();
        drop(socket);
        wake_all(wakers.drain(..));
        if ended { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Moves bytes as far as the socket goes along. Ends the connection if that fails.
    fn transfer(&self, socket: &mut SocketState, context: &mut Context<'_>, sending: bool, wakers: &mut Vec<Waker>) {
        // first what has arrived: it is no reply to what is still to be sent
        let mut moved = self.receive(socket, context, wakers);
        if sending && moved.is_ok() {
            moved = self.send(socket, context).or_else(|why| {
                // replies that have arrived are delivered, whatever became of the requests behind them
                self.receive(socket, context, wakers).and(Err(why))
            });
        }
        if let Err(why) = moved {
            wakers.extend(self.end(Some(socket), &why));
        }
    }

    fn send(&self, socket: &mut SocketState, context: &mut Context<'_>) -> Result<(), String> {
        let SocketState { stream: Some(stream), batch, written, flushed, .. } = socket else { return Ok(()) };
        loop {
            if *written == batch.len() {
                batch.clear();
                *written = 0;
                let mut queue = self.queue();
                let requests = &mut queue.exchange.requests;
                requests.retain_unsent(|request| request.mark_sent());
                requests.take_unsent(batch);
                drop(queue);
                if batch.is_empty() {
                    break;
                }
                self.space.notify_waiters();
            }
            match Pin::new(&mut **stream).poll_write(context, &batch[*written..]) {
                Poll::Ready(Ok(0)) => return Err(reason(&io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => {
                    *written += count;
                    self.queue().exchange.requests.written(count);
                    *flushed = false;
                }
                Poll::Ready(Err(error)) => {
                    if self.endpoint.tls.is_some() {
                        // they may be encrypted, and some of that may have left
                        self.queue().exchange.requests.written(batch.len() - *written);
                        *written = batch.len();
                    }
                    return Err(reason(&error));
                }
                Poll::Pending => return Ok(()),
            }
        }
        if !*flushed && let Poll::Ready(done) = Pin::new(&mut **stream).poll_flush(context) {
            done.map_err(|error| reason(&error))?;
            *flushed = true;
        }
        Ok(())
    }

    fn receive(
        &self,
        socket: &mut SocketState,
        context: &mut Context<'_>,
        wakers: &mut Vec<Waker>,
    ) -> Result<(), String> {
        let SocketState { stream: Some(stream), received, .. } = socket else { return Ok(()) };
        loop {
            let mut buffer = ReadBuf::new(received);
            match Pin::new(&mut **stream).poll_read(context, &mut buffer) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Err(error)) => return Err(reason(&error)),
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => {
                    return Err(reason(&io::ErrorKind::UnexpectedEof.into()));
                }
                Poll::Ready(Ok(())) => self.deliver(buffer.filled(), wakers).map_err(str::to_owned)?,
            }
        }
    }

    /// Passes what has arrived to whom it belongs.
    fn deliver(&self, bytes: &[u8], wakers: &mut Vec<Waker>) -> Result<(), &'static str> {
        let (mut queue, now) = (self.queue(), clock::now());
        let decoder = &mut queue.exchange.decoder;
        decoder.space()[..bytes.len()].copy_from_slice(bytes);
        decoder.received(bytes.len());
        loop {
            match queue.exchange.next() {
                Ok(Some(Received::Reply(request, value))) => {
                    wakers.extend(request.complete(Completion::Received(Outcome::Applied(value), now)));
                }
                Ok(Some(Received::Push(Push::Message { channel, payload }))) => {
                    // only who has the socket touches the decoder meanwhile
                    drop(queue);
                    self.push_handler.on_message(self.number, &channel, &payload);
                    queue = self.queue();
                }
                Ok(Some(Received::Push(Push::Other))) => {}
                Ok(Some(Received::Push(Push::Subscribed(_) | Push::Unsubscribed(_)))) => {
                    return Err("the server has changed a subscription");
                }
                Ok(None) => return Ok(()),
                Err(ExchangeError::Malformed) => return Err(NO_RESP),
                Err(ExchangeError::Unsolicited) => return Err("there was a reply too many"),
            }
        }
    }

    /// Ends the connection, and closes the socket if it is given. Returns the wakers of the callers.
    fn end(&self, socket: Option<&mut SocketState>, why: &str) -> Vec<Waker> {
        let failed = {
            let mut queue = self.queue();
            queue.ended = true;
            // with the queue: who is told of the end here finds it everywhere
            self.ended.store(true, Ordering::Release);
            // whoever else has the socket may be writing
            if let Some(socket) = socket {
                socket.stream = None;
                socket.batch.truncate(socket.written);
                queue.exchange.requests.give_up_unwritten();
            }
            queue.exchange.fail()
        };
        self.end.notify_waiters();
        self.space.notify_waiters();
        let (failure, now) = (broken(&*self.endpoint, why), clock::now());
        let complete = |request: FailedRequest<Arc<PendingRequest>>| {
            let outcome = if request.left { Outcome::Indeterminate } else { Outcome::NotApplied };
            request.caller.complete(Completion::Received(outcome(failure.clone()), now))
        };
        failed.filter_map(complete).collect()
    }

    /// How many bytes are kept until the socket takes them.
    #[cfg(test)]
    pub(crate) fn unsent_bytes(&self) -> usize {
        let batch = self.socket.lock().map_or(0, |socket| socket.batch.len() - socket.written);
        batch + self.queue().exchange.requests.unsent().len()
    }

    fn wake_task(&self) {
        if let Some(task) = self.task.get() {
            task.wake_by_ref();
        }
    }

    fn queue(&self) -> MutexGuard<'_, QueueState> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
