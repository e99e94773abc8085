//! The first steps of a connection, which the host takes as one: it tells neither addresses nor versions.

use std::net::SocketAddr;

use crate::store::diagnosis::FindingList;
use crate::store::redis::address::endpoint::Endpoint;
use crate::store::redis::connection::context::StoreState;
use crate::store::redis::connection::multiplexed::connect::AsyncStream;
use crate::store::redis::connection::multiplexed::dial::connect_stream;
use crate::store::redis::connection::socket::no_connection_in_time;
use crate::store::redis::options::RedisOptions;
use crate::sys::clock;
use crate::sys::task::timeout;

/// A stream, and both its ends.
type OpenStream = (Box<dyn AsyncStream>, Option<(SocketAddr, SocketAddr)>);

/// Opens a stream; `None` where a step has failed.
pub(super) async fn open(endpoint: &Endpoint, options: &RedisOptions, found: &mut FindingList) -> Option<OpenStream> {
    let (begun, limit) = (clock::now(), options.connect_timeout);
    let state = StoreState::default();
    let made = timeout(limit, connect_stream(&state, endpoint, limit)).await;
    match made.unwrap_or_else(|_| Err(no_connection_in_time(endpoint))) {
        Ok(stream) => {
            let took = clock::now().since(begun).as_secs_f64() * 1e3;
            let how = if endpoint.tls.is_some() { ", encrypted by the host" } else { "" };
            found.passed("tcp", format!("connected in {took:.1} ms{how}"));
            found.measured(&[("connect_ms", took)]);
            Some((stream, None))
        }
        Err(failure) => {
            found.failure("tcp", &failure);
            None
        }
    }
}
