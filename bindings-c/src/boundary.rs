//! The wrapper of every exported function: a panic becomes a status, NULL and dead handles are refused, outputs are
//! written only on success, errors become objects.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use onelock::ErrorKind;

use crate::error::{Failure, onelock_error};
use crate::handles::{HANDLES, HandleRef};
use crate::object::{Exposed, Object};
use crate::status::{ONELOCK_OK, onelock_status};
use crate::uncancelled::Uncancelled;

thread_local! {
    /// Whether this thread is inside the log callback of the program, which may be called with locks held.
    static LOGGING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is inside the program's log callback.
pub(crate) fn is_logging() -> bool {
    LOGGING.try_with(Cell::get).unwrap_or(true)
}

/// Runs the program's log callback.
pub(crate) fn while_logging(call: impl FnOnce()) {
    let _ = LOGGING.try_with(|logging| {
        logging.set(true);
        call();
        logging.set(false);
    });
}

/// Runs the body of an exported function that can fail; `error` is written only then.
pub(crate) fn status(
    error: *mut *mut onelock_error,
    tried: &str,
    body: impl FnOnce() -> Result<onelock_status, Failure>,
) -> onelock_status {
    let _uncancelled = Uncancelled::begin();
    let checked = || {
        if is_logging() {
            return Err(Failure::new(ErrorKind::Unsupported, tried, "this cannot be called from a log callback"));
        }
        body()
    };
    let failure = match catch_unwind(AssertUnwindSafe(checked)) {
        Ok(Ok(status)) => return status,
        Ok(Err(failure)) => failure,
        Err(panic) => panicked(tried, &*panic),
    };
    let status = failure.status();
    if !error.is_null() {
        let handed_out = catch_unwind(AssertUnwindSafe(|| HANDLES.insert(Object::Error(failure))));
        if let Ok(Some(handle)) = handed_out {
            // SAFETY: not NULL, and the caller promises that it points at a writable onelock_error pointer.
            unsafe { error.write(handle as *mut onelock_error) };
        }
    }
    status
}

fn panicked(tried: &str, panic: &(dyn std::any::Any + Send)) -> Failure {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    Failure::new(ErrorKind::Internal, tried, &format!("a panic was caught: {text}"))
}

/// Runs the body of an exported function that cannot fail; `otherwise` is returned for a dead handle or a panic.
pub(crate) fn value<T>(otherwise: T, body: impl FnOnce() -> Option<T>) -> T {
    catch_unwind(AssertUnwindSafe(body)).ok().flatten().unwrap_or(otherwise)
}

/// A living object of the wanted kind.
pub(crate) struct Live<T: Exposed> {
    reference: HandleRef,
    kind: std::marker::PhantomData<T>,
}

impl<T: Exposed> std::ops::Deref for Live<T> {
    type Target = T;
    #[allow(clippy::expect_used)] // the kind was looked at when this was made, and it never changes
    fn deref(&self) -> &T {
        T::of(&self.reference).expect("checked when made")
    }
}

/// The object of a handle, or why there is none.
pub(crate) fn live<T: Exposed>(handle: *const T::Opaque, tried: &str) -> Result<Live<T>, Failure> {
    if handle.is_null() {
        return Err(Failure::new(ErrorKind::InvalidArgument, tried, &format!("the {} is NULL", T::NAME)));
    }
    find::<T>(handle).ok_or_else(|| {
        let detail = format!("the handle is no living onelock_{}: it was freed, or is of another kind", T::NAME);
        Failure::new(ErrorKind::InvalidArgument, tried, &detail)
    })
}

/// The object of a handle.
pub(crate) fn find<T: Exposed>(handle: *const T::Opaque) -> Option<Live<T>> {
    let reference = HANDLES.get(handle as usize)?;
    T::of(&reference)?;
    Some(Live { reference, kind: std::marker::PhantomData })
}

/// Reads the object of a handle.
pub(crate) fn peek<T: Exposed, R>(handle: *const T::Opaque, look: impl FnOnce(&T) -> R) -> Option<R> {
    // this may be the last reference to it
    let _uncancelled = Uncancelled::begin();
    let reference = HANDLES.get(handle as usize)?;
    Some(look(T::of(&reference)?))
}

/// Gives an object a handle.
pub(crate) fn expose<T: Exposed>(object: T, tried: &str) -> Result<*mut T::Opaque, Failure> {
    let handle = HANDLES.insert(object.into_object());
    handle
        .map(|handle| handle as *mut T::Opaque)
        .ok_or_else(|| Failure::new(ErrorKind::Internal, tried, "too many handles are alive; free some"))
}

/// Ends a handle: the body of every `*_free`. Does nothing for NULL and dead handles.
pub(crate) fn free<T: Exposed>(handle: *mut T::Opaque, end: impl FnOnce(&T)) {
    let _uncancelled = Uncancelled::begin();
    value((), || {
        let reference = HANDLES.remove(handle as usize, |object| T::of(object).is_some())?;
        end(T::of(&reference)?);
        Some(())
    });
}

/// A place for a result. It is checked first and written last.
pub(crate) struct Output<T>(*mut T);

/// A pointer for a result, which must not be NULL.
pub(crate) fn output<T>(pointer: *mut T, what: &str, tried: &str) -> Result<Output<T>, Failure> {
    if pointer.is_null() {
        let detail = format!("the pointer for the result ({what}) is NULL");
        return Err(Failure::new(ErrorKind::InvalidArgument, tried, &detail));
    }
    if !pointer.is_aligned() {
        let detail = format!("the pointer for the result ({what}) is not aligned");
        return Err(Failure::new(ErrorKind::InvalidArgument, tried, &detail));
    }
    Ok(Output(pointer))
}

impl<T> Output<T> {
    /// Writes the result: the last step of a function, and so its return value.
    #[allow(clippy::unnecessary_wraps)] // what the bodies of exported functions end with
    pub(crate) fn put(self, value: T) -> Result<onelock_status, Failure> {
        // SAFETY: not NULL and aligned; the caller promises that it points at a writable T.
        unsafe { self.0.write(value) };
        Ok(ONELOCK_OK)
    }
}

/// Writes a result that the caller may not want (NULL).
pub(crate) fn put_if_wanted<T>(pointer: *mut T, value: T) {
    if !pointer.is_null() && pointer.is_aligned() {
        // SAFETY: as in `Output::put`.
        unsafe { pointer.write(value) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::ONELOCK_ERR_INTERNAL;

    #[test]
    fn a_panic_becomes_a_status() {
        let mut error = std::ptr::null_mut();
        let found = status(&raw mut error, "try", || panic!("boom {}", 7));
        assert_eq!(found, ONELOCK_ERR_INTERNAL);
        let failure = live::<Failure>(error, "look").unwrap();
        assert!(failure.message().contains("boom 7"), "{}", failure.message());
        assert_eq!(value(3, || panic!("boom")), 3);
        free::<Failure>(error, |_| ());
        assert!(live::<Failure>(error, "look").is_err());
    }

    #[test]
    fn nothing_but_reading_is_allowed_inside_a_log_callback() {
        while_logging(|| {
            assert_eq!(status(std::ptr::null_mut(), "try", || Ok(ONELOCK_OK)), ErrorKind::Unsupported.number());
        });
        assert_eq!(status(std::ptr::null_mut(), "try", || Ok(ONELOCK_OK)), ONELOCK_OK);
    }
}
