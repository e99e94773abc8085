//! Tells the linker how native modules of Node.js are made on this platform.

fn main() {
    napi_build::setup();
}
