//! The requests of one connection: their bytes until the socket has taken them, and whose reply comes next.

use std::collections::VecDeque;
use std::mem;

use crate::machine::Time;

/// What a request is answered with.
#[derive(Debug)]
pub(crate) enum Expected {
    Reply,
    /// One confirmation for each channel, or one error for all.
    Subscribed(Vec<Vec<u8>>),
    Unsubscribed(Vec<Vec<u8>>),
}

/// A request whose reply is still to come.
struct Request<T> {
    /// Who waits for the reply; `None` when it is to be dropped.
    caller: Option<T>,
    sent_at: Time,
    /// How many bytes were queued before its first one.
    begins_at: u64,
    expected: Expected,
}

/// A request of a connection that has failed.
#[derive(Debug, PartialEq)]
pub(crate) struct FailedRequest<T> {
    pub(crate) caller: T,
    /// Whether a byte of it may have reached the server.
    pub(crate) left: bool,
}

/// A reply that no request was sent for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Unsolicited;

/// The requests of one connection, in the order in which they are sent and answered.
pub(crate) struct RequestQueue<T> {
    requests: VecDeque<Request<T>>,
    /// Bytes that were queued; those before `taken` have left.
    bytes: Vec<u8>,
    taken: usize,
    /// How many bytes have left so far.
    left: u64,
    /// How many of these a writer has taken and not written yet.
    unwritten: u64,
}

impl<T> RequestQueue<T> {
    pub(crate) fn new() -> RequestQueue<T> {
        RequestQueue { requests: VecDeque::new(), bytes: Vec::new(), taken: 0, left: 0, unwritten: 0 }
    }

    /// The same queue for callers of another kind. Replies that somebody waits for are dropped from now on.
    pub(crate) fn for_other_callers<U>(self) -> RequestQueue<U> {
        let RequestQueue { requests, bytes, taken, left, unwritten } = self;
        let drop_reply = |Request { sent_at, begins_at, expected, .. }| {
            let caller = None;
            Request { caller, sent_at, begins_at, expected }
        };
        let requests = requests.into_iter().map(drop_reply).collect();
        RequestQueue { requests, bytes, taken, left, unwritten }
    }

    /// Queues a request, which `write` appends. Without a caller, its reply is dropped.
    pub(crate) fn push(
        &mut self,
        caller: Option<T>,
        sent_at: Time,
        expected: Expected,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let begins_at = self.left + self.unsent().len() as u64;
        write(&mut self.bytes);
        self.requests.push_back(Request { caller, sent_at, begins_at, expected });
    }

    /// The bytes to write next.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    /// The socket has taken so many of the unsent bytes.
    pub(crate) fn sent(&mut self, count: usize) {
        self.left += count as u64;
        self.taken += count;
        if self.taken == self.bytes.len() {
            self.bytes.clear();
            self.taken = 0;
        } else if self.taken >= self.bytes.len() / 2 {
            // a socket that never takes all of it keeps no more than twice what is unsent
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
    }

    /// What is unsent counts as sent: the peer may have replied before it was written.
    pub(crate) fn assume_sent(&mut self) {
        self.sent(self.unsent().len());
    }

    /// Exchanges the unsent bytes for an empty buffer. They count as sent, since the caller begins to write them, and
    /// no reply is expected before it has [`RequestQueue::written`] them.
    pub(crate) fn take_unsent(&mut self, empty: &mut Vec<u8>) {
        debug_assert!(empty.is_empty() && self.taken == 0, "written in one way only");
        self.left += self.bytes.len() as u64;
        self.unwritten += self.bytes.len() as u64;
        mem::swap(&mut self.bytes, empty);
    }

    /// So many of the bytes that were taken are written.
    pub(crate) fn written(&mut self, count: usize) {
        self.unwritten -= count as u64;
    }

    /// The bytes that were taken and are not written never will be: they have not left.
    pub(crate) fn give_up_unwritten(&mut self) {
        self.left -= mem::take(&mut self.unwritten);
    }

    /// Whether a byte of this request was written.
    fn has_begun(&self, request: &Request<T>) -> bool {
        request.begins_at < self.left - self.unwritten
    }

    /// Removes the requests of which no byte has left and that `wanted` declines.
    pub(crate) fn retain_unsent(&mut self, mut wanted: impl FnMut(&T) -> bool) {
        let mut at = self.requests.len();
        while at > 0 && self.requests[at - 1].begins_at >= self.left {
            at -= 1;
        }
        while at < self.requests.len() {
            if self.requests[at].caller.as_ref().is_none_or(&mut wanted) {
                at += 1;
            } else {
                self.remove_unsent(at);
            }
        }
    }

    fn remove_unsent(&mut self, at: usize) {
        let end = self.left + self.unsent().len() as u64;
        let ends_at = self.requests.get(at + 1).map_or(end, |next| next.begins_at);
        let Some(Request { begins_at, .. }) = self.requests.remove(at) else { return };
        let place = |position: u64| self.taken + (position - self.left) as usize;
        self.bytes.drain(place(begins_at)..place(ends_at));
        for later in self.requests.range_mut(at..) {
            later.begins_at -= ends_at - begins_at;
        }
    }

    /// A reply has arrived: who waits for it, if anybody does.
    pub(crate) fn replied(&mut self) -> Result<Option<T>, Unsolicited> {
        match self.requests.front() {
            Some(oldest) if self.has_begun(oldest) => Ok(self.requests.pop_front().and_then(|oldest| oldest.caller)),
            _ => Err(Unsolicited),
        }
    }

    /// A subscription was confirmed or ended: whether the oldest request has asked for that, and who made it if this
    /// was the last confirmation.
    pub(crate) fn confirmed(&mut self, begun: bool, channel: &[u8]) -> (bool, Option<T>) {
        let written = self.left - self.unwritten;
        let Some(oldest) = self.requests.front_mut().filter(|oldest| oldest.begins_at < written) else {
            return (false, None);
        };
        let channels = match &mut oldest.expected {
            Expected::Subscribed(channels) if begun => channels,
            Expected::Unsubscribed(channels) if !begun => channels,
            _ => return (false, None),
        };
        let Some(at) = channels.iter().position(|asked| asked == channel) else { return (false, None) };
        channels.swap_remove(at);
        if !channels.is_empty() {
            return (true, None);
        }
        (true, self.requests.pop_front().and_then(|oldest| oldest.caller))
    }

    /// Nobody waits for the replies to the requests so far; they are dropped when they arrive.
    pub(crate) fn abandon_all(&mut self) {
        for request in &mut self.requests {
            request.caller = None;
        }
    }

    /// The connection has failed: its requests with callers, in order. What has not left never will.
    pub(crate) fn fail(&mut self) -> impl Iterator<Item = FailedRequest<T>> + use<T> {
        let left = self.left;
        self.bytes.clear();
        self.taken = 0;
        mem::take(&mut self.requests).into_iter().filter_map(move |request| {
            let left = request.begins_at < left;
            request.caller.map(|caller| FailedRequest { caller, left })
        })
    }

    /// How many replies are still to come.
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Who waits for a reply, in order.
    pub(crate) fn callers(&self) -> impl Iterator<Item = &T> {
        self.requests.iter().filter_map(|request| request.caller.as_ref())
    }

    /// Whether the server owes a reply.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.oldest_sent_at().is_some()
    }

    /// When the request was sent whose reply comes next.
    pub(crate) fn oldest_sent_at(&self) -> Option<Time> {
        self.requests.front().filter(|oldest| self.has_begun(oldest)).map(|oldest| oldest.sent_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(requests: &[&str]) -> RequestQueue<String> {
        let mut queue = RequestQueue::new();
        for request in requests {
            queue.push(Some((*request).to_owned()), Time::ZERO, Expected::Reply, |bytes| {
                bytes.extend_from_slice(request.as_bytes());
            });
        }
        queue
    }

    /// Whether each request may have reached the server.
    fn left(queue: &mut RequestQueue<String>) -> Vec<(String, bool)> {
        queue.fail().map(|failed| (failed.caller, failed.left)).collect()
    }

    #[test]
    fn what_has_not_left_when_the_connection_fails_never_leaves() {
        let mut queue = queue(&["aa", "bb"]);
        queue.sent(1);
        assert_eq!(left(&mut queue), [("aa".to_owned(), true), ("bb".to_owned(), false)]);
        assert!(queue.unsent().is_empty());
    }

    #[test]
    fn a_socket_that_never_takes_all_of_it_keeps_it_small() {
        let mut queue = queue(&["0123456789"]);
        for _ in 0..1000 {
            queue.sent(5);
            queue.push(None, Time::ZERO, Expected::Reply, |bytes| bytes.extend_from_slice(b"01234"));
            assert_eq!(queue.unsent().len(), 10);
            assert!(queue.bytes.len() <= 20, "{}", queue.bytes.len());
        }
    }

    #[test]
    fn a_request_has_left_with_its_first_byte() {
        let all = ["aa", "b", "ccc"];
        for sent in 0..=6 {
            let mut queue = queue(&all);
            // in one piece, and byte by byte
            queue.sent(sent.min(1));
            queue.sent(sent - sent.min(1));
            assert_eq!(queue.unsent(), &b"aabccc"[sent..]);
            assert_eq!(queue.is_unanswered(), sent > 0);
            let expected = [("aa", sent > 0), ("b", sent > 2), ("ccc", sent > 3)];
            assert_eq!(left(&mut queue), expected.map(|(name, left)| (name.to_owned(), left)), "{sent}");
            assert_eq!(queue.len(), 0);
        }
    }

    #[test]
    fn a_request_that_was_not_sent_has_no_reply() {
        let mut queue = queue(&["aa", "b"]);
        assert_eq!(queue.replied(), Err(Unsolicited));
        queue.sent(2);
        assert_eq!(queue.replied(), Ok(Some("aa".to_owned())));
        assert_eq!(queue.replied(), Err(Unsolicited));
        queue.sent(1);
        assert_eq!(queue.replied(), Ok(Some("b".to_owned())));
        assert_eq!(queue.replied(), Err(Unsolicited));
    }

    #[test]
    fn what_nobody_wants_is_not_sent_unless_it_has_begun() {
        for sent in 0..=6 {
            for unwanted in ["aa", "b", "ccc"] {
                let mut queue = queue(&["aa", "b", "ccc"]);
                queue.sent(sent);
                queue.retain_unsent(|caller| caller != unwanted);
                let mut expected = vec![("aa", 0), ("b", 2), ("ccc", 3)];
                expected.retain(|(name, begins)| *name != unwanted || *begins < sent);
                let bytes: String = expected.iter().map(|(name, _)| *name).collect();
                assert_eq!(queue.unsent(), &bytes.as_bytes()[sent..], "{sent} {unwanted}");
                queue.sent(bytes.len() - sent);
                for (name, _) in expected {
                    assert_eq!(queue.replied(), Ok(Some(name.to_owned())), "{sent} {unwanted}");
                }
            }
        }
    }

    #[test]
    fn a_reply_that_is_dropped_is_still_waited_for() {
        let mut queue = queue(&["aa", "b"]);
        queue.sent(3);
        queue.abandon_all();
        assert_eq!((queue.len(), queue.callers().count()), (2, 0));
        queue.push(Some("c".to_owned()), Time::ZERO, Expected::Reply, |bytes| bytes.push(b'c'));
        queue.sent(1);
        let replies = [queue.replied(), queue.replied(), queue.replied()];
        assert_eq!(replies, [Ok(None), Ok(None), Ok(Some("c".to_owned()))]);
        let mut other = self::queue(&["aa"]);
        other.sent(2);
        let mut other: RequestQueue<u8> = other.for_other_callers();
        assert_eq!((other.replied(), other.replied()), (Ok(None), Err(Unsolicited)));
    }

    #[test]
    fn bytes_that_a_writer_has_taken_may_have_left() {
        let mut queue = queue(&["aa"]);
        let mut batch = Vec::new();
        queue.take_unsent(&mut batch);
        queue.push(Some("b".to_owned()), Time::ZERO, Expected::Reply, |bytes| bytes.push(b'b'));
        assert_eq!((&batch[..], queue.unsent()), (&b"aa"[..], &b"b"[..]));
        assert_eq!(left(&mut queue), [("aa".to_owned(), true), ("b".to_owned(), false)]);
    }

    #[test]
    fn bytes_that_the_writer_could_not_write_have_not_left() {
        for (unwritten, bb_left) in [(0, true), (1, true), (2, false), (3, false)] {
            let mut queue = queue(&["aa", "bb"]);
            queue.take_unsent(&mut Vec::new());
            queue.push(Some("c".to_owned()), Time::ZERO, Expected::Reply, |bytes| bytes.push(b'c'));
            queue.written(4 - unwritten);
            queue.give_up_unwritten();
            let expected = [("aa", true), ("bb", bb_left), ("c", false)];
            assert_eq!(left(&mut queue), expected.map(|(name, left)| (name.to_owned(), left)), "{unwritten}");
        }
    }

    #[test]
    fn what_is_not_written_has_no_reply() {
        let mut queue = queue(&["aa", "bb"]);
        queue.take_unsent(&mut Vec::new());
        assert_eq!((queue.replied(), queue.oldest_sent_at()), (Err(Unsolicited), None));
        queue.written(2);
        assert_eq!(queue.oldest_sent_at(), Some(Time::ZERO));
        assert_eq!(queue.replied(), Ok(Some("aa".to_owned())));
        assert_eq!(queue.replied(), Err(Unsolicited));
        queue.written(1);
        assert_eq!(queue.replied(), Ok(Some("bb".to_owned())));
    }

    #[test]
    fn only_the_confirmation_that_was_asked_for_is_one() {
        let channels = vec![b"x".to_vec(), b"y".to_vec()];
        let mut queue = RequestQueue::new();
        queue.push(Some(1), Time::ZERO, Expected::Reply, |bytes| bytes.push(b'r'));
        queue.push(Some(2), Time::ZERO, Expected::Subscribed(channels), |bytes| bytes.push(b's'));
        queue.push(Some(3), Time::ZERO, Expected::Unsubscribed(vec![b"x".to_vec()]), |bytes| bytes.push(b'u'));
        assert_eq!(queue.confirmed(true, b"x"), (false, None), "nothing was sent");
        queue.sent(3);
        assert_eq!(queue.confirmed(true, b"x"), (false, None), "a reply comes first");
        assert_eq!(queue.replied(), Ok(Some(1)));
        assert_eq!(queue.confirmed(false, b"x"), (false, None));
        assert_eq!(queue.confirmed(true, b"z"), (false, None));
        assert_eq!(queue.confirmed(true, b"y"), (true, None));
        assert_eq!(queue.confirmed(true, b"y"), (false, None), "once");
        assert_eq!(queue.confirmed(true, b"x"), (true, Some(2)));
        assert_eq!(queue.confirmed(false, b"x"), (true, Some(3)));
        assert_eq!(queue.confirmed(false, b"x"), (false, None));
    }

    #[test]
    fn the_oldest_request_says_since_when_the_server_is_silent() {
        let at = |seconds: u64| Time::from_nanos(seconds * 1_000_000_000);
        let mut queue = RequestQueue::new();
        for second in 1..=2 {
            queue.push(Some(()), at(second), Expected::Reply, |bytes| bytes.push(b'x'));
        }
        assert_eq!(queue.oldest_sent_at(), None, "it knows of nothing");
        queue.sent(2);
        assert_eq!(queue.oldest_sent_at(), Some(at(1)));
        assert_eq!(queue.replied(), Ok(Some(())));
        assert_eq!(queue.oldest_sent_at(), Some(at(2)));
    }
}
