//! Looking at several independent servers: each of them, and what they are together.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;

use super::mixed_address::{MemberPlace, MixedAddress};
use super::{RedlockNodes, RedlockOptions};
use crate::config::Options;
use crate::error::ErrorKind;
use crate::machine::quorum::{Quorum, Rules};
use crate::store::diagnosis::{Finding, FindingList, Severity};
use crate::store::member::RunObserver;
use crate::store::redis::address::endpoint::Endpoint;
use crate::store::redis::diagnosis::{self, DiagnosisPlan, ServerLook};
use crate::sys::{clock, lock};

/// Clocks of servers that are further apart are worth a remark.
const CLOCKS_APART: Duration = Duration::from_secs(1);

/// Looks at stores of any kind.
pub(super) async fn diagnose_members(address: MixedAddress, options: &Options, name: Vec<u8>) -> Vec<Finding> {
    let plan = &DiagnosisPlan::new(options, name);
    let looks = address.members.iter().cloned().map(|member| async move {
        match member {
            MemberPlace::Redis(endpoint) => diagnosis::server(endpoint, plan).await,
            MemberPlace::Any(place) => {
                let told = Arc::new(Mutex::new(None));
                let heard = told.clone();
                let observer = RunObserver::new(move |run| *lock(&heard) = run.copied());
                let findings = place.diagnose_member(options, plan.name.clone(), observer).await;
                let failed = findings.iter().any(|finding| finding.severity == Severity::Failed);
                let run = lock(&told).take();
                ServerLook { findings, run, failed, ..ServerLook::default() }
            }
        }
    });
    let looks = join_all(looks).await;
    judge(&address.names(), looks, RedlockOptions::of(options).rules)
}

/// Looks at Redis servers.
pub(super) async fn diagnose(nodes: RedlockNodes, mut rules: Rules, plan: &DiagnosisPlan) -> Vec<Finding> {
    let names: Vec<String> = nodes.endpoints.iter().map(Endpoint::to_string).collect();
    if nodes.quarantine.is_some() {
        rules.quarantine = nodes.quarantine;
    }
    let looks = join_all(nodes.endpoints.into_iter().map(|endpoint| diagnosis::server(endpoint, plan))).await;
    judge(&names, looks, rules)
}

/// What they are together.
fn judge(names: &[String], mut looks: Vec<ServerLook>, rules: Rules) -> Vec<Finding> {
    let mut quorum = Quorum::new(names.to_vec(), rules);
    let (now, mut voting) = (clock::now(), 0);
    let mut quarantined = Vec::new();
    for (number, (look, name)) in looks.iter_mut().zip(names).enumerate() {
        if look.failed {
            continue;
        }
        quorum.on_connected(now, number, look.run.as_ref());
        let mut found = FindingList::of(name);
        match quorum.ineligible_for(now, number) {
            None => {
                voting += 1;
                found.passed("quarantine", "it votes");
            }
            Some(left) => {
                quarantined.push(left);
                let detail = format!("it was started without its data, and does not vote for another {left:.0?}");
                found.warning(
                    "quarantine",
                    detail,
                    "set appendonly yes (fsync on in PostgreSQL), or another time with the option quarantine",
                );
            }
        }
        look.findings.extend(found.all);
    }
    let mut findings = together(names, quorum.majority(), voting, quarantined, &looks);
    let mut all: Vec<Finding> = looks.into_iter().flat_map(|look| look.findings).collect();
    if voting >= quorum.majority() {
        // a majority is enough
        for finding in &mut all {
            if finding.severity == Severity::Failed {
                finding.severity = Severity::Warning;
            }
        }
    }
    all.append(&mut findings);
    all
}

/// `quarantined`: for how long each of those does not vote that are up, but started without their data.
fn together(
    names: &[String],
    majority: usize,
    voting: usize,
    mut quarantined: Vec<Duration>,
    looks: &[ServerLook],
) -> Vec<Finding> {
    let mut found = FindingList::of("");
    let number = names.len();
    let detail = format!("{voting} of {number} servers vote, {majority} are needed");
    quarantined.sort_unstable();
    if voting < majority {
        let todo = match quarantined.get(majority - voting - 1) {
            Some(left) => format!("wait {left:.0?}: then enough of them vote, without anything else to be done"),
            None => "bring the servers back whose steps failed above".to_owned(),
        };
        found.failed("quorum", ErrorKind::NoQuorum, detail, todo);
    } else if number.is_multiple_of(2) {
        let todo = format!("use an odd number: {number} survive no more failures than {}", number - 1);
        found.remark("quorum", detail, todo);
    } else {
        found.passed("quorum", detail);
    }
    let ahead: Vec<f64> = looks.iter().filter_map(|look| look.clock_ahead_us).collect();
    let least = ahead.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ahead.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if ahead.len() < 2 {
        found.skipped("clocks", "fewer than two servers told their time");
        return found.all;
    }
    let apart = most - least;
    let detail = format!("{:.1} ms apart at most", apart / 1e3);
    if apart > CLOCKS_APART.as_secs_f64() * 1e6 {
        let todo = "set the servers' clocks by NTP: only how fast they run matters to leases, but what sets one may set it \
                    again while a lock is held";
        found.remark("clocks", detail, todo);
    } else {
        found.passed("clocks", detail);
    }
    found.measured(&[("apart_ms", apart / 1e3)]);
    found.all
}
