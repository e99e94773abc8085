//! Connecting for async callers: resolve, connect, encrypt, shake hands. No request of a caller is sent here.

use std::io;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::dial::connect_stream;
pub(crate) use super::stream::AsyncStream;
use crate::config::credentials::Credentials;
use crate::machine::{Failure, Time};
use crate::store::redis::address::endpoint::Endpoint;
use crate::store::redis::connection::context::{NodeContext, StoreState};
use crate::store::redis::connection::handshake::{Handshake, HandshakeResult, HandshakeStep};
use crate::store::redis::connection::login;
use crate::store::redis::connection::socket::{NO_RESP, broken, no_connection_in_time, reason};
use crate::store::redis::options::RedisOptions;
use crate::store::redis::resp::exchange::{Exchange, Received};
use crate::store::redis::resp::request_queue::RequestQueue;
use crate::sys::clock;
use crate::sys::task::timeout;

/// A connected stream after its handshake, with no unread reply.
pub(crate) struct ConnectedStream {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) stream: Box<dyn AsyncStream>,
    pub(crate) exchange: Exchange<()>,
    pub(crate) result: HandshakeResult,
}

/// Connects to the node's server within the store's connect limit, locating the server included.
pub(crate) async fn connect(shared: &NodeContext) -> Result<ConnectedStream, Failure> {
    // a closed store makes no connection for any caller
    shared.store_state.check_open()?;
    let (limit, epoch) = (shared.options.connect_timeout, shared.epoch());
    let until = clock::now() + limit;
    let made = timeout(limit, async {
        let endpoint = shared.locate().await?;
        connect_to(&shared.store_state, &shared.options, endpoint, until.since(clock::now())).await
    });
    let made = made.await.unwrap_or_else(|_| Err(no_connection_in_time(&shared.name)));
    if made.as_ref().is_err_and(|failure| !login::is_provider_failure(failure)) {
        shared.mark_stale(epoch);
    }
    made
}

/// Connects to this very server. The caller watches the clock; `limit` is shared by the server's addresses.
pub(crate) async fn connect_to(
    common: &StoreState,
    options: &RedisOptions,
    endpoint: Arc<Endpoint>,
    limit: Duration,
) -> Result<ConnectedStream, Failure> {
    let until = clock::now() + limit;
    let mut stream = connect_stream(common, &endpoint, limit).await?;
    let credentials = login::credentials(options, &endpoint, until).await?;
    let (name, mut exchange) = (options.client_name.as_deref(), Exchange::new());
    let result = match handshake(&endpoint, name, credentials.as_ref(), &mut stream, &mut exchange).await {
        Err(refused) if login::may_have_changed(&refused, credentials.as_ref()) => {
            match login::credentials(options, &endpoint, until).await {
                Ok(now) if now != credentials => {
                    handshake(&endpoint, name, now.as_ref(), &mut stream, &mut exchange).await?
                }
                _ => return Err(refused),
            }
        }
        done => done?,
    };
    Ok(ConnectedStream { endpoint, stream, exchange, result })
}

async fn handshake(
    endpoint: &Endpoint,
    client_name: Option<&str>,
    credentials: Option<&Credentials>,
    stream: &mut Box<dyn AsyncStream>,
    exchange: &mut Exchange<()>,
) -> Result<HandshakeResult, Failure> {
    let mut handshake = Handshake::new(endpoint, client_name).with_credentials(credentials);
    let mut step = handshake.begin();
    loop {
        match step {
            HandshakeStep::Done(result) if exchange.is_reusable() => return Ok(result),
            HandshakeStep::Done(_) => return Err(broken(endpoint, NO_RESP)),
            HandshakeStep::Send(bytes, expected) => {
                exchange.push_packed(iter::repeat_n((), expected), Time::ZERO, &bytes);
                // a peer that closes at once may have said why; so a readable reply counts before a failed write
                let unsent = send(stream, &mut exchange.requests).await.err();
                exchange.requests.assume_sent();
                let mut replies = Vec::with_capacity(expected);
                while replies.len() < expected {
                    match receive_reply(stream, exchange).await {
                        Ok(reply) => replies.push(reply),
                        Err(why) => {
                            let why = unsent.as_ref().map_or(why, reason);
                            let told = || handshake.explain_hang_up(&replies, broken(endpoint, &why));
                            return Err(Handshake::refusal_before_close(&replies).unwrap_or_else(told));
                        }
                    }
                }
                step = handshake.replies(&replies)?;
            }
        }
    }
}

/// Sends all that is queued.
pub(crate) async fn send<T>(stream: &mut Box<dyn AsyncStream>, requests: &mut RequestQueue<T>) -> io::Result<()> {
    while !requests.unsent().is_empty() {
        match stream.write(requests.unsent()).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => requests.sent(written),
        }
    }
    stream.flush().await
}

/// What arrives next, or in words why nothing does. Cancel safe.
pub(crate) async fn receive<T>(
    stream: &mut Box<dyn AsyncStream>,
    exchange: &mut Exchange<T>,
) -> Result<Received<T>, String> {
    loop {
        match exchange.next() {
            Ok(Some(received)) => return Ok(received),
            Ok(None) => {}
            Err(_) => return Err(NO_RESP.to_owned()),
        }
        match stream.read(exchange.decoder.space()).await {
            Ok(0) => return Err(reason(&io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => exchange.decoder.received(count),
            Err(error) => return Err(reason(&error)),
        }
    }
}

/// The next reply; pushes are dropped.
pub(crate) async fn receive_reply(
    stream: &mut Box<dyn AsyncStream>,
    exchange: &mut Exchange<()>,
) -> Result<Value, String> {
    loop {
        if let Received::Reply((), value) = receive(stream, exchange).await? {
            return Ok(value);
        }
    }
}
