//! A connection that one task uses directly, without multiplexing.

use redis::{Cmd, Value};

use super::connect::{ConnectedStream, read_reply, write_all};
use crate::machine::Failure;
use crate::store::redis::connection::socket::{broken, reason};
use crate::store::redis::resp::decoder::{ReceivedBytes, ReplyDecoder};

/// A connection that one task uses directly, without multiplexing.
pub(crate) struct RawConnection {
    pub(crate) connected: ConnectedStream,
    decoder: ReplyDecoder,
    received: ReceivedBytes,
}

impl RawConnection {
    pub(crate) fn new(connected: ConnectedStream) -> RawConnection {
        RawConnection { connected, decoder: ReplyDecoder::with_pushes(), received: ReceivedBytes::default() }
    }

    /// Sends commands, all at once.
    pub(crate) async fn send_commands(&mut self, commands: &[impl AsRef<[&str]>]) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        for command in commands {
            Cmd::new().arg(command.as_ref()).write_packed_command(&mut bytes);
        }
        self.send(&bytes).await
    }

    /// Sends packed commands.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let ConnectedStream { endpoint, stream, .. } = &mut self.connected;
        write_all(stream, bytes).await.map_err(|error| broken(&**endpoint, &reason(&error)))
    }

    /// The next reply or push. Cancel safe.
    pub(crate) async fn recv(&mut self) -> Result<Value, Failure> {
        let ConnectedStream { endpoint, stream, .. } = &mut self.connected;
        read_reply(stream, &mut self.decoder, &mut self.received).await.map_err(|why| broken(&**endpoint, &why))
    }
}
