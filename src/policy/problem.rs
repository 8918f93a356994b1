//! Problems of a policy, and the cursor that finds them: each names file and JSON pointer, what was found and what would
//! do. All of them are collected; one refusal tells them all. A value that looks like a credential is never quoted.

use super::credential;
use super::units;
use super::written::Written;
use crate::exit::Refusal;
use serde_json::Value;
use std::cell::RefCell;
use std::time::Duration;

/// Each with its place and its hint.
pub(super) type Problems = Vec<Refusal>;

/// No more problems than this are told: the first ones explain the rest.
const MOST_TOLD: usize = 20;

/// One refusal of all problems; none is no refusal.
pub(super) fn refuse_all(mut problems: Problems) -> Result<(), Refusal> {
    if problems.len() < 2 {
        return problems.pop().map_or(Ok(()), Err);
    }
    let untold = problems.len().saturating_sub(MOST_TOLD);
    let line = |problem: &Refusal| match &problem.hint {
        Some(hint) => format!("{} ({hint})", problem.message),
        None => problem.message.clone(),
    };
    let mut message = line(&problems[0]);
    for problem in problems.iter().skip(1).take(MOST_TOLD - 1) {
        message += &format!("\n{}: {}", problem.place.as_deref().unwrap_or(""), line(problem));
    }
    if untold > 0 {
        message += &format!("\nand {untold} more");
    }
    Err(Refusal { message, place: problems[0].place.take(), hint: None })
}

/// A value for a message: bounded, on one line, and never a credential.
pub(super) fn show(value: &Value) -> String {
    if holds_credential(value) {
        return "a value that looks like a credential".to_owned();
    }
    let text = value.to_string();
    match text.char_indices().nth(80) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}

/// A name that a user chose, as [`show`] shows a value.
pub(super) fn show_name(name: &str) -> String {
    show(&Value::from(name))
}

fn holds_credential(value: &Value) -> bool {
    match value {
        Value::String(text) => credential::value(text).is_some(),
        Value::Array(items) => items.iter().any(holds_credential),
        Value::Object(object) => object.values().any(holds_credential),
        _ => false,
    }
}

/// The document under check.
pub(super) struct Sheet {
    pub(super) written: Written,
    problems: RefCell<Problems>,
}

impl Sheet {
    pub(super) fn new(written: Written) -> Self {
        Self { written, problems: RefCell::new(Vec::new()) }
    }

    pub(super) fn root(&self) -> Node<'_> {
        Node { sheet: self, pointer: String::new(), value: Some(&self.written.value) }
    }

    /// The document where it had no problem.
    pub(super) fn settle(self) -> Result<Written, Refusal> {
        refuse_all(self.problems.into_inner())?;
        Ok(self.written)
    }
}

/// One place of the document. Every getter gives a value: where there is a problem it is noted, and the fallback goes on.
#[derive(Clone)]
pub(super) struct Node<'a> {
    sheet: &'a Sheet,
    pointer: String,
    value: Option<&'a Value>,
}

impl<'a> Node<'a> {
    pub(super) fn key(&self, key: &str) -> Node<'a> {
        let value = self.value.and_then(|value| value.get(key));
        Node { sheet: self.sheet, pointer: super::shape::join(&self.pointer, key), value }
    }

    pub(super) fn value(&self) -> Option<&'a Value> {
        self.value
    }

    pub(super) fn is_given(&self) -> bool {
        self.value.is_some()
    }

    /// Notes a problem in its own words.
    pub(super) fn refuse(&self, message: impl Into<String>, would_do: impl Into<String>) {
        let place = self.sheet.written.place(&self.pointer);
        self.sheet.problems.borrow_mut().push(Refusal::new(message).at(place).hint(would_do));
    }

    /// Notes that what was found would not do.
    pub(super) fn wrong(&self, would_do: impl Into<String>) {
        match self.value {
            Some(value) => self.refuse(format!("found {}", show(value)), would_do),
            None => self.refuse("is missing", would_do),
        }
    }

    /// Whether this part came from a built-in piece.
    pub(super) fn is_built_in(&self) -> bool {
        super::builtin::text(self.sheet.written.file(&self.pointer)).is_some()
    }

    /// Notes a missing value; gives whether it is there.
    pub(super) fn require(&self, would_do: &str) -> bool {
        if self.value.is_none() {
            self.wrong(would_do);
        }
        self.is_given()
    }

    /// The members of an object; a missing one has none.
    pub(super) fn entries(&self, would_do: &str) -> Vec<(&'a str, Node<'a>)> {
        match self.value {
            None => Vec::new(),
            Some(Value::Object(object)) => object.keys().map(|key| (key.as_str(), self.key(key))).collect(),
            Some(_) => {
                self.wrong(would_do);
                Vec::new()
            }
        }
    }

    /// The items of a list; a missing one is none.
    pub(super) fn items(&self, would_do: &str) -> Option<Vec<Node<'a>>> {
        match self.value {
            None => None,
            Some(Value::Array(items)) => {
                let node = |(i, value)| Node {
                    sheet: self.sheet,
                    pointer: format!("{}/{i}", self.pointer),
                    value: Some(value),
                };
                Some(items.iter().enumerate().map(node).collect())
            }
            Some(_) => {
                self.wrong(would_do);
                None
            }
        }
    }

    /// What `read` makes of a string; a missing one is none.
    pub(super) fn text<T>(&self, would_do: &str, read: impl FnOnce(&'a str) -> Option<T>) -> Option<T> {
        let value = self.value?;
        let read = value.as_str().and_then(read);
        if read.is_none() {
            self.wrong(would_do);
        }
        read
    }

    /// Strings of a list, each as `read` makes of it.
    pub(super) fn texts<T>(&self, would_do: &str, read: impl Fn(&'a str) -> Option<T>) -> Option<Vec<T>> {
        let items = self.items(would_do)?;
        Some(items.iter().filter_map(|item| item.text(would_do, &read)).collect())
    }

    /// One of some words.
    pub(super) fn word<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let would_do = words.iter().map(|(word, _)| format!("{word:?}")).collect::<Vec<_>>().join(", ");
        self.text(&format!("one of {would_do}"), |text| words.iter().find(|(word, _)| *word == text).map(|(_, it)| *it))
    }

    pub(super) fn flag(&self, default: bool) -> bool {
        match self.value {
            None => default,
            Some(Value::Bool(flag)) => *flag,
            Some(_) => {
                self.wrong("true or false");
                default
            }
        }
    }

    /// A whole number from `least` to `most`; a missing one is none.
    pub(super) fn count(&self, least: u64, most: u64) -> Option<u64> {
        let value = self.value?;
        let count = whole(value).filter(|n| (least..=most).contains(n));
        if count.is_none() {
            self.wrong(format!("a whole number from {least} to {most}"));
        }
        count
    }

    /// A finite number that is not negative; a missing one is none.
    pub(super) fn amount(&self, would_do: &str, fits: impl FnOnce(f64) -> bool) -> Option<f64> {
        let value = self.value?;
        let amount = value.as_f64().filter(|n| n.is_finite() && *n >= 0.0).filter(|n| fits(*n));
        if amount.is_none() {
            self.wrong(would_do);
        }
        amount
    }

    /// A size in bytes of at least `least`; a missing one is none.
    pub(super) fn size(&self, least: u64) -> Option<u64> {
        let would_do = format!("{}, {} and up", units::A_SIZE, units::show_size(least));
        self.text(&would_do, |text| units::size(text).filter(|bytes| *bytes >= least))
    }

    /// A time above zero; a missing one is none.
    pub(super) fn time(&self) -> Option<Duration> {
        let would_do = format!("{}, above 0", units::A_TIME);
        self.text(&would_do, |text| units::time(text).filter(|time| !time.is_zero()))
    }
}

/// An integer as JSON Schema means it: `3`, `3.0` and `3e0` are one.
fn whole(value: &Value) -> Option<u64> {
    let number = value.as_number()?;
    let thousandths = super::units::thousandths(number)?;
    thousandths.is_multiple_of(1000).then_some(thousandths / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_never_quoted() {
        for value in [serde_json::json!("sk-123456789"), serde_json::json!({"a": ["ghp_123456789"]})] {
            assert_eq!(show(&value), "a value that looks like a credential");
        }
        assert_eq!(show(&serde_json::json!("é".repeat(200))).chars().count(), 81);
    }

    #[test]
    fn many_problems_are_one_refusal_with_every_place() {
        let problem = |n: usize| Refusal::new(format!("found {n}")).at(format!("p#/{n}")).hint("less");
        assert_eq!(refuse_all(vec![]), Ok(()));
        assert_eq!(refuse_all(vec![problem(1)]), Err(problem(1)));
        let told = refuse_all((0..25).map(problem).collect()).unwrap_err();
        assert_eq!(told.place.as_deref(), Some("p#/0"));
        assert!(told.message.starts_with("found 0 (less)\np#/1: found 1 (less)\n"), "{}", told.message);
        assert!(told.message.ends_with("and 5 more"), "{}", told.message);
    }
}
