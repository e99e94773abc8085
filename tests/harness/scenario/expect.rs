//! Whether an answer is as it must be.

use std::collections::HashMap;

use serde_json::{Value, json};

/// What was remembered: the last view of each lease by its name, and saved answers.
pub(super) type Known = HashMap<String, Value>;

/// Puts what is known in the place of `$name` and `$name.field`.
pub(super) fn resolve(value: &toml::Value, known: &Known) -> Result<Value, String> {
    Ok(match value {
        toml::Value::String(text) => match text.strip_prefix('$') {
            Some(path) => look_up(path, known)?,
            None => json!(text),
        },
        toml::Value::Array(items) => {
            Value::Array(items.iter().map(|item| resolve(item, known)).collect::<Result<_, _>>()?)
        }
        toml::Value::Table(fields) => Value::Object(
            fields
                .iter()
                .map(|(name, value)| Ok((name.clone(), resolve(value, known)?)))
                .collect::<Result<_, String>>()?,
        ),
        toml::Value::Integer(number) => json!(number),
        toml::Value::Float(number) => json!(number),
        toml::Value::Boolean(truth) => json!(truth),
        toml::Value::Datetime(other) => return Err(format!("{other} is no value of a scenario")),
    })
}

fn look_up(path: &str, known: &Known) -> Result<Value, String> {
    let mut parts = path.split('.');
    let name = parts.next().unwrap_or_default();
    let mut value = known.get(name).ok_or_else(|| format!("nothing is known of ${name}"))?;
    for part in parts {
        value = value.get(part).ok_or_else(|| format!("${path}: {value} has no {part}"))?;
    }
    Ok(value.clone())
}

/// Compares an answer with a pattern; says what differs.
///
/// A table must match in the fields that it lists. A text that begins with `<`, `>`, `=`, `!=` or `~` is a list of
/// comparisons (`~` looks for a part of a text), the text `null` stands for no value; everything else must be equal.
pub(super) fn compare(pattern: &toml::Value, answer: &Value, known: &Known) -> Result<(), String> {
    match pattern {
        toml::Value::Table(fields) => fields.iter().try_for_each(|(name, pattern)| {
            let field = answer.get(name).unwrap_or(&Value::Null);
            compare(pattern, field, known).map_err(|why| format!("{name}: {why}"))
        }),
        toml::Value::Array(patterns) => match answer.as_array() {
            Some(items) if items.len() == patterns.len() => {
                patterns.iter().zip(items).try_for_each(|(pattern, item)| compare(pattern, item, known))
            }
            _ => Err(format!("{answer} is no list of {}", patterns.len())),
        },
        toml::Value::String(text) if text == "null" => equal(&Value::Null, answer),
        toml::Value::String(text) if text.starts_with(['<', '>', '=', '!', '~']) => {
            let mut words = text.split(' ');
            while let Some(sign) = words.next() {
                let bound = words.next().ok_or_else(|| format!("{text:?} lacks a value after {sign}"))?;
                hold(sign, bound, answer, known)?;
            }
            Ok(())
        }
        _ => equal(&resolve(pattern, known)?, answer),
    }
}

fn equal(wanted: &Value, answer: &Value) -> Result<(), String> {
    let same = match (wanted.as_f64(), answer.as_f64()) {
        (Some(wanted), Some(answer)) => (wanted - answer).abs() < f64::EPSILON,
        _ => wanted == answer,
    };
    if same { Ok(()) } else { Err(format!("{answer}, not {wanted}")) }
}

fn hold(sign: &str, bound: &str, answer: &Value, known: &Known) -> Result<(), String> {
    let bound = match bound.strip_prefix('$') {
        Some(path) => look_up(path, known)?,
        None => serde_json::from_str(bound).unwrap_or_else(|_| json!(bound)),
    };
    let holds = match sign {
        "=" => equal(&bound, answer).is_ok(),
        "!=" => equal(&bound, answer).is_err(),
        "~" => answer.as_str().zip(bound.as_str()).is_some_and(|(answer, part)| answer.contains(part)),
        _ => match (answer.as_f64(), bound.as_f64()) {
            (Some(answer), Some(bound)) => match sign {
                ">" => answer > bound,
                ">=" => answer >= bound,
                "<" => answer < bound,
                "<=" => answer <= bound,
                _ => return Err(format!("{sign} is no comparison")),
            },
            _ => false,
        },
    };
    if holds { Ok(()) } else { Err(format!("{answer} is not {sign} {bound}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, answer: &Value) -> Result<(), String> {
        let table: toml::Table = format!("is = {pattern}").parse().unwrap();
        let known = Known::from([("l".to_owned(), json!({"token": 7})), ("proof".to_owned(), json!("p"))]);
        compare(&table["is"], answer, &known)
    }

    #[test]
    fn every_pattern_can_hold_and_fail() {
        for (pattern, holds, fails) in [
            ("1", json!(1), json!(2)),
            ("true", json!(true), json!(null)),
            (r#""a""#, json!("a"), json!("b")),
            (r#""null""#, json!(null), json!("null")),
            (r#""!= null""#, json!(0), json!(null)),
            (r#"">= 1 < 3""#, json!(2.5), json!(3)),
            (r#""> $l.token""#, json!(8), json!(7)),
            (r#""= $l.token""#, json!(7), json!(8)),
            (r#""$proof""#, json!("p"), json!("q")),
            (r#""~ bc""#, json!("abcd"), json!("acd")),
            ("{ a = 1, b = \"null\" }", json!({"a": 1, "c": 2}), json!({"a": 1, "b": 2})),
            ("[1, \"> 1\"]", json!([1, 2]), json!([1])),
        ] {
            assert_eq!(check(pattern, &holds), Ok(()), "{pattern}");
            assert!(check(pattern, &fails).is_err(), "{pattern} holds for {fails}");
        }
        assert!(check(r#""$m.token""#, &json!(1)).unwrap_err().contains("nothing is known"));
    }
}
