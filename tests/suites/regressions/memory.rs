//! Memory over very many attempts, counted by an allocator that knows what each thread holds.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use onelock::machine::{Acquire, AcquireLimits, Answer, Jitter, Outcome, Reply, Step, Terms, Time, Verdict};

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is passed on to the system's allocator as it came; the counter is a plain thread-local number
// whose use allocates nothing.
#[allow(unsafe_code, reason = "the only way to see what is allocated")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = LIVE.try_with(|live| live.set(live.get() + layout.size().cast_signed()));
        // SAFETY: the caller's promises are the system allocator's demands.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let _ = LIVE.try_with(|live| live.set(live.get() - layout.size().cast_signed()));
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn live() -> isize {
    LIVE.with(Cell::get)
}

fn answer(now: Time, reply: Reply) -> Answer {
    Answer { sent_at: now, received_at: now, connection: 1, server_time_us: None, outcome: Outcome::Applied(reply) }
}

#[test]
fn r12_a_hundred_thousand_refused_attempts_leave_memory_level() {
    let mut now = Time::from_millis(1000);
    let mut jitter = Jitter::new(1);
    let patience = AcquireLimits { wait: None, ..AcquireLimits::default() };
    let mut acquire = Acquire::new(Terms::default(), patience, now);
    let mut attempts = 0;
    let mut level = 0;
    while attempts < 100_000 {
        match acquire.next(now) {
            Step::Attempt { .. } => {
                attempts += 1;
                now = now + Duration::from_millis(1);
                let reply = Reply::Denied { ttl_left_ms: Some(900), announces: true };
                acquire.answered(now, &answer(now, reply), &mut jitter);
            }
            Step::Watch { .. } => acquire.watch_confirmed(),
            Step::Sleep { until } => {
                // half of the looks come from hints, half from the timer
                if attempts % 2 == 0 && until > now + Duration::from_millis(2) {
                    now = now + Duration::from_millis(2);
                    acquire.hint(now, &mut jitter);
                } else {
                    now = until;
                }
            }
            Step::Done(verdict) => panic!("{verdict:?}"),
        }
        if attempts == 1000 {
            level = live();
        }
    }
    assert!(live() - level < 1 << 20, "{} bytes more than after the first thousand", live() - level);
    let last = loop {
        match acquire.next(now) {
            Step::Attempt { .. } => {
                let reply = Reply::Granted { fence: Some(7), again: false };
                acquire.answered(now, &answer(now, reply), &mut jitter);
            }
            Step::Sleep { until } => now = until,
            Step::Watch { .. } => acquire.watch_confirmed(),
            Step::Done(verdict) => break verdict,
        }
    };
    assert!(matches!(last, Verdict::Granted { fence: Some(7), .. }), "{last:?}");
}

#[test]
fn r12_tries_in_vain_leave_nothing_behind() {
    // on one thread, store included, so that everything is counted
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = onelock::Client::new("memory://").unwrap();
    runtime.block_on(async {
        let held = client.lock("a").acquire().await.unwrap();
        let mut level = 0;
        for attempt in 0..20_000 {
            assert!(client.lock("a").try_acquire().await.unwrap().is_none());
            if attempt == 1000 {
                level = live();
            }
        }
        assert!(live() - level < 1 << 20, "{} bytes more than after the first thousand", live() - level);
        held.release().await.unwrap();
        let mut level = 0;
        for round in 0..20_000 {
            let lease = client.lock("a").acquire().await.unwrap();
            lease.release().await.unwrap();
            if round == 1000 {
                level = live();
            }
        }
        assert!(live() - level < 1 << 20, "{} bytes more than after the first thousand", live() - level);
    });
}
