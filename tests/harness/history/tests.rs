//! Each property is shown to be checked: a run that breaks it is made by hand, and must be caught.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000_000;
const MILLI: u64 = 1_000_000;

/// Writes the history of a run in the order of its lines. Times are milliseconds.
#[derive(Default)]
struct Script {
    records: Vec<Record>,
    calls: u64,
}

impl Script {
    fn call(&mut self, process: &str, op: &str, lease: Option<u64>, at: u64, limit: Option<u64>) -> u64 {
        self.calls += 1;
        self.records.push(Record::Call(Call {
            process: process.into(),
            call: self.calls,
            op: op.into(),
            lock: "l".into(),
            lease,
            at_ns: at * MILLI,
            limit_ns: limit.map(|limit| limit * MILLI),
        }));
        self.calls
    }

    fn returns(&mut self, process: &str, call: u64, at: u64, edit: impl FnOnce(&mut Return)) {
        let mut end =
            Return { process: process.into(), call, at_ns: at * MILLI, outcome: "ok".into(), ..Return::default() };
        edit(&mut end);
        self.records.push(Record::Return(end));
    }

    /// A lease granted at `at` (called 1 ms before) with `token`, valid until `until`.
    fn grant(&mut self, process: &str, lease: u64, token: u64, at: u64, until: u64) {
        self.grant_as(process, lease, token, at - 1..at, until, |_| {});
    }

    fn grant_as(
        &mut self,
        process: &str,
        lease: u64,
        token: u64,
        time: std::ops::Range<u64>,
        until: u64,
        edit: impl FnOnce(&mut Return),
    ) {
        let call = self.call(process, "acquire", None, time.start, None);
        self.returns(process, call, time.end, |end| {
            (end.lease, end.token, end.valid_until_ns) = (Some(lease), Some(token), Some(until * MILLI));
            edit(end);
        });
    }

    fn release(&mut self, process: &str, lease: u64, at: u64) {
        let call = self.call(process, "release", Some(lease), at, Some(100));
        self.returns(process, call, at + 1, |end| end.outcome = "Released".into());
    }

    fn sample(&mut self, process: &str, lease: u64, at: u64, held: bool, until: Option<u64>) {
        let valid_until_ns = until.map(|until| until * MILLI);
        self.records.push(Record::Sample(Sample {
            process: process.into(),
            lease,
            at_ns: at * MILLI,
            held,
            valid_until_ns,
        }));
    }

    fn lost(&mut self, process: &str, lease: u64, at: u64) {
        self.records.push(Record::Lost { process: process.into(), lease, at_ns: at * MILLI });
    }

    fn paused(&mut self, process: &str, from: u64, to: u64) {
        self.records.push(Record::Paused { process: process.into(), from_ns: from * MILLI, to_ns: to * MILLI });
    }

    fn end(&mut self, process: &str, at: u64) {
        self.records.push(Record::End { process: process.into(), at_ns: at * MILLI });
    }

    fn check(&self) -> Report {
        check(&self.records, &Limits::default())
    }

    /// Asserts that exactly one thing is wrong, of this kind, and that the text says so.
    fn catches(&self, kind: Check, words: &str) {
        let report = self.check();
        let [violation] = &report.violations[..] else { panic!("expected one: {:#?}", report.violations) };
        assert_eq!(violation.check, kind, "{violation}");
        assert!(violation.to_string().contains(words), "{violation}");
    }
}

/// Two processes take turns, renew, lose once and end in order.
fn good() -> Script {
    let mut script = Script::default();
    script.grant("a", 1, 10, 100, 1000);
    script.sample("a", 1, 200, true, Some(1000));
    script.sample("a", 1, 900, true, Some(1800));
    script.sample("a", 1, 1500, true, Some(1800));
    let waiting = script.call("b", "acquire", None, 300, Some(5000));
    script.release("a", 1, 1600);
    script.sample("a", 1, 1601, false, None);
    script.returns("b", waiting, 1605, |end| {
        (end.lease, end.token, end.valid_until_ns) = (Some(1), Some(11), Some(2500 * MILLI));
    });
    script.sample("b", 1, 2499, true, None);
    script.sample("b", 1, 2500, false, None);
    script.lost("b", 1, 2510);
    script.grant("a", 2, 12, 2600, 3000);
    script.release("a", 2, 2700);
    script.end("a", 9000);
    script.end("b", 9000);
    script
}

#[test]
fn a_good_run_is_clean_and_counted() {
    let report = good().check();
    report.assert_clean();
    let Summary { processes, leases, lost, samples, outcomes, .. } = &report.summary;
    assert_eq!((*processes, *leases, *lost, *samples), (2, 3, 1, 6));
    assert_eq!(outcomes["acquire ok"], 3);
    assert_eq!(outcomes["release Released"], 2);
    assert_eq!(report.summary.hand_overs, [Duration::from_millis(5)]);
    assert_eq!(report.summary.longest_hand_over(), Duration::from_millis(5));
    assert!(report.summary.to_string().contains("3 leases (1 lost)"));
}

#[test]
fn two_valid_leases_at_once_are_caught() {
    let mut script = Script::default();
    script.grant("a", 1, 10, 100, 1000);
    script.grant("b", 1, 11, 999, 1500);
    script.catches(Check::Exclusion, "lease 1 of b with token 11 was granted while lease 1 of a");
    let mut script = Script::default();
    script.grant("a", 1, 10, 100, 1000);
    script.grant("b", 1, 11, 1000, 1500);
    script.check().assert_clean();
}

#[test]
fn a_hold_ends_with_its_release_or_loss_even_if_its_validity_goes_on() {
    for ending in ["release", "loss", "neither"] {
        let mut script = Script::default();
        script.grant("a", 1, 10, 100, 1000);
        match ending {
            "release" => script.release("a", 1, 400),
            "loss" => script.lost("a", 1, 400),
            _ => {}
        }
        script.grant("b", 1, 11, 500, 800);
        assert_eq!(script.check().of(Check::Exclusion).len(), usize::from(ending == "neither"), "{ending}");
    }
}

#[test]
fn a_renewal_that_only_a_sample_tells_of_lengthens_the_hold() {
    let mut script = Script::default();
    script.grant("a", 1, 10, 100, 1000);
    script.sample("a", 1, 900, true, Some(1900));
    script.grant("b", 1, 11, 1500, 1600);
    script.catches(Check::Exclusion, "until 1900000000 ns");
}

#[test]
fn readers_and_permits_share_as_far_as_they_may() {
    let mode = |mode| move |end: &mut Return| end.mode = mode;
    let mut script = Script::default();
    for reader in 1..=3 {
        script.grant_as("a", reader, reader, 99..100, 1000, mode(Mode::Shared));
    }
    script.check().assert_clean();
    script.grant("b", 1, 9, 900, 1000);
    script.catches(Check::Exclusion, "lease 1 of b");
    let mut script = Script::default();
    for permit in 1..=2 {
        script.grant_as("a", permit, permit, 99..100, 1000, mode(Mode::Permit(2)));
    }
    script.check().assert_clean();
    script.grant_as("a", 3, 3, 199..200, 1000, mode(Mode::Permit(2)));
    script.catches(Check::Exclusion, "lease 3 of a");
}

#[test]
fn equal_and_falling_tokens_are_caught() {
    let mut script = Script::default();
    script.grant("a", 1, 10, 100, 200);
    script.grant("b", 1, 10, 300, 400);
    script.catches(Check::Fencing, "lease 1 of b with token 10 has the token of lease 1 of a");
    let mut script = Script::default();
    script.grant("a", 1, 10, 100, 200);
    script.grant("a", 2, 30, 300, 400);
    script.grant("b", 1, 20, 500, 600);
    script.catches(Check::Fencing, "lease 1 of b with token 20 came after lease 2 of a with token 30");
    // Calls that were under way at the same time may get theirs in any order.
    let mut script = Script::default();
    script.grant_as("b", 1, 9, 50..300, 400, |_| {});
    script.grant("a", 1, 10, 100, 200);
    script.check().assert_clean();
}

#[test]
fn a_reentry_keeps_its_token_and_needs_a_hold_that_stands() {
    let within = |end: &mut Return| end.within = Some(1);
    let mut script = Script::default();
    script.grant("a", 1, 10, 100, 1000);
    script.grant_as("a", 2, 10, 199..200, 1000, within);
    script.check().assert_clean();
    script.grant_as("a", 3, 11, 299..300, 1000, within);
    script.catches(Check::Fencing, "lease 3 of a with token 11 is within lease 1 of a with token 10");
    let mut script = Script::default();
    script.grant("a", 1, 10, 100, 1000);
    script.grant_as("a", 2, 10, 1000..1001, 2000, within);
    script.catches(Check::Held, "re-entered lease 1 of a with token 10, which had ended");
}

#[test]
fn held_after_the_deadline_is_caught() {
    let mut script = Script::default();
    script.grant("a", 1, 10, 100, 1000);
    script.sample("a", 1, 999, true, None);
    // the deadline may have been rounded down to this millisecond
    script.sample("a", 1, 1000, true, None);
    script.check().assert_clean();
    script.sample("a", 1, 1001, true, None);
    script.catches(Check::Held, "was held, and valid until 1000000000 ns");
}

#[test]
fn held_after_false_after_loss_or_after_release_is_caught() {
    let mut script = Script::default();
    script.grant("a", 1, 10, 100, 1000);
    script.sample("a", 1, 900, false, None);
    script.sample("a", 1, 950, true, Some(1900));
    script.catches(Check::Held, "was held again after it was not");
    let mut script = Script::default();
    script.grant("a", 1, 10, 100, 1000);
    script.lost("a", 1, 500);
    script.sample("a", 1, 600, true, None);
    script.catches(Check::Held, "was held again after it was lost");
    let mut script = Script::default();
    script.grant("a", 1, 10, 100, 1000);
    script.release("a", 1, 500);
    script.sample("a", 1, 600, true, None);
    script.catches(Check::Held, "was held again after it was released");
}

#[test]
fn a_deadline_that_moves_back_is_caught() {
    let mut script = Script::default();
    script.grant("a", 1, 10, 100, 1000);
    let call = script.call("a", "extend", Some(1), 200, None);
    script.returns("a", call, 201, |end| end.valid_until_ns = Some(3000 * MILLI));
    script.sample("a", 1, 300, true, Some(1300));
    script.catches(Check::Deadline, "was valid until 3000000000 ns, and then until 1300000000 ns only");
}

#[test]
fn a_loss_that_is_told_late_or_never_is_caught() {
    let mut script = Script::default();
    script.grant("a", 1, 10, 100, 1000);
    script.lost("a", 1, 1251);
    script.catches(Check::LossTold, "its loss was told then");
    script.paused("a", 900, 1240);
    script.check().assert_clean();
    let mut script = Script::default();
    script.grant("a", 1, 10, 100, 1000);
    script.check().assert_clean();
    script.end("a", 1249);
    script.check().assert_clean();
    script.end("a", 1251);
    script.catches(Check::LossTold, "neither was it released nor its loss told");
}

#[test]
fn calls_that_take_too_long_or_never_end_are_caught() {
    let mut script = Script::default();
    let call = script.call("a", "acquire", None, 100, Some(500));
    script.check().assert_clean();
    let mut late = Script { records: script.records.clone(), ..Script::default() };
    late.returns("a", call, 851, |end| end.outcome = "Timeout".into());
    late.catches(Check::Bounded, "took 751ms of 500ms");
    late.paused("a", 50, 200);
    late.check().assert_clean();
    let mut early = Script { records: script.records.clone(), ..Script::default() };
    early.returns("a", call, 850, |end| end.outcome = "Timeout".into());
    early.check().assert_clean();
    script.end("a", 400);
    script.catches(Check::Bounded, "had not returned");
    script.end("a", 900);
    script.catches(Check::Bounded, "did not end within");
}

#[test]
fn nonsense_is_told_from_violations() {
    let mut script = Script::default();
    script.sample("a", 7, 100, true, None);
    script.catches(Check::WellFormed, "which it never had");
    let mut script = Script::default();
    script.returns("a", 7, 100, |_| {});
    script.catches(Check::WellFormed, "unmade");
    let mut script = good();
    script.grant("a", 2, 50, 5000, 5100);
    script.release("a", 2, 5050);
    script.catches(Check::WellFormed, "got lease 2 twice");
    assert!(std::panic::catch_unwind(|| script.check().assert_clean()).is_err());
    script.check().assert_clean_except(&[Check::WellFormed]);
}

#[test]
fn files_are_read_back_up_to_a_line_cut_short() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    let records = good().records;
    let mut writer = Writer::open(&path).unwrap();
    for record in &records {
        writer.write(record).unwrap();
    }
    assert_eq!(read(&path).unwrap(), records);
    let mut text = std::fs::read_to_string(&path).unwrap();
    text.push_str("{\"event\":\"sam");
    std::fs::write(&path, &text).unwrap();
    assert_eq!(read(&path).unwrap(), records);
    std::fs::write(&path, "{\"event\":\"sam\n".to_owned() + &text).unwrap();
    assert!(read(&path).unwrap_err().to_string().contains("a.jsonl:1:"));
}

#[test]
fn a_long_run_is_checked_quickly() {
    let mut script = Script::default();
    for number in 1..=100_000 {
        script.grant("a", number, number, number * 10, number * 10 + 9);
        script.sample("a", number, number * 10 + 5, true, None);
        script.release("a", number, number * 10 + 6);
    }
    let start = std::time::Instant::now();
    let report = script.check();
    report.assert_clean();
    assert_eq!(report.summary.leases, 100_000);
    // Far more than it takes; a quadratic check would take minutes.
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

proptest! {
    /// The sweep finds a conflict exactly if comparing all pairs does.
    #[test]
    fn the_sweep_agrees_with_comparing_all_pairs(
        spans in proptest::collection::vec((1..60_u64, 0..20_u64, any::<bool>()), 0..12)
    ) {
        let mut script = Script::default();
        for (number, &(start, length, shared)) in (1..).zip(&spans) {
            script.grant_as("a", number, number, 0..start, start + length, |end| {
                end.mode = if shared { Mode::Shared } else { Mode::Exclusive };
            });
        }
        let pairs = spans.iter().enumerate().flat_map(|(index, one)| spans[..index].iter().map(move |two| (one, two)));
        let conflict = pairs.filter(|((start, length, shared), (other, other_length, other_shared))| {
            *start.max(other) < (start + length).min(other + other_length) && !(*shared && *other_shared)
        });
        prop_assert_eq!(script.check().of(Check::Exclusion).is_empty(), conflict.count() == 0);
    }

    /// The order of tokens is found wrong exactly if it is for some pair.
    #[test]
    fn the_token_check_agrees_with_comparing_all_pairs(
        spans in proptest::collection::vec((0..60_u64, 1..20_u64, 0..40_u64), 0..12)
    ) {
        let mut script = Script::default();
        for (number, &(start, length, token)) in (1..).zip(&spans) {
            script.grant_as("a", number, token, start..start + length, start + length, |_| {});
        }
        let pairs = spans.iter().enumerate().flat_map(|(index, one)| {
            spans.iter().enumerate().filter(move |(other, _)| *other != index).map(move |(_, two)| (one, two))
        });
        let wrong = pairs.filter(|((start, length, token), (other, _, other_token))| {
            token == other_token || (start + length <= *other && token > other_token)
        });
        prop_assert_eq!(script.check().of(Check::Fencing).is_empty(), wrong.count() == 0);
    }
}

#[test]
fn a_lease_is_written_as_documented() {
    let line = r#"{"event":"return","process":"py-1","call":1,"at_ns":180,"outcome":"ok","lease":1,"token":7,"valid_until_ns":900}"#;
    let record: Record = serde_json::from_str(line).unwrap();
    assert_eq!(serde_json::to_string(&record).unwrap(), line);
    let permit = Return { mode: Mode::Permit(3), at_ns: SECOND, ..Return::default() };
    assert!(serde_json::to_string(&Record::Return(permit)).unwrap().contains(r#""mode":{"permit":3}"#));
}
