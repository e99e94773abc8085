//! Locks in files, on tmpfs: a cycle against the same system calls by hand, and a hand-over to another process against a
//! bare wake-up by inotify.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock, inotify};

use crate::Effort;
use crate::handover::{Waiter, now_ns, order_blocking, println_flushed};
use crate::report::{Row, Target};
use crate::statistics::{Ratio, quantile};

const LOCK: &str = "bench";

/// A folder in memory, if there is one: the disk is not what is measured.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let parent = Path::new("/dev/shm");
        let parent = if parent.is_dir() { parent.to_owned() } else { std::env::temp_dir() };
        let folder = parent.join(format!("onelock-bench-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder can be made");
        Folder(folder)
    }

    fn url(&self) -> String {
        format!("file://{}", self.0.display())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What the library does at least: open, lock, write down who has it, close.
fn by_hand(path: &Path, text: &[u8]) {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path).expect("a file");
    flock(&file, FlockOperation::NonBlockingLockExclusive).expect("it is free");
    file.write_all_at(text, 0).expect("there is room");
    drop(file);
}

fn sequential(folder: &Folder, effort: Effort) -> Row {
    let (rounds, each) = effort.choose((40, 2000), (4, 200));
    let client = onelock::blocking::Client::connect(&folder.url()).expect("the folder is there");
    let (lock, path) = (client.lock(LOCK), folder.0.join("by-hand"));
    let text = [b'x'; 512];
    let mut medians = [Vec::new(), Vec::new()];
    let time = |cycle: &mut dyn FnMut()| {
        let mut took: Vec<f64> = (0..each)
            .map(|_| {
                let begun = Instant::now();
                cycle();
                begun.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        quantile(&mut took, 0.5)
    };
    for round in 0..=rounds {
        let ours = time(&mut || {
            lock.acquire().expect("it is free").release().expect("it is held");
        });
        let theirs = time(&mut || by_hand(&path, &text));
        if round > 0 {
            medians[0].push(ours);
            medians[1].push(theirs);
        }
    }
    client.close();
    let ratio = Ratio::of(&medians[0], &medians[1]);
    let [own, bare] = [0, 1].map(|side| quantile(&mut medians[side], 0.5));
    let detail = format!("p50 {own:.1} us; open, flock, pwrite, close {bare:.1} us");
    Row::new("files: one caller", Target::AtMost(2.0), ratio.median, &ratio, &detail)
}

/// The waiting process: see `handover::wait`.
///
/// # Panics
/// When the folder is gone.
pub(crate) fn wait(kind: &str, place: &str) {
    if kind == "file" {
        let client = onelock::blocking::Client::connect(place).expect("the folder is there");
        while order_blocking() {
            let lease = client.lock(LOCK).acquire().expect("the lock becomes free");
            let woken = now_ns();
            lease.release().expect("it is held");
            println_flushed(woken);
        }
        client.close();
        return;
    }
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC).expect("an inotify instance");
    inotify::add_watch(&watch, place, inotify::WatchFlags::CLOSE_WRITE).expect("the file is there");
    while order_blocking() {
        rustix::io::read(&watch, &mut [0_u8; 1024][..]).expect("an event");
        println_flushed(now_ns());
    }
}

fn hand_over(folder: &Folder, effort: Effort) -> Row {
    let (rounds, each) = effort.choose((20, 20), (4, 10));
    let client = onelock::blocking::Client::connect(&folder.url()).expect("the folder is there");
    let path = folder.0.join("woken");
    File::create(&path).expect("a file");
    let mut waiters = [Waiter::start("file", &folder.url()), Waiter::start("inotify", &path.to_string_lossy())];
    // as deeply asleep as it can be
    let settle = || std::thread::sleep(Duration::from_millis(15));
    let mut medians = [Vec::new(), Vec::new()];
    for round in 0..=rounds {
        for side in [round % 2, 1 - round % 2] {
            let waiter = &mut waiters[side];
            let mut once = || {
                let lease = (side == 0).then(|| client.lock(LOCK).acquire().expect("the lock is free"));
                let file = (side == 1).then(|| File::options().write(true).open(&path).expect("the file is there"));
                waiter.order();
                settle();
                let released = now_ns();
                if let Some(lease) = lease {
                    lease.release().expect("it is held");
                }
                drop(file);
                waiter.woken_at().saturating_sub(released) as f64 / 1e3
            };
            let mut took: Vec<f64> = (0..each).map(|_| once()).collect();
            if round > 0 {
                medians[side].push(quantile(&mut took, 0.5));
            }
        }
    }
    client.close();
    let ratio = Ratio::of(&medians[0], &medians[1]);
    let [own, bare] = [0, 1].map(|side| quantile(&mut medians[side], 0.5));
    let detail = format!("p50 {own:.0} us; a closed file, by inotify {bare:.0} us");
    Row::new("files: hand-over", Target::AtMost(2.5), ratio.median, &ratio, &detail)
}

/// Both.
pub(crate) fn measure(effort: Effort) -> Vec<Row> {
    let folder = Folder::new();
    vec![sequential(&folder, effort), hand_over(&folder, effort)]
}
