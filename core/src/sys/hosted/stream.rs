//! A byte stream of the host as one of the library.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{End, Target, host};
use crate::sys::lock;

/// One connection, as far as the host has told.
#[derive(Default)]
struct StreamState {
    opened: bool,
    /// What has arrived; the bytes before `taken` were taken.
    received: Vec<u8>,
    taken: usize,
    /// It has ended, or was not made.
    end: Option<(End, String)>,
    /// Whoever waits for the next change.
    waker: Option<Waker>,
}

static CONNECTIONS: Mutex<BTreeMap<u32, StreamState>> = Mutex::new(BTreeMap::new());
static NUMBERS: AtomicU32 = AtomicU32::new(1);

/// Changes what is known of a connection, and wakes who waits for it.
fn told(connection: u32, change: impl FnOnce(&mut StreamState)) {
    let waker = {
        let mut connections = lock(&CONNECTIONS);
        let Some(present) = connections.get_mut(&connection) else { return };
        change(present);
        present.waker.take()
    };
    if let Some(waker) = waker {
        waker.wake();
    }
}

pub(super) fn opened(connection: u32) {
    told(connection, |present| present.opened = true);
}

pub(super) fn received(connection: u32, bytes: &[u8]) {
    told(connection, |present| present.received.extend_from_slice(bytes));
}

pub(super) fn closed(connection: u32, end: End, why: &str) {
    told(connection, |present| {
        present.end.get_or_insert_with(|| (end, why.to_owned()));
    });
}

fn error((end, why): &(End, String)) -> io::Error {
    let kind = match end {
        End::Closed => io::ErrorKind::UnexpectedEof,
        End::Reset => io::ErrorKind::ConnectionReset,
        End::Refused => io::ErrorKind::ConnectionRefused,
        End::TimedOut => io::ErrorKind::TimedOut,
        End::NotFound => io::ErrorKind::NotFound,
        End::Unsupported => io::ErrorKind::Unsupported,
        End::Limit => io::ErrorKind::OutOfMemory,
        End::Certificate => io::ErrorKind::InvalidData,
        End::Other => io::ErrorKind::Other,
    };
    io::Error::new(kind, why.clone())
}

/// A connection of the host, which ends with this.
pub(crate) struct HostStream(u32);

impl HostStream {
    /// Makes a connection. Dropping the future gives it up.
    pub(crate) async fn dial(target: &Target<'_>) -> io::Result<HostStream> {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        lock(&CONNECTIONS).insert(number, StreamState::default());
        let stream = HostStream(number);
        host().dial(number, target);
        poll_fn(|context| stream.poll_opened(context)).await?;
        Ok(stream)
    }

    fn poll_opened(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|present| match &present.end {
            Some(end) => Poll::Ready(Err(error(end))),
            None if present.opened => Poll::Ready(Ok(())),
            None => present.wait(context),
        })
    }

    fn with<R>(&self, look: impl FnOnce(&mut StreamState) -> R) -> R {
        // it is there until this is dropped
        look(lock(&CONNECTIONS).entry(self.0).or_default())
    }
}

impl StreamState {
    fn wait<T>(&mut self, context: &Context<'_>) -> Poll<T> {
        self.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl AsyncRead for HostStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.with(|present| {
            let arrived = &present.received[present.taken..];
            if arrived.is_empty() {
                return match &present.end {
                    // without a byte it is the end of the stream
                    Some((End::Closed, _)) => Poll::Ready(Ok(())),
                    Some(end) => Poll::Ready(Err(error(end))),
                    None => present.wait(context),
                };
            }
            let count = arrived.len().min(buffer.remaining());
            buffer.put_slice(&arrived[..count]);
            present.taken += count;
            if present.taken == present.received.len() {
                present.received.clear();
                present.taken = 0;
            }
            Poll::Ready(Ok(()))
        })
    }
}

impl AsyncWrite for HostStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Some(end) = self.with(|present| present.end.as_ref().map(error)) {
            return Poll::Ready(Err(end));
        }
        host().write(self.0, bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for HostStream {
    fn drop(&mut self) {
        let gone = lock(&CONNECTIONS).remove(&self.0);
        if gone.is_some_and(|connection| connection.end.is_none()) {
            host().close(self.0);
        }
    }
}
