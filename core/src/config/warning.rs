//! Warnings about a server that endangers locks: a sentence for people that ends with a name, by which it can be
//! accepted.

/// The names, each with whether it endangers exclusion while the server runs.
const NAMES: [(&str, bool); 7] = [
    (EVICTION, true),
    (REPLICAS, true),
    (SLOTS, true),
    (UNKNOWN, true),
    (ABSENT, true),
    (PERSISTENCE, false),
    (EVEN, false),
];

/// The server may evict a lock.
pub(crate) const EVICTION: &str = "eviction";
/// The server forgets locks when it restarts.
pub(crate) const PERSISTENCE: &str = "persistence";
/// A failover may lose a lock.
pub(crate) const REPLICAS: &str = "replicas";
/// The server does not report it.
pub(crate) const UNKNOWN: &str = "unknown";
/// Some slots of a cluster have no master.
pub(crate) const SLOTS: &str = "slots";
/// One server of several cannot be queried.
pub(crate) const ABSENT: &str = "absent";
/// An even number of servers of which a majority counts.
pub(crate) const EVEN: &str = "even";

/// A warning: a sentence, and its name.
pub(crate) fn finding(name: &str, text: &str) -> String {
    format!("{text} ({name})")
}

/// The name of a warning.
fn name(finding: &str) -> &str {
    finding.strip_suffix(')').and_then(|front| front.rsplit_once('(')).map_or("", |(_, name)| name)
}

/// Whether it endangers exclusion while the server runs.
pub(crate) fn is_danger(finding: &str) -> bool {
    NAMES.iter().any(|(known, danger)| *danger && *known == name(finding))
}

/// The names in a list of them, separated by spaces or commas; `Err` with one that is none.
pub(crate) fn names(list: &str) -> Result<Vec<&'static str>, String> {
    let words = list.split([' ', ',']).filter(|word| !word.is_empty());
    words
        .map(|word| NAMES.iter().map(|(name, _)| *name).find(|name| *name == word).ok_or_else(|| unknown(word)))
        .collect()
}

fn unknown(word: &str) -> String {
    let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
    format!("accepted_warnings: there is no warning named {word:?}; there are: {}", names.join(", "))
}

/// Whether it is one of these.
pub(crate) fn is_accepted(finding: &str, accepted: &[&str]) -> bool {
    accepted.contains(&name(finding))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn findings_have_names() {
        let found = finding(EVICTION, "maxmemory-policy is volatile-ttl (or so)");
        assert!(found.ends_with("(or so) (eviction)"));
        assert!(is_danger(&found) && !is_danger(&finding(PERSISTENCE, "appendonly is off")));
        assert!(is_accepted(&found, &names("persistence, eviction").unwrap()));
        assert!(!is_accepted(&found, &names("persistence").unwrap()) && !is_accepted(&found, &names("").unwrap()));
        assert!(names("evictions").unwrap_err().contains("persistence"));
    }
}
