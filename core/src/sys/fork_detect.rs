//! A number of the process that a forked child does not inherit. Asking the system for the process id costs a system
//! call, and the number is needed a dozen times for one lock.
//!
//! Linux can hand a page to forked children empty (`MADV_WIPEONFORK`); what is written there belongs to this process
//! alone. Where that is not available, or only pretended (emulators that accept any advice), the process id is used.
//!
//! The only unsafe code of the core but for `fork_close` and `exit`.

#![allow(unsafe_code)]

#[cfg(not(target_family = "wasm"))]
use std::sync::atomic::{AtomicU64, Ordering};

/// A number of this process: not 0, and not that of its parent or of any other relative, even if process ids are
/// reused. Its lower half is the process id.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn process_number() -> u64 {
    let Some(mark) = page() else { return u64::from(std::process::id()) };
    match mark.load(Ordering::Relaxed) {
        0 => choose(mark),
        known => known,
    }
}

/// An instance of WebAssembly is not forked: this is the process id.
#[cfg(target_family = "wasm")]
pub(crate) fn process_number() -> u64 {
    super::hosted::host().process_id().into()
}

/// The first caller decides.
#[cfg(not(target_family = "wasm"))]
#[cold]
fn choose(mark: &AtomicU64) -> u64 {
    let mut random = [0; 4];
    // without it the process id is all there is, as elsewhere
    let _ = getrandom::fill(&mut random);
    let fresh = (u64::from(u32::from_ne_bytes(random)) << 32) | u64::from(std::process::id());
    match mark.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => fresh,
        Err(known) => known,
    }
}

/// The page with the number: zero until it is first read, also in a forked child.
#[cfg(target_os = "linux")]
fn page() -> Option<&'static AtomicU64> {
    use once_cell::race::OnceBox;

    // not behind a lock: in a child that is forked while another thread maps the page, it would stay locked
    static PAGE: OnceBox<Option<&'static AtomicU64>> = OnceBox::new();
    *PAGE.get_or_init(|| Box::new(map_page()))
}

#[cfg(target_os = "linux")]
fn map_page() -> Option<&'static AtomicU64> {
    use libc::{MADV_WIPEONFORK, MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ, PROT_WRITE};

    const LENGTH: usize = size_of::<AtomicU64>();
    /// No such advice exists: a system that accepts it accepts any, and follows none.
    const NONSENSE: libc::c_int = -1;
    // SAFETY: a new mapping, at a place that the system chooses. The advice concerns that mapping only, which nobody else
    // knows of, and changes nothing but what a forked child finds there. What is handed out is aligned, zero, writable,
    // and stays mapped.
    unsafe {
        let page = libc::mmap(std::ptr::null_mut(), LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if page == MAP_FAILED {
            return None;
        }
        if libc::madvise(page, LENGTH, MADV_WIPEONFORK) != 0 || libc::madvise(page, LENGTH, NONSENSE) == 0 {
            libc::munmap(page, LENGTH);
            return None;
        }
        Some(&*page.cast::<AtomicU64>())
    }
}

#[cfg(not(any(target_os = "linux", target_family = "wasm")))]
fn page() -> Option<&'static AtomicU64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_the_same() {
        let first = process_number();
        assert_ne!(first, 0);
        assert_eq!(first, process_number());
        assert_eq!(std::thread::spawn(process_number).join().ok(), Some(first));
        assert_eq!(first as u32, std::process::id());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn here_a_page_is_wiped() {
        assert!(page().is_some());
    }
}
