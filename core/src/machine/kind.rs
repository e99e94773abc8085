//! The kinds of lock: one row for each, which everything that depends on the kind reads.
//!
//! A new kind is a row here, its scripts in a folder of `store/redis/command/scripts`, and the same in `machine/model`.

/// The shapes a lock has on a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// A string key whose value is the token. Shares keys with any `SET NX PX` client.
    Mutex,
    /// A hash with one owner field and its hold count, as Redisson's `RLock` keeps it.
    Reentrant,
    /// A hash with the token as a field, beside a queue on the server: first come, first served.
    Fair,
    /// The reading side of a hash with the owners of Redisson's `RReadWriteLock`: many hold it at a time.
    Read,
    /// The writing side of the same hash: one holds it, and no reader.
    Write,
    /// The number of free permits, and a sorted set of those that are held, as Redisson's `RPermitExpirableSemaphore` keeps
    /// them.
    Semaphore,
}

/// What stands under the key of a held lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldLayout {
    /// A string: the token.
    Text,
    /// A hash: the token is a field, and the fencing token and the inspection text are two others.
    Hash,
    /// A hash whose mode says whether its owners read or write; of each reader beside it its end and its timeout key.
    Shared,
    /// A sorted set beside a number: the permits' ids, each with its end.
    Permits,
}

impl HoldLayout {
    /// The letter for it in the scripts that serve several kinds.
    pub const fn letter(self) -> &'static str {
        match self {
            HoldLayout::Text => "m",
            HoldLayout::Hash => "r",
            HoldLayout::Shared => "s",
            HoldLayout::Permits => "p",
        }
    }
}

/// The form of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenForm {
    /// `onelock1:<32 hex>`, and with an inspectable client its inspection text behind another colon.
    Value,
    /// `<client uuid>:<number>`: an owner, as Redisson spells it.
    Owner,
    /// `<28 hex>:<permits>`: what the ids of the permits begin with, and how many they are.
    Permits,
}

/// What sets a kind apart from the others.
#[derive(Debug)]
pub struct KindRow {
    /// The kind.
    pub kind: Kind,
    /// Its name in every language, in messages and in scenarios.
    pub name: &'static str,
    /// Its number in C. Never used again for another kind.
    pub number: u32,
    /// What its holds are on the server.
    pub layout: HoldLayout,
    /// How its tokens are written.
    pub token: TokenForm,
    /// The word of the channel with its wake-ups.
    pub channel_word: &'static str,
    /// Whether an owner may acquire it again.
    pub reentrant: bool,
    /// Whether a waiting acquire has a place in a queue on the server, and its wake-ups are for its client alone.
    pub queues: bool,
}

/// One row for each kind, in the order of the numbers.
const ROWS: [KindRow; 6] = [
    KindRow {
        kind: Kind::Mutex,
        name: "lock",
        number: 1,
        layout: HoldLayout::Text,
        token: TokenForm::Value,
        channel_word: super::words::MUTEX_CHANNEL_WORD,
        reentrant: false,
        queues: false,
    },
    KindRow {
        kind: Kind::Reentrant,
        name: "reentrant_lock",
        number: 2,
        layout: HoldLayout::Hash,
        token: TokenForm::Owner,
        channel_word: super::words::REENTRANT_CHANNEL_WORD,
        reentrant: true,
        queues: false,
    },
    KindRow {
        kind: Kind::Fair,
        name: "fair_lock",
        number: 3,
        layout: HoldLayout::Hash,
        token: TokenForm::Value,
        channel_word: super::words::GRANT_CHANNEL_WORD,
        reentrant: false,
        queues: true,
    },
    KindRow {
        kind: Kind::Read,
        name: "read_lock",
        number: 4,
        layout: HoldLayout::Shared,
        token: TokenForm::Owner,
        channel_word: super::words::RW_CHANNEL_WORD,
        reentrant: true,
        queues: false,
    },
    KindRow {
        kind: Kind::Write,
        name: "write_lock",
        number: 5,
        layout: HoldLayout::Shared,
        token: TokenForm::Owner,
        channel_word: super::words::GRANT_CHANNEL_WORD,
        reentrant: true,
        queues: true,
    },
    KindRow {
        kind: Kind::Semaphore,
        name: "semaphore",
        number: 6,
        layout: HoldLayout::Permits,
        token: TokenForm::Permits,
        channel_word: super::words::GRANT_CHANNEL_WORD,
        reentrant: false,
        queues: true,
    },
];

/// What an acquire of an owner is that holds something under the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reacquire {
    /// A re-entry.
    Again,
    /// It would wait for itself.
    Deadlock,
    /// Another kind of lock stands there.
    Other,
}

impl Kind {
    /// Every kind, in the order of the numbers.
    pub const ALL: [Kind; ROWS.len()] = {
        let mut all = [Kind::Mutex; ROWS.len()];
        let mut at = 0;
        while at < ROWS.len() {
            all[at] = ROWS[at].kind;
            at += 1;
        }
        all
    };

    /// Whether the lock that stands under a name of this kind has a queue on the server: of a read/write lock that of its
    /// writers, whoever holds it.
    pub fn has_a_queue(self) -> bool {
        self.row().queues || self == Kind::Read
    }

    /// The kind whose channel those listen on who wait for the lock under a name of this kind without a place in a queue.
    pub fn who_listens(self) -> Kind {
        if self == Kind::Write { Kind::Read } else { self }
    }

    /// What sets it apart. The rows stand in the order of the variants.
    pub const fn row(self) -> &'static KindRow {
        &ROWS[self as usize]
    }

    /// The name used in messages, URLs and scenarios, such as `lock` or `reentrant_lock`.
    pub const fn as_str(self) -> &'static str {
        self.row().name
    }

    /// The number of the kind in C.
    pub const fn number(self) -> u32 {
        self.row().number
    }

    /// What it means when the owner of a hold of kind `held` asks for this kind under the same name.
    pub const fn entry_of(self, held: Kind) -> Reacquire {
        match (self, held) {
            (Kind::Write, Kind::Read) => Reacquire::Deadlock,
            // reading is part of writing: the hold stays a writer's
            (Kind::Read, Kind::Write) => Reacquire::Again,
            _ if self as usize == held as usize => Reacquire::Again,
            _ => Reacquire::Other,
        }
    }

    /// Whether it is a side of a read/write lock.
    pub const fn is_shared(self) -> bool {
        matches!(self, Kind::Read | Kind::Write)
    }

    /// The kind of this name, if there is one.
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// The kind of this number, if there is one.
    pub fn numbered(number: u32) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.number() == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_the_order_of_the_variants_and_share_nothing() {
        for (at, row) in ROWS.iter().enumerate() {
            assert_eq!(row.kind as usize, at);
            assert_eq!(row.kind.row().name, row.name);
            assert_eq!((Kind::named(row.name), Kind::numbered(row.number)), (Some(row.kind), Some(row.kind)));
            assert!(super::super::words::RESERVED_WORDS.contains(&row.channel_word), "{}", row.channel_word);
        }
        assert_eq!(Kind::Write.entry_of(Kind::Read), Reacquire::Deadlock);
        assert_eq!(Kind::Read.entry_of(Kind::Write), Reacquire::Again);
        assert_eq!(Kind::Write.entry_of(Kind::Write), Reacquire::Again);
        assert_eq!(Kind::Read.entry_of(Kind::Reentrant), Reacquire::Other);
        assert_eq!((Kind::named(""), Kind::numbered(0)), (None, None));
    }
}
