//! Holds a lock and does as it is told, a line at a time: `onelock-holder Async|Blocking URL`.
//!
//! | order | answer |
//! |---|---|
//! | `acquire NAME TTL_MS RENEW` | the fencing token |
//! | `fair NAME TTL_MS RENEW` | the same of a fair lock |
//! | `try NAME TTL_MS` | the same of a single try, or `busy` |
//! | `held` | `true` or `false` |
//! | `look` | `ok`; from now on a thread looks all the time whether it is held |
//! | `looks` | last "held" (ns since boot), first "not held", whether revived, how often the loss was told |
//! | `loss` | why it was lost, or `-` |
//! | `wall SECONDS` | the time of day as this process sees it, in seconds, after a step by that much |
//! | `release` | what the release found |
//! | `drop` | `ok`; the lease is dropped |
//! | `many COUNT TTL_MS` | how many threads there were before and are after acquiring that many locks |
//! | `many-held` | how many of those are held |
//! | `exit` | none; the process ends without closing anything |

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "test code that talks over its standard output")]

use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use onelock::Kind;
use onelock_tests::clock::boot_ns;
use onelock_tests::face::{Client, Face, Lease};

/// How far the time of day is off, in seconds.
static WALL_STEP: AtomicI64 = AtomicI64::new(0);

/// Stands in front of the C library's function of this name: tells another time of day, and nothing else differently.
///
/// # Safety
/// As that of the C library: `out` points to a `timespec`.
#[unsafe(no_mangle)]
#[allow(unsafe_code, reason = "a time of day of one's own, without touching the machine's")]
pub unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, out: *mut libc::timespec) -> libc::c_int {
    // SAFETY: the system call writes to `out` only, which the caller vouches for, and `out` is read after it succeeded.
    unsafe {
        let result = libc::syscall(libc::SYS_clock_gettime, libc::c_long::from(clock), out);
        if result == 0 && clock == libc::CLOCK_REALTIME {
            (*out).tv_sec += WALL_STEP.load(Ordering::Relaxed);
        }
        libc::c_int::try_from(result).unwrap_or(-1)
    }
}

#[derive(Default)]
struct Seen {
    last_held: AtomicU64,
    first_lost: AtomicU64,
    revived: AtomicU64,
    told: AtomicU64,
}

impl Seen {
    fn look_for_ever(&self, lease: &Lease) {
        loop {
            let at = boot_ns();
            if lease.is_held() {
                self.last_held.store(at, Ordering::Relaxed);
                if self.first_lost.load(Ordering::Relaxed) != 0 {
                    self.revived.store(1, Ordering::Relaxed);
                }
            } else {
                let _ = self.first_lost.compare_exchange(0, at, Ordering::Relaxed, Ordering::Relaxed);
                std::thread::yield_now();
            }
        }
    }
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

fn main() {
    let mut args = std::env::args().skip(1);
    let face = if args.next().unwrap() == "Async" { Face::Async } else { Face::Blocking };
    let client = Client::build(face, onelock::Client::builder(), &args.next().unwrap()).unwrap();
    let seen = Arc::new(Seen::default());
    let mut lease: Option<Lease> = None;
    let mut many: Vec<Lease> = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match (words[0], &lease) {
            ("acquire" | "fair", _) => {
                let told = seen.clone();
                let kind = if words[0] == "fair" { Kind::Fair } else { Kind::Mutex };
                let lock = client.lock_of(kind, words[1]).ttl(Duration::from_millis(words[2].parse().unwrap()));
                let lock = lock.auto_renew(words[3] == "true").on_lost(move |_| {
                    told.told.fetch_add(1, Ordering::Relaxed);
                });
                match lock.acquire() {
                    Ok(granted) => lease.insert(granted).fence().to_string(),
                    Err(error) => format!("error {error}"),
                }
            }
            ("try", _) => {
                let lock = client.lock(words[1]).ttl(Duration::from_millis(words[2].parse().unwrap()));
                match lock.try_acquire() {
                    Ok(Some(granted)) => lease.insert(granted).fence().to_string(),
                    Ok(None) => "busy".to_owned(),
                    Err(error) => format!("error {error}"),
                }
            }
            ("wall", _) => {
                WALL_STEP.store(words[1].parse().unwrap(), Ordering::Relaxed);
                SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().to_string()
            }
            ("many", _) => {
                let before = threads();
                let ttl = Duration::from_millis(words[2].parse().unwrap());
                for n in 0..words[1].parse().unwrap() {
                    many.push(client.lock(format!("many:{n}")).ttl(ttl).fencing(false).acquire().unwrap());
                }
                format!("{before} {}", threads())
            }
            ("many-held", _) => many.iter().filter(|lease| lease.is_held()).count().to_string(),
            ("exit", _) => std::process::exit(0),
            ("looks", _) => {
                let all = [&seen.last_held, &seen.first_lost, &seen.revived, &seen.told];
                all.map(|number| number.load(Ordering::Relaxed).to_string()).join(" ")
            }
            ("look", Some(lease)) => {
                let (seen, lease) = (seen.clone(), lease.clone());
                std::thread::spawn(move || seen.look_for_ever(&lease));
                "ok".to_owned()
            }
            ("held", Some(lease)) => lease.is_held().to_string(),
            ("loss", Some(lease)) => lease.loss().map_or("-", onelock::LossReason::as_str).to_owned(),
            ("release", Some(lease)) => lease.released().as_str().to_owned(),
            ("drop", Some(_)) => {
                lease = None;
                "ok".to_owned()
            }
            _ => format!("error: {line} is not understood"),
        };
        println!("{answer}");
    }
}
