//! The locks of a server, page by page, for threads.

use super::{Client, ended, wait_for};
use crate::error::Error;
use crate::list::{self, LockEntry, LockPage, Pages, Wanted};
use crate::store::Uninterrupted;

impl Client {
    /// The locks whose names match `pattern`, about `limit` of them at a time; see [`crate::Client::list`].
    ///
    /// ```
    /// # fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::blocking::Client::connect("memory://")?;
    /// let lease = client.lock("orders:42").acquire()?;
    /// let page = client.list("orders:*", 100, None)?;
    /// assert_eq!(page.entries[0].name, b"orders:42");
    /// assert_eq!(page.next, None); // that was all
    /// # lease.release()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`crate::Client::list`]; `Unsupported` inside an async runtime.
    pub fn list(&self, pattern: impl AsRef<[u8]>, limit: u32, cursor: Option<&str>) -> Result<LockPage, Error> {
        let wanted = Wanted::new(pattern.as_ref(), limit, cursor)?;
        self.shared.capabilities().require("list", "list")?;
        let engine = self.engine("list")?;
        wait_for(&engine, &Uninterrupted, list::page(engine.clone(), wanted)).unwrap_or_else(|_| Err(ended("list")))
    }

    /// All locks whose names match `pattern`, one after the other: the pages of [`Client::list`].
    ///
    /// ```
    /// # fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::blocking::Client::connect("memory://")?;
    /// # let lease = client.lock("orders:42").acquire()?;
    /// for entry in client.listing("orders:*") {
    ///     let entry = entry?;
    ///     println!("{} {:?}", String::from_utf8_lossy(&entry.name), entry.inspection.ttl_left);
    /// }
    /// # lease.release()?; Ok(()) }
    /// ```
    pub fn listing(&self, pattern: impl AsRef<[u8]>) -> Listing {
        Listing { client: self.clone(), pages: Pages::new(pattern.as_ref()) }
    }
}

/// The locks of a server, from [`Client::listing`]: an iterator. After an error it goes on where it stopped.
#[derive(Debug)]
pub struct Listing {
    client: Client,
    pages: Pages,
}

impl Iterator for Listing {
    type Item = Result<LockEntry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.pages.ready.is_empty() {
            let cursor = self.pages.cursor()?;
            match self.client.list(&self.pages.pattern, Pages::LIMIT, cursor) {
                Ok(page) => self.pages.turn(page),
                Err(error) => return Some(Err(error)),
            }
        }
        self.pages.ready.pop_front().map(Ok)
    }
}
