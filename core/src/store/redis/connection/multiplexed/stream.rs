//! The stream of a connection, whatever carries it.

use tokio::io::{AsyncRead, AsyncWrite};

/// Any async byte stream.
pub(crate) trait AsyncStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> AsyncStream for S {}
