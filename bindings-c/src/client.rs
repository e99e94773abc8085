//! The client.

use std::ffi::c_char;
use std::sync::Arc;

use onelock::blocking::Client;

use crate::boundary::{expose, free, live, output, put_if_wanted, status};
use crate::client_options::{ClientOptions, onelock_client_options};
use crate::diagnosis::{DiagnosisObject, onelock_diagnosis};
use crate::error::{Failure, onelock_error};
use crate::facts::{FactsObject, onelock_facts};
use crate::inspection::{InspectionObject, onelock_inspection};
use crate::object::exposed;
use crate::page::{PageObject, onelock_page};
use crate::stats::{StatsObject, onelock_stats};
use crate::status::{ONELOCK_OK, onelock_status};
use crate::text::{bytes, optional_text};

/// A client of a lock store, for any number of threads.
pub struct onelock_client {
    _private: [u8; 0],
}

/// Shared by the handle and everything made from it: a freed client stays until its locks and leases are freed.
pub(crate) struct ClientShare {
    pub(crate) client: Client,
}

pub(crate) struct ClientObject(pub(crate) Arc<ClientShare>);

exposed!(ClientObject, Client, onelock_client, "client");

fn make(
    url: *const c_char,
    options: *const onelock_client_options,
    client: *mut *mut onelock_client,
    error: *mut *mut onelock_error,
    tried: &str,
    connect: bool,
) -> onelock_status {
    status(error, tried, || {
        let client = output(client, "client", tried)?;
        let url = optional_text(url, "url", tried)?.unwrap_or_default();
        let builder =
            if options.is_null() { Client::builder() } else { live::<ClientOptions>(options, tried)?.builder() };
        onelock::runtime::release_at_exit();
        let made = if connect { builder.connect_blocking(url)? } else { builder.build_blocking(url)? };
        client.put(expose(ClientObject(Arc::new(ClientShare { client: made })), tried)?)
    })
}

/// A client that connects when it is first used. Opens no socket and starts no thread. Free it with
/// `onelock_client_free`.
///
/// `url` is UTF-8; `NULL` or empty means the environment variable `ONELOCK_URL`. `options` may be `NULL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_new(
    url: *const c_char,
    options: *const onelock_client_options,
    client: *mut *mut onelock_client,
    error: *mut *mut onelock_error,
) -> onelock_status {
    make(url, options, client, error, "make a client", false)
}

/// A client that is connected and checked. Free it with `onelock_client_free`. Otherwise as `onelock_client_new`.
///
/// Fails with the error of the server, and with `ONELOCK_ERR_UNSUPPORTED` when its fencing grade is below the minimum.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_connect(
    url: *const c_char,
    options: *const onelock_client_options,
    client: *mut *mut onelock_client,
    error: *mut *mut onelock_error,
) -> onelock_status {
    make(url, options, client, error, "connect", true)
}

/// Queries the server: fencing grade, version, and settings that can break locks.
///
/// `facts` may be `NULL` to check only that it answers; otherwise free the result with `onelock_facts_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_check(
    client: *const onelock_client,
    facts: *mut *mut onelock_facts,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "check";
    status(error, TRIED, || {
        let found = live::<ClientObject>(client, TRIED)?.0.client.check()?;
        if facts.is_null() {
            return Ok(ONELOCK_OK);
        }
        output(facts, "facts", TRIED)?.put(expose(FactsObject::new(&found), TRIED)?)
    })
}

/// Looks at the servers of this client step by step, and tells which step fails and what to do. Free the result with
/// `onelock_diagnosis_free`.
///
/// The steps: name, TCP, TLS, user, database, role; version, persistence, eviction, replicas; the clock against ours, the
/// round trip, a proxy in between; each permission, one by one; the members of a majority, Sentinels, the slots of a
/// cluster; the grade of fencing tokens, and why.
///
/// `name`: what the names of locks begin with that this user may lock (`app:`), since permissions are tried on such a name;
/// may be empty. Nothing is changed on the server. It takes some seconds at most where everything answers. What fails is a
/// finding, not an error; an error is only what concerns the client, such as `ONELOCK_ERR_CLOSED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_diagnose(
    client: *const onelock_client,
    name: *const c_char,
    name_length: usize,
    diagnosis: *mut *mut onelock_diagnosis,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "diagnose";
    status(error, TRIED, || {
        let client = live::<ClientObject>(client, TRIED)?;
        let diagnosis = output(diagnosis, "diagnosis", TRIED)?;
        let found = client.0.client.diagnose(bytes(name, name_length, "name", TRIED)?)?;
        diagnosis.put(expose(DiagnosisObject::new(&found), TRIED)?)
    })
}

/// The state of the lock of this name, of any kind, and who waits for it. One round trip, and one more where it is held, of a
/// semaphore two.
///
/// Writes `NULL` when it is free; otherwise free the result with `onelock_inspection_free`. `ONELOCK_ERR_WRONG_KIND`
/// when the key is not a lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_inspect(
    client: *const onelock_client,
    name: *const c_char,
    name_length: usize,
    inspection: *mut *mut onelock_inspection,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "inspect";
    status(error, TRIED, || {
        let client = live::<ClientObject>(client, TRIED)?;
        let inspection = output(inspection, "inspection", TRIED)?;
        let found = client.0.client.inspect(bytes(name, name_length, "name", TRIED)?)?;
        let Some(found) = found else { return inspection.put(std::ptr::null_mut()) };
        inspection.put(expose(InspectionObject::new(found), TRIED)?)
    })
}

/// The locks whose names match a pattern, about `limit` of them, whoever holds them. Free the page with
/// `onelock_page_free`.
///
/// The pattern is the server's own: `*`, `?`, `[abc]`, `[^a-z]`, and `\` before a character that stands for itself. `cursor`
/// is `NULL` for the first page and `onelock_page_next` of the one before for each further one, as long as that is not
/// `NULL`. `limit` is 1 to 10,000; a page may have some more or fewer, and none though more follow.
///
/// What counts as a lock: one of this library, one of Redisson, and a string of at most 128 bytes with a time to live;
/// `onelock_inspection_origin` says which. A lock that stands from the first page to the last is listed, perhaps twice; one
/// that comes or goes meanwhile may be missed. The server looks at 100 keys at most in one step.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_list(
    client: *const onelock_client,
    pattern: *const c_char,
    pattern_length: usize,
    limit: u32,
    cursor: *const c_char,
    page: *mut *mut onelock_page,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "list";
    status(error, TRIED, || {
        let client = live::<ClientObject>(client, TRIED)?;
        let page = output(page, "page", TRIED)?;
        let cursor = optional_text(cursor, "cursor", TRIED)?;
        let found = client.0.client.list(bytes(pattern, pattern_length, "pattern", TRIED)?, limit, cursor)?;
        page.put(expose(PageObject::new(found), TRIED)?)
    })
}

/// Releases the lock of this name without its holder, and wakes a waiter.
///
/// `was_held` may be `NULL`. The former holder detects it at its next renewal; until then its lease counts as held. The
/// next fencing token is higher, so a resource that checks tokens stays safe.
///
/// It deletes a lock of this library, one of Redisson, or a string with a time to live. Any other key is left
/// untouched: `ONELOCK_ERR_WRONG_KIND`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_force_release(
    client: *const onelock_client,
    name: *const c_char,
    name_length: usize,
    was_held: *mut bool,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "force_release";
    status(error, TRIED, || {
        let client = live::<ClientObject>(client, TRIED)?;
        let found = client.0.client.force_release(bytes(name, name_length, "name", TRIED)?)?;
        put_if_wanted(was_held, found);
        Ok(ONELOCK_OK)
    })
}

/// As `onelock_client_force_release`, but it also deletes a string without a time to live.
///
/// Such is the lock of a client that uses `SET NX` alone. Any other string is deleted as well, so be sure that the key
/// is a lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_force_release_foreign(
    client: *const onelock_client,
    name: *const c_char,
    name_length: usize,
    was_held: *mut bool,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "force_release";
    status(error, TRIED, || {
        let client = live::<ClientObject>(client, TRIED)?;
        let found = client.0.client.force_release_foreign(bytes(name, name_length, "name", TRIED)?)?;
        put_if_wanted(was_held, found);
        Ok(ONELOCK_OK)
    })
}

/// Counters and histograms of this client. No I/O. Free the result with `onelock_stats_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_stats(
    client: *const onelock_client,
    stats: *mut *mut onelock_stats,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "stats";
    status(error, TRIED, || {
        let client = live::<ClientObject>(client, TRIED)?;
        let stats = output(stats, "stats", TRIED)?;
        stats.put(expose(StatsObject(Box::new(client.0.client.stats())), TRIED)?)
    })
}

/// Releases what is held, waits for clean-up (at most `close_timeout`, 1 s), and ends background work. Idempotent.
///
/// Waiting acquires end with `ONELOCK_ERR_CLOSED`, and so does every later call but release and free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_close(
    client: *const onelock_client,
    error: *mut *mut onelock_error,
) -> onelock_status {
    status(error, "close", || {
        live::<ClientObject>(client, "close")?.0.client.close();
        Ok::<_, Failure>(ONELOCK_OK)
    })
}

/// Frees the handle. It does not close the client: its locks and leases remain, and connections end with the last of
/// them. Does nothing for NULL and dead handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_free(client: *mut onelock_client) {
    free::<ClientObject>(client, |_| ());
}
