//! What the host brings, carried over.

use std::time::Duration;

use onelock::host::{self, Certificates, End, HostFunctions, Target};

use crate::bridge;
use crate::memory::with_input;

#[link(wasm_import_module = "host")]
unsafe extern "C" {
    safe fn monotonic() -> f64;
    safe fn wall() -> f64;
    fn random(bytes: *mut u8, length: usize) -> u32;
    fn name(bytes: *mut u8, room: usize) -> usize;
    safe fn process_id() -> u32;
    safe fn ask_for_turn();
    safe fn set_alarm(after: f64);
    fn dial(connection: u32, target: *const u8, length: usize);
    fn write(connection: u32, bytes: *const u8, length: usize);
    safe fn close(connection: u32);
    fn panicked(text: *const u8, length: usize);
}

/// The host, which is JavaScript.
struct Js;

impl HostFunctions for Js {
    fn monotonic_ns(&self) -> u64 {
        (monotonic() * 1e6) as u64
    }

    fn wall_us(&self) -> u64 {
        (wall() * 1e3) as u64
    }

    fn random(&self, bytes: &mut [u8]) -> bool {
        // SAFETY: the host writes so many bytes there, and nowhere else.
        unsafe { random(bytes.as_mut_ptr(), bytes.len()) != 0 }
    }

    fn name(&self) -> String {
        let mut bytes = [0; 256];
        // SAFETY: the host writes at most so many bytes there.
        let length = unsafe { name(bytes.as_mut_ptr(), bytes.len()) };
        String::from_utf8_lossy(&bytes[..length.min(bytes.len())]).into_owned()
    }

    fn process_id(&self) -> u32 {
        process_id()
    }

    fn ask_for_turn(&self) {
        ask_for_turn();
    }

    fn set_alarm(&self, after: Duration) {
        set_alarm(after.as_secs_f64() * 1e3);
    }

    fn dial(&self, connection: u32, target: &Target<'_>) {
        let text = written(target);
        // SAFETY: the host reads these bytes before it returns.
        unsafe { dial(connection, text.as_ptr(), text.len()) };
    }

    fn write(&self, connection: u32, bytes: &[u8]) {
        // SAFETY: as above.
        unsafe { write(connection, bytes.as_ptr(), bytes.len()) };
    }

    fn close(&self, connection: u32) {
        close(connection);
    }
}

/// A target as JSON.
fn written(target: &Target<'_>) -> Vec<u8> {
    use crate::json::Json;
    let object = match target {
        Target::Path(path) => Json::object(|fields| {
            fields.set("path", Json::text(path));
        }),
        Target::Server { host, port, tls } => Json::object(|fields| {
            fields.set("host", Json::text(host)).set("port", Json::number((*port).into()));
            fields.may("tls", tls.as_ref().map(certificates));
        }),
        _ => Json::object(|_| ()),
    };
    object.into_bytes()
}

fn certificates(of: &Certificates<'_>) -> crate::json::Json {
    use crate::json::Json;
    Json::object(|fields| {
        fields.may("ca", of.authorities.map(Json::text));
        fields.may("cert", of.certificate.map(Json::text)).may("key", of.key.map(Json::text));
        fields.set("anyCertificate", Json::flag(of.any_certificate)).set("anyName", Json::flag(of.any_name));
    })
}

/// To be called first, and once.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_start() {
    std::panic::set_hook(Box::new(|panic| {
        let text = panic.to_string();
        // SAFETY: the host reads these bytes before it returns.
        unsafe { panicked(text.as_ptr(), text.len()) };
    }));
    host::install(Js);
}

/// The host gives a turn. Like all that follows, it tells whether there are messages to fetch.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_turn() -> u32 {
    host::turn();
    bridge::has_messages()
}

#[unsafe(no_mangle)]
pub extern "C" fn onelock_rang() -> u32 {
    host::rang();
    bridge::has_messages()
}

#[unsafe(no_mangle)]
pub extern "C" fn onelock_opened(connection: u32) -> u32 {
    host::opened(connection);
    bridge::has_messages()
}

#[unsafe(no_mangle)]
pub extern "C" fn onelock_received(connection: u32, length: usize) -> u32 {
    with_input(length, |bytes| host::received(connection, bytes));
    bridge::has_messages()
}

/// `end` is a number of `ts/wasm/module.ts`.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_closed(connection: u32, end: u32, length: usize) -> u32 {
    let end = match end {
        0 => End::Closed,
        1 => End::Reset,
        2 => End::Refused,
        3 => End::TimedOut,
        4 => End::NotFound,
        5 => End::Unsupported,
        6 => End::Limit,
        7 => End::Certificate,
        _ => End::Other,
    };
    let why = with_input(length, |bytes| String::from_utf8_lossy(bytes).into_owned());
    host::closed(connection, end, &why);
    bridge::has_messages()
}
