//! Keepalives at a server that leaves one of them without an answer, as etcd does while a lease that has run out waits for its
//! end.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use bytes::Bytes;
use h2::server::{self, SendResponse};
use http::{HeaderMap, Request, Response};
use tokio::net::{TcpListener, TcpStream};

use super::cluster::{Cluster, MemberHost};
use super::protobuf::{Fields, Message};
use super::request::CallRequest;
use super::{EtcdStore, grpc};
use crate::config::Options;
use crate::sys::clock;

const SILENT: i64 = 2;

/// Answers every keepalive of a stream but the silent one, and nothing behind that.
async fn answer(request: Request<h2::RecvStream>, mut respond: SendResponse<Bytes>) {
    let head = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
    let mut answers = respond.send_response(head, false).unwrap();
    let mut body = request.into_body();
    let mut rest = Vec::new();
    while let Some(Ok(data)) = body.data().await {
        let _ = body.flow_control().release_capacity(data.len());
        rest.extend_from_slice(&data);
        while rest.len() >= 5 && rest.len() >= 5 + usize::from(rest[4]) {
            let message: Vec<u8> = rest.drain(..5 + usize::from(rest[4])).skip(5).collect();
            let lease = Fields::of(&message).next().unwrap().unwrap().1.signed();
            if lease == SILENT {
                return std::future::pending().await;
            }
            let header = Message::default().number(4, 7);
            let message = Message::default().message(1, &header).number(2, lease).number(3, 30).into_bytes();
            let mut frame = vec![0, 0, 0, 0, message.len() as u8];
            frame.extend(message);
            answers.send_data(frame.into(), false).unwrap();
        }
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", 0.into());
    answers.send_trailers(trailers).unwrap();
}

async fn serve(stream: TcpStream) {
    let mut connection = server::handshake(stream).await.unwrap();
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(answer(request, respond));
    }
}

#[tokio::test]
async fn a_keepalive_without_an_answer_costs_those_behind_it_in_its_stream_and_no_others() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    let cluster = Cluster {
        hosts: vec![MemberHost { name: "127.0.0.1".to_owned(), port }],
        user: String::new(),
        password: None,
        tls: None,
        namespace: Vec::new(),
        escapes: true,
        fence_base: 0,
    };
    let store = EtcdStore::new(cluster, &Options::default());
    let within = |seconds| clock::now() + Duration::from_secs(seconds);
    let connection = store.shared.connected(within(20)).await.unwrap();
    let request = CallRequest::new(&store.shared, &connection, within(2));
    // sixteen on a stream
    let leases: Vec<i64> = (1..=40).collect();
    let kept = request.keep_alive(&leases).await;
    for (lease, kept) in leases.iter().zip(&kept) {
        match kept {
            Ok(kept) => assert!(*lease < SILENT || *lease > 16, "{lease}: {kept:?}"),
            Err(error) => {
                assert!((SILENT..=16).contains(lease), "{lease}: {error:?}");
                assert_eq!(error.code, grpc::code::DEADLINE_EXCEEDED);
            }
        }
    }
    assert_eq!(kept.len(), leases.len());
    assert!(request.keep_alive(&leases[16..]).await.iter().all(Result::is_ok));
}
