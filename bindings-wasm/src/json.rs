//! Writes objects for JavaScript.

use std::fmt::Write as _;

/// A value as JSON.
pub(crate) struct Json(String);

impl Json {
    /// An object with what `fill` writes into it.
    pub(crate) fn object(fill: impl FnOnce(&mut Fields)) -> Json {
        let mut fields = Fields("{".to_owned());
        fill(&mut fields);
        Json(fields.0 + "}")
    }

    pub(crate) fn array(items: impl IntoIterator<Item = Json>) -> Json {
        let items: Vec<String> = items.into_iter().map(|item| item.0).collect();
        Json(format!("[{}]", items.join(",")))
    }

    pub(crate) fn text(text: &str) -> Json {
        let mut out = String::with_capacity(text.len() + 2);
        out.push('"');
        for character in text.chars() {
            match character {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                // no line break may stand in a text, and two more are none in JavaScript
                '\0'..='\x1f' | '\u{2028}' | '\u{2029}' => {
                    let _ = write!(out, "\\u{:04x}", u32::from(character));
                }
                _ => out.push(character),
            }
        }
        out.push('"');
        Json(out)
    }

    /// Text, or an array of numbers for bytes that are none.
    pub(crate) fn name(name: Vec<u8>) -> Json {
        match String::from_utf8(name) {
            Ok(text) => Json::text(&text),
            Err(bytes) => Json::array(bytes.into_bytes().into_iter().map(|byte| Json::number(byte.into()))),
        }
    }

    pub(crate) fn number(number: f64) -> Json {
        if number.is_finite() { Json(number.to_string()) } else { Json("null".to_owned()) }
    }

    pub(crate) fn flag(flag: bool) -> Json {
        Json(flag.to_string())
    }

    pub(crate) fn texts(texts: &[String]) -> Json {
        Json::array(texts.iter().map(|text| Json::text(text)))
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0.into_bytes()
    }
}

/// The fields of an object.
pub(crate) struct Fields(String);

impl Fields {
    /// A field; the name needs no escape.
    pub(crate) fn set(&mut self, name: &str, value: Json) -> &mut Fields {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        let _ = write!(self.0, "\"{name}\":{}", value.0);
        self
    }

    /// A field that is left out where there is no value.
    pub(crate) fn may(&mut self, name: &str, value: Option<Json>) -> &mut Fields {
        match value {
            Some(value) => self.set(name, value),
            None => self,
        }
    }
}
