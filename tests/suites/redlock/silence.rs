//! A server that falls silent while locks are taken and released all the time: what is owed to it, and what that costs.

use std::time::{Duration, Instant};

use onelock_tests::face::{Client, on_both};
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::stage::{REQUEST, SOON, ms, quick};
use onelock_tests::topology::Several;
use onelock_tests::wait::wait_until;

const CYCLES: u64 = 2000;

/// How many scripts it was asked for.
fn scripts_run(server: &Server) -> u64 {
    let stats = server.info("commandstats");
    let calls =
        |name: &str| -> Option<u64> { stats.get(name)?.strip_prefix("calls=")?.split(',').next()?.parse().ok() };
    calls("cmdstat_evalsha").unwrap_or(0) + calls("cmdstat_eval").unwrap_or(0)
}

/// What this process has in memory, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn what_is_owed_to_a_silent_server_stays_little_and_is_paid_when_it_is_back() {
    on_both(|face| {
        let several = Several::start(Flavor::Valkey91, 3);
        let builder = quick().ttl(ms(2000));
        let client = Client::connect(face, builder, &several.url("quarantine_ms=0")).unwrap();
        let cycle = || client.lock("a").acquire_within(SOON).unwrap().released();
        wait_until(SOON, "all servers", || {
            let lease = client.lock("a").acquire_within(SOON).unwrap();
            let all = several.count("a") == 3;
            lease.released();
            all
        });
        let (frozen, others) = (&several.servers[2], &several.servers[..2]);
        let memory = resident();
        frozen.stop();
        // that it is silent is noticed when a request was not answered in time
        let begun = Instant::now();
        while begun.elapsed() < REQUEST * 4 {
            cycle();
        }
        let (scripts, sent, owed) =
            (others.iter().map(scripts_run).collect::<Vec<_>>(), client.stats().commands_sent, client.stats().cleaning);
        let begun = Instant::now();
        for _ in 0..CYCLES {
            cycle();
        }
        let took = begun.elapsed();
        let sent = client.stats().commands_sent - sent;
        let scripts: Vec<u64> = others.iter().map(scripts_run).zip(scripts).map(|(now, before)| now - before).collect();
        let grown = resident().saturating_sub(memory);
        let more = client.stats().cleaning.saturating_sub(owed);
        let told =
            format!("{face:?}: {took:?}, {owed} owed and {more} more, {sent} sent, {scripts:?} run, {grown} bytes");
        // from then on it is sent nothing, and owed nothing
        assert!(more <= CYCLES / 100, "{told}");
        // of what is owed, the others hear nothing: they were asked to grant and to release
        assert!(scripts.iter().all(|scripts| *scripts <= 2 * CYCLES + 20), "{told}");
        // the silent one is asked on connections that stand, and not for each undo again and again
        assert!(sent <= 8 * CYCLES, "{told}");
        assert!(grown < 64 << 20, "{told}");
        let before = others.iter().map(scripts_run).sum::<u64>();
        frozen.cont();
        wait_until(Duration::from_secs(60), "everything to be released", || {
            several.count("a") == 0 && client.stats().cleaning == 0
        });
        assert_eq!(others.iter().map(scripts_run).sum::<u64>(), before, "nothing of that concerns the others");
        assert!(resident().saturating_sub(memory) < 64 << 20);
        cycle();
        client.close();
    });
}
