//! One operation on a connection: the calls that it makes, and whether one of them may have written something.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use tokio::time::timeout;

use super::connection::ClusterConnection;
use super::failure;
use super::grpc::{CallError, Metadata, code};
use super::messages::{self, Done, Lease, ReceivedMessage, path};
use super::protobuf::Message;
use super::{ClusterClient, Held, names};
use crate::machine::{Claim, KeptAlive, Reply, Time};
use crate::sys::{clock, lock};

/// How often both halves of a proof are asked for: a new leader is elected less often.
pub(super) const ROUNDS: usize = 3;

/// So many leases are kept alive by one stream.
const ON_A_STREAM: usize = 16;

/// A reply, and the moment from when the server vouches for it.
pub(super) type VouchedReply = (Time, Reply);

/// One operation under way.
pub(super) struct CallRequest<'a> {
    pub(super) shared: &'a Arc<ClusterClient>,
    pub(super) connection: &'a Arc<ClusterConnection>,
    /// Then the caller gives up.
    until: Time,
    wrote: AtomicBool,
}

impl<'a> CallRequest<'a> {
    pub(super) fn new(
        shared: &'a Arc<ClusterClient>,
        connection: &'a Arc<ClusterConnection>,
        until: Time,
    ) -> CallRequest<'a> {
        CallRequest { shared, connection, until, wrote: AtomicBool::new(false) }
    }

    /// Whether something of it may stand under the lock's name, or be deleted there, or a lease may be left that waits for its
    /// key.
    pub(super) fn may_have_written(&self) -> bool {
        self.wrote.load(Ordering::Relaxed)
    }

    /// What cannot harm anybody who has no key yet.
    pub(super) async fn ask<R: ReceivedMessage>(&self, path: &str, message: Message) -> Result<R, CallError> {
        self.shared.commands_sent.fetch_add(1, Ordering::Relaxed);
        let limit = self.until.since(clock::now());
        let metadata = Metadata { token: self.connection.token.as_deref(), limit: Some(limit) };
        self.connection.channel().ask(path, message, metadata).await
    }

    /// What makes, moves or deletes a key.
    pub(super) async fn write<R: ReceivedMessage>(&self, path: &str, message: Message) -> Result<R, CallError> {
        let before = self.wrote.swap(true, Ordering::Relaxed);
        let answer = self.ask(path, message).await;
        if let Err(error) = &answer
            && (failure::refusal(error, "").undone || failure::is_lease_gone(error))
        {
            self.wrote.store(before, Ordering::Relaxed);
        }
        answer
    }

    /// Asks for the lease of a key that is to be made. From then on there is something to undo.
    pub(super) async fn grant(&self, message: Message) -> Result<Lease, CallError> {
        let before = self.wrote.swap(true, Ordering::Relaxed);
        let answer = self.ask(path::LEASE_GRANT, message).await;
        if let Err(error) = &answer
            && (failure::refusal(error, "").undone || error.code == code::RESOURCE_EXHAUSTED)
        {
            self.wrote.store(before, Ordering::Relaxed);
        }
        answer
    }

    /// The server does not make the key, and nobody asks again with this token: its lease is of no use.
    pub(super) fn refused_for_good(&self, error: &CallError, lease: i64) {
        let refusal = failure::refusal(error, "");
        if refusal.undone && !refusal.failure.transient && refusal.login == failure::LoginState::Valid {
            self.wrote.store(false, Ordering::Relaxed);
            self.revoke_later(lease);
        }
    }

    /// Keeps leases alive. The server answers each stream in order, one lease after the other, so there are several.
    pub(super) async fn keep_alive(&self, leases: &[i64]) -> Vec<Result<KeptAlive, CallError>> {
        let streams = leases.chunks(ON_A_STREAM).map(|leases| self.keep_on_a_stream(leases));
        join_all(streams).await.concat()
    }

    /// What the server does not answer in time, or after a failure, does not keep what it has answered from being used.
    async fn keep_on_a_stream(&self, leases: &[i64]) -> Vec<Result<KeptAlive, CallError>> {
        let mut kept = Vec::with_capacity(leases.len());
        // the other half is for the read that proves them
        let limit = self.until.since(clock::now()) / 2;
        let error = match timeout(limit, self.keep_each(leases, &mut kept)).await {
            Ok(Ok(())) => return kept,
            Ok(Err(error)) => error,
            Err(_) => {
                let words = "a keepalive was not answered in time".to_owned();
                CallError { code: code::DEADLINE_EXCEEDED, words, unsent: false, broken: false }
            }
        };
        kept.resize(leases.len(), Err(error));
        kept
    }

    async fn keep_each(&self, leases: &[i64], kept: &mut Vec<Result<KeptAlive, CallError>>) -> Result<(), CallError> {
        self.shared.commands_sent.fetch_add(1, Ordering::Relaxed);
        let metadata = Metadata { token: self.connection.token.as_deref(), limit: None };
        let sent_at = clock::now();
        let mut sending = self.connection.channel().open(path::LEASE_KEEP_ALIVE, metadata).await?;
        for (at, lease) in leases.iter().enumerate() {
            sending.send(messages::lease(*lease), at + 1 == leases.len())?;
        }
        let mut answers = sending.answers().await?;
        for _ in leases {
            let Lease { header, ttl } = answers.read().await?;
            let length_ms = u64::try_from(ttl).unwrap_or(0).saturating_mul(1000);
            kept.push(Ok(KeptAlive { sent_at, term: header.term, length_ms }));
        }
        Ok(())
    }

    /// Ends a lease that nothing hangs on any more, without waiting. A request for its key that is still under way finds
    /// no lease then.
    pub(super) fn revoke_later(&self, lease: i64) {
        self.shared.commands_sent.fetch_add(1, Ordering::Relaxed);
        let (connection, limit) = (self.connection.clone(), self.shared.connector.limits.request);
        tokio::spawn(async move {
            let metadata = Metadata { token: connection.token.as_deref(), limit: Some(limit) };
            let asked = connection.channel().ask::<Done>(path::LEASE_REVOKE, messages::lease(lease), metadata);
            // one that fails ends by itself
            let _ = timeout(limit, asked).await;
        });
    }

    pub(super) fn directory(&self, key: &[u8]) -> Vec<u8> {
        names::directory(&self.shared.connector.cluster, key)
    }

    pub(super) fn held(&self, claim: &Claim) -> Option<Held> {
        lock(&self.shared.holds).get(claim).copied()
    }

    /// The fencing token of the key that was made at this revision.
    pub(super) fn fence(&self, created: i64) -> u64 {
        created.cast_unsigned().saturating_add(self.shared.connector.cluster.fence_base)
    }

    /// Two answers about a lease came under different leaders, again and again.
    pub(super) fn leader_moves() -> CallError {
        let words = "the leader changes, so no answer about the lease can be relied on".to_owned();
        CallError { code: code::ABORTED, words, unsent: false, broken: false }
    }
}
