//! The sockets that the event loop of Node.js reads itself, through libuv: the reply to an uncontended call needs no other
//! thread. Where libuv is not to be had, everything goes over the background runtime.

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

use crate::pump::{BellFunction, Message, Pump};
use crate::records::{RECORD, State};

const UV_POLL: c_int = 8;
const UV_PREPARE: c_int = 9;
const UV_READABLE: c_int = 1;
/// What libuv's handles are aligned to, at most.
const ALIGNMENT: usize = 16;

/// A handle of libuv.
type Raw = *mut c_void;

/// The functions of libuv, as the executable of Node.js exports them.
struct Uv {
    poll_init: unsafe extern "C" fn(*mut sys::uv_loop_s, Raw, c_int) -> c_int,
    poll_start: unsafe extern "C" fn(Raw, c_int, unsafe extern "C" fn(Raw, c_int, c_int)) -> c_int,
    prepare_init: unsafe extern "C" fn(*mut sys::uv_loop_s, Raw) -> c_int,
    prepare_start: unsafe extern "C" fn(Raw, unsafe extern "C" fn(Raw)) -> c_int,
    prepare_stop: unsafe extern "C" fn(Raw) -> c_int,
    close: unsafe extern "C" fn(Raw, unsafe extern "C" fn(Raw)),
    unref: unsafe extern "C" fn(Raw),
    handle_size: unsafe extern "C" fn(c_int) -> usize,
    handle_set_data: unsafe extern "C" fn(Raw, *mut c_void),
    handle_get_data: unsafe extern "C" fn(Raw) -> *mut c_void,
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

/// What one thread of JavaScript watches.
pub(crate) struct Watcher(Rc<Inner>);

struct Inner {
    uv: &'static Uv,
    event_loop: *mut sys::uv_loop_s,
    env: sys::napi_env,
    context: sys::napi_async_context,
    bell: sys::napi_ref,
    core_loop: EventLoop,
    pump: Arc<Pump>,
    /// The session's.
    state: Weak<RefCell<State>>,
    /// Room for a handle of any kind that is used here.
    layout: Layout,
    /// Runs before the loop waits; null until it is first needed.
    prepared: Cell<Raw>,
    /// Those that are not closing yet.
    open: RefCell<Vec<Raw>>,
    /// Those that are not closed yet.
    left: Cell<usize>,
    /// The thread ends; it waits until this is removed.
    ending: Cell<Option<sys::napi_async_cleanup_hook_handle>>,
}

/// What a handle belongs to.
struct Watched {
    inner: Rc<Inner>,
    /// What it watches, if it watches a socket.
    socket: Option<Socket>,
}

fn done(status: sys::napi_status) -> Option<()> {
    (status == sys::Status::napi_ok).then_some(())
}

impl Watcher {
    /// `bell` is called when there is something to fetch from `pump`. `None` where this cannot be done.
    pub(crate) fn new(
        env: Env,
        bell: &BellFunction<'_>,
        pump: &Arc<Pump>,
        state: &Rc<RefCell<State>>,
    ) -> Option<Watcher> {
        let uv = Uv::get()?;
        // SAFETY: questions without any condition.
        let size = unsafe { (uv.handle_size)(UV_POLL).max((uv.handle_size)(UV_PREPARE)) };
        let layout = Layout::from_size_align(size, ALIGNMENT).ok()?;
        let env = env.raw();
        let (mut event_loop, mut context, mut name) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        let mut reference = ptr::null_mut();
        // SAFETY: called on the thread of this environment; the pointers are places for results.
        unsafe {
            done(sys::napi_get_uv_event_loop(env, &raw mut event_loop))?;
            done(sys::napi_create_string_utf8(env, c"onelock".as_ptr(), 7, &raw mut name))?;
            done(sys::napi_async_init(env, ptr::null_mut(), name, &raw mut context))?;
            if done(sys::napi_create_reference(env, bell.raw(), 1, &raw mut reference)).is_none() {
                sys::napi_async_destroy(env, context);
                return None;
            }
        }
        let inner = Rc::new(Inner {
            uv,
            event_loop,
            env,
            context,
            bell: reference,
            core_loop: EventLoop::new(),
            pump: pump.clone(),
            state: Rc::downgrade(state),
            layout,
            prepared: Cell::new(ptr::null_mut()),
            open: RefCell::default(),
            left: Cell::new(0),
            ending: Cell::new(None),
        });
        let kept = Rc::into_raw(inner.clone());
        // SAFETY: as above. What is kept is taken back in `finish`.
        let hooked =
            unsafe { sys::napi_add_async_cleanup_hook(env, Some(end), kept.cast_mut().cast(), ptr::null_mut()) };
        if done(hooked).is_none() {
            // SAFETY: nobody else has it, and the environment lives.
            unsafe {
                inner.let_go();
                drop(Rc::from_raw(kept));
            }
            return None;
        }
        Some(Watcher(inner))
    }

    pub(crate) fn core_loop(&self) -> &EventLoop {
        &self.0.core_loop
    }

    /// What came of something that was begun: has the event loop watch what is new, and send together what is sent
    /// together. Only on its thread.
    pub(crate) fn attend(&self) {
        for socket in self.0.core_loop.new_sockets() {
            // otherwise the socket is dropped, and another one is made later
            if self.0.ending.get().is_none() {
                Inner::watch(&self.0, socket);
            }
        }
        if self.0.core_loop.needs_flush() && self.0.ending.get().is_none() {
            Inner::flush_soon(&self.0);
        }
    }
}

impl Inner {
    fn watch(inner: &Rc<Inner>, socket: Socket) {
        let (uv, fd) = (inner.uv, socket.fd());
        // SAFETY: room for such a handle, which lives until the handle is closed.
        let made = Inner::handle(inner, Some(socket), |handle| unsafe { (uv.poll_init)(inner.event_loop, handle, fd) });
        // SAFETY: it was made just now.
        if let Some(handle) = made
            && unsafe { (uv.poll_start)(handle, UV_READABLE, readable) } != 0
        {
            inner.close(handle);
        }
    }

    /// Before the loop waits the next time, after everything that JavaScript can begin now.
    fn flush_soon(inner: &Rc<Inner>) {
        let uv = inner.uv;
        if inner.prepared.get().is_null() {
            // SAFETY: as above.
            let made = Inner::handle(inner, None, |handle| unsafe { (uv.prepare_init)(inner.event_loop, handle) });
            inner.prepared.set(made.unwrap_or(ptr::null_mut()));
        }
        let prepared = inner.prepared.get();
        // SAFETY: it is open: it is closed when the thread ends, which was asked for above. Starting it twice is fine.
        if prepared.is_null() || unsafe { (uv.prepare_start)(prepared, about_to_wait) } != 0 {
            inner.core_loop.flush();
        }
    }

    /// A handle that keeps no process alive.
    fn handle(inner: &Rc<Inner>, socket: Option<Socket>, init: impl FnOnce(Raw) -> c_int) -> Option<Raw> {
        let uv = inner.uv;
        // SAFETY: the layout is that of the handle, and not empty. Memory and data live until the handle is closed.
        unsafe {
            let handle: Raw = alloc_zeroed(inner.layout).cast();
            if handle.is_null() {
                return None;
            }
            if init(handle) != 0 {
                dealloc(handle.cast(), inner.layout);
                return None;
            }
            let watched = Box::new(Watched { inner: inner.clone(), socket });
            (uv.handle_set_data)(handle, Box::into_raw(watched).cast());
            inner.left.set(inner.left.get() + 1);
            inner.open.borrow_mut().push(handle);
            (uv.unref)(handle);
            Some(handle)
        }
    }

    /// Stops watching; the socket is closed after that. Once for each handle.
    fn close(&self, handle: Raw) {
        let mut open = self.open.borrow_mut();
        let Some(place) = open.iter().position(|other| *other == handle) else { return };
        open.swap_remove(place);
        // SAFETY: it is open.
        unsafe { (self.uv.close)(handle, closed) };
    }

    /// Has JavaScript fetch what there is; a record that is alone is brought along. On its thread, and not from within
    /// JavaScript.
    fn ring(&self) {
        let (env, mut scope) = (self.env, ptr::null_mut());
        // SAFETY: on the thread of the environment, which lives: the cleanup hook has not run.
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

    /// The record of the only message that there is; `None` when nobody waits for it any more.
    fn record(&self, message: Message) -> Option<[f64; RECORD]> {
        let state = self.state.upgrade()?;
        let mut state = state.borrow_mut();
        let record = state.line(message)?;
        if state.calls.is_empty() {
            self.pump.keep_alive(&Env::from_raw(self.env), false);
        }
        Some(record)
    }

    /// Calls the bell with these numbers, at most as many as a record has.
    ///
    /// # Safety
    /// In a handle scope, otherwise as [`Inner::ring`].
    unsafe fn call(&self, numbers: &[f64]) {
        let env = self.env;
        let (mut bell, mut this, mut arguments) = (ptr::null_mut(), ptr::null_mut(), [ptr::null_mut(); RECORD]);
        // SAFETY: as the caller says.
        unsafe {
            for (argument, number) in arguments.iter_mut().zip(numbers) {
                sys::napi_create_double(env, *number, argument);
            }
            sys::napi_get_reference_value(env, self.bell, &raw mut bell);
            sys::napi_get_global(env, &raw mut this);
            let (count, arguments) = (numbers.len(), arguments.as_ptr());
            let called = sys::napi_make_callback(env, self.context, this, bell, count, arguments, ptr::null_mut());
            if called == sys::Status::napi_pending_exception {
                let mut thrown = ptr::null_mut();
                sys::napi_get_and_clear_last_exception(env, &raw mut thrown);
                sys::napi_fatal_exception(env, thrown);
            }
        }
    }

    /// Nothing is watched any more: the thread may end.
    ///
    /// # Safety
    /// Once only, with what was kept for the hook.
    unsafe fn finish(kept: *const Inner, hook: sys::napi_async_cleanup_hook_handle) {
        // SAFETY: it was made by `Rc::into_raw`; the environment lives until the hook is removed.
        unsafe {
            let inner = Rc::from_raw(kept);
            inner.let_go();
            sys::napi_remove_async_cleanup_hook(hook);
        }
    }

    /// Nobody is called any more.
    ///
    /// # Safety
    /// Once only, on the thread of the environment, which lives.
    unsafe fn let_go(&self) {
        // SAFETY: both were made with it in `Watcher::new`.
        unsafe {
            sys::napi_async_destroy(self.env, self.context);
            sys::napi_delete_reference(self.env, self.bell);
        }
    }
}

impl Inner {
    /// Does something that results may come of, on the loop's thread, and has JavaScript fetch them.
    fn attending<T>(&self, work: impl FnOnce() -> T) -> T {
        self.pump.attend();
        let done = work();
        if self.pump.attended() && self.ending.get().is_none() {
            self.ring();
        }
        done
    }
}

/// There is something to read, or the connection was closed.
unsafe extern "C" fn readable(handle: Raw, _status: c_int, _events: c_int) {
    // a panic, which is a defect, must not go on in libuv
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: a handle that is open has its data, and `Watched` lives until it is closed.
        let watched = unsafe { &*data(handle) };
        let inner = watched.inner.clone();
        let Some(socket) = &watched.socket else { return };
        inner.attending(|| {
            if !inner.core_loop.ready(socket) {
                inner.close(handle);
            }
        });
    }));
}

/// The loop has gone round.
unsafe extern "C" fn about_to_wait(handle: Raw) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: as above.
        let inner = unsafe { (*data(handle)).inner.clone() };
        // SAFETY: it is open.
        unsafe { (inner.uv.prepare_stop)(handle) };
        inner.attending(|| inner.core_loop.flush());
    }));
}

unsafe extern "C" fn closed(handle: Raw) {
    // SAFETY: called once, for a handle that was closed; nobody uses it any more.
    unsafe {
        let watched = Box::from_raw(data(handle).cast_mut());
        let inner = watched.inner.clone();
        dealloc(handle.cast(), inner.layout);
        drop(watched);
        inner.left.set(inner.left.get() - 1);
        if let (0, Some(hook)) = (inner.left.get(), inner.ending.get()) {
            Inner::finish(Rc::as_ptr(&inner), hook);
        }
    }
}

/// # Safety
/// The handle was made by [`Inner::watch`], and was not closed.
unsafe fn data(handle: Raw) -> *const Watched {
    // SAFETY: as the caller says; without libuv there are no handles.
    Uv::get().map_or(ptr::null(), |uv| unsafe { (uv.handle_get_data)(handle).cast() })
}

/// The thread of JavaScript ends.
unsafe extern "C" fn end(hook: sys::napi_async_cleanup_hook_handle, kept: *mut c_void) {
    let kept: *const Inner = kept.cast();
    // SAFETY: it was kept for this.
    let inner = unsafe { &*kept };
    inner.ending.set(Some(hook));
    let open = inner.open.borrow().clone();
    for handle in open {
        inner.close(handle);
    }
    if inner.left.get() == 0 {
        // SAFETY: nothing is left that would do it.
        unsafe { Inner::finish(kept, hook) };
    }
}
