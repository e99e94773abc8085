//! Which run of the server process a connection goes to. Redlock needs it: a server that was restarted without its data
//! must not vote.

use std::collections::HashMap;
use std::time::Duration;

use crate::machine::quorum::ServerRun;

/// The run that an `INFO` tells of.
pub(crate) fn parse_run(info: &str) -> Option<ServerRun> {
    let fields: HashMap<&str, &str> = info.lines().filter_map(|line| line.split_once(':')).collect();
    let field = |name: &str| fields.get(name).map(|value| value.trim());
    let name = field("run_id")?.as_bytes();
    let mut run_id = [0; 40];
    let length = name.len().min(run_id.len());
    run_id[..length].copy_from_slice(&name[..length]);
    Some(ServerRun {
        run_id,
        uptime: Duration::from_secs(field("uptime_in_seconds")?.parse().ok()?),
        keeps_data: field("aof_enabled") == Some("1"),
        data: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_says_which_run_it_is() {
        let info = "# Server\r\nrun_id:0123456789012345678901234567890123456789\r\nuptime_in_seconds:77\r\n\
                    # Persistence\r\naof_enabled:1\r\n";
        let told = parse_run(info).unwrap();
        assert_eq!((told.run_id[9], told.uptime.as_secs(), told.keeps_data), (b'9', 77, true));
        assert!(!parse_run(&info.replace("aof_enabled:1", "aof_enabled:0")).unwrap().keeps_data);
        assert_eq!(parse_run(""), None);
    }
}
