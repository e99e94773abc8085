//! The client as a JavaScript object.

use napi::Either;
use napi::bindgen_prelude::Uint8ArraySlice;
use napi_derive::napi;
use onelock::{Client, Kind, Lock};

use crate::data::Counters;
use crate::options::LockOptions;

/// A name as it comes from JavaScript.
pub type Name<'a> = Either<String, Uint8ArraySlice<'a>>;

pub(crate) fn bytes<'a>(name: &'a Name<'_>) -> &'a [u8] {
    match name {
        Either::A(text) => text.as_bytes(),
        Either::B(bytes) => bytes,
    }
}

/// A client.
#[napi]
pub struct NativeClient {
    pub(crate) client: Client,
}

#[napi]
impl NativeClient {
    #[napi]
    pub fn stats(&self) -> Counters {
        self.client.stats().into()
    }
}

impl NativeClient {
    /// The lock of this name; the kind is a number of the core's table.
    pub(crate) fn lock(&self, kind: u32, name: &Name<'_>, options: Option<LockOptions>) -> Lock {
        self.lock_named(kind, bytes(name), options)
    }

    pub(crate) fn lock_named(&self, kind: u32, name: &[u8], options: Option<LockOptions>) -> Lock {
        // the table of `codes.ts` has these numbers only
        let kind = Kind::numbered(kind).unwrap_or(Kind::Mutex);
        let lock = self.client.lock_of(kind, name);
        match options {
            Some(options) => options.apply(lock),
            None => lock,
        }
    }
}
