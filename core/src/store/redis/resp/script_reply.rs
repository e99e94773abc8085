//! The fast path of the decoder: reads a complete reply of one of our scripts, which is an array of numbers and short
//! texts.

use redis::Value;

/// Only a renewal is answered with more items.
const MAX_ITEMS: i64 = 16;

/// The reply that `bytes` begin with, and its length. `None` when it is incomplete or of another form: then the parser
/// reads it.
pub(crate) fn read(bytes: &[u8]) -> Option<(Value, usize)> {
    let mut rest = bytes;
    let value = if bytes.first() == Some(&b'*') {
        let count = number(&mut rest).filter(|count| (0..=MAX_ITEMS).contains(count))?;
        let mut items = Vec::with_capacity(count as usize);
        for _ in 0..count {
            items.push(item(&mut rest)?);
        }
        Value::Array(items)
    } else {
        item(&mut rest)?
    };
    Some((value, bytes.len() - rest.len()))
}

fn item(rest: &mut &[u8]) -> Option<Value> {
    match rest.first()? {
        b':' => number(rest).map(Value::Int),
        b'$' => {
            let length = usize::try_from(number(rest)?).ok()?;
            let (text, behind) = rest.split_at_checked(length)?;
            *rest = behind.strip_prefix(b"\r\n")?;
            Some(Value::BulkString(text.to_vec()))
        }
        _ => None,
    }
}

/// The number after the first byte, up to the end of the line.
fn number(rest: &mut &[u8]) -> Option<i64> {
    /// Every number of so many digits fits.
    const DIGITS: usize = 18;
    let mut bytes = rest.get(1..)?;
    let negative = bytes.first() == Some(&b'-');
    if negative {
        bytes = &bytes[1..];
    }
    let digits = bytes.iter().take(DIGITS + 1).take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || digits > DIGITS {
        return None;
    }
    let value = bytes[..digits].iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0'));
    *rest = bytes[digits..].strip_prefix(b"\r\n")?;
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_reads_is_what_the_parser_reads() {
        let readable = [
            "*4\r\n:1785000000000000\r\n:0\r\n:-1\r\n$3\r\nabc\r\n",
            ":0\r\n",
            ":-0\r\n",
            ":007\r\n",
            ":999999999999999999\r\n",
            ":-999999999999999999\r\n",
            "*0\r\n",
            "$0\r\n\r\n",
            "$4\r\na\r\n\r\r\n",
        ];
        for bytes in readable {
            let parsed = redis::parse_redis_value(bytes.as_bytes()).ok();
            assert_eq!(read(bytes.as_bytes()), parsed.map(|value| (value, bytes.len())), "{bytes:?}");
            let behind = format!("{bytes}:5\r\n");
            assert_eq!(read(behind.as_bytes()).map(|(_, length)| length), Some(bytes.len()), "{behind:?}");
            for cut in 0..bytes.len() {
                assert_eq!(read(&bytes.as_bytes()[..cut]), None, "{:?}", &bytes[..cut]);
            }
        }
    }

    #[test]
    fn everything_else_is_left_to_the_parser() {
        let others = [
            "+OK\r\n",
            "-ERR no\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "*1\r\n*0\r\n",
            "*2\r\n:1\r\n+OK\r\n",
            "*17\r\n",
            ":\r\n",
            ":+1\r\n",
            ": 1\r\n",
            ":1x\r\n",
            ":1\n\r\n",
            ":1\r:\r\n",
            ":9223372036854775807\r\n",
            "$1\r\nab\r\n",
            "$9999999999999999999\r\n",
            "%0\r\n",
            "_\r\n",
            "HTTP/1.1 400 Bad Request\r\n",
        ];
        for bytes in others {
            assert_eq!(read(bytes.as_bytes()), None, "{bytes:?}");
        }
    }
}
