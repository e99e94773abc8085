//! The messages of etcd's API that locks need, by the numbers of their fields in etcd's `rpc.proto`.

use super::protobuf::{Fields, Message, NoMessage};

/// The path of a call in HTTP/2.
pub(super) mod path {
    pub(crate) const RANGE: &str = "/etcdserverpb.KV/Range";
    pub(crate) const TXN: &str = "/etcdserverpb.KV/Txn";
    pub(crate) const DELETE_RANGE: &str = "/etcdserverpb.KV/DeleteRange";
    pub(crate) const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
    pub(crate) const LEASE_REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
    pub(crate) const LEASE_KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
    pub(crate) const LEASE_TIME_TO_LIVE: &str = "/etcdserverpb.Lease/LeaseTimeToLive";
    pub(crate) const WATCH: &str = "/etcdserverpb.Watch/Watch";
    pub(crate) const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";
    pub(crate) const STATUS: &str = "/etcdserverpb.Maintenance/Status";
}

const ASCENDING: i64 = 1;
const DESCENDING: i64 = 2;
const BY_CREATION: i64 = 2;
const CREATE_REVISION: i64 = 1;
const LEASE: i64 = 4;

/// The end of the range of all keys that begin like this.
fn range_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // all keys
    vec![0]
}

/// One key: to be read, from a majority, as every range here; or to be deleted.
pub(super) fn one(key: &[u8]) -> Message {
    Message::default().bytes(1, key)
}

/// The first keys with this prefix, the oldest first.
pub(super) fn oldest(prefix: &[u8], limit: i64) -> Message {
    one(prefix).bytes(2, &range_end(prefix)).number(3, limit).number(5, ASCENDING).number(6, BY_CREATION)
}

/// The last keys with this prefix that were created before this revision, the newest first and without values.
pub(super) fn newest_before(prefix: &[u8], revision: Option<i64>, limit: i64) -> Message {
    let range = one(prefix).bytes(2, &range_end(prefix)).number(3, limit).number(5, DESCENDING).number(6, BY_CREATION);
    let range = range.flag(8, true);
    match revision {
        Some(revision) => range.number(13, revision.saturating_sub(1)),
        None => range,
    }
}

/// Keys with this prefix from `from` on, in their own order and without values.
pub(super) fn listed(prefix: &[u8], from: &[u8], limit: i64) -> Message {
    one(from).bytes(2, &range_end(prefix)).number(3, limit).flag(8, true)
}

pub(super) fn put(key: &[u8], value: &[u8], lease: i64) -> Message {
    one(key).bytes(2, value).number(3, lease)
}

/// The key gets another value, and keeps the lease that it has then.
pub(super) fn put_value(key: &[u8], value: &[u8]) -> Message {
    one(key).bytes(2, value).flag(6, true)
}

/// The key gets another lease, and keeps its value.
pub(super) fn put_lease(key: &[u8], lease: i64) -> Message {
    one(key).number(3, lease).flag(5, true)
}

/// Compares the revision at which a key was created; 0 for a key that is not there.
pub(super) fn created_at(key: &[u8], revision: i64) -> Message {
    Message::default().number(2, CREATE_REVISION).bytes(3, key).number(5, revision)
}

/// Compares the lease of a key.
pub(super) fn on_lease(key: &[u8], lease: i64) -> Message {
    Message::default().number(2, LEASE).bytes(3, key).number(8, lease)
}

/// No key with this prefix is there.
pub(super) fn none_is_there(prefix: &[u8]) -> Message {
    created_at(prefix, 0).bytes(64, &range_end(prefix))
}

pub(super) fn range_op(range: &Message) -> Message {
    Message::default().message(1, range)
}

pub(super) fn put_op(put: &Message) -> Message {
    Message::default().message(2, put)
}

pub(super) fn delete_op(key: &[u8]) -> Message {
    Message::default().message(3, &one(key))
}

/// Deletes a key, and tells what it was.
pub(super) fn delete(key: &[u8]) -> Message {
    one(key).flag(3, true)
}

/// If all comparisons hold, the first operations, else the others.
pub(super) fn txn(compare: &[Message], success: &[Message], failure: &[Message]) -> Message {
    let mut txn = Message::default();
    for (tag, parts) in [(1, compare), (2, success), (3, failure)] {
        txn = parts.iter().fold(txn, |txn, part| txn.message(tag, part));
    }
    txn
}

/// A lease of so many seconds under this number.
pub(super) fn lease_grant(id: i64, seconds: u64) -> Message {
    Message::default().number(1, seconds.cast_signed()).number(2, id)
}

/// To [`path::LEASE_REVOKE`], [`path::LEASE_KEEP_ALIVE`] and [`path::LEASE_TIME_TO_LIVE`].
pub(super) fn lease(id: i64) -> Message {
    Message::default().number(1, id)
}

/// Nothing but deletions.
const NO_PUT: &[u8] = &[0];

/// Watches one key for its deletion, from this revision on.
pub(super) fn watch(key: &[u8], from: i64) -> Message {
    Message::default().message(1, &one(key).number(3, from).bytes(5, NO_PUT))
}

/// Watches all keys with this prefix for deletions, from now on.
pub(super) fn watch_all(prefix: &[u8]) -> Message {
    Message::default().message(1, &one(prefix).bytes(2, &range_end(prefix)).bytes(5, NO_PUT))
}

pub(super) fn authenticate(user: &str, password: &str) -> Message {
    Message::default().bytes(1, user.as_bytes()).bytes(2, password.as_bytes())
}

/// What every answer begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) revision: i64,
    pub(super) term: u64,
}

/// A message that is received.
pub(super) trait ReceivedMessage: Default {
    /// Reads the message: `field` sees each of its fields.
    fn read(bytes: &[u8]) -> Result<Self, NoMessage>;
}

macro_rules! received {
    ($(#[$attribute:meta])* $name:ident { $($(#[$of_field:meta])* $field:ident: $type:ty = $tag:literal => |$value:ident, $this:ident| $read:expr;)* }) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub(super) struct $name {
            $($(#[$of_field])* pub(super) $field: $type,)*
        }

        impl ReceivedMessage for $name {
            fn read(bytes: &[u8]) -> Result<Self, NoMessage> {
                let mut message = $name::default();
                for field in Fields::of(bytes) {
                    let (tag, value) = field?;
                    match tag {
                        $($tag => { let ($value, $this) = (value, &mut message.$field); $read; })*
                        _ => {}
                    }
                }
                Ok(message)
            }
        }
    };
}

impl ReceivedMessage for Header {
    fn read(bytes: &[u8]) -> Result<Header, NoMessage> {
        let mut header = Header::default();
        for field in Fields::of(bytes) {
            match field? {
                (3, value) => header.revision = value.signed(),
                (4, value) => header.term = value.unsigned(),
                _ => {}
            }
        }
        Ok(header)
    }
}

received! {
    /// A key and what stands there.
    KeyValue {
        key: Vec<u8> = 1 => |value, this| *this = value.bytes().to_vec();
        /// The revision of the put that made it.
        created: i64 = 2 => |value, this| *this = value.signed();
        value: Vec<u8> = 5 => |value, this| *this = value.bytes().to_vec();
        lease: i64 = 6 => |value, this| *this = value.signed();
    }
}

received! {
    /// To [`path::RANGE`], and inside of [`TxnReply`].
    Ranged {
        header: Header = 1 => |value, this| *this = Header::read(value.bytes())?;
        keys: Vec<KeyValue> = 2 => |value, this| this.push(KeyValue::read(value.bytes())?);
        /// There are more than the limit.
        more: bool = 3 => |value, this| *this = value.unsigned() != 0;
        /// How many are in the range, whatever the limit.
        count: i64 = 4 => |value, this| *this = value.signed();
    }
}

received! {
    /// The answer to one operation of a transaction.
    OpReply {
        range: Ranged = 1 => |value, this| *this = Ranged::read(value.bytes())?;
    }
}

received! {
    /// To [`path::TXN`].
    TxnReply {
        header: Header = 1 => |value, this| *this = Header::read(value.bytes())?;
        succeeded: bool = 2 => |value, this| *this = value.unsigned() != 0;
        replies: Vec<OpReply> = 3 => |value, this| this.push(OpReply::read(value.bytes())?);
    }
}

impl TxnReply {
    /// The keys that the operation at this place found.
    pub(super) fn keys(&self, at: usize) -> &[KeyValue] {
        self.replies.get(at).map_or(&[], |reply| &reply.range.keys)
    }
}

received! {
    /// To [`path::DELETE_RANGE`].
    Deleted {
        count: i64 = 2 => |value, this| *this = value.signed();
        /// What was deleted.
        previous: Vec<KeyValue> = 3 => |value, this| this.push(KeyValue::read(value.bytes())?);
    }
}

received! {
    /// To the calls about a lease.
    Lease {
        header: Header = 1 => |value, this| *this = Header::read(value.bytes())?;
        /// In seconds: how long it is, or of [`path::LEASE_TIME_TO_LIVE`] what is left of it.
        ttl: i64 = 3 => |value, this| *this = value.signed();
    }
}

received! {
    /// An event of a watch.
    Event {
        /// 1 for a deletion.
        what: u64 = 1 => |value, this| *this = value.unsigned();
    }
}

received! {
    /// A message of a watch.
    Watched {
        created: bool = 3 => |value, this| *this = value.unsigned() != 0;
        canceled: bool = 4 => |value, this| *this = value.unsigned() != 0;
        /// The oldest revision that can be watched from, if that was the reason.
        compacted: i64 = 5 => |value, this| *this = value.signed();
        reason: String = 6 => |value, this| *this = String::from_utf8_lossy(value.bytes()).into_owned();
        events: Vec<Event> = 11 => |value, this| this.push(Event::read(value.bytes())?);
    }
}

received! {
    /// To [`path::AUTHENTICATE`].
    Authenticated {
        token: String = 2 => |value, this| *this = String::from_utf8_lossy(value.bytes()).into_owned();
    }
}

received! {
    /// To [`path::STATUS`].
    Status {
        version: String = 2 => |value, this| *this = String::from_utf8_lossy(value.bytes()).into_owned();
        errors: Vec<String> = 8 => |value, this| this.push(String::from_utf8_lossy(value.bytes()).into_owned());
    }
}

received! {
    /// An answer that tells nothing but that it was done.
    Done {
        header: Header = 1 => |value, this| *this = Header::read(value.bytes())?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_ends_behind_every_key_with_the_prefix() {
        assert_eq!(range_end(b"a/"), b"a0");
        assert_eq!(range_end(&[b'a', 0xff]), b"b");
        assert_eq!(range_end(&[0xff, 0xff]), [0]);
    }

    #[test]
    fn an_answer_is_read_from_the_bytes_of_a_server() {
        // Txn of etcd 3.4: header { revision 7, raft_term 2 }, succeeded, one range with one key
        let kv = Message::default().bytes(1, b"k").number(2, 7).number(3, 7).number(4, 1).bytes(5, b"v").number(6, 99);
        let range = Message::default().message(2, &kv).number(4, 1);
        let header = Message::default().number(1, 5).number(3, 7).number(4, 2);
        let reply = Message::default().message(1, &header).number(2, 1).message(3, &range_op(&range)).into_bytes();
        let read = TxnReply::read(&reply).unwrap_or_default();
        assert_eq!((read.header.revision, read.header.term, read.succeeded), (7, 2, true));
        let key = &read.keys(0)[0];
        assert_eq!((&*key.key, key.created, &*key.value, key.lease), (&b"k"[..], 7, &b"v"[..], 99));
        assert!(read.keys(1).is_empty());
        assert!(TxnReply::read(&reply[..reply.len() - 1]).is_err());
    }
}
