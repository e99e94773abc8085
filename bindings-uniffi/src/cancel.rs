//! What ends a wait of a thread from outside.

use std::sync::Arc;

use onelock::blocking::Cancel;

/// A flag that waits look at. Once cancelled it stays so.
#[derive(uniffi::Object)]
pub struct NativeCancel(Cancel);

impl NativeCancel {
    pub(crate) fn flag(&self) -> Cancel {
        self.0.clone()
    }
}

#[uniffi::export]
impl NativeCancel {
    #[uniffi::constructor]
    pub fn new() -> Arc<NativeCancel> {
        Arc::new(NativeCancel(Cancel::new()))
    }

    /// Ends every wait that looks at this flag, within 50 ms.
    pub fn cancel(&self) {
        self.0.cancel();
    }
}
