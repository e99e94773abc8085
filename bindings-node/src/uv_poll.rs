//! Sockets that the event loop of Node.js polls itself, through libuv, so that the reply to an uncontended call needs no
//! other thread. Without libuv all requests use the background runtime.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::rc::{Rc, Weak};
use std::sync::{Arc, OnceLock};

use napi::bindgen_prelude::JsValue;
use napi::{Env, sys};
use onelock::event_loop::{EventLoop, Socket};

use crate::pump::{Message, Pump, WakeupFunction};
use crate::records::{RECORD, State};

const UV_POLL: c_int = 8;
const UV_PREPARE: c_int = 9;
const UV_READABLE: c_int = 1;
/// The largest alignment of a libuv handle.
const ALIGNMENT: usize = 16;

/// A pointer to a libuv handle.
type RawHandle = *mut c_void;

/// The functions of libuv, as the executable of Node.js exports them.
struct Uv {
    poll_init: unsafe extern "C" fn(*mut sys::uv_loop_s, RawHandle, c_int) -> c_int,
    poll_start: unsafe extern "C" fn(RawHandle, c_int, unsafe extern "C" fn(RawHandle, c_int, c_int)) -> c_int,
    prepare_init: unsafe extern "C" fn(*mut sys::uv_loop_s, RawHandle) -> c_int,
    prepare_start: unsafe extern "C" fn(RawHandle, unsafe extern "C" fn(RawHandle)) -> c_int,
    prepare_stop: unsafe extern "C" fn(RawHandle) -> c_int,
    close: unsafe extern "C" fn(RawHandle, unsafe extern "C" fn(RawHandle)),
    unref: unsafe extern "C" fn(RawHandle),
    handle_size: unsafe extern "C" fn(c_int) -> usize,
    handle_set_data: unsafe extern "C" fn(RawHandle, *mut c_void),
    handle_get_data: unsafe extern "C" fn(RawHandle) -> *mut c_void,
}

impl Uv {
    fn get() -> Option<&'static Uv> {
        static UV: OnceLock<Option<Uv>> = OnceLock::new();
        UV.get_or_init(Uv::find).as_ref()
    }

    #[cfg(unix)]
    fn find() -> Option<Uv> {
        let program = libloading::os::unix::Library::this();
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: these functions have had the signatures of the fields above since libuv 1.19.
                *unsafe { program.get(concat!($name, "\0").as_bytes()) }.ok()?
            };
        }
        Some(Uv {
            poll_init: function!("uv_poll_init"),
            poll_start: function!("uv_poll_start"),
            prepare_init: function!("uv_prepare_init"),
            prepare_start: function!("uv_prepare_start"),
            prepare_stop: function!("uv_prepare_stop"),
            close: function!("uv_close"),
            unref: function!("uv_unref"),
            handle_size: function!("uv_handle_size"),
            handle_set_data: function!("uv_handle_set_data"),
            handle_get_data: function!("uv_handle_get_data"),
        })
    }

    #[cfg(not(unix))]
    fn find() -> Option<Uv> {
        None
    }
}

/// Polls the sockets of one JavaScript thread.
pub(crate) struct UvPoller(Rc<PollerState>);

struct PollerState {
    uv: &'static Uv,
    event_loop: *mut sys::uv_loop_s,
    env: sys::napi_env,
    context: sys::napi_async_context,
    wakeup: sys::napi_ref,
    core_loop: EventLoop,
    pump: Arc<Pump>,
    /// Owned by the bridge.
    state: Weak<RefCell<State>>,
    /// The layout of the largest kind of handle that is used here.
    layout: Layout,
    /// The handle that runs before the loop waits; null until it is first needed.
    prepare: Cell<RawHandle>,
    /// Handles for which close was not called yet.
    open: RefCell<Vec<RawHandle>>,
    /// How many handles libuv has not closed yet.
    unclosed: Cell<usize>,
    /// Set when the thread ends; the thread waits until this hook is removed.
    cleanup_hook: Cell<Option<sys::napi_async_cleanup_hook_handle>>,
}

/// The data pointer of a libuv handle.
struct HandleData {
    poller: Rc<PollerState>,
    /// The polled socket; `None` for the prepare handle.
    socket: Option<Socket>,
}

fn done(status: sys::napi_status) -> Option<()> {
    (status == sys::Status::napi_ok).then_some(())
}

impl UvPoller {
    /// Calls `wakeup` when `pump` has messages. `None` where libuv is missing or refuses.
    pub(crate) fn new(
        env: Env,
        wakeup: &WakeupFunction<'_>,
        pump: &Arc<Pump>,
        state: &Rc<RefCell<State>>,
    ) -> Option<UvPoller> {
        let uv = Uv::get()?;
        // SAFETY: these functions have no preconditions.
        let size = unsafe { (uv.handle_size)(UV_POLL).max((uv.handle_size)(UV_PREPARE)) };
        let layout = Layout::from_size_align(size, ALIGNMENT).ok()?;
        let env = env.raw();
        let (mut event_loop, mut context, mut name) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        let mut reference = ptr::null_mut();
        // SAFETY: called on the thread of this environment; the pointers are valid for writes.
        unsafe {
            done(sys::napi_get_uv_event_loop(env, &raw mut event_loop))?;
            done(sys::napi_create_string_utf8(env, c"onelock".as_ptr(), 7, &raw mut name))?;
            done(sys::napi_async_init(env, ptr::null_mut(), name, &raw mut context))?;
            if done(sys::napi_create_reference(env, wakeup.raw(), 1, &raw mut reference)).is_none() {
                sys::napi_async_destroy(env, context);
                return None;
            }
        }
        let poller = Rc::new(PollerState {
            uv,
            event_loop,
            env,
            context,
            wakeup: reference,
            core_loop: EventLoop::new(),
            pump: pump.clone(),
            state: Rc::downgrade(state),
            layout,
            prepare: Cell::new(ptr::null_mut()),
            open: RefCell::default(),
            unclosed: Cell::new(0),
            cleanup_hook: Cell::new(None),
        });
        let pointer = Rc::into_raw(poller.clone());
        // SAFETY: as above. `finish` takes the pointer back.
        let hooked =
            unsafe { sys::napi_add_async_cleanup_hook(env, Some(end), pointer.cast_mut().cast(), ptr::null_mut()) };
        if done(hooked).is_none() {
            // SAFETY: nothing else uses it, and the environment is alive.
            unsafe {
                poller.dispose();
                drop(Rc::from_raw(pointer));
            }
            return None;
        }
        Some(UvPoller(poller))
    }

    pub(crate) fn core_loop(&self) -> &EventLoop {
        &self.0.core_loop
    }

    /// Starts to poll new sockets, and schedules a flush of the requests that were batched. To be called on the loop's
    /// thread after a call was started.
    pub(crate) fn after_start(&self) {
        for socket in self.0.core_loop.new_sockets() {
            // when the thread ends the socket is dropped
            if self.0.cleanup_hook.get().is_none() {
                PollerState::poll(&self.0, socket);
            }
        }
        if self.0.core_loop.needs_flush() && self.0.cleanup_hook.get().is_none() {
            PollerState::flush_soon(&self.0);
        }
    }
}

impl PollerState {
    fn poll(poller: &Rc<PollerState>, socket: Socket) {
        let (uv, fd) = (poller.uv, socket.fd());
        // SAFETY: the memory fits such a handle and lives until the handle is closed.
        let made = PollerState::handle(poller, Some(socket), |handle| unsafe {
            (uv.poll_init)(poller.event_loop, handle, fd)
        });
        // SAFETY: it was made just now.
        if let Some(handle) = made
            && unsafe { (uv.poll_start)(handle, UV_READABLE, readable) } != 0
        {
            poller.close(handle);
        }
    }

    /// Flushes before the loop waits the next time, after JavaScript has started all that it can start now.
    fn flush_soon(poller: &Rc<PollerState>) {
        let uv = poller.uv;
        if poller.prepare.get().is_null() {
            // SAFETY: as above.
            let made =
                PollerState::handle(poller, None, |handle| unsafe { (uv.prepare_init)(poller.event_loop, handle) });
            poller.prepare.set(made.unwrap_or(ptr::null_mut()));
        }
        let prepare = poller.prepare.get();
        // SAFETY: it is open: it is closed only when the thread ends, which the caller checked. It may be started twice.
        if prepare.is_null() || unsafe { (uv.prepare_start)(prepare, before_wait) } != 0 {
            poller.core_loop.flush();
        }
    }

    /// Makes an unreferenced handle: it does not keep the process alive.
    fn handle(
        poller: &Rc<PollerState>,
        socket: Option<Socket>,
        init: impl FnOnce(RawHandle) -> c_int,
    ) -> Option<RawHandle> {
        let uv = poller.uv;
        // SAFETY: the layout is that of the handle, and not empty. Memory and data live until the handle is closed.
        unsafe {
            let handle: RawHandle = alloc_zeroed(poller.layout).cast();
            if handle.is_null() {
                return None;
            }
            if init(handle) != 0 {
                dealloc(handle.cast(), poller.layout);
                return None;
            }
            let data = Box::new(HandleData { poller: poller.clone(), socket });
            (uv.handle_set_data)(handle, Box::into_raw(data).cast());
            poller.unclosed.set(poller.unclosed.get() + 1);
            poller.open.borrow_mut().push(handle);
            (uv.unref)(handle);
            Some(handle)
        }
    }

    /// Stops polling; the socket is closed after that. Does nothing for a handle that is closing.
    fn close(&self, handle: RawHandle) {
        let mut open = self.open.borrow_mut();
        let Some(place) = open.iter().position(|other| *other == handle) else { return };
        open.swap_remove(place);
        // SAFETY: it is open.
        unsafe { (self.uv.close)(handle, closed) };
    }

    /// Calls JavaScript to fetch messages; a single message is passed as arguments. On the loop's thread, while no
    /// JavaScript runs.
    fn notify(&self) {
        let (env, mut scope) = (self.env, ptr::null_mut());
        // SAFETY: on the thread of the environment, which is alive: the cleanup hook has not run.
        unsafe {
            if sys::napi_open_handle_scope(env, &raw mut scope) != sys::Status::napi_ok {
                return;
            }
            match self.pump.only() {
                None => self.call(&[]),
                Some(message) => {
                    if let Some(record) = self.record(message) {
                        self.call(&record);
                    }
                }
            }
            sys::napi_close_handle_scope(env, scope);
        }
    }

    /// Encodes a message; `None` when its call was cancelled.
    fn record(&self, message: Message) -> Option<[f64; RECORD]> {
        let state = self.state.upgrade()?;
        let mut state = state.borrow_mut();
        let record = state.record(message)?;
        if state.calls.is_empty() {
            self.pump.keep_alive(&Env::from_raw(self.env), false);
        }
        Some(record)
    }

    /// Calls `wakeup` with these numbers, at most [`RECORD`].
    ///
    /// # Safety
    /// In a handle scope, otherwise as [`PollerState::notify`].
    unsafe fn call(&self, numbers: &[f64]) {
        let env = self.env;
        let (mut wakeup, mut this, mut arguments) = (ptr::null_mut(), ptr::null_mut(), [ptr::null_mut(); RECORD]);
        // SAFETY: as the caller says.
        unsafe {
            for (argument, number) in arguments.iter_mut().zip(numbers) {
                sys::napi_create_double(env, *number, argument);
            }
            sys::napi_get_reference_value(env, self.wakeup, &raw mut wakeup);
            sys::napi_get_global(env, &raw mut this);
            let (count, arguments) = (numbers.len(), arguments.as_ptr());
            let called = sys::napi_make_callback(env, self.context, this, wakeup, count, arguments, ptr::null_mut());
            if called == sys::Status::napi_pending_exception {
                let mut thrown = ptr::null_mut();
                sys::napi_get_and_clear_last_exception(env, &raw mut thrown);
                sys::napi_fatal_exception(env, thrown);
            }
        }
    }

    /// Every handle is closed: lets the thread end.
    ///
    /// # Safety
    /// Once only, with the pointer that was given to the hook.
    unsafe fn finish(pointer: *const PollerState, hook: sys::napi_async_cleanup_hook_handle) {
        // SAFETY: it comes from `Rc::into_raw`; the environment lives until the hook is removed.
        unsafe {
            let poller = Rc::from_raw(pointer);
            poller.dispose();
            sys::napi_remove_async_cleanup_hook(hook);
        }
    }

    /// Frees the async context and the reference to `wakeup`.
    ///
    /// # Safety
    /// Once only, on the thread of the environment, which lives.
    unsafe fn dispose(&self) {
        // SAFETY: both were made with it in `UvPoller::new`.
        unsafe {
            sys::napi_async_destroy(self.env, self.context);
            sys::napi_delete_reference(self.env, self.wakeup);
        }
    }
}

impl PollerState {
    /// Runs `work`, which may produce messages, and then notifies JavaScript once. On the loop's thread.
    fn in_batch<T>(&self, work: impl FnOnce() -> T) -> T {
        self.pump.begin_batch();
        let done = work();
        if self.pump.end_batch() && self.cleanup_hook.get().is_none() {
            self.notify();
        }
        done
    }
}

/// Called by libuv: the socket is readable, or was closed.
unsafe extern "C" fn readable(handle: RawHandle, _status: c_int, _events: c_int) {
    // a panic must not unwind into libuv
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: a handle that is open has its data, and `HandleData` lives until it is closed.
        let data = unsafe { &*data_of(handle) };
        let poller = data.poller.clone();
        let Some(socket) = &data.socket else { return };
        poller.in_batch(|| {
            if !poller.core_loop.ready(socket) {
                poller.close(handle);
            }
        });
    }));
}

/// Called by libuv before the loop waits.
unsafe extern "C" fn before_wait(handle: RawHandle) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: as above.
        let poller = unsafe { (*data_of(handle)).poller.clone() };
        // SAFETY: it is open.
        unsafe { (poller.uv.prepare_stop)(handle) };
        poller.in_batch(|| poller.core_loop.flush());
    }));
}

/// Called by libuv: the handle is closed.
unsafe extern "C" fn closed(handle: RawHandle) {
    // SAFETY: called once for each handle, which nothing uses after this.
    unsafe {
        let data = Box::from_raw(data_of(handle).cast_mut());
        let poller = data.poller.clone();
        dealloc(handle.cast(), poller.layout);
        drop(data);
        poller.unclosed.set(poller.unclosed.get() - 1);
        if let (0, Some(hook)) = (poller.unclosed.get(), poller.cleanup_hook.get()) {
            PollerState::finish(Rc::as_ptr(&poller), hook);
        }
    }
}

/// # Safety
/// The handle was made by [`PollerState::handle`], and is not closed.
unsafe fn data_of(handle: RawHandle) -> *const HandleData {
    // SAFETY: as the caller says; without libuv there are no handles.
    Uv::get().map_or(ptr::null(), |uv| unsafe { (uv.handle_get_data)(handle).cast() })
}

/// Called by Node.js when the JavaScript thread ends.
unsafe extern "C" fn end(hook: sys::napi_async_cleanup_hook_handle, pointer: *mut c_void) {
    let pointer: *const PollerState = pointer.cast();
    // SAFETY: the pointer that was given to the hook, which `finish` has not taken back.
    let poller = unsafe { &*pointer };
    poller.cleanup_hook.set(Some(hook));
    let open = poller.open.borrow().clone();
    for handle in open {
        poller.close(handle);
    }
    if poller.unclosed.get() == 0 {
        // SAFETY: no handle is unclosed whose close callback would call it.
        unsafe { PollerState::finish(pointer, hook) };
    }
}
