//! Who logs in on a new connection, asked of a function of JavaScript: the question is queued like everything else.

use std::sync::Arc;

use onelock::{CredentialsProvider, CredentialsRequest};

use crate::pump::{Message, Pump};

/// A function that JavaScript keeps under a number, for as long as connections may ask it.
pub(crate) struct Provider {
    pump: Arc<Pump>,
    number: u32,
}

impl Provider {
    pub(crate) fn new(pump: &Arc<Pump>, number: u32) -> Provider {
        Provider { pump: pump.clone(), number }
    }
}

impl CredentialsProvider for Provider {
    fn ask(&self, request: CredentialsRequest) {
        self.pump.tell(Message::Asked { provider: self.number, request });
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.pump.tell(Message::Unasked { provider: self.number });
    }
}
