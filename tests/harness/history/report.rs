//! What a check found.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Check {
    /// Two leases of one lock are never valid at once, except readers and permits.
    Exclusion,
    /// Fencing tokens of one lock differ, and one that was granted before another call began is smaller.
    Fencing,
    /// A lease is never held at or after the instant until which it was valid, after its loss, or after a `false`.
    Held,
    /// The instant until which a lease is valid never moves back.
    Deadline,
    /// The loss event comes at most a moment after the lease has ended.
    LossTold,
    /// Every call ends within its limit.
    Bounded,
    /// The history makes sense: a defect of a test driver, not of the library.
    WellFormed,
}

/// Something that must not happen, and did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What does not hold.
    pub check: Check,
    /// The lock.
    pub lock: String,
    /// When.
    pub at_ns: u64,
    /// Who, and what happened.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {:?} at {} ns: {}", self.check, self.lock, self.at_ns, self.text)
    }
}

/// Numbers about a run, to see that it was one: a check of nothing finds nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How many processes took part.
    pub processes: usize,
    /// How many leases were granted, re-entries left out.
    pub leases: usize,
    /// How many of them were lost.
    pub lost: usize,
    /// How many looks there were.
    pub samples: usize,
    /// How many calls of each kind ended how: `"acquire ok"`, `"acquire Timeout"`; `"acquire -"` has not ended.
    pub outcomes: BTreeMap<String, usize>,
    /// How long each hand-over took: from the end of a lease to the grant of the next one that already waited for it.
    /// In order of length.
    pub hand_overs: Vec<Duration>,
}

impl Summary {
    /// The longest hand-over.
    pub fn longest_hand_over(&self) -> Duration {
        self.hand_overs.last().copied().unwrap_or_default()
    }

    /// The hand-over in the middle.
    pub fn median_hand_over(&self) -> Duration {
        self.hand_overs.get(self.hand_overs.len() / 2).copied().unwrap_or_default()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { processes, leases, lost, samples, outcomes, hand_overs } = self;
        writeln!(f, "{processes} processes, {leases} leases ({lost} lost), {samples} samples")?;
        for (outcome, count) in outcomes {
            writeln!(f, "{count:8} {outcome}")?;
        }
        let (median, longest) = (self.median_hand_over(), self.longest_hand_over());
        write!(f, "{} hand-overs: median {median:?}, longest {longest:?}", hand_overs.len())
    }
}

/// All that a check found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What went wrong, in the order of time.
    pub violations: Vec<Violation>,
    /// What happened.
    pub summary: Summary,
}

impl Report {
    /// The violations of one kind.
    pub fn of(&self, check: Check) -> Vec<&Violation> {
        self.violations.iter().filter(|violation| violation.check == check).collect()
    }

    /// Asserts that everything held.
    ///
    /// # Panics
    /// With the violations, when something did not.
    pub fn assert_clean(&self) {
        self.assert_clean_except(&[]);
    }

    /// Asserts that everything held but these, which a fault of the run has excused (a server that lost its data).
    ///
    /// # Panics
    /// With the violations, when something else did not hold.
    pub fn assert_clean_except(&self, excused: &[Check]) {
        let found: Vec<_> = self.violations.iter().filter(|violation| !excused.contains(&violation.check)).collect();
        let shown: Vec<_> = found.iter().take(20).map(ToString::to_string).collect();
        assert!(found.is_empty(), "{} violations:\n{}\n{}", found.len(), shown.join("\n"), self.summary);
    }
}
