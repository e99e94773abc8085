//! Generates code of other languages from the library that uniffi exported.

fn main() { uniffi::uniffi_bindgen_main() }
