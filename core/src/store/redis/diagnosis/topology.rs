//! Sentinels and clusters: which servers there are, then each of them.

use futures_util::future::join_all;
use redis::Value;

use super::probe::{Probe, refusal};
use super::{DiagnosisPlan, server};
use crate::config::Notify;
use crate::error::ErrorKind;
use crate::machine::naming::SLOTS;
use crate::store::diagnosis::{Finding, FindingList, Severity};
use crate::store::redis::address::endpoint::{ConnectionAddr, Endpoint};
use crate::store::redis::address::multi::{ClusterSeeds, SentinelConfig};
use crate::store::redis::command::server_error;
use crate::store::redis::resp::value::{printable, text};
use crate::store::redis::topology::cluster::slot_map;

/// Looks at every Sentinel, and at the master that they name.
pub(crate) async fn sentinel(group: SentinelConfig, plan: &DiagnosisPlan) -> Vec<Finding> {
    let SentinelConfig { master_name, sentinels, master } = group;
    let looks = join_all(sentinels.iter().map(|place| one_sentinel(place, &master_name, plan))).await;
    let mut named: Vec<(String, u16)> = looks.iter().filter_map(|(_, named)| named.clone()).collect();
    let mut findings: Vec<Finding> = looks.into_iter().flat_map(|(findings, _)| findings).collect();
    let number = sentinels.len();
    let mut all = FindingList::of("");
    let telling = named.len();
    named.sort();
    named.dedup();
    let name = printable(&master_name);
    match &named[..] {
        [] => {
            let todo = "check the name of the group, and each Sentinel above";
            let detail = format!("no Sentinel names the master of {name}");
            all.failed("sentinel", ErrorKind::Unavailable, detail, todo);
        }
        [(host, port)] => {
            // one that does not answer is harmless: the others are asked
            for finding in &mut findings {
                if finding.severity == Severity::Failed {
                    finding.severity = Severity::Warning;
                }
            }
            all.passed("sentinel", format!("{telling} of {number} name {host}:{port} as the master of {name}"));
        }
        several => {
            let places: Vec<String> = several.iter().map(|(host, port)| format!("{host}:{port}")).collect();
            let todo = "wait for the failover to end, and look whether all Sentinels watch the same group";
            all.warning("sentinel", format!("Sentinels name different masters of {name}: {}", places.join(", ")), todo);
        }
    }
    findings.extend(all.all);
    for (host, port) in named {
        findings.extend(server(master.moved_to(&host, port), plan).await.findings);
    }
    findings
}

async fn one_sentinel(
    place: &Endpoint,
    master_name: &str,
    plan: &DiagnosisPlan,
) -> (Vec<Finding>, Option<(String, u16)>) {
    let mut found = FindingList::of(place);
    let Some(mut probe) = Probe::connect(place, &plan.options, &mut found).await else { return (found.all, None) };
    let reply = match probe.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", master_name]).await {
        Ok(reply) => reply,
        Err(failure) => {
            found.failure("sentinel", &failure);
            return (found.all, None);
        }
    };
    if let Some(said) = refusal(&reply) {
        let failure = server_error::classify(&said);
        let (kind, todo) = if failure.kind == ErrorKind::NotPermitted {
            (failure.kind, "add +sentinel|get-master-addr-by-name to the permissions of the Sentinel's user")
        } else {
            (ErrorKind::InvalidArgument, "this is no Sentinel: their port is 26379 usually")
        };
        found.failed("sentinel", kind, failure.detail, todo);
        return (found.all, None);
    }
    let master = match &reply {
        Value::Array(words) => words.first().and_then(text).zip(words.get(1).and_then(text)),
        _ => None,
    };
    let master = master.and_then(|(host, port)| {
        Some((String::from_utf8(host.to_vec()).ok()?, str::from_utf8(port).ok()?.parse().ok()?))
    });
    if let Some((host, port)) = &master {
        found.passed("sentinel", format!("the master is {}:{port}", printable(host)));
    } else {
        let detail = format!("it knows no master named {}", printable(master_name));
        found.failed("sentinel", ErrorKind::Unavailable, detail, "check the name of the group in the address");
    }
    (found.all, master)
}

/// Looks at the nodes of the address, the slots, and every master.
pub(crate) async fn cluster(seeds: ClusterSeeds, plan: &DiagnosisPlan) -> Vec<Finding> {
    let plan = DiagnosisPlan { in_cluster: true, ..plan.clone() };
    let mut findings: Vec<Finding> = Vec::new();
    let mut masters: Vec<Endpoint> = Vec::new();
    let mut all = FindingList::of("");
    for seed in &seeds.nodes {
        let mut found = FindingList::of(seed);
        if masters.is_empty()
            && let Some(mut probe) = Probe::connect(seed, &plan.options, &mut found).await
        {
            masters = slots(&mut probe, seed, &mut found, &mut all).await;
            if !masters.is_empty() {
                notify(&mut probe, plan.options.notify, &mut all).await;
            }
        }
        // a master is looked at from the start, with the others
        if !masters.iter().any(|master| master.to_string() == seed.to_string()) {
            findings.extend(found.all);
        }
    }
    if !masters.is_empty() {
        // a node that does not answer is harmless where another one tells the same
        findings.iter_mut().filter(|it| it.severity == Severity::Failed).for_each(|it| it.severity = Severity::Warning);
    }
    let looks = join_all(masters.into_iter().map(|master| server(master, &plan))).await;
    findings.extend(looks.into_iter().flat_map(|look| look.findings));
    findings.extend(all.all);
    findings
}

/// The masters, according to one node; what it says of the whole cluster goes to `all`.
async fn slots(probe: &mut Probe, seed: &Endpoint, found: &mut FindingList, all: &mut FindingList) -> Vec<Endpoint> {
    let reply = match probe.ask(&["CLUSTER", "SLOTS"]).await {
        Ok(reply) => reply,
        Err(failure) => {
            found.failure("slots", &failure);
            return Vec::new();
        }
    };
    if let Some(said) = refusal(&reply) {
        let failure = server_error::classify(&said);
        let (kind, todo) = if failure.kind == ErrorKind::NotPermitted {
            (failure.kind, "add +cluster|slots to the user's permissions")
        } else {
            (ErrorKind::InvalidArgument, "this server is in no cluster: write redis:// instead of redis+cluster://")
        };
        found.failed("slots", kind, failure.detail, todo);
        return Vec::new();
    }
    let ConnectionAddr::Tcp { host: here, .. } = &seed.addr else { return Vec::new() };
    let ranges = slot_map::read(&reply, here).unwrap_or_default();
    let assigned: u32 = ranges.iter().map(|range| u32::from(range.to) - u32::from(range.from) + 1).sum();
    let mut masters: Vec<(String, u16)> = ranges.iter().map(|range| range.master.clone()).collect();
    masters.sort();
    masters.dedup();
    // whom a slot belongs to does not say that it is served
    let state = ClusterState::ask(probe).await;
    let served = state.as_ref().and_then(|state| state.served).unwrap_or(assigned).min(assigned);
    let word = if state.is_some() { "served" } else { "assigned" };
    let detail = format!("{served} of {SLOTS} are {word}, by {} masters", masters.len());
    if state.is_some_and(|state| state.is_down) {
        let detail =
            format!("the cluster is down (CLUSTERDOWN): {served} of {SLOTS} are served, and none of them takes locks");
        let todo = "bring the missing masters back, or let replicas take their place (CLUSTER FAILOVER TAKEOVER); a cluster \
                    that is to serve what is left has cluster-require-full-coverage no";
        all.failed("slots", ErrorKind::ServerRefused, detail, todo);
    } else if served == u32::from(SLOTS) {
        all.passed("slots", detail);
    } else if served == 0 {
        all.failed("slots", ErrorKind::ServerRefused, detail, "finish the cluster's setup, or bring its nodes back");
    } else {
        all.warning("slots", detail, "names in the others cannot be locked: bring the missing nodes back");
    }
    masters.into_iter().map(|(host, port)| seed.moved_to(&host, port)).collect()
}

/// What one node thinks of its cluster.
struct ClusterState {
    /// It refuses every name.
    is_down: bool,
    /// How many slots have a master that answers.
    served: Option<u32>,
}

impl ClusterState {
    /// `None` where this user may not ask.
    async fn ask(probe: &mut Probe) -> Option<ClusterState> {
        let reply = probe.ask(&["CLUSTER", "INFO"]).await.ok()?;
        let info = String::from_utf8_lossy(text(&reply)?).into_owned();
        let field = |name: &str| {
            let mut pairs = info.lines().filter_map(|line| line.split_once(':'));
            pairs.find(|(known, _)| *known == name).map(|(_, value)| value.trim().to_owned())
        };
        let is_down = field("cluster_state")? == "fail";
        Some(ClusterState { is_down, served: field("cluster_slots_ok").and_then(|number| number.parse().ok()) })
    }
}

/// How releases are announced.
async fn notify(probe: &mut Probe, wanted: Notify, found: &mut FindingList) {
    let Ok(reply) = probe.ask(&["PUBSUB", "SHARDNUMSUB"]).await else { return };
    let sharded = refusal(&reply).is_none();
    let detail = match (wanted, sharded) {
        (Notify::Auto, true) => "by sharded channels (notify is auto)",
        (Notify::Auto, false) => {
            "by classic channels (notify is auto, and the server or its permissions have no sharded ones)"
        }
        (Notify::Classic, _) => "by classic channels, as notify says",
        (Notify::Sharded, true) => "by sharded channels, as notify says",
        (Notify::Both, true) => "by sharded and classic channels, as notify says",
        (Notify::Sharded | Notify::Both, false) => {
            let todo = "set notify to auto or classic, or allow PUBSUB SHARDNUMSUB";
            found.warning("notify", "notify asks for sharded channels, which are not to be had here", todo);
            return;
        }
    };
    found.passed("notify", detail);
}
