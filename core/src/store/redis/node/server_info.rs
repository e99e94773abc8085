//! What a server reports about itself: how strong its fencing tokens are, and which settings endanger locks.

use std::collections::HashMap;

use super::Node;
use crate::config::warning::{EVICTION, PERSISTENCE, REPLICAS, UNKNOWN, finding};
use crate::error::ErrorKind;
use crate::machine::{Failure, Grade, Time};
use crate::store::Facts;
use crate::store::redis::resp::value::{map_entry, printable, text};

/// Queries the server. What it does not report counts as missing.
pub(crate) async fn query(node: &Node, until: Time) -> Result<Facts, Failure> {
    let epoch = node.context.epoch();
    let info = node.command(&["INFO"], until).await?;
    if is_replica(text(&info)) {
        node.manager.retire();
        node.context.mark_stale(epoch);
        let detail = format!("{}: the server is a replica by now; locks are taken on its master", node.context.name);
        return Err(Failure::transient(ErrorKind::ReadOnly, detail));
    }
    let fsync = setting(node, "appendfsync", until).await?;
    let replicas = setting(node, "min-replicas-to-write", until).await?;
    Ok(judge(text(&info), fsync.as_deref(), replicas.as_deref()))
}

/// Whether a connection that was made to a master leads to a replica now.
fn is_replica(info: Option<&[u8]>) -> bool {
    let mut lines = info.unwrap_or_default().split(|byte| *byte == b'\n');
    lines.any(|line| line.trim_ascii() == b"role:slave")
}

/// A setting of the server; `None` if it does not report it.
async fn setting(node: &Node, name: &str, until: Time) -> Result<Option<Vec<u8>>, Failure> {
    let reply = node.command(&["CONFIG", "GET", name], until).await?;
    Ok(map_entry(&reply, name.as_bytes()).and_then(text).map(<[u8]>::to_vec))
}

/// What `INFO` (`None`: denied), `appendfsync` and `min-replicas-to-write` (`None`: unknown) mean for locks.
pub(crate) fn judge(info: Option<&[u8]>, fsync: Option<&[u8]>, min_replicas: Option<&[u8]>) -> Facts {
    let Some(info) = info else {
        let warning = "INFO is not permitted, so it could not be checked whether this server keeps its locks: eviction \
                       policy, persistence and replicas are unknown";
        let server = "unknown server".to_owned();
        let warnings = vec![finding(UNKNOWN, warning)];
        return Facts { grade: Grade::BestEffort, warnings, dangers: Vec::new(), server };
    };
    let text = String::from_utf8_lossy(info);
    let fields: HashMap<&str, &str> = text.lines().filter_map(|line| line.split_once(':')).collect();
    let field = |name: &str| fields.get(name).copied().map(printable).unwrap_or_default();

    let mut warnings = Vec::new();
    let policy = field("maxmemory_policy");
    // a setting that the server does not report counts as missing
    let evicting = policy != "noeviction";
    if policy.is_empty() {
        let text = "maxmemory-policy is unknown: a lock may be evicted while it is held; set noeviction";
        warnings.push(finding(EVICTION, text));
    } else if evicting {
        let text = format!("maxmemory-policy is {policy}: a lock may be evicted while it is held; set noeviction");
        warnings.push(finding(EVICTION, &text));
    }
    let aof = field("aof_enabled") == "1";
    let always = aof && fsync == Some(b"always");
    if !aof {
        let text =
            "appendonly is off: a restart forgets locks that are held; set appendonly yes and appendfsync always";
        warnings.push(finding(PERSISTENCE, text));
    }
    let replicas = field("connected_slaves").parse().unwrap_or(0);
    let enough = min_replicas.is_some_and(|number| number != b"0");
    if replicas > 0 && !enough {
        let text = format!(
            "{replicas} asynchronous replica{}: a failover may lose a lock that is held; \
             fencing tokens are the protection, min-replicas-to-write narrows the gap",
            if replicas == 1 { "" } else { "s" }
        );
        warnings.push(finding(REPLICAS, &text));
    }
    let grade = match (evicting, always && replicas == 0) {
        (true, _) => Grade::BestEffort,
        (false, true) => Grade::Strict,
        (false, false) => Grade::ClockBounded,
    };
    let server = match (fields.get("valkey_version"), fields.get("redis_version")) {
        (Some(version), _) => format!("valkey {}", printable(version)),
        (None, Some(version)) => format!("redis {}", printable(version)),
        (None, None) => "unknown server".to_owned(),
    };
    Facts { grade, warnings, dangers: Vec::new(), server }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(lines: &[&str]) -> Vec<u8> {
        lines.join("\r\n").into_bytes()
    }

    #[test]
    fn grades() {
        type Row = (&'static [&'static str], Option<&'static [u8]>, Grade);
        let table: [Row; 7] = [
            (&["aof_enabled:1", "connected_slaves:0", "maxmemory_policy:noeviction"], Some(b"always"), Grade::Strict),
            (
                &["aof_enabled:1", "connected_slaves:0", "maxmemory_policy:noeviction"],
                Some(b"everysec"),
                Grade::ClockBounded,
            ),
            (&["aof_enabled:1", "connected_slaves:0", "maxmemory_policy:noeviction"], None, Grade::ClockBounded),
            (
                &["aof_enabled:0", "connected_slaves:0", "maxmemory_policy:noeviction"],
                Some(b"always"),
                Grade::ClockBounded,
            ),
            (
                &["aof_enabled:1", "connected_slaves:1", "maxmemory_policy:noeviction"],
                Some(b"always"),
                Grade::ClockBounded,
            ),
            (
                &["aof_enabled:1", "connected_slaves:0", "maxmemory_policy:volatile-ttl"],
                Some(b"always"),
                Grade::BestEffort,
            ),
            (&[], None, Grade::BestEffort),
        ];
        for (lines, fsync, grade) in table {
            assert_eq!(judge(Some(&info(lines)), fsync, None).grade, grade, "{lines:?} {fsync:?}");
        }
        let denied = judge(None, None, None);
        assert_eq!((denied.grade, denied.warnings.len()), (Grade::BestEffort, 1));
    }

    #[test]
    fn warnings_name_the_setting() {
        let lines = ["aof_enabled:0", "connected_slaves:2", "maxmemory_policy:allkeys-lru", "redis_version:7.2.4"];
        let facts = judge(Some(&info(&lines)), None, None);
        for (warning, word) in facts.warnings.iter().zip(["maxmemory-policy", "appendonly", "min-replicas-to-write"]) {
            assert!(warning.contains(word), "{warning}");
        }
        assert_eq!(facts.warnings.len(), 3);
        assert_eq!(facts.server, "redis 7.2.4");
        let calm = [
            "aof_enabled:1",
            "connected_slaves:2",
            "maxmemory_policy:noeviction",
            "valkey_version:9.1.0",
            "redis_version:7.2.4",
        ];
        let facts = judge(Some(&info(&calm)), Some(b"everysec"), Some(b"1"));
        assert_eq!((facts.warnings, facts.server.as_str()), (Vec::new(), "valkey 9.1.0"));
    }
}
