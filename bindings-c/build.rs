//! What the linker has to know about the shared library.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    if env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        // until 1.0 every version is an ABI of its own
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libonelock.so.{version}");
        // Background threads run this library's code. Unmapping it under them would crash the program, so
        // dlclose() leaves it mapped.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
