//! A blocking connection, driven by the calling thread: it writes requests and reads replies.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use rustls::ClientConfig;

use super::connected_socket::{ConnectedSocket, IoFailure};
use crate::config::credentials::Credentials;
use crate::machine::{Failure, Outcome, Time};
use crate::store::redis::address::endpoint::Endpoint;
use crate::store::redis::connection::deadline::Deadline;
use crate::store::redis::connection::handshake::{Handshake, HandshakeStep};
use crate::store::redis::connection::login;
use crate::store::redis::connection::socket::{NO_REPLY, NO_RESP, broken};
use crate::store::redis::options::RedisOptions;
use crate::store::redis::resp::exchange::{Exchange, Received};

/// How long one read blocks when the socket is known to be readable.
const READY_READ_TIMEOUT: Duration = Duration::from_millis(2);

/// A connection after its handshake.
pub(crate) struct BlockingConnection {
    pub(crate) socket: ConnectedSocket,
    pub(crate) exchange: Exchange<()>,
}

impl BlockingConnection {
    /// Connects and shakes hands before the deadline. On failure nothing of the caller's was sent.
    pub(crate) fn open(
        endpoint: Arc<Endpoint>,
        epoch: u64,
        config: Option<Arc<ClientConfig>>,
        options: &RedisOptions,
        deadline: Deadline<'_>,
    ) -> Result<BlockingConnection, Failure> {
        let socket = ConnectedSocket::open(endpoint, epoch, config, deadline)?;
        let mut connection = BlockingConnection { socket, exchange: Exchange::new() };
        connection.handshake(options, deadline)?;
        Ok(connection)
    }

    fn handshake(&mut self, options: &RedisOptions, deadline: Deadline<'_>) -> Result<(), Failure> {
        let endpoint = self.socket.endpoint.clone();
        let credentials = login::credentials_blocking(options, &endpoint, deadline)?;
        let name = options.client_name.as_deref();
        match self.greet(&endpoint, name, credentials.as_ref(), deadline) {
            Err(refused) if login::may_have_changed(&refused, credentials.as_ref()) => {
                match login::credentials_blocking(options, &endpoint, deadline) {
                    Ok(now) if now != credentials => self.greet(&endpoint, name, now.as_ref(), deadline),
                    _ => Err(refused),
                }
            }
            done => done,
        }
    }

    fn greet(
        &mut self,
        endpoint: &Endpoint,
        client_name: Option<&str>,
        credentials: Option<&Credentials>,
        deadline: Deadline<'_>,
    ) -> Result<(), Failure> {
        let mut handshake = Handshake::new(endpoint, client_name).with_credentials(credentials);
        let mut step = handshake.begin();
        while let HandshakeStep::Send(bytes, expected) = step {
            self.exchange.push_packed(iter::repeat_n((), expected), Time::ZERO, &bytes);
            // a peer that closes at once may have said why; so a readable reply counts before a failed write
            let unsent = self.socket.send(&mut self.exchange.requests, deadline).err();
            self.exchange.requests.assume_sent();
            let mut replies = Vec::with_capacity(expected);
            while replies.len() < expected {
                match self.reply(deadline) {
                    Ok(reply) => replies.push(reply),
                    Err(failure) => {
                        let said = Handshake::refusal_before_close(&replies);
                        let told = || handshake.explain_hang_up(&replies, unsent.unwrap_or(failure).failure(endpoint));
                        return Err(said.unwrap_or_else(told));
                    }
                }
            }
            step = handshake.replies(&replies)?;
        }
        if !self.exchange.is_reusable() {
            return Err(broken(endpoint, NO_RESP));
        }
        Ok(())
    }

    /// Sends one command, after `before` if there is one, and waits for its reply; `now` is the time of sending.
    pub(crate) fn exchange(
        &mut self,
        before: Option<&Cmd>,
        request: &Cmd,
        now: Time,
        deadline: Deadline<'_>,
    ) -> Outcome<Value> {
        self.socket.set_io_timeout(deadline.until.since(now));
        if let Some(before) = before {
            self.exchange.push_unawaited(now, before);
        }
        self.exchange.push((), now, request);
        let replied = self.socket.send(&mut self.exchange.requests, deadline).and_then(|()| self.reply(deadline));
        replied.map_or_else(|failure| self.fail(&failure), Outcome::Applied)
    }

    fn reply(&mut self, deadline: Deadline<'_>) -> Result<Value, IoFailure> {
        loop {
            match self.socket.receive(&mut self.exchange, deadline)? {
                Received::Reply((), value) => return Ok(value),
                Received::Push(_) => deadline.check().map_err(IoFailure::Stopped)?,
            };
        }
    }

    fn fail(&mut self, failure: &IoFailure) -> Outcome<Value> {
        let failure = failure.failure(&self.socket.endpoint);
        if self.exchange.fail().any(|request| request.left) {
            Outcome::Indeterminate(failure)
        } else {
            Outcome::NotApplied(failure)
        }
    }

    /// Sends a packed request without waiting for its reply, as for a round on several servers.
    pub(crate) fn send(&mut self, bytes: &[u8], now: Time, deadline: Deadline<'_>) -> Result<(), Outcome<Value>> {
        self.socket.set_io_timeout(READY_READ_TIMEOUT);
        self.exchange.push_packed([()], now, bytes);
        self.socket.send(&mut self.exchange.requests, deadline).map_err(|failure| self.fail(&failure))
    }

    /// The reply to what was sent, once the socket is readable; `None` if it is not complete yet.
    pub(crate) fn try_recv(&mut self) -> Option<Outcome<Value>> {
        loop {
            match self.socket.try_receive(&mut self.exchange) {
                Ok(Some(Received::Reply((), value))) => return Some(Outcome::Applied(value)),
                Ok(Some(Received::Push(_))) => {}
                Ok(None) => return None,
                Err(failure) => {
                    drop(self.exchange.fail());
                    return Some(Outcome::Indeterminate(failure.failure(&self.socket.endpoint)));
                }
            }
        }
    }

    /// What arrives next within `left`; may return earlier, without anything.
    pub(crate) fn recv_within(&mut self, left: Duration) -> Result<Option<Received<()>>, IoFailure> {
        self.socket.set_io_timeout(left);
        self.socket.try_receive(&mut self.exchange)
    }

    /// No caller waits for the reply to the last request: it is dropped when the next one is read.
    pub(crate) fn abandon(&mut self) {
        self.exchange.requests.abandon_all();
    }

    /// The failure of a request whose reply did not arrive in time.
    pub(crate) fn no_reply_failure(&self) -> Failure {
        broken(&*self.socket.endpoint, NO_REPLY)
    }

    /// Whether it can carry another request.
    pub(crate) fn is_usable(&mut self, now: Time) -> bool {
        self.socket.is_usable(&mut self.exchange, now)
    }

    /// Whether the last request left it in step.
    pub(crate) fn is_reusable(&mut self) -> bool {
        self.exchange.is_reusable()
    }
}
