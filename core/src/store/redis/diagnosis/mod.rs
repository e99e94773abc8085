//! Looking at servers step by step, and saying which step fails.
//!
//! | file | does |
//! |---|---|
//! | `open` | the first steps of a connection: name, TCP, TLS |
//! | `probe` | the further ones: protocol, user, database, role |
//! | `settings` | what the server is and how it is set up; its clock, the round trip, a proxy in between |
//! | `permissions` | each permission that locks need, tried one by one |
//! | `acl_line` | the one line that gives what is missing |
//! | `topology` | Sentinels and clusters |
//!
//! It changes nothing on the server: commands that write are sent in a form that has no effect.

mod acl_line;
#[cfg_attr(target_family = "wasm", path = "open_hosted.rs")]
mod open;
mod permissions;
mod probe;
mod settings;
mod topology;

pub(crate) use self::topology::{cluster, sentinel};

use self::probe::Probe;
use super::address::endpoint::Endpoint;
use super::node::run_id::parse_run;
use super::options::RedisOptions;
use crate::config::Options;
use crate::machine::quorum::ServerRun;
use crate::store::diagnosis::{Finding, FindingList};

/// What one server needs to be looked at.
#[derive(Clone)]
pub(crate) struct DiagnosisPlan {
    pub(crate) options: RedisOptions,
    /// Locks that this user may lock begin with it; prefix included.
    pub(crate) name: Vec<u8>,
    /// Whether it is a node of a cluster, whose channels may be sharded.
    pub(crate) in_cluster: bool,
}

impl DiagnosisPlan {
    /// With the options of a client.
    pub(crate) fn new(options: &Options, name: Vec<u8>) -> DiagnosisPlan {
        DiagnosisPlan { options: RedisOptions::of(options), name, in_cluster: false }
    }
}

/// What was found out about one server, beside the findings.
#[derive(Default)]
pub(crate) struct ServerLook {
    pub(crate) findings: Vec<Finding>,
    /// How far its clock is ahead of ours, if it told.
    pub(crate) clock_ahead_us: Option<f64>,
    /// Which run of the server it is.
    pub(crate) run: Option<ServerRun>,
    pub(crate) failed: bool,
}

/// Looks at one server that keeps locks.
pub(crate) async fn server(endpoint: Endpoint, plan: &DiagnosisPlan) -> ServerLook {
    let mut found = FindingList::of(&endpoint);
    let mut look = ServerLook::default();
    if let Some(mut probe) = Probe::connect(&endpoint, &plan.options, &mut found).await
        && probe.check_role(&mut found).await
    {
        match steps(&mut probe, plan, &mut found).await {
            Ok((clock_ahead_us, info)) => {
                look.clock_ahead_us = clock_ahead_us;
                look.run = parse_run(&info);
            }
            Err(failure) => found.failure("protocol", &failure),
        }
    }
    look.failed = found.has_failed();
    look.findings = found.all;
    look
}

async fn steps(
    probe: &mut Probe,
    plan: &DiagnosisPlan,
    found: &mut FindingList,
) -> Result<(Option<f64>, String), crate::machine::Failure> {
    let info = settings::server(probe, plan.in_cluster, found).await?;
    let ahead = settings::clock(probe, found).await?;
    settings::round_trip(probe, &plan.options, found).await?;
    settings::proxy(probe, found).await?;
    permissions::all(probe, plan, found).await?;
    Ok((ahead, info))
}
