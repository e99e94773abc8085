//! `onelock-bench-leases URL COUNT SECONDS`: holds COUNT leases at once and prints what they cost.
//!
//! A program of its own, so that its threads and its memory are those of the leases and nothing else, and so that
//! counting allocations slows nothing else down.

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a measurement that cannot be made should stop with its message"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onelock::blocking::Client;

/// Counts what is allocated and not freed.
struct Counting;

static BYTES: AtomicU64 = AtomicU64::new(0);
static BLOCKS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every request goes to the system's allocator unchanged.
#[allow(unsafe_code, reason = "an allocator is an unsafe trait")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        BLOCKS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promises
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        BLOCKS.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: as the caller promises
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a process has a status");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("it has this field");
    line.split_whitespace().next().and_then(|word| word.parse().ok()).expect("it is a number")
}

/// How many script calls clients have made. What scripts call is counted under other names.
fn calls(control: &mut redis::Connection) -> u64 {
    let info: String = redis::cmd("INFO").arg("commandstats").query(control).expect("the server is up");
    let of = |line: &str| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok();
    info.lines()
        .filter(|line| !line.starts_with("cmdstat_info"))
        .filter(|line| line.starts_with("cmdstat_eval"))
        .filter_map(of)
        .sum()
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let [_, url, count, seconds] = &words[..] else { panic!("usage: onelock-bench-leases URL COUNT SECONDS") };
    let count: usize = count.parse().expect("COUNT is a number");
    let seconds: u64 = seconds.parse().expect("SECONDS is a number");

    let mut control =
        redis::Client::open(url.as_str()).and_then(|client| client.get_connection()).expect("the server is up");
    let threads = status("Threads:");
    let client = Client::builder().ttl(Duration::from_secs(10)).connect_blocking(url).expect("the server is up");
    // what the first use makes is not the leases'
    for _ in 0..100 {
        client.lock("bench:leases:first").acquire().expect("it is free").release().expect("it is held");
    }
    let mut leases = Vec::with_capacity(count);
    let names: Vec<String> = (0..count).map(|number| format!("bench:leases:{number}")).collect();
    let (resident, bytes, blocks) = (status("VmRSS:"), BYTES.load(Ordering::Relaxed), BLOCKS.load(Ordering::Relaxed));
    for name in &names {
        leases.push(client.lock(name).acquire().expect("it is free"));
    }
    let (before, begun) = (calls(&mut control), Instant::now());
    let renewed = client.stats().renewals;
    std::thread::sleep(Duration::from_secs(seconds));
    let (after, took) = (calls(&mut control), begun.elapsed().as_secs_f64());
    let each = |after: u64, before: u64| (after as f64 - before as f64) / count as f64;
    let held = leases.iter().filter(|lease| lease.is_held()).count();
    println!("lost={}", client.stats().lost as usize + count - held);
    println!("threads={}", status("Threads:") - threads);
    println!("calls={}", (after - before) as f64 / took);
    println!("renewals={}", (client.stats().renewals - renewed) as f64 / took);
    println!("resident={}", each(status("VmRSS:") * 1024, resident * 1024));
    println!("allocated={}", each(BYTES.load(Ordering::Relaxed), bytes));
    println!("allocations={}", each(BLOCKS.load(Ordering::Relaxed), blocks));
    for lease in leases {
        lease.release().expect("only a fork makes this fail");
    }
    client.close();
}
