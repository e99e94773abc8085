//! The options of a client. `client_setters.rs` sets them one by one.

use std::sync::Arc;

use arc_swap::ArcSwap;
use onelock::ClientBuilder;

use crate::boundary::{expose, free, live, status, value};
use crate::error::{Failure, onelock_error};
use crate::object::exposed;
use crate::status::{ONELOCK_OK, onelock_status};

/// The options of a client. Those that are not set have their defaults.
pub struct onelock_client_options {
    _private: [u8; 0],
}

/// Setters replace the whole value, so that two threads, or a fork in between, do no harm.
pub(crate) struct ClientOptions(ArcSwap<ClientBuilder>);

exposed!(ClientOptions, ClientOptions, onelock_client_options, "client_options");

impl ClientOptions {
    pub(crate) fn builder(&self) -> ClientBuilder {
        (**self.0.load()).clone()
    }
}

pub(crate) fn set(
    options: *mut onelock_client_options,
    error: *mut *mut onelock_error,
    tried: &str,
    change: impl FnOnce() -> Result<Box<dyn Fn(ClientBuilder) -> ClientBuilder>, Failure>,
) -> onelock_status {
    status(error, tried, || {
        let options = live::<ClientOptions>(options, tried)?;
        let change = change()?;
        options.0.rcu(|builder| Arc::new(change((**builder).clone())));
        Ok(ONELOCK_OK)
    })
}

/// Options that all have their defaults. `NULL` when there is no room for another handle. Free them with
/// `onelock_client_options_free`; clients that were made with them keep a copy.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_client_options_new() -> *mut onelock_client_options {
    value(std::ptr::null_mut(), || {
        expose(ClientOptions(ArcSwap::from_pointee(ClientBuilder::default())), "make options").ok()
    })
}

/// Frees the options. Does nothing for NULL and dead handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_free(options: *mut onelock_client_options) {
    free::<ClientOptions>(options, |_| ());
}
