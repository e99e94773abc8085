//! What a page calls when this crate is compiled to WebAssembly. Only numbers go in; what comes out is text, in the memory at
//! [`output`], and each call returns its length in bytes. It is there until the next call.

#![allow(unsafe_code, reason = "a name that is exported as it is, is `unsafe(no_mangle)`")]

use std::sync::{Mutex, PoisonError};

use super::story::{self, Planted, Story};

static OUTPUT: Mutex<String> = Mutex::new(String::new());

fn say(text: String) -> usize {
    let mut output = OUTPUT.lock().unwrap_or_else(PoisonError::into_inner);
    *output = text;
    output.len()
}

fn chosen(story: u32, bug: i32) -> Option<(Story, Option<Planted>)> {
    let story = *Story::ALL.get(story as usize)?;
    let bug = usize::try_from(bug).ok().and_then(|bug| story.bugs().get(bug).copied());
    Some((story, bug))
}

/// Where the last output begins.
#[unsafe(no_mangle)]
pub extern "C" fn output() -> *const u8 {
    OUTPUT.lock().unwrap_or_else(PoisonError::into_inner).as_ptr()
}

/// The stories with their bugs, as JSON.
#[unsafe(no_mangle)]
pub extern "C" fn catalog() -> usize {
    say(story::catalog())
}

/// What happens in this story with this seed, as JSON; without a bug if its number is negative. 0 if there is no such story.
#[unsafe(no_mangle)]
pub extern "C" fn play(story: u32, seed: u64, bug: i32) -> usize {
    chosen(story, bug).map_or(0, |(story, bug)| say(story.play(seed, bug).to_json()))
}

/// The first of `count` seeds from `first` on with which this bug is caught; `u64::MAX` if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn search(story: u32, bug: i32, first: u64, count: u64) -> u64 {
    let found = chosen(story, bug).and_then(|(story, bug)| story.search(bug?, first, count));
    found.unwrap_or(u64::MAX)
}
