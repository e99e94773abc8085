//! What a client does, as metrics of OpenTelemetry. Here they are printed; a program takes an exporter such as `opentelemetry-otlp`.
//!
//! ```sh
//! cargo run --example metrics --features metrics redis://127.0.0.1:6379     # or with the address in $ONELOCK_URL
//! ```
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::time::Duration;

use onelock::Client;
use opentelemetry::KeyValue;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, Metric, MetricData, ResourceMetrics, ScopeMetrics};
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider, Temporality};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_default();
    let client = Client::connect(&address).await?;

    // The SDK asks for the numbers now and then: here every minute, and when it is told to.
    let provider = SdkMeterProvider::builder().with_reader(PeriodicReader::builder(Printer).build()).build();
    client.register_metrics(&provider.meter("onelock"), [KeyValue::new("service.peer.name", "locks")])?;

    for _ in 0..3 {
        let lease = client.lock("example:metrics").acquire().await?;
        tokio::time::sleep(Duration::from_millis(20)).await;
        lease.release().await?;
    }
    let lease = client.lock("example:metrics").acquire().await?;
    if client.lock("example:metrics").try_acquire().await?.is_none() {
        println!("one is held, and a second try found it busy:");
    }
    provider.force_flush()?;
    lease.release().await?;

    client.close().await;
    provider.shutdown()?;
    Ok(())
}

struct Printer;

impl PushMetricExporter for Printer {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        metrics.scope_metrics().flat_map(ScopeMetrics::metrics).for_each(print);
        Ok(())
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }

    fn temporality(&self) -> Temporality {
        Temporality::Cumulative
    }
}

fn print(metric: &Metric) {
    let name = metric.name();
    match metric.data() {
        AggregatedMetrics::U64(MetricData::Sum(sum)) => {
            sum.data_points().for_each(|point| println!("{name} {}", point.value()));
        }
        AggregatedMetrics::I64(MetricData::Sum(sum)) => {
            sum.data_points().for_each(|point| println!("{name} {}", point.value()));
        }
        AggregatedMetrics::F64(MetricData::Histogram(histogram)) => {
            for point in histogram.data_points() {
                let mut attributes: Vec<_> =
                    point.attributes().map(|one| format!("{}={}", one.key, one.value)).collect();
                attributes.sort();
                println!("{name} {}: {} times, {:.3} s", attributes.join(","), point.count(), point.sum());
            }
        }
        _ => println!("{name}: of another form"),
    }
}
