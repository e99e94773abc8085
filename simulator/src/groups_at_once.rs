//! Several locks that one request takes or releases: what a driver does with it, and bugs planted in its scripts.

use onelock::ErrorKind;
use onelock::machine::multi::AllAtOnce;
use onelock::machine::{Answer, Claim, Guarded, Op, Outcome, Reply, Time, naming};

use super::bug::Bug;
use super::groups::GroupStage;
use super::plan::Fault;
use super::server::{Executed, Server};
use super::stats::Count;
use super::task::{Aim, Errand, Stage};
use super::wire::Purpose;
use super::world::{World, nanos, note};

impl World {
    /// One request for all members, the same each time.
    pub(super) fn take_all(&mut self, group: usize, until: Time) {
        let client = self.groups[group].plan.client;
        if self.groups[group].taking.is_empty() {
            for task in self.groups[group].members.clone() {
                self.stats.add(Count::Acquires);
                self.claim(task);
                let deed = self.deeds.len() - 1;
                self.groups[group].taking.push(deed);
            }
        } else {
            self.stats.add(Count::AllResent);
        }
        let deeds = self.groups[group].taking.clone();
        let claim = |deed: &usize| {
            let deed = &self.deeds[*deed];
            (deed.claim.clone(), deed.terms.server_ttl_ms(deed.terms.ttl))
        };
        let op = Op::AcquireMany { claims: deeds.iter().map(claim).collect(), fenced: true };
        let cancels = !self.calm && self.plan.faults.has(Fault::Cancel) && self.dice.chance(300);
        let limit = if cancels {
            let reach = self.dice.pick(&[self.plan.delay.1 * 4, nanos(self.plan.ttl), nanos(self.plan.ttl) * 4]);
            self.local(client) + std::time::Duration::from_nanos(self.dice.below(reach))
        } else {
            Time::MAX
        };
        self.enter_group(group, GroupStage::TakingAll, limit);
        let own = self.clients[client].plan.blocking;
        let request = self.submit(client, own, op, deeds, Purpose::TakeAll(group), until);
        self.groups[group].taking_request = Some(request);
    }

    /// The request for all ended.
    pub(super) fn took_all(&mut self, group: usize, request: usize, answer: &Answer) {
        if self.groups[group].stage != GroupStage::TakingAll || self.groups[group].taking_request != Some(request) {
            return;
        }
        let now = self.local(self.groups[group].plan.client);
        for (index, deed) in self.groups[group].taking.clone().into_iter().enumerate() {
            let part = answer.of_member(index);
            let trail = &mut self.deeds[deed].trail;
            match &part.outcome {
                Outcome::Applied(reply) => {
                    trail.answered(request as u32, part.connection, matches!(reply, Reply::Granted { .. }));
                }
                Outcome::NotApplied(_) => trail.not_applied(request as u32),
                Outcome::Indeterminate(_) => {}
            }
        }
        let Some(machine) = &mut self.groups[group].machine else { return };
        match machine.took_all(now, &answer.outcome) {
            AllAtOnce::Held => {
                self.stats.add(Count::AllTaken);
                let deeds = std::mem::take(&mut self.groups[group].taking);
                self.groups[group].stage = GroupStage::Idle;
                for (index, deed) in deeds.into_iter().enumerate() {
                    self.hold_of_all(group, index, deed, &answer.of_member(index));
                }
                self.step_group(group);
            }
            AllAtOnce::Again => {
                if self.bug == Some(Bug::AllResentAnew) {
                    for deed in std::mem::take(&mut self.groups[group].taking) {
                        self.deeds[deed].abandoned = true;
                    }
                }
                self.step_group(group);
            }
            AllAtOnce::Separately => {
                self.stats.add(Count::AllRefused);
                self.forget_taking(group);
                self.step_group(group);
            }
            AllAtOnce::Refused(index, failure) => {
                self.stats.add(Count::AllRefused);
                note!(self, "group {group}: one try is refused because of member {index}: {failure:?}");
                self.forget_taking(group);
                self.end_group(group, ErrorKind::Busy);
            }
        }
    }

    /// A member is held.
    fn hold_of_all(&mut self, group: usize, index: usize, deed: usize, answer: &Answer) {
        let Outcome::Applied(Reply::Granted { fence, .. }) = answer.outcome else { return };
        let (task, client) = (self.groups[group].members[index], self.groups[group].plan.client);
        let now = self.local(client);
        let terms = self.deeds[deed].terms.clone();
        self.deeds[deed].cell.grant(terms.deadline(answer.sent_at, terms.ttl));
        self.deeds[deed].fence = fence;
        self.begin_stay(deed, now);
        let guarded = Guarded {
            claim: self.deeds[deed].claim.clone(),
            state: self.deeds[deed].cell.clone(),
            ttl: self.deeds[deed].ttl,
            terms: terms.clone(),
        };
        self.clients[client].watchdog.arm(now, deed as u64, guarded);
        self.stats.add(Count::Leases);
        note!(self, "group {group}: deed {deed} is held, fence {fence:?}");
        // what has too little left is renewed, or lost, before the whole is handed out
        let left = self.deeds[deed].cell.deadline().since(now);
        if self.believes(deed) && left >= terms.min_validity {
            self.check_hand_out(task, deed);
        } else {
            let name = self.deeds[deed].name;
            self.names[name].live.push(deed);
        }
        self.tasks[task].handles.push(deed);
        self.enter_stage(task, Stage::Holding, Time::MAX);
        self.run_watchdog(client);
    }

    /// What the request may have taken is undone.
    fn forget_taking(&mut self, group: usize) {
        let mut deeds = std::mem::take(&mut self.groups[group].taking);
        self.groups[group].taking_request = None;
        if self.bug == Some(Bug::UndoForgetsOne)
            && let Some(deed) = deeds.pop()
        {
            self.deeds[deed].abandoned = true;
            self.check_given_up(deed);
        }
        for deed in deeds {
            self.give_up(deed);
            self.check_given_up(deed);
        }
    }

    /// The caller stops waiting while the request is under way.
    pub(super) fn cancel_taking(&mut self, group: usize) {
        self.stats.add(Count::AllCancelled);
        note!(self, "group {group}: is cancelled while one request takes all");
        self.groups[group].stage = GroupStage::Idle;
        if let Some(request) = self.groups[group].taking_request {
            self.abandon(request);
        }
        self.forget_taking(group);
        self.end_group(group, ErrorKind::Cancelled);
    }

    /// The members of these tasks are released by one request.
    pub(super) fn release_all(&mut self, group: usize, held: &[usize]) {
        self.stats.add(Count::AllReleased);
        let client = self.groups[group].plan.client;
        let (mut claims, mut deeds) = (Vec::new(), Vec::new());
        let (limit, request) = (self.local(client) + self.call_span(), self.requests.len());
        for task in held.iter().copied() {
            let Some(deed) = self.tasks[task].handles.last().copied() else { continue };
            self.begin_release(task, deed);
            self.enter_stage(task, Stage::Calling, Time::MAX);
            let (aim, started, ttl) = (Aim::Release, self.now, self.deeds[deed].ttl);
            self.tasks[task].errand =
                Some(Errand { aim, deed, request, first: request, tries: 1, started, limit, ttl });
            claims.push(self.deeds[deed].claim.clone());
            deeds.push(deed);
        }
        let (until, own) = (self.call_limit(client).min(limit), self.clients[client].plan.blocking);
        self.submit(client, own, Op::ReleaseMany { claims }, deeds, Purpose::ReleaseAll(group), until);
    }

    /// That request ended: each by its part.
    pub(super) fn released_all(&mut self, group: usize, request: usize, answer: &Answer) {
        let deeds = self.requests[request].deeds.clone();
        for task in self.groups[group].members.clone() {
            let Some(errand) = self.tasks[task].errand.filter(|errand| errand.request == request) else { continue };
            if let Some(index) = deeds.iter().position(|deed| *deed == errand.deed) {
                self.errand_answered(task, request, &answer.of_member(index));
            }
        }
    }
}

impl Server {
    /// The releases one after the other, each announced.
    pub(super) fn release_all(&mut self, us: u64, claims: &[Claim]) -> Executed {
        let (mut replies, mut announced) = (Vec::new(), Vec::new());
        for claim in claims {
            let done = self.model.apply(us, &Op::Release { claim: claim.clone() });
            announced.extend(done.announced);
            if let Outcome::Applied(reply) = done.outcome {
                replies.push(reply);
            }
        }
        Executed { outcome: Outcome::Applied(Reply::Many(replies)), announced, granted: Vec::new() }
    }

    /// The planted bugs of the two scripts.
    pub(super) fn all_wrongly(&mut self, us: u64, op: &Op, bug: Bug) -> Option<Executed> {
        let reply = match (bug, op) {
            (Bug::HalfTaken, Op::AcquireMany { claims, .. }) => {
                let done = self.model.apply(us, op).outcome;
                if let Outcome::Applied(Reply::RefusedAt { index, .. }) = &done {
                    for claim in &claims[..*index] {
                        self.take(us, claim);
                    }
                }
                return Some(plain(done));
            }
            (Bug::FirstLookedAt, Op::AcquireMany { claims, .. }) => {
                let refused = self.take(us, &claims[0]).filter(|reply| !matches!(reply, Reply::Granted { .. }));
                if let Some(reply) = refused {
                    Reply::RefusedAt { index: 0, reply: Box::new(reply) }
                } else {
                    let mut replies = Vec::new();
                    for claim in claims {
                        if !matches!(self.take(us, claim), Some(Reply::Granted { .. })) {
                            self.model.apply(us, &Op::ForceRelease { key: claim.0.key.clone(), foreign: true });
                        }
                        replies.extend(self.take(us, claim));
                    }
                    Reply::Many(replies)
                }
            }
            (Bug::TokensMixedUp, Op::AcquireMany { claims, fenced }) => {
                let token = |index: usize| claims[(index + 1) % claims.len()].0.token.clone();
                let mixed = claims
                    .iter()
                    .enumerate()
                    .map(|(index, (claim, ttl_ms))| (Claim { token: token(index), ..claim.clone() }, *ttl_ms));
                let op = Op::AcquireMany { claims: mixed.collect(), fenced: *fenced };
                return Some(plain(self.model.apply(us, &op).outcome));
            }
            (Bug::ReleaseStops, Op::ReleaseMany { claims }) => {
                let gone = |claim: &Claim| {
                    self.model.holder_of(us, &claim.key).is_none_or(|(_, token)| *token != *claim.token.as_bytes())
                };
                let found = claims.iter().position(gone).unwrap_or(claims.len());
                let mut executed = self.release_all(us, &claims[..found]);
                if let Outcome::Applied(Reply::Many(replies)) = &mut executed.outcome {
                    replies.resize(claims.len(), Reply::Released(false));
                }
                return Some(executed);
            }
            (Bug::ReleasesUncompared, Op::ReleaseMany { claims }) => {
                let force = |claim: &Claim| {
                    let op = Op::ForceRelease { key: claim.key.clone(), foreign: true };
                    Reply::Released(self.model.apply(us, &op).outcome == Outcome::Applied(Reply::Forced(true)))
                };
                Reply::Many(claims.iter().map(force).collect())
            }
            _ => return None,
        };
        Some(plain(Outcome::Applied(reply)))
    }

    /// One of several, as if alone.
    fn take(&mut self, us: u64, (claim, ttl_ms): &(Claim, u64)) -> Option<Reply> {
        let fence_ttl_ms = Some(naming::fence_ttl_ms(*ttl_ms));
        let op = Op::Acquire { claim: claim.clone(), ttl_ms: *ttl_ms, fence_ttl_ms, info: None };
        match self.model.apply(us, &op).outcome {
            Outcome::Applied(reply) => Some(reply),
            _ => None,
        }
    }
}

fn plain(outcome: Outcome<Reply>) -> Executed {
    Executed { outcome, announced: Vec::new(), granted: Vec::new() }
}
