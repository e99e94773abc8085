//! The place of a waiting acquire in the queue that a lock has on the server: how long it lasts, and when it is kept.
//!
//! A place ends on the server unless its client asks again within the window. A message that the place became a hold is
//! believed where the last answer allows it ([`Place::told`]); else it is a reason to ask, as the time to keep the place is,
//! and the answer to either may be the grant. What ended comes back under its old number.

use std::time::Duration;

use crate::machine::terms::DRIFT_FLOOR;
use crate::machine::{Answer, ClientTag, GrantNotice, Jitter, QueueEntry, Terms, Time};

/// From this place on the queue is long: places last longer, and are kept less often.
pub const FAR_FROM: u64 = 64;
/// The longest time that a place lasts without being kept.
pub const PLACE_MAX: Duration = Duration::from_secs(3);
const WINDOW: Duration = Duration::from_millis(600);
const KEEP_EVERY: Duration = Duration::from_millis(200);
const KEEP_EVERY_FAR: Duration = Duration::from_secs(1);
/// By how much a fencing token may be above the last answer's where it is also above the server's clock in microseconds, from
/// which a new counter begins: far more than are granted meanwhile, and no number that shuts out the holders after it.
const AHEAD_MAX: u64 = 1_000_000;
/// A place that lasts long is kept at least this often, in case that a message was missed.
const KEEP_EVERY_LASTING: Duration = Duration::from_secs(5);
/// With less than this left a told grant is asked for first: a packet that is lost and sent again would cost the lease.
const LEFT_MIN: Duration = Duration::from_millis(250);

/// What has to be the same when a request is sent and when a message comes, or the message may be of another server than
/// the answer, or of other times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// The number of the connection on which its messages come; 0: none, or one that carries no requests.
    pub subscription: u64,
    /// How often this client has seen the server's clock jump.
    pub clock_jumps: u64,
}

/// The last request that was answered "it has a place". All of it is of that one request and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AnsweredKeep {
    sent_at: Time,
    /// For how long it asked.
    window: Duration,
    /// No grant before the answer has a higher number.
    horizon: u64,
    server_us: u64,
    /// How long the answer took.
    round_trip: Duration,
    route: Route,
}

/// A grant that a message told, and that is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToldGrant {
    /// When the request was sent on which the deadline rests.
    pub sent_at: Time,
    /// The local instant after which the lease must be treated as gone.
    pub deadline: Time,
}

/// What an acquire knows of its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    number: Option<u64>,
    ahead: u64,
    /// It was asked for as long as a place in a long queue lasts.
    lasts: bool,
    /// How long places of this store last without being kept; `None` for the usual short time.
    lasts_for: Option<Duration>,
    /// The server counted no subscriber where there is one: whether the client listens is not said any more.
    miscounted: bool,
    /// `None`: no message is believed.
    answered: Option<AnsweredKeep>,
}

impl Place {
    /// No place yet, of a store whose places last for so long without being kept.
    pub fn lasting(lasts_for: Option<Duration>) -> Place {
        Place { lasts_for, ..Place::default() }
    }

    /// The server has answered that it has this place.
    pub fn queued(&mut self, number: u64, ahead: u64, unheard: bool) {
        let (lasts, miscounted) = (self.is_far(), self.miscounted || unheard);
        *self = Place { number: Some(number), ahead, lasts, miscounted, answered: None, ..*self };
    }

    /// The same answer tells since when and how long the server keeps the place, and which grants came before. A request
    /// on another connection than that of the messages, or for a grant without a number, says nothing of the kind.
    pub fn kept(&mut self, answer: &Answer, horizon: Option<u64>, route: Route) {
        let window = if self.lasts { PLACE_MAX } else { WINDOW };
        // only on one connection it is certain that answer and message come from one server, in this order
        let same_server = route.subscription != 0 && route.subscription == answer.connection;
        let known = horizon.zip(answer.server_time_us).filter(|_| same_server);
        self.answered = known.map(|(horizon, server_us)| AnsweredKeep {
            sent_at: answer.sent_at,
            window,
            horizon,
            server_us,
            round_trip: answer.received_at.since(answer.sent_at),
            route,
        });
    }

    /// Its token is dead, or somebody else goes on with it: what was answered so far says nothing any more.
    pub fn forget_answer(&mut self) {
        self.answered = None;
    }

    /// Whether a message that its token was granted is believed, and until when. The rule:
    ///
    /// 1. a request with this token was answered "it has a place", and no grant before that answer has as high a number. So
    ///    the grant came after it, and the server keeps the hold for as long as it would have kept the place;
    /// 2. the deadline counts from when that request was sent. How long the message took does not matter, nor do the two
    ///    clocks but for how fast they run;
    /// 3. the message came on the connection of that answer, no clock was seen to be set since then, and enough is left to
    ///    renew the hold;
    /// 4. its number is one that the server can have given: a forged one would shut out all later holders.
    ///
    /// The caller has compared the token.
    pub fn told(&self, now: Time, notice: &GrantNotice, terms: &Terms, route: Route) -> Option<ToldGrant> {
        let kept = self.answered?;
        let place_ends = terms.deadline(kept.sent_at, kept.window);
        let deadline = place_ends.min(terms.deadline(now, terms.ttl));
        let passed = now.since(kept.sent_at);
        let at_most = passed + passed.mul_f64(terms.drift_factor) + DRIFT_FLOOR;
        let there = notice.server_us.checked_sub(kept.server_us).map(Duration::from_micros);
        let is_new = notice.number > kept.horizon;
        let is_possible = notice.number <= notice.server_us.max(kept.horizon.saturating_add(AHEAD_MAX));
        let steady = there.is_some_and(|there| there <= at_most);
        let needed = LEFT_MIN.max(kept.round_trip * 3).max(terms.min_validity);
        let enough = now < place_ends && place_ends.since(now) >= needed;
        // until the first renewal the key lives no longer than the place would have, whatever was agreed
        let suits = terms.auto_renew && terms.lock_delay.is_zero() && terms.min_hold.is_zero();
        (route == kept.route && is_new && is_possible && steady && enough && suits)
            .then_some(ToldGrant { sent_at: kept.sent_at, deadline })
    }

    /// Its token is dead. Where a place lasts as a hold does it hangs on its token: the next token takes another one.
    pub fn retire(&mut self) {
        if self.lasts_for.is_some() {
            self.number = None;
        }
    }

    /// How many are before it, as far as is known.
    pub fn ahead(&self) -> u64 {
        self.ahead
    }

    fn is_far(&self) -> bool {
        self.ahead >= FAR_FROM
    }

    /// What the next request says of it.
    pub fn entry(&self, client: ClientTag, subscribed: bool) -> QueueEntry {
        let window = self.lasts_for.unwrap_or(if self.is_far() { PLACE_MAX } else { WINDOW });
        QueueEntry {
            client,
            window_ms: window.as_millis() as u64,
            place: self.number,
            listens: subscribed && !self.miscounted,
        }
    }

    /// What a single try says: it takes no place.
    pub fn no_entry(client: ClientTag) -> QueueEntry {
        QueueEntry { client, window_ms: 0, place: None, listens: false }
    }

    /// How long it waits for the confirmation of a subscription before it keeps the place.
    pub fn watch_for(&self) -> Duration {
        self.lasts_for.map_or(KEEP_EVERY, Self::keep_every)
    }

    /// A third of the time, as leases are renewed.
    fn keep_every(lasts_for: Duration) -> Duration {
        (lasts_for / 3).min(KEEP_EVERY_LASTING)
    }

    /// How long the acquire sleeps without a message. The head also asks when the holder's time is over, since nobody
    /// publishes that.
    pub fn keep_in(&self, look_in_ms: Option<u64>, jitter: &mut Jitter) -> Duration {
        // the answer that tells how long the queue is may be the first: then the place was asked for a short time
        let most = match self.lasts_for {
            Some(lasts_for) => Self::keep_every(lasts_for),
            None if self.is_far() && self.lasts => KEEP_EVERY_FAR,
            None => KEEP_EVERY,
        };
        let keep = jitter.between(most.mul_f64(0.8), most);
        match look_in_ms {
            // 0: the server has more to forget before it comes to this place
            Some(ms) if self.ahead == 0 || ms == 0 => {
                keep.min(Duration::from_millis(ms) + jitter.between(Duration::from_millis(1), Duration::from_millis(8)))
            }
            _ => keep,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_place_is_kept_in_time_and_named_again() {
        let (mut place, mut jitter) = (Place::default(), Jitter::new(1));
        let client = ClientTag(7);
        assert_eq!(place.entry(client, true), QueueEntry { client, window_ms: 600, place: None, listens: true });
        place.queued(41, 2, false);
        assert_eq!(place.entry(client, false), QueueEntry { client, window_ms: 600, place: Some(41), listens: false });
        for _ in 0..100 {
            let keep = place.keep_in(Some(1), &mut jitter);
            assert!(keep <= KEEP_EVERY && keep * 3 > Duration::from_millis(400), "{keep:?}");
        }
        place.queued(41, 0, false);
        assert!(
            place.keep_in(Some(20), &mut jitter) <= Duration::from_millis(28),
            "the head looks when the holder's end is due"
        );
        place.queued(41, FAR_FROM, false);
        assert!(place.keep_in(None, &mut jitter) <= KEEP_EVERY, "it was asked for 600 ms");
        assert_eq!(place.entry(client, true).window_ms, 3000);
        place.queued(41, FAR_FROM, false);
        assert!(place.keep_in(None, &mut jitter) > KEEP_EVERY);
    }

    #[test]
    fn a_place_that_lasts_is_kept_in_thirds_and_dies_with_its_token() {
        let mut jitter = Jitter::new(1);
        for (lasts, most) in [(Duration::from_secs(3), Duration::from_secs(1)), (PLACE_MAX * 100, KEEP_EVERY_LASTING)] {
            let mut place = Place::lasting(Some(lasts));
            assert_eq!(place.entry(ClientTag(7), true).window_ms, lasts.as_millis() as u64);
            place.queued(41, 3, false);
            assert_eq!(place.entry(ClientTag(7), true).place, Some(41));
            let keep = place.keep_in(None, &mut jitter);
            assert!(keep <= most && keep * 5 >= most * 4 && place.watch_for() == most, "{keep:?}");
            place.retire();
            assert_eq!(place.entry(ClientTag(7), true).place, None);
        }
        let mut usual = Place::default();
        usual.queued(41, 3, false);
        usual.retire();
        assert_eq!(usual.entry(ClientTag(7), true).place, Some(41), "the server knows it by its number");
    }

    #[test]
    fn a_place_that_was_passed_over_does_not_trust_in_the_count_again() {
        let mut place = Place::default();
        place.queued(41, 0, true);
        place.queued(41, 0, false);
        assert!(!place.entry(ClientTag(7), true).listens);
    }

    const ROUTE: Route = Route { subscription: 3, clock_jumps: 1 };
    const NOW_US: u64 = 1_700_000_000_000_000;

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    /// Asked at 1000, answered two milliseconds later.
    fn answer(sent_ms: u64) -> Answer {
        let outcome = crate::machine::Outcome::Applied(crate::machine::Reply::Gone);
        let (sent_at, received_at) = (at(sent_ms), at(sent_ms + 2));
        Answer { sent_at, received_at, connection: 3, server_time_us: Some(NOW_US + sent_ms * 1000), outcome }
    }

    fn kept(sent_ms: u64, horizon: u64) -> Place {
        let mut place = Place::default();
        place.queued(41, 0, false);
        place.kept(&answer(sent_ms), Some(horizon), ROUTE);
        place
    }

    fn notice(number: u64, granted_ms: u64) -> GrantNotice {
        GrantNotice { token: "t".into(), number, server_us: NOW_US + granted_ms * 1000 }
    }

    fn told(place: &Place, now_ms: u64, number: u64, granted_ms: u64) -> Option<ToldGrant> {
        place.told(at(now_ms), &notice(number, granted_ms), &Terms::default(), ROUTE)
    }

    #[test]
    fn a_told_grant_lasts_from_when_the_answered_request_was_sent_and_no_longer() {
        let place = kept(1000, 50);
        // 600 ms, less a hundredth and 2 ms
        let grant = Some(ToldGrant { sent_at: at(1000), deadline: at(1592) });
        assert_eq!(told(&place, 1100, 51, 1050), grant);
        assert_eq!(told(&place, 1300, 51, 1050), grant, "however long the message took");
        assert_eq!(told(&place, 1342, 51, 1050), grant);
        assert_eq!(told(&place, 1343, 51, 1050), None, "too little is left to renew it");
        assert_eq!(told(&place, 5000, 51, 1050), None, "it came after the end");
        let short = Terms { ttl: Duration::from_millis(100), ..Terms::default() };
        let grant = place.told(at(1100), &notice(51, 1050), &short, ROUTE).unwrap();
        assert_eq!(grant.deadline, at(1197), "no longer than was agreed");
    }

    #[test]
    fn a_grant_that_may_be_older_than_the_answer_is_not_believed() {
        let place = kept(1000, 50);
        assert_eq!(told(&place, 1100, 50, 1050), None);
        assert_eq!(told(&place, 1100, 0, 1050), None, "a door that opens, or a grant without a number");
        let mut place = kept(1000, 50);
        place.queued(41, 0, false);
        assert_eq!(told(&place, 1100, 51, 1050), None, "all of it is of one answer");
        place.kept(&answer(1200), Some(60), ROUTE);
        assert_eq!(told(&place, 1300, 55, 1250), None, "its time is of the last answer, and so is its horizon");
        assert_eq!(told(&place, 1300, 61, 1050), None, "it is of before that answer");
        assert_eq!(told(&place, 1300, 61, 1250).unwrap().deadline, at(1792));
        place.forget_answer();
        assert_eq!(told(&place, 1300, 61, 1250), None);
        assert_eq!(told(&Place::default(), 1300, 61, 1250), None, "nothing was answered");
    }

    #[test]
    fn what_may_come_from_another_server_or_time_is_not_believed() {
        let (place, terms) = (kept(1000, 50), Terms::default());
        for route in
            [Route { subscription: 8, ..ROUTE }, Route { subscription: 0, ..ROUTE }, Route { clock_jumps: 2, ..ROUTE }]
        {
            assert_eq!(place.told(at(1100), &notice(51, 1050), &terms, route), None, "{route:?}");
        }
        assert_eq!(told(&place, 1100, 51, 999), None, "the server's clock was set back");
        assert_eq!(told(&place, 1100, 51, 1104), None, "and set forward");
        assert!(told(&place, 1100, 51, 1102).is_some(), "it may run faster by as much as was allowed for");
        let mut place = Place::default();
        place.queued(41, 0, false);
        place.kept(&answer(1000), Some(50), Route { subscription: 0, ..ROUTE });
        let unsubscribed = Route { subscription: 0, ..ROUTE };
        assert_eq!(place.told(at(1100), &notice(51, 1050), &terms, unsubscribed), None);
        for (answer, horizon) in [
            (Answer { connection: 0, ..answer(1000) }, Some(50)),
            (Answer { connection: 4, ..answer(1000) }, Some(50)),
            (Answer { server_time_us: None, ..answer(1000) }, Some(50)),
            (answer(1000), None),
        ] {
            place.kept(&answer, horizon, ROUTE);
            assert_eq!(told(&place, 1100, 51, 1050), None, "{answer:?}");
        }
    }

    #[test]
    fn a_number_that_no_server_can_have_given_is_not_believed() {
        let place = kept(1000, 50);
        let us = NOW_US + 1_050_000;
        assert!(told(&place, 1100, us, 1050).is_some(), "a counter that was lost begins at the clock");
        assert_eq!(told(&place, 1100, us + 1, 1050), None);
        assert_eq!(told(&place, 1100, (1 << 53) - 1, 1050), None);
        let ahead = kept(1000, NOW_US * 2);
        assert!(told(&ahead, 1100, NOW_US * 2 + AHEAD_MAX, 1050).is_some(), "or its clock was set back");
        assert_eq!(told(&ahead, 1100, NOW_US * 2 + AHEAD_MAX + 1, 1050), None);
    }

    #[test]
    fn terms_that_a_message_cannot_meet_are_asked_for() {
        let place = kept(1000, 50);
        let with = |terms: Terms| place.told(at(1100), &notice(51, 1050), &terms, ROUTE);
        assert_eq!(with(Terms { auto_renew: false, ..Terms::default() }), None);
        assert_eq!(with(Terms { lock_delay: Duration::from_millis(1), ..Terms::default() }), None);
        assert_eq!(with(Terms { min_hold: Duration::from_millis(1), ..Terms::default() }), None);
        assert_eq!(with(Terms { min_validity: Duration::from_millis(493), ..Terms::default() }), None);
        assert!(with(Terms { min_validity: Duration::from_millis(492), ..Terms::default() }).is_some());
        let mut place = Place::default();
        place.queued(41, 0, false);
        place.kept(&Answer { received_at: at(1165), ..answer(1000) }, Some(50), ROUTE);
        assert_eq!(told(&place, 1100, 51, 1050), None, "the renewal takes a round trip, too");
    }

    #[test]
    fn a_place_in_a_long_queue_lasts_as_long_as_the_request_said() {
        let mut place = Place::default();
        place.queued(41, FAR_FROM, false);
        place.kept(&answer(1000), Some(50), ROUTE);
        assert_eq!(told(&place, 1100, 51, 1050).unwrap().deadline, at(1592), "it asked for 600 ms");
        place.queued(41, FAR_FROM, false);
        place.kept(&answer(1200), Some(50), ROUTE);
        assert_eq!(told(&place, 1300, 51, 1250).unwrap().deadline, at(1200 + 3000 - 32));
    }
}
