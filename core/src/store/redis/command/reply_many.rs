//! The replies to requests for several locks at once, and about a queue.

use super::Items;
use crate::machine::{QueuePlace, QueueSight, Reply};

/// All of them, or the first that is in the way.
pub(super) fn acquired(items: &mut Items, expected: usize) -> Option<Reply> {
    match items.int()? {
        0 => {
            let replies = (0..expected).map(|_| match super::acquired(items)? {
                (reply @ Reply::Granted { .. }, _) => Some(reply),
                _ => None,
            });
            replies.collect::<Option<Vec<_>>>().map(Reply::Many)
        }
        1 => {
            let index = usize::try_from(items.count()?.checked_sub(1)?).ok().filter(|index| *index < expected)?;
            match super::acquired(items)?.0 {
                reply @ (Reply::Denied { .. } | Reply::WrongKind { .. }) => {
                    Some(Reply::RefusedAt { index, reply: Box::new(reply) })
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// Which numbers the releases of several locks are, and whether a publish was refused.
pub(super) fn released(items: &mut Items, expected: usize) -> Option<(Reply, bool)> {
    let mut unheard = false;
    let replies = (0..expected).map(|_| match items.int()? {
        3 => Some(Reply::ReleasedToWaiters),
        found @ 0..=2 => {
            unheard |= found == 2;
            Some(Reply::Released(found != 0))
        }
        _ => None,
    });
    let replies = replies.collect::<Option<Vec<_>>>()?;
    Some((Reply::Many(replies), unheard))
}

/// How long a queue is, and its first places.
pub(super) fn places(items: &mut Items) -> Option<Reply> {
    let length = items.count()?;
    let mut places = Vec::new();
    while !items.0.as_slice().is_empty() {
        places.push(QueuePlace { number: items.count()?, info: items.text()? });
    }
    Some(Reply::Queue(QueueSight { length, places }))
}
