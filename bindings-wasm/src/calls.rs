//! The calls of clients and locks.

use onelock::{CredentialsProvider, CredentialsRequest, ErrorKind, Kind, Lock, MultiLock};

use crate::bridge::{self, begin, client, refuse};
use crate::data::{Failure, counters};
use crate::memory::{Arguments, NOTHING, leave};
use crate::options::{self, span};
use crate::records::{Message, Outcome};

/// `wait` of an acquire: for ever.
const FOR_EVER: f64 = -1.0;
/// `wait` of an acquire: one try.
const ONE_TRY: f64 = -2.0;

/// A function that JavaScript keeps under a number, for as long as connections may call it.
struct Provider(u32);

impl CredentialsProvider for Provider {
    fn ask(&self, request: CredentialsRequest) {
        bridge::push(Message::CredentialsWanted { provider: self.0, request });
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        bridge::push(Message::ProviderDropped { provider: self.0 });
    }
}

/// The number of a client; 0 when the arguments are wrong: then the error is payload 0.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_open(url: usize, options: usize) -> u32 {
    let mut arguments = Arguments::take(url + options);
    let url = arguments.text(url);
    let options = options::read(&mut arguments);
    let builder = match options::client(&options) {
        Ok(builder) => builder,
        Err(detail) => {
            refuse(Failure::new(ErrorKind::InvalidArgument, "make a client", detail));
            return 0;
        }
    };
    let builder = match options::provider(&options) {
        Some(number) => builder.credentials(Provider(number)),
        None => builder,
    };
    match builder.build(&url) {
        Ok(client) => bridge::keep_client(client),
        Err(error) => {
            refuse(error);
            0
        }
    }
}

/// JavaScript has no handle of this client any more.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_drop_client(number: u32) {
    let client = bridge::with(|state| state.clients.remove(&number));
    drop(client);
    onelock::host::turn();
}

#[unsafe(no_mangle)]
pub extern "C" fn onelock_stats(number: u32) -> i32 {
    client(number).map_or(NOTHING, |client| leave(counters(&client.stats()).into_bytes()))
}

fn unknown() -> Failure {
    Failure::new(ErrorKind::Closed, "use the client", "there is no such client")
}

#[unsafe(no_mangle)]
pub extern "C" fn onelock_check(call: u32, number: u32) -> u32 {
    let client = client(number);
    begin(call, async move { Ok(Outcome::Checked(client.ok_or_else(unknown)?.check().await?)) })
}

#[unsafe(no_mangle)]
pub extern "C" fn onelock_diagnose(call: u32, number: u32, name: usize) -> u32 {
    let (client, name) = (client(number), Arguments::take(name).bytes(name).to_vec());
    begin(call, async move { Ok(Outcome::Diagnosed(client.ok_or_else(unknown)?.diagnose(name).await?)) })
}

#[unsafe(no_mangle)]
pub extern "C" fn onelock_close_client(call: u32, number: u32) -> u32 {
    let client = client(number);
    begin(call, async move {
        client.ok_or_else(unknown)?.close().await;
        Ok(Outcome::Done)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn onelock_inspect(call: u32, number: u32, name: usize) -> u32 {
    let (client, name) = (client(number), Arguments::take(name).bytes(name).to_vec());
    begin(call, async move {
        let seen = client.ok_or_else(unknown)?.inspect(name).await?;
        Ok(seen.map_or(Outcome::Nothing, |seen| Outcome::Inspected(Box::new(seen))))
    })
}

/// A cursor of -1 bytes is none.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_list(call: u32, number: u32, pattern: usize, limit: u32, cursor: i32) -> u32 {
    let client = client(number);
    let mut arguments = Arguments::take(pattern + usize::try_from(cursor).unwrap_or(0));
    let pattern = arguments.bytes(pattern).to_vec();
    let cursor = usize::try_from(cursor).ok().map(|length| arguments.text(length));
    begin(call, async move {
        Ok(Outcome::Listed(client.ok_or_else(unknown)?.list(pattern, limit, cursor.as_deref()).await?))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn onelock_force_release(call: u32, number: u32, name: usize, foreign: u32) -> u32 {
    let (client, name) = (client(number), Arguments::take(name).bytes(name).to_vec());
    begin(call, async move {
        let client = client.ok_or_else(unknown)?;
        let found =
            if foreign != 0 { client.force_release_foreign(name).await? } else { client.force_release(name).await? };
        Ok(Outcome::Flag(found))
    })
}

/// The lock that the arguments name, with its options behind the name; the kind is a number of the core's table.
fn lock(number: u32, kind: u32, arguments: &mut Arguments, name: usize) -> Option<Lock> {
    let client = client(number)?;
    let lock = client.lock_of(Kind::numbered(kind).unwrap_or(Kind::Mutex), arguments.bytes(name));
    Some(options::lock(lock, &options::read(arguments)))
}

#[unsafe(no_mangle)]
pub extern "C" fn onelock_acquire(call: u32, number: u32, kind: u32, wait: f64, name: usize, options: usize) -> u32 {
    let lock = lock(number, kind, &mut Arguments::take(name + options), name);
    begin(call, async move {
        let lock = lock.ok_or_else(unknown)?;
        if wait == ONE_TRY {
            return Ok(lock.try_acquire().await?.map_or(Outcome::Nothing, Outcome::Granted));
        }
        let lease = if wait == FOR_EVER { lock.acquire().await? } else { lock.acquire_within(span(wait)).await? };
        Ok(Outcome::Granted(lease))
    })
}

/// Several locks; each is a client, a kind, a name and its options, name and options behind their lengths.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_acquire_many(call: u32, wait: f64, members: usize) -> u32 {
    let mut arguments = Arguments::take(members);
    let mut locks = Some(Vec::new());
    while !arguments.is_empty() {
        let (number, kind) = (arguments.word(), arguments.word());
        let name = arguments.counted().to_vec();
        let length = arguments.word() as usize;
        let options = options::read(&mut arguments.part(length));
        let of = |client: onelock::Client| {
            options::lock(client.lock_of(Kind::numbered(kind).unwrap_or(Kind::Mutex), &name), &options)
        };
        match (client(number).map(of), &mut locks) {
            (Some(lock), Some(locks)) => locks.push(lock),
            _ => locks = None,
        }
    }
    let lock = locks.map(MultiLock::new);
    begin(call, async move {
        let lock = lock.ok_or_else(unknown)?;
        if wait == ONE_TRY {
            return Ok(lock.try_acquire().await?.map_or(Outcome::Nothing, Outcome::Granted));
        }
        let lease = if wait == FOR_EVER { lock.acquire().await? } else { lock.acquire_within(span(wait)).await? };
        Ok(Outcome::Granted(lease))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn onelock_attach(call: u32, number: u32, kind: u32, proof: usize, name: usize, options: usize) -> u32 {
    let mut arguments = Arguments::take(proof + name + options);
    let proof = arguments.text(proof);
    let lock = lock(number, kind, &mut arguments, name);
    begin(call, async move { Ok(Outcome::Granted(lock.ok_or_else(unknown)?.attach(&proof).await?)) })
}

#[unsafe(no_mangle)]
pub extern "C" fn onelock_is_locked(call: u32, number: u32, kind: u32, name: usize, options: usize) -> u32 {
    let lock = lock(number, kind, &mut Arguments::take(name + options), name);
    begin(call, async move { Ok(Outcome::Flag(lock.ok_or_else(unknown)?.is_locked().await?)) })
}

#[unsafe(no_mangle)]
pub extern "C" fn onelock_permits(call: u32, number: u32, kind: u32, name: usize, options: usize) -> u32 {
    let lock = lock(number, kind, &mut Arguments::take(name + options), name);
    begin(
        call,
        async move { Ok(lock.ok_or_else(unknown)?.permits().await?.map_or(Outcome::Nothing, Outcome::Permits)) },
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn onelock_set_permits(
    call: u32,
    number: u32,
    kind: u32,
    total: u32,
    name: usize,
    options: usize,
) -> u32 {
    let lock = lock(number, kind, &mut Arguments::take(name + options), name);
    begin(call, async move { Ok(Outcome::Permits(lock.ok_or_else(unknown)?.set_permits(total).await?)) })
}
