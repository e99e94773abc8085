//! Puts the lines about one call or one lease together.

use std::collections::{BTreeMap, HashMap};

use super::report::{Check, Violation};
use super::{Call, Mode, Record, Return, Sample};

/// A call with its end, if it came to one.
pub(super) struct Ended<'a> {
    pub(super) call: &'a Call,
    pub(super) end: Option<&'a Return>,
}

/// All that is known of one lease.
pub(super) struct Lease<'a> {
    pub(super) process: &'a str,
    pub(super) number: u64,
    pub(super) lock: &'a str,
    pub(super) mode: Mode,
    pub(super) token: Option<u64>,
    pub(super) within: Option<u64>,
    /// When the acquire was called, and when it returned.
    pub(super) called_ns: u64,
    pub(super) granted_ns: u64,
    pub(super) released_ns: Option<u64>,
    pub(super) lost_ns: Option<u64>,
    /// What was said of its validity, and when, in the order of the process.
    pub(super) validity: Vec<(u64, u64)>,
    pub(super) samples: Vec<&'a Sample>,
}

impl Lease<'_> {
    /// Until when it was valid, as far as anybody was told.
    pub(super) fn valid_until_ns(&self) -> u64 {
        self.validity.iter().map(|&(_, until)| until).max().unwrap_or(self.granted_ns)
    }

    /// When the hold ended: released, lost or run out, whichever came first.
    pub(super) fn end_ns(&self) -> u64 {
        let ends = [self.released_ns, self.lost_ns, Some(self.valid_until_ns())];
        ends.into_iter().flatten().min().expect("one of them is given")
    }

    pub(super) fn name(&self) -> String {
        let token = self.token.map(|token| format!(" with token {token}")).unwrap_or_default();
        format!("lease {} of {}{token}", self.number, self.process)
    }
}

/// The lines of a run, put together.
#[derive(Default)]
pub(super) struct Run<'a> {
    pub(super) calls: BTreeMap<(&'a str, u64), Ended<'a>>,
    pub(super) leases: BTreeMap<(&'a str, u64), Lease<'a>>,
    pub(super) pauses: HashMap<&'a str, Vec<(u64, u64)>>,
    pub(super) ends: HashMap<&'a str, u64>,
    pub(super) violations: Vec<Violation>,
}

impl<'a> Run<'a> {
    pub(super) fn read(records: &'a [Record]) -> Self {
        let mut run = Self::default();
        for record in records {
            match record {
                Record::Call(call) => run.call(call),
                Record::Return(end) => run.returned(end),
                Record::Sample(sample) => run.sample(sample),
                Record::Lost { process, lease, at_ns } => match run.leases.get_mut(&(process.as_str(), *lease)) {
                    Some(lease) => lease.lost_ns = Some(lease.lost_ns.map_or(*at_ns, |first| first.min(*at_ns))),
                    None => run.malformed("", *at_ns, format!("{process} lost lease {lease}, which it never had")),
                },
                Record::Paused { process, from_ns, to_ns } => {
                    run.pauses.entry(process).or_default().push((*from_ns, *to_ns));
                }
                Record::End { process, at_ns } => {
                    run.ends.insert(process, *at_ns);
                }
            }
        }
        run
    }

    pub(super) fn violation(&mut self, check: Check, lock: &str, at_ns: u64, text: String) {
        self.violations.push(Violation { check, lock: lock.to_owned(), at_ns, text });
    }

    fn malformed(&mut self, lock: &str, at_ns: u64, text: String) {
        self.violation(Check::WellFormed, lock, at_ns, text);
    }

    fn call(&mut self, call: &'a Call) {
        if let (Some(number), "release") = (call.lease, call.op.as_str()) {
            if let Some(lease) = self.leases.get_mut(&(call.process.as_str(), number)) {
                lease.released_ns.get_or_insert(call.at_ns);
            } else {
                let text = format!("{} released lease {number}, which it never had", call.process);
                self.malformed(&call.lock, call.at_ns, text);
            }
        }
        if self.calls.insert((&call.process, call.call), Ended { call, end: None }).is_some() {
            let text = format!("{} made call {} twice", call.process, call.call);
            self.malformed(&call.lock, call.at_ns, text);
        }
    }

    fn returned(&mut self, end: &'a Return) {
        let Some(ended) = self.calls.get_mut(&(end.process.as_str(), end.call)) else {
            return self.malformed("", end.at_ns, format!("{} returned from call {}, unmade", end.process, end.call));
        };
        ended.end = Some(end);
        let call = ended.call;
        if let Some(number) = end.lease {
            let lease = Lease {
                process: &end.process,
                number,
                lock: &call.lock,
                mode: end.mode,
                token: end.token,
                within: end.within,
                called_ns: call.at_ns,
                granted_ns: end.at_ns,
                released_ns: None,
                lost_ns: None,
                validity: end.valid_until_ns.map(|until| (end.at_ns, until)).into_iter().collect(),
                samples: Vec::new(),
            };
            if end.valid_until_ns.is_none() {
                self.malformed(&call.lock, end.at_ns, format!("{} has no valid_until_ns", lease.name()));
            }
            if self.leases.insert((&end.process, number), lease).is_some() {
                self.malformed(&call.lock, end.at_ns, format!("{} got lease {number} twice", end.process));
            }
        } else if let (Some(number), Some(until)) = (call.lease, end.valid_until_ns) {
            if let Some(lease) = self.leases.get_mut(&(end.process.as_str(), number)) {
                lease.validity.push((end.at_ns, until));
            } else {
                let text = format!("{} extended lease {number}, which it never had", end.process);
                self.malformed(&call.lock, end.at_ns, text);
            }
        }
    }

    fn sample(&mut self, sample: &'a Sample) {
        let Some(lease) = self.leases.get_mut(&(sample.process.as_str(), sample.lease)) else {
            let text = format!("{} looked at lease {}, which it never had", sample.process, sample.lease);
            return self.malformed("", sample.at_ns, text);
        };
        lease.validity.extend(sample.valid_until_ns.map(|until| (sample.at_ns, until)));
        lease.samples.push(sample);
    }
}
