//! One connection shared by many tasks: requests go out in the order they were handed in, replies come back in that order.
//!
//! A task of its own does the I/O, so a caller that goes away leaves nothing half done. Requests that wait together leave
//! in one write.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, Sleep};

use super::endpoint::Endpoint;
use super::resp::{Packer, Value, decode};
use super::socket::{NO_REPLY, NO_RESP, broken, reason};
use crate::machine::{Failure, Outcome};

/// Anything that bytes go through.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Hears messages that arrive out of turn.
pub(crate) trait Ear: Send + Sync + 'static {
    /// Something was published on `channel`. Called on the connection's task: must not block.
    fn heard(&self, channel: &[u8]);
}

/// How the bytes of one connection are to be read.
pub(crate) struct Manner {
    /// Pushes come as RESP3 pushes; otherwise, if `pubsub`, as plain arrays.
    pub(crate) resp3: bool,
    /// A RESP2 connection that does nothing but listen.
    pub(crate) pubsub: bool,
    /// A request unanswered for this long means that the connection is dead.
    pub(crate) request_timeout: Duration,
}

/// The handle of a connection. The connection ends when the last handle is dropped.
pub(crate) struct Pipe {
    requests: mpsc::UnboundedSender<Request>,
    stop: Arc<Notify>,
    endpoint: Arc<Endpoint>,
    /// Counts the store's connections, from 1.
    pub(crate) number: u64,
    /// Whether subscriptions can share this connection.
    pub(crate) resp3: bool,
}

type Answering = oneshot::Sender<Outcome<Value>>;

struct Request {
    bytes: Vec<u8>,
    awaited: Awaited,
}

/// What ends the wait of a request.
enum Awaited {
    /// The next reply.
    Reply(Answering),
    /// The confirmation of a (un)subscription, which is a push: `[word, channel, …]`. A refusal is a reply.
    Confirmation { word: &'static [u8], channel: Vec<u8>, answer: Option<Answering> },
}

impl Awaited {
    fn end(self, outcome: Outcome<Value>) {
        let answer = match self {
            Awaited::Reply(answer) => Some(answer),
            Awaited::Confirmation { answer, .. } => answer,
        };
        // nobody waits any longer: their loss
        let _ = answer.map(|answer| answer.send(outcome));
    }
}

impl Pipe {
    /// Starts the connection's task. `received` is what arrived behind the handshake.
    pub(crate) fn start(
        stream: Box<dyn Stream>,
        received: Vec<u8>,
        manner: Manner,
        number: u64,
        endpoint: Arc<Endpoint>,
        ear: Arc<dyn Ear>,
    ) -> Pipe {
        let (requests, queue) = mpsc::unbounded_channel();
        let stop = Arc::new(Notify::new());
        let pipe = Pipe { requests, stop: stop.clone(), endpoint: endpoint.clone(), number, resp3: manner.resp3 };
        let (reader, writer) = tokio::io::split(stream);
        let traffic = Traffic {
            reader,
            inbox: received,
            writer,
            outbox: Vec::new(),
            written: 0,
            unflushed: false,
            in_flight: VecDeque::new(),
            manner,
            endpoint,
            ear,
        };
        tokio::spawn(traffic.run(queue, stop));
        pipe
    }

    /// Hands in a request. It is sent even if the receiver is dropped.
    pub(crate) fn send(&self, bytes: Vec<u8>) -> oneshot::Receiver<Outcome<Value>> {
        let (answer, receiver) = oneshot::channel();
        self.hand_in(Request { bytes, awaited: Awaited::Reply(answer) });
        receiver
    }

    /// Hands in a `SUBSCRIBE`. The answer is `Nil` or the server's refusal.
    pub(crate) fn subscribe(&self, channel: &[u8]) -> oneshot::Receiver<Outcome<Value>> {
        let (answer, receiver) = oneshot::channel();
        self.switch("SUBSCRIBE", b"subscribe", channel, Some(answer));
        receiver
    }

    /// Hands in an `UNSUBSCRIBE`, for whose answer nobody waits.
    pub(crate) fn unsubscribe(&self, channel: &[u8]) {
        self.switch("UNSUBSCRIBE", b"unsubscribe", channel, None);
    }

    fn switch(&self, command: &str, word: &'static [u8], channel: &[u8], answer: Option<Answering>) {
        let mut packer = Packer::with_capacity(channel.len() + 48);
        packer.begin(2).word(command).word(channel);
        let awaited = Awaited::Confirmation { word, channel: channel.to_vec(), answer };
        self.hand_in(Request { bytes: packer.finish(), awaited });
    }

    fn hand_in(&self, request: Request) {
        if let Err(refused) = self.requests.send(request) {
            refused.0.awaited.end(Outcome::NotApplied(broken(&self.endpoint, "the connection is gone")));
        }
    }

    /// Ends the connection.
    pub(crate) fn stop(&self) {
        self.stop.notify_one();
    }

    /// Whether it takes no more requests.
    pub(crate) fn is_gone(&self) -> bool {
        self.requests.is_closed()
    }

    /// Waits until it takes no more requests.
    pub(crate) async fn gone(&self) {
        self.requests.closed().await;
    }
}

/// The state of a connection's task.
struct Traffic {
    reader: ReadHalf<Box<dyn Stream>>,
    inbox: Vec<u8>,
    writer: WriteHalf<Box<dyn Stream>>,
    outbox: Vec<u8>,
    /// How much of the outbox has been written.
    written: usize,
    unflushed: bool,
    /// Requests that were put into the outbox, and when.
    in_flight: VecDeque<(Instant, Awaited)>,
    manner: Manner,
    endpoint: Arc<Endpoint>,
    ear: Arc<dyn Ear>,
}

/// Requests wait outside while more than this is to be written.
const OUTBOX_ENOUGH: usize = 64 << 10;

/// Writes some of the bytes, or flushes if there are none (TLS holds back what the socket wouldn't take). Nothing is lost
/// if this is dropped half-way.
async fn push(writer: &mut WriteHalf<Box<dyn Stream>>, bytes: &[u8]) -> io::Result<usize> {
    if bytes.is_empty() {
        return writer.flush().await.map(|()| 0);
    }
    match writer.write(bytes).await? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        written => Ok(written),
    }
}

impl Traffic {
    async fn run(mut self, mut queue: mpsc::UnboundedReceiver<Request>, stop: Arc<Notify>) {
        let failure = self.carry(&mut queue, &stop).await;
        // from here on new requests are refused; those in the queue have not been sent
        queue.close();
        while let Ok(request) = queue.try_recv() {
            request.awaited.end(Outcome::NotApplied(failure.clone()));
        }
        for (_, awaited) in self.in_flight.drain(..) {
            awaited.end(Outcome::Indeterminate(failure.clone()));
        }
        let _ = tokio::time::timeout(Duration::from_millis(100), self.writer.shutdown()).await;
    }

    async fn carry(&mut self, queue: &mut mpsc::UnboundedReceiver<Request>, stop: &Notify) -> Failure {
        let endpoint = self.endpoint.clone();
        let fail = |error: &io::Error| broken(&endpoint, &reason(error));
        let overdue = tokio::time::sleep(self.manner.request_timeout);
        tokio::pin!(overdue);
        if let Err(failure) = self.take_in() {
            return failure;
        }
        loop {
            if self.inbox.capacity() - self.inbox.len() < 1024 {
                self.inbox.reserve(4096);
            }
            let to_write = self.written < self.outbox.len();
            tokio::select! {
                biased;
                () = stop.notified() => return broken(&endpoint, "the connection was closed on this side"),
                read = self.reader.read_buf(&mut self.inbox) => match read {
                    Ok(0) => return fail(&io::ErrorKind::UnexpectedEof.into()),
                    Ok(_) => if let Err(failure) = self.take_in() { return failure },
                    Err(error) => return fail(&error),
                },
                pushed = push(&mut self.writer, &self.outbox[self.written..]), if to_write || self.unflushed => match pushed {
                    Ok(written) => self.wrote(written),
                    Err(error) => return fail(&error),
                },
                request = queue.recv(), if self.outbox.len() - self.written < OUTBOX_ENOUGH => match request {
                    Some(request) => self.put_out(request, queue),
                    None => return broken(&endpoint, "the connection was closed on this side"),
                },
                () = &mut overdue, if !self.in_flight.is_empty() => if self.is_overdue(overdue.as_mut()) {
                    return broken(&endpoint, NO_REPLY);
                },
            }
        }
    }

    /// Whether the oldest request has waited too long; otherwise sets the timer to when it will have.
    fn is_overdue(&self, timer: std::pin::Pin<&mut Sleep>) -> bool {
        let Some((since, _)) = self.in_flight.front() else { return false };
        let at = *since + self.manner.request_timeout;
        if at <= Instant::now() {
            return true;
        }
        timer.reset(at);
        false
    }

    fn put_out(&mut self, request: Request, queue: &mut mpsc::UnboundedReceiver<Request>) {
        let now = Instant::now();
        let mut next = Some(request);
        while let Some(Request { bytes, awaited }) = next {
            if self.outbox.is_empty() {
                self.outbox = bytes;
            } else {
                self.outbox.extend_from_slice(&bytes);
            }
            self.in_flight.push_back((now, awaited));
            next = if self.outbox.len() < OUTBOX_ENOUGH { queue.try_recv().ok() } else { None };
        }
    }

    fn wrote(&mut self, count: usize) {
        self.written += count;
        self.unflushed = count > 0;
        if self.written == self.outbox.len() {
            self.outbox.clear();
            self.written = 0;
        }
    }

    /// Understands what has arrived so far.
    fn take_in(&mut self) -> Result<(), Failure> {
        let mut start = 0;
        loop {
            match decode(&self.inbox[start..]) {
                Ok(Some((value, length))) => {
                    start += length;
                    self.deliver(value)?;
                }
                Ok(None) => break,
                Err(_) => return Err(broken(&self.endpoint, NO_RESP)),
            }
        }
        self.inbox.drain(..start);
        Ok(())
    }

    fn deliver(&mut self, value: Value) -> Result<(), Failure> {
        match value {
            Value::Push(items) => self.pushed(&items),
            Value::Array(items) if self.manner.pubsub => self.pushed(&items),
            value => match self.in_flight.pop_front() {
                Some((_, Awaited::Confirmation { answer, .. })) if matches!(value, Value::Error(_)) => {
                    let _ = answer.map(|answer| answer.send(Outcome::Applied(value)));
                    Ok(())
                }
                Some((_, Awaited::Reply(answer))) => {
                    let _ = answer.send(Outcome::Applied(value));
                    Ok(())
                }
                // replies and requests no longer match: nothing on this connection can be believed
                _ => Err(broken(&self.endpoint, "the server sent a reply that nobody asked for")),
            },
        }
    }

    /// A push never ends the wait of a request, except that of the (un)subscription it confirms.
    fn pushed(&mut self, items: &[Value]) -> Result<(), Failure> {
        let (Some(word), Some(channel)) = (items.first().and_then(Value::text), items.get(1).and_then(Value::text))
        else {
            return Ok(());
        };
        match (word, self.in_flight.front()) {
            (b"message", _) => self.ear.heard(channel),
            (
                b"subscribe" | b"unsubscribe",
                Some((_, Awaited::Confirmation { word: expected, channel: asked, .. })),
            ) if *expected == word && asked == channel => {
                if let Some((_, awaited)) = self.in_flight.pop_front() {
                    awaited.end(Outcome::Applied(Value::Nil));
                }
            }
            // taken away by the server; a new connection subscribes anew
            (b"unsubscribe", _) => return Err(broken(&self.endpoint, "the server ended a subscription")),
            _ => {}
        }
        Ok(())
    }
}
