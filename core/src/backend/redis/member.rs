//! What one server of several (Redlock) needs besides: it says which run of it a new connection goes to, since a server that
//! was started anew without its data must not vote.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::machine::quorum::Life;

/// Is told about every connection, before anything is asked on it.
#[derive(Clone)]
pub(crate) struct Witness(Arc<dyn Fn(Option<Life>) + Send + Sync>);

impl Witness {
    pub(crate) fn new(told: impl Fn(Option<Life>) + Send + Sync + 'static) -> Witness {
        Witness(Arc::new(told))
    }

    /// Passes on what the server said in its `INFO`; nothing, if it would not.
    pub(crate) fn tell(&self, info: &str) {
        (self.0)(life(info));
    }
}

/// It says nothing about which server it is.
impl PartialEq for Witness {
    fn eq(&self, _: &Witness) -> bool {
        true
    }
}

impl Eq for Witness {}

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Witness")
    }
}

fn life(info: &str) -> Option<Life> {
    let fields: HashMap<&str, &str> = info.lines().filter_map(|line| line.split_once(':')).collect();
    let field = |name: &str| fields.get(name).map(|value| value.trim());
    let name = field("run_id")?.as_bytes();
    let mut run_id = [0; 40];
    let length = name.len().min(run_id.len());
    run_id[..length].copy_from_slice(&name[..length]);
    Some(Life {
        run_id,
        uptime: Duration::from_secs(field("uptime_in_seconds")?.parse().ok()?),
        keeps_data: field("aof_enabled") == Some("1"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_says_which_run_it_is() {
        let info = "# Server\r\nrun_id:0123456789012345678901234567890123456789\r\nuptime_in_seconds:77\r\n\
                    # Persistence\r\naof_enabled:1\r\n";
        let told = life(info).unwrap();
        assert_eq!((told.run_id[9], told.uptime.as_secs(), told.keeps_data), (b'9', 77, true));
        assert!(!life(&info.replace("aof_enabled:1", "aof_enabled:0")).unwrap().keeps_data);
        assert_eq!(life(""), None);
    }
}
