//! The release of several holds at once: those that one request can do, by one request.

use std::sync::Arc;

use futures_util::future::{join, join_all};

use super::engine::Engine;
use super::hold::Hold;
use super::release::{self, ReleaseRequest, ReleaseStep};
use super::release_retry;
use super::spans::ReleaseSpan;
use crate::ErrorKind;
use crate::machine::multi::worst_release;
use crate::machine::{Answer, Kind, Op, Outcome, Release, Time};
use crate::store::Uninterrupted;

/// One of them.
struct MemberRelease {
    request: ReleaseRequest,
    span: ReleaseSpan,
}

impl MemberRelease {
    /// Whether one request can do it together with others.
    fn is_groupable(&self) -> bool {
        let ReleaseRequest { engine, hold, .. } = &self.request;
        hold.kind() == Kind::Mutex
            && engine.store.capabilities().together
            && matches!(self.request.op(), Op::Release { .. })
    }

    /// Whether the same request can do both.
    fn goes_with(&self, other: &MemberRelease) -> bool {
        let (one, other) = (&self.request, &other.request);
        let shard = |of: &ReleaseRequest| of.engine.store.shard(of.hold.key());
        Arc::ptr_eq(&one.engine, &other.engine) && shard(one) == shard(other)
    }

    fn judge(self, answer: &Answer) -> Release {
        self.span.end(self.request.judge(answer))
    }

    async fn send_async(self) -> Release {
        self.span.end(release::send_async(self.request).await)
    }
}

/// Several holds that one request releases.
struct MemberGroup(Vec<MemberRelease>);

impl MemberGroup {
    fn op(&self) -> Op {
        Op::ReleaseMany { claims: self.0.iter().map(|member| member.request.hold.claim.clone()).collect() }
    }

    fn engine(&self) -> Option<(Arc<Engine>, Time)> {
        self.0.first().map(|first| (first.request.engine.clone(), first.request.until()))
    }

    async fn send_async(self) -> Release {
        let Some((engine, until)) = self.engine() else { return Release::AlreadyReleased };
        let mut answer = engine.store.call(self.op(), until).await;
        engine.observe_clock(&answer);
        if is_for_one_only(&answer) {
            let each = join_all(self.0.into_iter().map(|member| Box::pin(member.send_async()))).await;
            return each.into_iter().fold(Release::AlreadyReleased, worst_release);
        }
        let mut first = None;
        if release_retry::is_worth_repeating(&answer, until) {
            let again = engine.store.call(self.op(), until).await;
            first = Some(std::mem::replace(&mut answer, again));
        }
        self.judge(&answer, first.as_ref())
    }

    fn send_blocking(self) -> Release {
        let Some((engine, until)) = self.engine() else { return Release::AlreadyReleased };
        let mut answer = engine.store.call_blocking(&self.op(), until, &Uninterrupted);
        engine.observe_clock(&answer);
        if is_for_one_only(&answer) {
            let one = |member: MemberRelease| member.span.end(release::send_blocking(&engine, member.request));
            return self.0.into_iter().map(one).fold(Release::AlreadyReleased, worst_release);
        }
        let mut first = None;
        if release_retry::is_worth_repeating(&answer, until) {
            let again = engine.store.call_blocking(&self.op(), until, &Uninterrupted);
            first = Some(std::mem::replace(&mut answer, again));
        }
        self.judge(&answer, first.as_ref())
    }

    /// Judges each by its part of the answer, and of that to the request before it.
    fn judge(self, answer: &Answer, first: Option<&Answer>) -> Release {
        let judged = self.0.into_iter().enumerate().map(|(index, member)| {
            let part = answer.of_member(index);
            match first {
                Some(first) => member.judge(&release_retry::combine(part, first.of_member(index))),
                None => member.judge(&part),
            }
        });
        judged.fold(Release::AlreadyReleased, worst_release)
    }
}

/// Whether the server would not do it for several at once: then each is released by itself.
fn is_for_one_only(answer: &Answer) -> bool {
    matches!(&answer.outcome, Outcome::NotApplied(failure) if failure.kind == ErrorKind::ServerRefused)
}

/// Releases that have begun. Dropped before their answers, they are queued for cleanup.
pub(crate) struct ReleasesTogether {
    /// The worst result of those for which nothing had to be sent.
    done: Release,
    groups: Vec<MemberGroup>,
    alone: Vec<MemberRelease>,
}

impl ReleasesTogether {
    /// Whether a hold can be among them: nobody enters it again, so nobody else is in the middle of a call.
    pub(crate) fn accepts(hold: &Hold) -> bool {
        hold.owner.is_none()
    }

    /// Whether one request can release all of these: mutexes of one client that one server has in one slot.
    pub(crate) fn are_one_request<'a>(mut holds: impl Iterator<Item = (&'a Arc<Engine>, &'a Arc<Hold>)>) -> bool {
        let fits =
            |(_, hold): &(&Arc<Engine>, &Arc<Hold>)| ReleasesTogether::accepts(hold) && hold.kind() == Kind::Mutex;
        let Some((engine, hold)) = holds.next().filter(fits) else { return false };
        let shard = engine.store.shard(hold.key());
        let mut others = 0;
        let same = holds.all(|(other, hold)| {
            others += 1;
            fits(&(other, hold)) && Arc::ptr_eq(engine, other) && engine.store.shard(hold.key()) == shard
        });
        same && others > 0 && engine.store.capabilities().together
    }

    /// Begins to release these. They do not count as held from here on.
    pub(crate) fn begin<'a>(holds: impl Iterator<Item = (&'a Arc<Engine>, &'a Arc<Hold>)>) -> ReleasesTogether {
        let mut all = ReleasesTogether { done: Release::AlreadyReleased, groups: Vec::new(), alone: Vec::new() };
        for (engine, hold) in holds {
            let span = ReleaseSpan::begin(hold);
            match release::release(engine, hold) {
                ReleaseStep::Done(result) => all.done = worst_release(all.done, span.end(result)),
                ReleaseStep::Wait => {
                    let result = release::release_in_background(engine, hold);
                    all.done = worst_release(all.done, span.end(result));
                }
                ReleaseStep::Send(request) => all.add(MemberRelease { request, span }),
            }
        }
        let (groups, single): (Vec<_>, Vec<_>) = all.groups.into_iter().partition(|group| group.0.len() > 1);
        all.alone.extend(single.into_iter().flat_map(|group| group.0));
        ReleasesTogether { groups, ..all }
    }

    fn add(&mut self, member: MemberRelease) {
        if !member.is_groupable() {
            self.alone.push(member);
            return;
        }
        let fits = |group: &&mut MemberGroup| group.0.first().is_some_and(|first| first.goes_with(&member));
        match self.groups.iter_mut().find(fits) {
            Some(group) => group.0.push(member),
            None => self.groups.push(MemberGroup(vec![member])),
        }
    }

    /// Sends everything at once, from an async caller. The worst result.
    pub(crate) async fn send_async(self) -> Release {
        let groups = join_all(self.groups.into_iter().map(|group| Box::pin(group.send_async())));
        let alone = join_all(self.alone.into_iter().map(|member| Box::pin(member.send_async())));
        let (groups, alone) = join(groups, alone).await;
        groups.into_iter().chain(alone).fold(self.done, worst_release)
    }

    /// Sends it from the calling thread if it is one request; else all of it comes back.
    pub(crate) fn send_blocking(mut self) -> Result<Release, ReleasesTogether> {
        match self.groups.pop() {
            Some(group) if self.groups.is_empty() && self.alone.is_empty() => {
                Ok(worst_release(self.done, group.send_blocking()))
            }
            group => {
                self.groups.extend(group);
                Err(self)
            }
        }
    }
}
