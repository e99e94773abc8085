//! The calls of a lock, which is described anew for each of them.

use napi::bindgen_prelude::{ClassInstance, Uint8Array};
use napi::{Either, Env};
use napi_derive::napi;
use onelock::MultiLock;

use super::Bridge;
use crate::client::{Name, NativeClient};
use crate::options::{LockOptions, span};
use crate::pump::Outcome;

/// `wait` of an acquire: for ever.
const FOR_EVER: f64 = -1.0;
/// `wait` of an acquire: one try.
const ONE_TRY: f64 = -2.0;

#[napi]
impl Bridge {
    #[allow(clippy::too_many_arguments)] // an object for them would take longer to read than the call itself
    #[napi]
    pub fn acquire(
        &self,
        env: Env,
        call: u32,
        client: &NativeClient,
        kind: u32,
        name: Name<'_>,
        wait: f64,
        options: Option<LockOptions>,
    ) -> napi::Result<()> {
        let lock = client.lock(kind, &name, options);
        self.begin(env, call, async move {
            if wait == ONE_TRY {
                return Ok(lock.try_acquire().await?.map_or(Outcome::Nothing, Outcome::Granted));
            }
            let lease = if wait == FOR_EVER { lock.acquire().await? } else { lock.acquire_within(span(wait)).await? };
            Ok(Outcome::Granted(lease))
        })
    }

    /// The members are given as one list for each of their parts, in the same order.
    #[allow(clippy::too_many_arguments)] // as `acquire`
    #[napi]
    pub fn acquire_many(
        &self,
        env: Env,
        call: u32,
        clients: Vec<ClassInstance<'_, NativeClient>>,
        kinds: Vec<u32>,
        names: Vec<Either<String, Uint8Array>>,
        wait: f64,
        options: Vec<LockOptions>,
    ) -> napi::Result<()> {
        let members = clients.iter().zip(kinds).zip(names).zip(options);
        let locks = members.map(|(((client, kind), name), options)| {
            let name = match &name {
                Either::A(text) => text.as_bytes(),
                Either::B(bytes) => bytes,
            };
            client.lock_named(kind, name, Some(options))
        });
        let lock = MultiLock::new(locks);
        self.begin(env, call, async move {
            if wait == ONE_TRY {
                return Ok(lock.try_acquire().await?.map_or(Outcome::Nothing, Outcome::Granted));
            }
            let lease = if wait == FOR_EVER { lock.acquire().await? } else { lock.acquire_within(span(wait)).await? };
            Ok(Outcome::Granted(lease))
        })
    }

    #[allow(clippy::too_many_arguments)] // as `acquire`
    #[napi]
    pub fn attach(
        &self,
        env: Env,
        call: u32,
        client: &NativeClient,
        kind: u32,
        name: Name<'_>,
        proof: String,
        options: Option<LockOptions>,
    ) -> napi::Result<()> {
        let lock = client.lock(kind, &name, options);
        self.begin(env, call, async move { Ok(Outcome::Granted(lock.attach(&proof).await?)) })
    }

    #[napi]
    pub fn is_locked(
        &self,
        env: Env,
        call: u32,
        client: &NativeClient,
        kind: u32,
        name: Name<'_>,
        options: Option<LockOptions>,
    ) -> napi::Result<()> {
        let lock = client.lock(kind, &name, options);
        self.begin(env, call, async move { Ok(Outcome::Flag(lock.is_locked().await?)) })
    }

    #[napi]
    pub fn permits(
        &self,
        env: Env,
        call: u32,
        client: &NativeClient,
        kind: u32,
        name: Name<'_>,
        options: Option<LockOptions>,
    ) -> napi::Result<()> {
        let lock = client.lock(kind, &name, options);
        self.begin(env, call, async move { Ok(lock.permits().await?.map_or(Outcome::Nothing, Outcome::Permits)) })
    }

    #[allow(clippy::too_many_arguments)] // an object for them would take longer to read than the call itself
    #[napi]
    pub fn set_permits(
        &self,
        env: Env,
        call: u32,
        client: &NativeClient,
        kind: u32,
        name: Name<'_>,
        total: u32,
        options: Option<LockOptions>,
    ) -> napi::Result<()> {
        let lock = client.lock(kind, &name, options);
        self.begin(env, call, async move { Ok(Outcome::Permits(lock.set_permits(total).await?)) })
    }
}
