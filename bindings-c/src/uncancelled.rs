//! Disables `pthread_cancel` for threads inside the library, whose code cannot be unwound by it.

/// While it exists this thread is not cancelled; a request takes effect when the thread is back in the program.
pub(crate) struct Uncancelled(Option<i32>);

#[cfg(any(target_os = "linux", target_os = "freebsd", target_vendor = "apple"))]
mod system {
    use std::ffi::c_int;

    #[cfg(target_vendor = "apple")]
    const DISABLE: c_int = 0;
    #[cfg(not(target_vendor = "apple"))]
    const DISABLE: c_int = 1;

    unsafe extern "C" {
        fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    }

    pub(super) fn set(state: c_int) -> Option<c_int> {
        let mut before = 0;
        // SAFETY: `before` lives until it returns; the states are those of this system, or what it told before.
        (unsafe { pthread_setcancelstate(state, &raw mut before) } == 0).then_some(before)
    }

    pub(super) fn disable() -> Option<c_int> {
        set(DISABLE)
    }
}

#[cfg(not(any(target_os = "linux", target_os = "freebsd", target_vendor = "apple")))]
mod system {
    pub(super) fn set(_: i32) -> Option<i32> {
        None
    }

    pub(super) fn disable() -> Option<i32> {
        None
    }
}

impl Uncancelled {
    pub(crate) fn begin() -> Uncancelled {
        Uncancelled(system::disable())
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            let _ = system::set(before);
        }
    }
}
