//! The counters of a client.

/// How long something took, in milliseconds. Quantiles are upper bounds, at most twice too high.
#[derive(Debug, uniffi::Record)]
pub struct Histogram {
    pub count: i64,
    pub sum_ms: f64,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
}

impl From<&onelock::Histogram> for Histogram {
    fn from(histogram: &onelock::Histogram) -> Histogram {
        let quantile = |share| histogram.quantile(share).as_secs_f64() * 1e3;
        Histogram {
            count: histogram.count as i64,
            sum_ms: histogram.sum_us as f64 / 1e3,
            p50_ms: quantile(0.5),
            p90_ms: quantile(0.9),
            p99_ms: quantile(0.99),
        }
    }
}

/// What a client has done since it was made.
#[derive(Debug, uniffi::Record)]
pub struct Stats {
    /// Leases held now.
    pub held: i64,
    /// Acquires waiting now.
    pub waiting: i64,
    /// Acquires that were granted, re-entries included.
    pub acquired: i64,
    /// Tries that found the lock busy.
    pub busy: i64,
    /// Acquires whose wait was used up.
    pub timeouts: i64,
    /// Acquires that were abandoned by their caller.
    pub cancelled: i64,
    /// Acquires that failed for another reason.
    pub failed: i64,
    /// Leases released by their holder.
    pub released: i64,
    /// Leases lost.
    pub lost: i64,
    /// Renewals that were confirmed, one per lease and round.
    pub renewals: i64,
    /// Renewal rounds of a lease that were missed.
    pub renewals_missed: i64,
    /// Cleanups that are not finished yet.
    pub cleaning: i64,
    /// Connections made after the first one.
    pub reconnects: i64,
    /// Requests sent to the server.
    pub commands_sent: i64,
    /// Time from the call to the grant.
    pub wait: Histogram,
    /// Time from the grant to the end of the hold.
    pub hold: Histogram,
}

impl From<onelock::Stats> for Stats {
    fn from(stats: onelock::Stats) -> Stats {
        Stats {
            held: stats.held as i64,
            waiting: stats.waiting as i64,
            acquired: stats.acquired as i64,
            busy: stats.busy as i64,
            timeouts: stats.timeouts as i64,
            cancelled: stats.cancelled as i64,
            failed: stats.failed as i64,
            released: stats.released as i64,
            lost: stats.lost as i64,
            renewals: stats.renewals as i64,
            renewals_missed: stats.renewals_missed as i64,
            cleaning: stats.cleaning as i64,
            reconnects: stats.reconnects as i64,
            commands_sent: stats.commands_sent as i64,
            wait: (&stats.wait).into(),
            hold: (&stats.hold).into(),
        }
    }
}
