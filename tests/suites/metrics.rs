//! With the feature `metrics`, a client tells OpenTelemetry what it does, under the names that the crate's page lists.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::time::Duration;

use onelock::{Client, ErrorKind, Owner, Stats, blocking};
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::wait::eventually;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData, ScopeMetrics};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};

/// A measurement as the exporter got it: of a sum its value, of a histogram its sum.
#[derive(Clone, Debug, Default, PartialEq)]
struct Point {
    value: f64,
    count: u64,
    buckets: Vec<(f64, u64)>,
    unit: String,
    monotonic: bool,
}

/// The attributes of a measurement, in order.
type Attributes = Vec<(String, String)>;

struct Collected(BTreeMap<String, BTreeMap<Attributes, Point>>);

impl Collected {
    /// The only measurement of this name.
    fn only(&self, name: &str) -> &Point {
        let points = self.0.get(name).unwrap_or_else(|| panic!("no {name}"));
        assert_eq!(points.len(), 1, "{name}: {points:?}");
        points.values().next().unwrap()
    }

    fn value(&self, name: &str) -> u64 {
        self.only(name).value as u64
    }

    /// The measurement of a kind of lock.
    fn of_kind(&self, name: &str, kind: &str) -> &Point {
        let with = ("onelock.lock.kind".to_owned(), kind.to_owned());
        let points = &self.0[name];
        points.iter().find(|(attributes, _)| attributes.contains(&with)).map(|(_, point)| point).unwrap()
    }
}

struct Telemetry {
    exporter: InMemoryMetricExporter,
    provider: SdkMeterProvider,
}

impl Telemetry {
    fn new() -> Telemetry {
        let exporter = InMemoryMetricExporter::default();
        let reader = PeriodicReader::builder(exporter.clone()).with_interval(Duration::from_secs(3600)).build();
        Telemetry { exporter, provider: SdkMeterProvider::builder().with_reader(reader).build() }
    }

    fn meter(&self) -> opentelemetry::metrics::Meter {
        self.provider.meter_with_scope(InstrumentationScope::builder("test").build())
    }

    fn collect(&self) -> Collected {
        self.exporter.reset();
        self.provider.force_flush().unwrap();
        let mut found = BTreeMap::<_, BTreeMap<_, _>>::new();
        for resource in self.exporter.get_finished_metrics().unwrap() {
            for metric in resource.scope_metrics().flat_map(ScopeMetrics::metrics) {
                for (attributes, point) in points(metric.data()) {
                    let point = Point { unit: metric.unit().to_owned(), ..point };
                    assert!(!metric.description().is_empty());
                    let before = found.entry(metric.name().to_owned()).or_default().insert(attributes, point);
                    assert_eq!(before, None);
                }
            }
        }
        Collected(found)
    }
}

fn named<'a>(attributes: impl Iterator<Item = &'a KeyValue>) -> Attributes {
    let mut named: Vec<_> = attributes.map(|one| (one.key.to_string(), one.value.to_string())).collect();
    named.sort();
    named
}

fn points(data: &AggregatedMetrics) -> Vec<(Attributes, Point)> {
    match data {
        AggregatedMetrics::U64(MetricData::Sum(sum)) => sum
            .data_points()
            .map(|point| (named(point.attributes()), number(point.value() as f64, sum.is_monotonic())))
            .collect(),
        AggregatedMetrics::I64(MetricData::Sum(sum)) => sum
            .data_points()
            .map(|point| (named(point.attributes()), number(point.value() as f64, sum.is_monotonic())))
            .collect(),
        AggregatedMetrics::F64(MetricData::Histogram(histogram)) => histogram
            .data_points()
            .map(|point| {
                let bounds = point.bounds().chain([f64::INFINITY]);
                let buckets = bounds.zip(point.bucket_counts()).collect();
                let point_of = Point { value: point.sum(), count: point.count(), buckets, ..Point::default() };
                (named(point.attributes()), point_of)
            })
            .collect(),
        other => panic!("{other:?}"),
    }
}

fn number(value: f64, monotonic: bool) -> Point {
    Point { value, monotonic, ..Point::default() }
}

/// `renewals_missed` for the field of that name: all that [`Stats`] has.
fn fields() -> Vec<String> {
    let text = format!("{:#?}", Stats::default());
    let lines = text.lines().filter_map(|line| line.strip_prefix("    "));
    lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name)
        .filter(|name| !name.starts_with(' '))
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn what_a_client_does_on_a_server_is_told() {
    let server = Server::builder(Flavor::Valkey91).start();
    let telemetry = Telemetry::new();
    let client = Client::connect(&server.url()).await.unwrap();
    client.register_metrics(&telemetry.meter(), [KeyValue::new("server", "main")]).unwrap();
    assert_eq!(telemetry.collect().value("onelock.acquired"), 0);

    let lease = client.lock("a").acquire().await.unwrap();
    assert!(client.lock("a").try_acquire().await.unwrap().is_none());
    let late = client.lock("a").acquire_within(Duration::from_millis(20)).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Timeout);
    let waiter = client.clone();
    let waiter = tokio::spawn(async move { waiter.lock("a").acquire().await.unwrap() });
    eventually(Duration::from_secs(30), "the waiter", async || client.stats().waiting == 1).await;
    let during = telemetry.collect();
    let told = ["held", "waiting", "acquired", "busy", "timeouts"].map(|name| during.value(&format!("onelock.{name}")));
    assert_eq!(told, [1, 1, 1, 1, 1]);
    tokio::time::sleep(Duration::from_millis(20)).await;
    lease.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
    let owner = Owner::new();
    let lock = client.reentrant_lock("b").owner(&owner);
    let (outer, inner) = (lock.acquire().await.unwrap(), lock.acquire().await.unwrap());
    inner.release().await.unwrap();
    // lost
    server.cmd(&["DEL", "b"]);
    assert!(outer.extend(Duration::from_secs(60)).await.is_err());

    let after = telemetry.collect();
    let stats = client.stats();
    let told = ["held", "waiting", "acquired", "released", "lost"].map(|name| after.value(&format!("onelock.{name}")));
    assert_eq!(told, [0, 0, stats.acquired, stats.released, 1]);
    assert_eq!((stats.acquired, after.value("onelock.commands_sent")), (4, stats.commands_sent));
    assert!(stats.commands_sent > 5);
    // a re-entry waits for nobody and begins no hold
    for (name, times) in [("onelock.wait", &stats.wait), ("onelock.hold", &stats.hold)] {
        let (mutex, reentrant) = (after.of_kind(name, "lock"), after.of_kind(name, "reentrant_lock"));
        assert_eq!((mutex.count, reentrant.count), (2, 1), "{name}");
        // the stats round each down to a microsecond
        let sum = (mutex.value + reentrant.value) * 1e6;
        assert!((sum - times.sum_us as f64).abs() <= times.count as f64 + 0.001, "{name}: {sum} {}", times.sum_us);
        assert_eq!(mutex.buckets.iter().map(|(_, count)| count).sum::<u64>(), 2, "{mutex:?}");
    }
    let wait = after.of_kind("onelock.wait", "lock");
    let up_to =
        |bound: f64| wait.buckets.iter().filter(|(up_to, _)| *up_to <= bound).map(|(_, count)| count).sum::<u64>();
    assert!(wait.value >= 0.02 && up_to(0.01) <= 1, "one of the two waited: {wait:?}");
    client.close().await;
}

#[tokio::test]
async fn each_number_has_the_name_that_the_page_and_the_other_languages_give_it() {
    let telemetry = Telemetry::new();
    let client = Client::new("memory://").unwrap();
    client.register_metrics(&telemetry.meter(), [KeyValue::new("server", "main")]).unwrap();
    client.lock("a").acquire().await.unwrap().release().await.unwrap();
    let collected = telemetry.collect();
    let names: Vec<_> = fields().into_iter().map(|name| format!("onelock.{name}")).collect();
    assert!(names.len() > 12, "{names:?}");
    let mut sorted = names.clone();
    sorted.sort();
    assert_eq!(collected.0.keys().cloned().collect::<Vec<_>>(), sorted);

    let page = include_str!("../../core/src/lib.rs");
    let python = include_str!("../../bindings-python/python/onelock/prometheus.py");
    for (name, field) in names.iter().zip(fields()) {
        assert!(page.contains(&format!("`{name}`")), "the crate's page lists {name}");
        assert!(python.contains(&format!("\"{field}\": \"")), "Python tells {field}");
        let point = collected.0[name].values().next().unwrap();
        let levels = ["held", "waiting", "cleaning"];
        match field.as_str() {
            "wait" | "hold" => assert_eq!(point.unit, "s"),
            field => assert!(point.unit.starts_with('{') && point.monotonic != levels.contains(&field), "{point:?}"),
        }
    }
    for (attributes, _) in collected.0.values().flatten() {
        let mut keys: Vec<_> = attributes.iter().map(|(key, _)| key.as_str()).collect();
        keys.retain(|key| *key != "onelock.lock.kind");
        assert_eq!(keys, ["server"]);
    }
    let bounds: Vec<_> = collected.only("onelock.hold").buckets.iter().map(|(bound, _)| *bound).collect();
    for bound in [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, f64::INFINITY] {
        assert!(bounds.contains(&bound), "{bounds:?}");
    }
    client.close().await;
}

#[tokio::test]
async fn a_client_is_registered_once_and_reports_nothing_once_it_is_gone() {
    let telemetry = Telemetry::new();
    let meter = telemetry.meter();
    let client = Client::new("memory://").unwrap();
    client.register_metrics(&meter, [KeyValue::new("client", 1)]).unwrap();
    let again = client.clone().register_metrics(&meter, [KeyValue::new("client", 2)]).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::InvalidArgument);
    assert!(again.to_string().contains("registered already"), "{again}");

    let other = blocking::Client::new("memory://").unwrap();
    other.register_metrics(&meter, [KeyValue::new("client", 3)]).unwrap();
    let other = std::thread::spawn(move || {
        other.lock("a").acquire().unwrap().release().unwrap();
        other
    })
    .join()
    .unwrap();
    client.lock("a").acquire().await.unwrap().release().await.unwrap();
    client.lock("a").acquire().await.unwrap().release().await.unwrap();
    let of = |collected: &Collected, client: &str| {
        let with = vec![("client".to_owned(), client.to_owned())];
        collected.0.get("onelock.acquired").and_then(|points| points.get(&with)).map(|point| point.value as u64)
    };
    let both = telemetry.collect();
    assert_eq!((of(&both, "1"), of(&both, "2"), of(&both, "3")), (Some(2), None, Some(1)));
    client.close().await;
    assert_eq!(of(&telemetry.collect(), "1"), Some(2), "it is closed, and still there");
    drop((client, other));
    let gone = telemetry.collect();
    assert_eq!((of(&gone, "1"), of(&gone, "3")), (None, None));
}
