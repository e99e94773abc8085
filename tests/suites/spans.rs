//! With the feature `spans`, acquires, holds and releases are spans, with the fields that the crate's page lists.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::{Mutex, Once, OnceLock};
use std::time::Duration;

use onelock::{Client, ErrorKind, Owner, Release};
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::wait::wait_until;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Instrument as _, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

const NAME: &str = "onelock.lock.name";

/// A span, as a subscriber saw it.
#[derive(Clone, Debug, Default)]
struct Seen {
    name: &'static str,
    level: String,
    parent: Option<&'static str>,
    fields: BTreeMap<&'static str, String>,
    closed: bool,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let text = format!("{value:?}");
        let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(&text).to_owned();
        let before = self.fields.insert(field.name(), text);
        assert_eq!(before, None, "{} is recorded once", field.name());
    }
}

impl Seen {
    fn has(&self, expected: &[(&'static str, &str)]) {
        for (field, value) in expected {
            assert_eq!(self.fields.get(field).map(String::as_str), Some(*value), "{field}: {self:#?}");
        }
    }

    fn number(&self, field: &str) -> f64 {
        self.fields.get(field).unwrap_or_else(|| panic!("no {field}: {self:#?}")).parse().unwrap()
    }
}

fn all() -> &'static Mutex<BTreeMap<u64, Seen>> {
    static ALL: OnceLock<Mutex<BTreeMap<u64, Seen>>> = OnceLock::new();
    ALL.get_or_init(Mutex::default)
}

struct Recorder;

/// A number that no other span of this process has: those of the registry are used again.
#[derive(Clone, Copy)]
struct Number(u64);

fn with<S: Subscriber + for<'a> LookupSpan<'a>>(context: &Context<'_, S>, id: &Id, change: impl FnOnce(&mut Seen)) {
    let number = context.span(id).unwrap().extensions().get::<Number>().copied();
    if let Some(Number(number)) = number {
        change(all().lock().unwrap().get_mut(&number).unwrap());
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for Recorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let metadata = attributes.metadata();
        let parent = span.parent().map(|parent| parent.name());
        let level = metadata.level().to_string();
        let mut seen = Seen { name: metadata.name(), level, parent, ..Seen::default() };
        attributes.record(&mut seen);
        let mut all = all().lock().unwrap();
        let number = all.len() as u64;
        all.insert(number, seen);
        span.extensions_mut().insert(Number(number));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        with(&context, id, |seen| values.record(seen));
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        with(&context, &id, |seen| seen.closed = true);
    }
}

/// One subscriber for all tests: each has names of its own.
fn record() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(tracing_subscriber::registry().with(Recorder)).unwrap());
}

/// The spans of a lock that are called so, in the order in which they began.
fn spans(called: &str, lock: &str) -> Vec<Seen> {
    let ours = |seen: &&Seen| seen.name == called && seen.fields.get(NAME).is_some_and(|name| name == lock);
    all().lock().unwrap().values().filter(ours).cloned().collect()
}

/// The only one.
fn span(called: &str, lock: &str) -> Seen {
    let mut found = spans(called, lock);
    assert_eq!(found.len(), 1, "{called} {lock}: {found:#?}");
    found.remove(0)
}

#[tokio::test]
async fn an_acquire_a_hold_and_a_release_are_spans_with_fields() {
    record();
    let server = Server::builder(Flavor::Valkey91).start();
    let client = Client::builder().prefix("p:").connect(&server.url()).await.unwrap();
    let request = tracing::info_span!("request");
    let work = async {
        let lease = client.lock("whole").acquire_within(Duration::from_secs(5)).await.unwrap();
        assert!(!span("onelock.hold", "whole").closed, "it is held");
        let token = lease.fencing_token().unwrap().to_string();
        assert_eq!(lease.release().await.unwrap(), Release::Released);
        token
    };
    let token = work.instrument(request).await;

    let acquire = span("onelock.acquire", "whole");
    assert!(acquire.closed && acquire.parent == Some("request") && acquire.level == "INFO", "{acquire:#?}");
    acquire.has(&[
        ("otel.kind", "client"),
        ("onelock.lock.kind", "lock"),
        ("onelock.wait.timeout", "5.0"),
        ("onelock.outcome", "acquired"),
        ("onelock.fencing_token", &token),
    ]);
    assert!((0.0..5.0).contains(&acquire.number("onelock.wait.duration")), "{acquire:#?}");
    assert!(!acquire.fields.contains_key("error.type"), "{acquire:#?}");

    let hold = span("onelock.hold", "whole");
    assert!(hold.closed && hold.parent == Some("request") && hold.level == "INFO", "{hold:#?}");
    hold.has(&[
        ("otel.kind", "internal"),
        ("onelock.lock.kind", "lock"),
        ("onelock.fencing_token", &token),
        ("onelock.outcome", "released"),
    ]);
    assert!(hold.number("onelock.hold.duration") > 0.0, "{hold:#?}");

    let release = span("onelock.release", "whole");
    assert!(release.closed && release.parent == Some("request") && release.level == "INFO", "{release:#?}");
    release.has(&[("otel.kind", "client"), ("onelock.lock.kind", "lock"), ("onelock.outcome", "released")]);
    assert!(release.number("onelock.hold.duration") > 0.0, "{release:#?}");

    let page = include_str!("../../core/src/lib.rs");
    for field in [&acquire, &hold, &release].iter().flat_map(|seen| seen.fields.keys()) {
        assert!(page.contains(&format!("`{field}`")), "the crate's page lists {field}");
    }
    // what was logged before is still there, inside
    let logged = all()
        .lock()
        .unwrap()
        .values()
        .any(|seen| seen.name == "acquire" && seen.parent == Some("onelock.acquire") && seen.level == "DEBUG");
    assert!(logged);
    client.close().await;
}

#[tokio::test]
async fn an_acquire_without_a_grant_says_why() {
    record();
    let server = Server::builder(Flavor::Valkey91).start();
    let client = Client::connect(&server.url()).await.unwrap();
    let lease = client.lock("taken").acquire().await.unwrap();
    assert!(client.lock("taken").try_acquire().await.unwrap().is_none());
    let late = client.lock("taken").acquire_within(Duration::from_millis(20)).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Timeout);
    // one that is dropped while it waits
    let lock = client.lock("taken");
    let waiting = tokio::time::timeout(Duration::from_millis(20), lock.acquire()).await;
    assert!(waiting.is_err());
    server.cmd(&["RPUSH", "no lock", "1"]);
    assert_eq!(client.lock("no lock").acquire().await.unwrap_err().kind(), ErrorKind::WrongKind);

    let outcomes: Vec<_> = spans("onelock.acquire", "taken");
    let told: Vec<_> = outcomes.iter().map(|seen| seen.fields["onelock.outcome"].as_str()).collect();
    assert_eq!(told, ["acquired", "busy", "timeout", "cancelled"]);
    assert!(outcomes.iter().all(|seen| seen.closed && seen.number("onelock.wait.duration") >= 0.0));
    outcomes[1].has(&[("onelock.wait.timeout", "0.0")]);
    outcomes[2].has(&[("error.type", "Timeout"), ("otel.status_code", "ERROR")]);
    assert!(outcomes[2].number("onelock.wait.duration") >= 0.02);
    for harmless in [&outcomes[0], &outcomes[1], &outcomes[3]] {
        assert!(!harmless.fields.contains_key("otel.status_code"), "{harmless:#?}");
    }
    assert!(!outcomes[3].fields.contains_key("onelock.wait.timeout"), "it would have waited for ever");
    span("onelock.acquire", "no lock").has(&[("onelock.outcome", "failed"), ("error.type", "WrongKind")]);
    assert_eq!((spans("onelock.hold", "taken").len(), spans("onelock.hold", "no lock").len()), (1, 0));
    lease.release().await.unwrap();
    client.close().await;
}

#[tokio::test]
async fn a_lost_hold_says_why() {
    record();
    let server = Server::builder(Flavor::Valkey91).start();
    let client = Client::connect(&server.url()).await.unwrap();
    let lease = client.lock("deleted").acquire().await.unwrap();
    server.cmd(&["DEL", "deleted"]);
    assert!(lease.extend(Duration::from_secs(60)).await.is_err());
    let hold = span("onelock.hold", "deleted");
    assert!(hold.closed, "{hold:#?}");
    hold.has(&[("onelock.outcome", "lost"), ("onelock.loss.reason", "taken"), ("otel.status_code", "ERROR")]);
    assert!(hold.number("onelock.hold.duration") > 0.0);
    assert_eq!(lease.release().await.unwrap(), Release::AlreadyExpired);
    span("onelock.release", "deleted").has(&[("onelock.outcome", "already_expired")]);

    // found by the release itself
    let lease = client.lock("late").acquire().await.unwrap();
    server.cmd(&["DEL", "late"]);
    assert_eq!(lease.release().await.unwrap(), Release::AlreadyExpired);
    span("onelock.hold", "late").has(&[("onelock.outcome", "lost"), ("onelock.loss.reason", "taken")]);

    let _lease = client.lock("closed").acquire().await.unwrap();
    client.close().await;
    span("onelock.hold", "closed").has(&[("onelock.outcome", "lost"), ("onelock.loss.reason", "closed")]);
}

#[tokio::test]
async fn a_hold_is_one_span_however_often_it_is_entered_and_however_it_ends() {
    record();
    let client = Client::connect("memory://").await.unwrap();
    let owner = Owner::new();
    let lock = client.reentrant_lock("again").owner(&owner);
    let (outer, inner) = (lock.acquire().await.unwrap(), lock.acquire().await.unwrap());
    inner.release().await.unwrap();
    assert!(!span("onelock.hold", "again").closed, "it is held by the outer one");
    outer.release().await.unwrap();
    span("onelock.hold", "again").has(&[("onelock.lock.kind", "reentrant_lock"), ("onelock.outcome", "released")]);
    assert_eq!((spans("onelock.acquire", "again").len(), spans("onelock.release", "again").len()), (2, 2));

    // dropped: nobody waits for its release
    drop(client.lock("dropped").acquire().await.unwrap());
    let hold = span("onelock.hold", "dropped");
    assert!(hold.closed, "{hold:#?}");
    hold.has(&[("onelock.outcome", "released")]);
    assert_eq!(spans("onelock.release", "dropped").len(), 0);

    // handed over
    let proof = client.lock("handed").acquire().await.unwrap().detach().unwrap();
    span("onelock.hold", "handed").has(&[("onelock.outcome", "detached")]);
    client.lock("handed").attach(&proof).await.unwrap().release().await.unwrap();
    let outcomes: Vec<_> =
        spans("onelock.hold", "handed").iter().map(|seen| seen.fields["onelock.outcome"].clone()).collect();
    assert_eq!(outcomes, ["detached", "released"]);

    // of several locks each is told
    let both = client.multi_lock(["left", "right"]).acquire().await.unwrap();
    both.release().await.unwrap();
    for name in ["left", "right"] {
        span("onelock.acquire", name).has(&[("onelock.outcome", "acquired")]);
        span("onelock.hold", name).has(&[("onelock.outcome", "released")]);
        span("onelock.release", name).has(&[("onelock.outcome", "released")]);
    }
    client.close().await;
}

#[test]
fn threads_have_the_same_spans() {
    record();
    let server = Server::builder(Flavor::Valkey91).start();
    let client = onelock::blocking::Client::connect(&server.url()).unwrap();
    let lock = client.lock("thread");
    let lease = tracing::info_span!("job").in_scope(|| lock.acquire().unwrap());
    let waiter = std::thread::spawn({
        let lock = lock.clone();
        move || tracing::info_span!("other job").in_scope(|| lock.acquire().unwrap().release().unwrap())
    });
    wait_until(Duration::from_secs(30), "it waits", || client.stats().waiting == 1);
    assert!(lock.try_acquire().unwrap().is_none());
    assert_eq!(lock.acquire_within(Duration::from_millis(20)).unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(lease.release().unwrap(), Release::Released);
    assert_eq!(waiter.join().unwrap(), Release::Released);

    let acquires = spans("onelock.acquire", "thread");
    let told: Vec<_> = acquires.iter().map(|seen| seen.fields["onelock.outcome"].as_str()).collect();
    assert_eq!(told, ["acquired", "acquired", "busy", "timeout"]);
    assert_eq!((acquires[0].parent, acquires[1].parent), (Some("job"), Some("other job")));
    assert!(acquires[1].number("onelock.wait.duration") >= 0.02, "the others had their turn meanwhile");
    let holds = spans("onelock.hold", "thread");
    assert_eq!(holds.iter().map(|seen| seen.parent).collect::<Vec<_>>(), [Some("job"), Some("other job")]);
    assert!(holds.iter().all(|seen| seen.closed && seen.fields["onelock.outcome"] == "released"));
    let releases = spans("onelock.release", "thread");
    assert!(releases.len() == 2 && releases.iter().all(|seen| seen.fields["onelock.outcome"] == "released"));
    client.close();
}
