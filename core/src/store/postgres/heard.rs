//! A stream that notes when something has arrived: a server that answers what nobody waits for any more is not silent.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::store::net::Stream;
use crate::sys::clock;

pub(super) struct HeardStream {
    pub(super) inner: Box<dyn Stream>,
    pub(super) heard_at: Arc<AtomicU64>,
}

impl AsyncRead for HeardStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut *self.inner).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.heard_at.store(clock::now().as_nanos(), Ordering::Relaxed);
        }
        read
    }
}

impl AsyncWrite for HeardStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.inner).poll_shutdown(cx)
    }
}
