//! Credentials of new connections, from a JavaScript function: the request is queued as a message.

use std::sync::Arc;

use onelock::{CredentialsProvider, CredentialsRequest};

use crate::pump::{Message, Pump};

/// A function that JavaScript keeps under a number, for as long as connections may call it.
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
        self.pump.push(Message::CredentialsWanted { provider: self.number, request });
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.pump.push(Message::ProviderDropped { provider: self.number });
    }
}
