//! As much of JSON as a report needs: values that know how they are written. Text may hold anything; it is escaped.

use std::fmt;

/// A value of the report.
pub(crate) enum Json {
    Null,
    Flag(bool),
    Number(u64),
    Text(String),
    List(Vec<Json>),
    Map(Vec<(String, Json)>),
}

impl Json {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Json::Text(text.into())
    }

    pub(crate) fn texts(list: impl IntoIterator<Item = String>) -> Self {
        Json::List(list.into_iter().map(Json::Text).collect())
    }

    pub(crate) fn map<const N: usize>(entries: [(&str, Json); N]) -> Self {
        Json::Map(entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Self {
        value.map_or(Json::Null, Into::into)
    }
}

impl From<String> for Json {
    fn from(text: String) -> Self {
        Json::Text(text)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Json::Text(text.to_owned())
    }
}

impl From<u64> for Json {
    fn from(number: u64) -> Self {
        Json::Number(number)
    }
}

impl From<bool> for Json {
    fn from(flag: bool) -> Self {
        Json::Flag(flag)
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Json::Null => f.write_str("null"),
            Json::Flag(flag) => write!(f, "{flag}"),
            Json::Number(number) => write!(f, "{number}"),
            Json::Text(text) => quoted(f, text),
            Json::List(items) => {
                f.write_str("[")?;
                for (at, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if at > 0 { "," } else { "" })?;
                }
                f.write_str("]")
            }
            Json::Map(entries) => {
                f.write_str("{")?;
                for (at, (name, value)) in entries.iter().enumerate() {
                    f.write_str(if at > 0 { "," } else { "" })?;
                    quoted(f, name)?;
                    write!(f, ":{value}")?;
                }
                f.write_str("}")
            }
        }
    }
}

fn quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for character in text.chars() {
        match character {
            '"' | '\\' => write!(f, "\\{character}")?,
            character if character < ' ' => write!(f, "\\u{:04x}", u32::from(character))?,
            character => write!(f, "{character}")?,
        }
    }
    f.write_str("\"")
}
