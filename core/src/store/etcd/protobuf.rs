//! The wire format of Protocol Buffers, as far as etcd's messages need it.

/// A message in the making.
#[derive(Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// A number; also 0, which means the same as leaving it out, except as one of several choices.
    #[must_use]
    pub(super) fn number(mut self, tag: u32, value: i64) -> Message {
        self.varint(u64::from(tag) << 3);
        self.varint(value.cast_unsigned());
        self
    }

    #[must_use]
    pub(super) fn flag(self, tag: u32, value: bool) -> Message {
        if value { self.number(tag, 1) } else { self }
    }

    /// Bytes, text, or a list of small numbers.
    #[must_use]
    pub(super) fn bytes(mut self, tag: u32, value: &[u8]) -> Message {
        self.varint(u64::from(tag) << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    /// A message inside this one.
    #[must_use]
    pub(super) fn message(self, tag: u32, value: &Message) -> Message {
        self.bytes(tag, &value.0)
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldValue<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Of a type that none of the messages has.
    Other,
}

impl<'a> FieldValue<'a> {
    /// 0 for what is no number.
    pub(super) fn unsigned(self) -> u64 {
        if let FieldValue::Number(value) = self { value } else { 0 }
    }

    pub(super) fn signed(self) -> i64 {
        self.unsigned().cast_signed()
    }

    /// Empty for what is none.
    pub(super) fn bytes(self) -> &'a [u8] {
        if let FieldValue::Bytes(bytes) = self { bytes } else { &[] }
    }
}

/// The fields of a message, each with its tag. Ends with `Err` where the bytes are no message.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

/// The bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoMessage;

impl<'a> Fields<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Fields<'a> {
        Fields { rest: bytes }
    }

    fn varint(&mut self) -> Result<u64, NoMessage> {
        let mut value = 0_u64;
        for at in 0..10 {
            let (byte, rest) = self.rest.split_first().ok_or(NoMessage)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(NoMessage)
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], NoMessage> {
        let length = usize::try_from(length).map_err(|_| NoMessage)?;
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(NoMessage)?;
        self.rest = rest;
        Ok(taken)
    }

    fn field(&mut self) -> Result<(u64, FieldValue<'a>), NoMessage> {
        let head = self.varint()?;
        let value = match head & 7 {
            0 => FieldValue::Number(self.varint()?),
            1 => self.take(8).map(|_| FieldValue::Other)?,
            2 => {
                let length = self.varint()?;
                FieldValue::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| FieldValue::Other)?,
            _ => return Err(NoMessage),
        };
        Ok((head >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, FieldValue<'a>), NoMessage>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let inner = Message::default().number(1, -1).flag(2, false).flag(3, true);
        let bytes = Message::default().bytes(1, b"key").message(64, &inner).number(5, 300).into_bytes();
        // by hand: tag 1 with 3 bytes, tag 64 with 13 bytes, tag 5 with 300
        assert_eq!(bytes[..7], [0x0a, 3, b'k', b'e', b'y', 0x82, 0x04]);
        assert_eq!(bytes[bytes.len() - 3..], [0x28, 0xac, 0x02]);
        let fields: Vec<_> = Fields::of(&bytes).collect::<Result<_, _>>().unwrap_or_default();
        assert_eq!(fields[0], (1, FieldValue::Bytes(b"key")));
        assert_eq!(fields[2], (5, FieldValue::Number(300)));
        let inner: Vec<_> = Fields::of(fields[1].1.bytes()).collect::<Result<_, _>>().unwrap_or_default();
        assert_eq!(inner.iter().map(|(tag, value)| (*tag, value.signed())).collect::<Vec<_>>(), [(1, -1), (3, 1)]);
    }

    #[test]
    fn what_is_cut_short_is_malformed_and_never_panics() {
        let whole = Message::default().bytes(1, b"key").number(2, i64::MAX).into_bytes();
        for end in 1..whole.len() {
            let read: Result<Vec<_>, _> = Fields::of(&whole[..end]).collect();
            assert!(read.is_err() || end == 5, "{end}: {read:?}");
        }
        for bytes in [&[0xff; 12][..], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f], &[0x0b], &[0x0d, 1]] {
            assert!(Fields::of(bytes).any(|field| field.is_err()), "{bytes:?}");
        }
    }
}
