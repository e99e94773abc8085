//! The address of a client: one string for every language, or that of the environment.

use crate::Error;
use crate::config::Options;
use crate::error::invalid;
use crate::store::address::StoreAddress;
use crate::store::schemes;

/// The environment variable whose address is used when an empty one is given: `ONELOCK_URL`.
pub const URL_VARIABLE: &str = "ONELOCK_URL";

/// Reads an address, or the environment's if it is empty. No I/O.
pub(crate) fn read(url: &str, options: &Options) -> Result<Box<dyn StoreAddress>, Error> {
    let url = url.trim();
    if !url.is_empty() {
        return schemes::read(url, options);
    }
    let url = std::env::var(URL_VARIABLE).unwrap_or_default();
    match url.trim() {
        "" => Err(invalid(
            "make a client",
            format!(
                "no address was given and ${URL_VARIABLE} is not set; for example {URL_VARIABLE}={}",
                schemes::EXAMPLE
            ),
        )),
        url => schemes::read(url, options),
    }
}
