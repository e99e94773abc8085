//! What a client does, as metrics of OpenTelemetry: its counters, which are read when they are asked for, and histograms.

use std::sync::{Arc, Weak};

use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;

use crate::client::ClientState;
use crate::driver::metrics::Stats;
use crate::error::{Error, ErrorKind};

/// A number of [`Stats`]: its name behind `onelock.`, its unit, what it is, and where it stands.
type Number = (&'static str, &'static str, &'static str, fn(&Stats) -> u64);

/// What goes up and down.
const LEVELS: [Number; 3] = [
    ("held", "{lease}", "Leases held now.", |stats| stats.held),
    ("waiting", "{acquire}", "Acquires waiting now.", |stats| stats.waiting),
    ("cleaning", "{cleanup}", "Cleanups that are not finished yet.", |stats| stats.cleaning),
];

/// What goes up alone.
const COUNTERS: [Number; 11] = [
    ("acquired", "{acquire}", "Acquires that were granted, re-entries included.", |stats| stats.acquired),
    ("busy", "{acquire}", "Tries that found the lock busy.", |stats| stats.busy),
    ("timeouts", "{acquire}", "Acquires that timed out.", |stats| stats.timeouts),
    ("cancelled", "{acquire}", "Acquires that their caller cancelled.", |stats| stats.cancelled),
    ("failed", "{acquire}", "Acquires that failed for another reason.", |stats| stats.failed),
    ("released", "{lease}", "Leases that their holder released.", |stats| stats.released),
    ("lost", "{lease}", "Leases lost.", |stats| stats.lost),
    ("renewals", "{renewal}", "Renewals that were confirmed.", |stats| stats.renewals),
    ("renewals_missed", "{renewal}", "Renewal rounds of a lease that were missed.", |stats| stats.renewals_missed),
    ("reconnects", "{connection}", "Connections made after the first one.", |stats| stats.reconnects),
    ("commands_sent", "{request}", "Requests sent to the server.", |stats| stats.commands_sent),
];

fn register(client: &Arc<ClientState>, meter: &Meter, attributes: Vec<KeyValue>) -> Result<(), Error> {
    if !client.durations.register(meter, &attributes) {
        let detail = "the metrics of this client are registered already";
        return Err(Error::new(ErrorKind::InvalidArgument, "register_metrics", detail));
    }
    let attributes: Arc<[KeyValue]> = attributes.into();
    for (name, unit, text, of) in LEVELS {
        let (client, attributes) = (Arc::downgrade(client), attributes.clone());
        let instrument = meter.i64_observable_up_down_counter(format!("onelock.{name}"));
        let instrument = instrument.with_unit(unit).with_description(text).with_callback(move |observer| {
            let level = |stats: &Stats| i64::try_from(of(stats)).unwrap_or(i64::MAX);
            observe(&client, |stats| observer.observe(level(stats), &attributes));
        });
        instrument.build();
    }
    for (name, unit, text, of) in COUNTERS {
        let (client, attributes) = (Arc::downgrade(client), attributes.clone());
        let instrument = meter.u64_observable_counter(format!("onelock.{name}"));
        let instrument = instrument.with_unit(unit).with_description(text).with_callback(move |observer| {
            observe(&client, |stats| observer.observe(of(stats), &attributes));
        });
        instrument.build();
    }
    Ok(())
}

/// Tells what a client has done, if it is still there: the SDK keeps what it was given for ever.
fn observe(client: &Weak<ClientState>, tell: impl FnOnce(&Stats)) {
    if let Some(client) = client.upgrade() {
        tell(&client.stats());
    }
}

impl crate::Client {
    /// Registers what this client and its clones do with OpenTelemetry: the counters of [`Client::stats`](crate::Client::stats),
    /// read whenever the SDK collects, and from now on the histograms of waiting and holding. The crate's page lists the names. No I/O.
    ///
    /// `attributes` are put on every measurement. Give each client that is registered with one `meter` others, and few values:
    /// no lock's name. A client that was dropped reports nothing more. A forked child may register its own.
    ///
    /// # Errors
    /// `InvalidArgument` when this client, or a clone of it, is registered already.
    ///
    /// ```
    /// # fn main() -> Result<(), onelock::Error> {
    /// use opentelemetry::{KeyValue, global};
    /// let client = onelock::Client::new("memory://")?;
    /// client.register_metrics(&global::meter("onelock"), [KeyValue::new("service.peer.name", "locks")])?;
    /// # Ok(()) }
    /// ```
    pub fn register_metrics(&self, meter: &Meter, attributes: impl IntoIterator<Item = KeyValue>) -> Result<(), Error> {
        register(&self.shared, meter, attributes.into_iter().collect())
    }
}

impl crate::blocking::Client {
    /// Registers what this client and its clones do with OpenTelemetry; see [`crate::Client::register_metrics`]. No I/O.
    ///
    /// # Errors
    /// As [`crate::Client::register_metrics`].
    pub fn register_metrics(&self, meter: &Meter, attributes: impl IntoIterator<Item = KeyValue>) -> Result<(), Error> {
        register(&self.shared, meter, attributes.into_iter().collect())
    }
}
