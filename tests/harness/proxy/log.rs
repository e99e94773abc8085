//! What went through a proxy.

/// How far a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is in the proxy: held, delayed, or on its way.
    Waiting,
    /// The server got it.
    Forwarded,
    /// The server never got it.
    Lost,
    /// The proxy answered it itself.
    Answered,
}

/// One request that a client sent.
#[derive(Clone, Debug)]
pub struct Passed {
    /// Which connection it came over, from 0 in the order of accepting.
    pub connection: usize,
    /// When it arrived, on the clock of [`boot_ns`](crate::clock::boot_ns).
    pub at_ns: u64,
    /// The command and its arguments.
    pub args: Vec<Vec<u8>>,
    /// How far it came.
    pub fate: Fate,
    /// What the server replied, as it stood on the wire, once it did.
    pub reply: Option<Vec<u8>>,
    /// When the reply was handed to the client's connection; `None` when the client never got one.
    pub delivered_ns: Option<u64>,
}

impl Passed {
    /// Whether it is the command `name`, in any case.
    pub fn is(&self, name: &str) -> bool {
        self.args.first().is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
    }

    /// Whether one of its arguments is exactly `arg`.
    pub fn has_arg(&self, arg: impl AsRef<[u8]>) -> bool {
        self.args.iter().skip(1).any(|own| own == arg.as_ref())
    }

    /// Whether one of its arguments contains `part`.
    pub fn contains(&self, part: impl AsRef<[u8]>) -> bool {
        let part = part.as_ref();
        self.args.iter().skip(1).any(|own| own.windows(part.len().max(1)).any(|window| window == part))
    }
}
