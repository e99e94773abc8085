//! What comes in and goes out as bytes. JavaScript writes the arguments of a call one behind the other, and reads what the last
//! call left.

use std::cell::RefCell;

thread_local! {
    static INPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static OUTPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A large argument is not kept.
const KEPT_BYTES: usize = 64 << 10;

/// Where the next arguments go: room for so many bytes.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_input(length: usize) -> *mut u8 {
    INPUT.with_borrow_mut(|input| {
        if input.len() < length || input.len() > KEPT_BYTES {
            *input = vec![0; length.max(1024)];
        }
        input.as_mut_ptr()
    })
}

/// Where the last result lies.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_output() -> *const u8 {
    OUTPUT.with_borrow(Vec::as_ptr)
}

/// Reads arguments.
pub(crate) struct Arguments(Vec<u8>, usize);

impl Arguments {
    /// The first bytes of the input.
    pub(crate) fn take(length: usize) -> Arguments {
        Arguments(INPUT.with_borrow(|input| input.get(..length).unwrap_or_default().to_vec()), 0)
    }

    /// The next bytes, fewer if there are no more.
    pub(crate) fn bytes(&mut self, length: usize) -> &[u8] {
        let from = self.1;
        self.1 = from.saturating_add(length).min(self.0.len());
        &self.0[from..self.1]
    }

    /// The next bytes as text.
    pub(crate) fn text(&mut self, length: usize) -> String {
        String::from_utf8_lossy(self.bytes(length)).into_owned()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    pub(crate) fn word(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(crate) fn number(&mut self) -> f64 {
        f64::from_le_bytes(self.array())
    }

    /// Bytes behind their length.
    pub(crate) fn counted(&mut self) -> &[u8] {
        let length = self.word() as usize;
        self.bytes(length)
    }

    /// The next bytes, to be read by themselves.
    pub(crate) fn part(&mut self, length: usize) -> Arguments {
        Arguments(self.bytes(length).to_vec(), 0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.1 >= self.0.len()
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let bytes = self.bytes(N);
        array[..bytes.len()].copy_from_slice(bytes);
        array
    }
}

/// Bytes that the host has told; they are not kept.
pub(crate) fn with_input<R>(length: usize, read: impl FnOnce(&[u8]) -> R) -> R {
    // moved out, since reading may lead to calls that take arguments
    let input = INPUT.take();
    let result = read(input.get(..length).unwrap_or_default());
    INPUT.with_borrow_mut(|present| {
        if present.is_empty() {
            *present = input;
        }
    });
    result
}

/// Leaves a result; returns its length.
pub(crate) fn leave(bytes: impl Into<Vec<u8>>) -> i32 {
    let bytes = bytes.into();
    let length = i32::try_from(bytes.len()).unwrap_or(NOTHING);
    OUTPUT.set(bytes);
    length
}

/// The length of no result.
pub(crate) const NOTHING: i32 = -1;
