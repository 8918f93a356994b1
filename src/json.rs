//! One strict reading of JSON, for everything that somebody else wrote: a policy, a case, a request's body, a message of
//! the evaluation process. Equal keys are refused after unescaping (serde_json keeps the last, others take the first), so
//! what was judged is what goes on. Numbers keep the text that they were written with. And a lenient one, for what need not
//! be well written: a target's answer, a provider's.
//!
//! Invariant: nothing is nested deeper than serde_json's bound. Its own reading of a `Value` is not: an object with the key
//! of its `RawValue` has it read the text in there, with a bound of its own, as often as one text lies in another.

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

/// The key under which serde_json (`arbitrary_precision`) hands a number's text to a visitor.
const NUMBER_TOKEN: &str = "$serde_json::private::Number";

/// Reads exactly one JSON value, refusing equal keys in an object. Nesting is bounded by serde_json (128 levels).
///
/// # Errors
/// What is wrong, with line and column, in serde_json's words.
pub fn parse(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    read(bytes, Reading { is_strict: true })
}

/// Reads exactly one JSON value; of equal keys in an object the last one counts.
///
/// # Errors
/// As for [`parse`].
pub fn parse_lenient(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    read(bytes, Reading { is_strict: false })
}

/// Whether an evaluation can be relied on to read it: nested no deeper than this, and each number within a double's range.
/// Python's reader stops at an integer of some thousand digits, and takes `1e999` for a value that JSON has no form for.
pub fn is_readable(value: &Value, levels: usize) -> bool {
    match value {
        Value::Number(number) => number.as_f64().is_some_and(f64::is_finite),
        Value::Array(items) => levels > 0 && items.iter().all(|item| is_readable(item, levels - 1)),
        Value::Object(entries) => levels > 0 && entries.values().all(|item| is_readable(item, levels - 1)),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

fn read(bytes: &[u8], reading: Reading) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = reading.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

#[derive(Clone, Copy)]
struct Reading {
    is_strict: bool,
}

impl<'de> DeserializeSeed<'de> for Reading {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reading {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number out of range"))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if key == NUMBER_TOKEN && object.is_empty() {
                // A number (or an object that plays one: it goes on as that number, judged and sent alike).
                let text: String = entries.next_value()?;
                let number: Number = text.parse().map_err(|_| de::Error::custom("not a number"))?;
                if entries.next_key::<String>()?.is_some() {
                    return Err(de::Error::custom("an object with a reserved key"));
                }
                return Ok(Value::Number(number));
            }
            let value = entries.next_value_seed(self)?;
            if self.is_strict && object.contains_key(&key) {
                return Err(de::Error::custom(format_args!("duplicate key {key:?}")));
            }
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_keep_their_text_and_order_stays() {
        for text in [r#"{"b":1.0,"a":[1e+5,12345678901234567890123,-0.10,null,true,"x"]}"#, "0.1000", "\"\\u00e9\""] {
            let again = serde_json::to_string(&parse(text.as_bytes()).unwrap()).unwrap();
            assert_eq!(again, text.replace("\\u00e9", "é"));
        }
    }

    #[test]
    fn what_another_reader_may_take_otherwise_is_refused() {
        let nested = "[".repeat(200) + &"]".repeat(200);
        let table = [
            r#"{"model":"a","model":"b"}"#,
            r#"{"model":"a","mod\u0065l":"b"}"#,
            r#"{"a":{"x":1,"x":1}}"#,
            r#"{"a":1}{"a":2}"#,
            "{\"a\":1}\u{0}",
            "[NaN]",
            "[1,]",
            "",
            &nested,
        ];
        for text in table {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn of_equal_keys_a_lenient_reading_takes_the_last() {
        let read = |text: &str| parse_lenient(text.as_bytes()).map(|value| value.to_string());
        assert_eq!(read(r#"{"a":1,"b":1.50,"a":2}"#).unwrap(), r#"{"a":2,"b":1.50}"#);
        assert!(read("1 2").is_err() && read(&("[".repeat(200) + &"]".repeat(200))).is_err());
    }

    #[test]
    fn no_text_is_read_as_the_json_that_it_may_hold() {
        let deep = "[".repeat(120) + &"]".repeat(120);
        let text = json!({"$serde_json::private::RawValue": deep}).to_string();
        for read in [parse, parse_lenient] {
            assert_eq!(read(text.as_bytes()).unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_reserved_key_is_read_one_way_only() {
        let hostile = r#"{"$serde_json::private::Number":"12"}"#;
        assert_eq!(serde_json::to_string(&parse(hostile.as_bytes()).unwrap()).unwrap(), "12");
        for bad in [r#"{"$serde_json::private::Number":"x"}"#, r#"{"$serde_json::private::Number":"1","model":"m"}"#] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
