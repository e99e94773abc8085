//! What a record cannot carry: it is fetched by the number that the record has.

use napi_derive::napi;

use super::Bridge;
use crate::data::{Diagnosed, Failure, Inspected, Page, ServerFacts};
use crate::records::Payload;

#[napi]
impl Bridge {
    #[napi]
    pub fn take_failure(&self, payload: u32) -> Option<Failure> {
        match self.state.borrow_mut().payloads.remove(&payload)? {
            Payload::Failure(failure) => Some(*failure),
            _ => None,
        }
    }

    #[napi]
    pub fn take_inspected(&self, payload: u32) -> Option<Inspected> {
        match self.state.borrow_mut().payloads.remove(&payload)? {
            Payload::Inspected(seen) => Some(seen),
            _ => None,
        }
    }

    #[napi]
    pub fn take_page(&self, payload: u32) -> Option<Page> {
        match self.state.borrow_mut().payloads.remove(&payload)? {
            Payload::Page(page) => Some(page),
            _ => None,
        }
    }

    #[napi]
    pub fn take_facts(&self, payload: u32) -> Option<ServerFacts> {
        match self.state.borrow_mut().payloads.remove(&payload)? {
            Payload::Facts(facts) => Some(facts),
            _ => None,
        }
    }

    #[napi]
    pub fn take_diagnosis(&self, payload: u32) -> Option<Diagnosed> {
        match self.state.borrow_mut().payloads.remove(&payload)? {
            Payload::Diagnosed(found) => Some(found),
            _ => None,
        }
    }

    /// The text of the oldest log line whose record was fetched.
    #[napi]
    pub fn take_log_line(&self) -> Option<String> {
        self.state.borrow_mut().log_lines.pop_front()
    }
}
