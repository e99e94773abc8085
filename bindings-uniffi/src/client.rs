//! The client.

use std::sync::Arc;

use crate::entered::entered;
use crate::error::NativeError;
use crate::lock::NativeLock;
use crate::options::{NativeClientOptions, NativeLockOptions};
use crate::records::{Diagnosis, Inspection, LockPage, ServerFacts};
use crate::stats::Stats;
use crate::words::Kind;

/// A client, for threads and for coroutines.
#[derive(uniffi::Object)]
pub struct NativeClient {
    blocking: onelock::blocking::Client,
    asynchronous: onelock::Client,
}

fn limited(limit: i32) -> Result<u32, NativeError> {
    crate::options::count(limit, "limit", "list")
}

#[uniffi::export]
impl NativeClient {
    /// One address, or several of which a majority is asked. No I/O.
    #[uniffi::constructor]
    pub fn new(urls: Vec<String>, options: NativeClientOptions) -> Result<Arc<NativeClient>, NativeError> {
        let builder = options.builder()?;
        let blocking = match urls.as_slice() {
            [] => builder.build_blocking("")?,
            [one] => builder.build_blocking(one)?,
            several => builder.build_nodes_blocking(several)?,
        };
        let asynchronous = blocking.to_async();
        onelock::runtime::release_at_exit();
        // after it, so that it runs before it
        crate::entered::watch_exit();
        Ok(Arc::new(NativeClient { blocking, asynchronous }))
    }

    /// A lock by name. No I/O.
    pub fn lock(&self, kind: Kind, name: Vec<u8>, options: NativeLockOptions) -> Result<Arc<NativeLock>, NativeError> {
        let kind = kind.into();
        let blocking = options.apply(self.blocking.lock_of(kind, &name))?;
        let asynchronous = options.apply_async(self.asynchronous.lock_of(kind, &name))?;
        Ok(Arc::new(NativeLock::one(blocking, asynchronous)))
    }

    pub fn stats(&self) -> Stats {
        self.blocking.stats().into()
    }

    pub fn check_blocking(&self) -> Result<ServerFacts, NativeError> {
        Ok(self.blocking.check()?.into())
    }

    pub async fn check(&self) -> Result<ServerFacts, NativeError> {
        Ok(entered(self.asynchronous.check()).await??.into())
    }

    pub fn diagnose_blocking(&self, name: Vec<u8>) -> Result<Diagnosis, NativeError> {
        Ok(self.blocking.diagnose(name)?.into())
    }

    pub async fn diagnose(&self, name: Vec<u8>) -> Result<Diagnosis, NativeError> {
        Ok(entered(self.asynchronous.diagnose(name)).await??.into())
    }

    pub fn inspect_blocking(&self, name: Vec<u8>) -> Result<Option<Inspection>, NativeError> {
        Ok(self.blocking.inspect(name)?.map(Inspection::from))
    }

    pub async fn inspect(&self, name: Vec<u8>) -> Result<Option<Inspection>, NativeError> {
        Ok(entered(self.asynchronous.inspect(name)).await??.map(Inspection::from))
    }

    pub fn list_blocking(&self, pattern: Vec<u8>, limit: i32, cursor: Option<String>) -> Result<LockPage, NativeError> {
        Ok(self.blocking.list(pattern, limited(limit)?, cursor.as_deref())?.into())
    }

    pub async fn list(&self, pattern: Vec<u8>, limit: i32, cursor: Option<String>) -> Result<LockPage, NativeError> {
        Ok(entered(self.asynchronous.list(pattern, limited(limit)?, cursor.as_deref())).await??.into())
    }

    pub fn force_release_blocking(&self, name: Vec<u8>, foreign: bool) -> Result<bool, NativeError> {
        Ok(if foreign { self.blocking.force_release_foreign(name)? } else { self.blocking.force_release(name)? })
    }

    pub async fn force_release(&self, name: Vec<u8>, foreign: bool) -> Result<bool, NativeError> {
        Ok(if foreign {
            entered(self.asynchronous.force_release_foreign(name)).await??
        } else {
            entered(self.asynchronous.force_release(name)).await??
        })
    }

    pub fn close_blocking(&self) {
        self.blocking.close();
    }

    pub async fn close_suspending(&self) -> Result<(), NativeError> {
        entered(self.asynchronous.close()).await
    }
}
