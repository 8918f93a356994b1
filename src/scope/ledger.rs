//! The ledger: what the journal's lines add up to. Owns which resources are still owed; touches no engine.

use super::journal::{Kind, Line, Step};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// How long an engine may take to make what a client that is gone has asked for: a container or a network.
const LATE_OBJECT: Duration = Duration::from_secs(10);
/// The same for what buildx or a pull makes: these clients do the work themselves, the engine only takes the last of it.
const LATE_IMAGE: Duration = Duration::from_secs(3);

/// A resource of a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// What it is.
    pub kind: Kind,
    /// Unique to the scope.
    pub name: String,
    /// None while only the intent is known.
    pub id: Option<String>,
    /// The engine's time of creation, where it is part of the identity.
    pub created: Option<String>,
    /// With which it was made.
    pub labels: BTreeMap<String, String>,
    /// When it was asked for.
    pub asked: String,
    /// Without an identity: until when it may still come to be, although it is not there yet.
    pub doubt: Option<SystemTime>,
    /// Whether the journal has an intent to make it, before its identity.
    pub intended: bool,
}

impl Resource {
    /// An intent, from now.
    pub fn intent(kind: Kind, name: impl Into<String>, labels: BTreeMap<String, String>) -> Self {
        Self {
            kind,
            name: name.into(),
            id: None,
            created: None,
            labels,
            asked: super::journal::now(),
            doubt: None,
            intended: true,
        }
    }

    /// The same in doubt: from `since` on nobody works on it any more who could say that it is there.
    #[must_use]
    pub fn doubtful(self, since: SystemTime) -> Self {
        let late = match self.kind {
            Kind::Container | Kind::Network => LATE_OBJECT,
            Kind::Image | Kind::Builder | Kind::Volume => LATE_IMAGE,
            Kind::Folder => return self,
        };
        Self { doubt: Some(since + late), ..self }
    }

    /// The line of a step of its life.
    pub fn line(&self, step: Step, reason: Option<String>) -> Line {
        Line {
            at: super::journal::now(),
            step,
            kind: self.kind,
            name: self.name.clone(),
            id: self.id.clone(),
            created: self.created.clone(),
            labels: self.labels.clone(),
            reason,
        }
    }

    /// By id where it has one, else by name: for messages.
    pub fn handle(&self) -> &str {
        self.id.as_deref().unwrap_or(&self.name)
    }
}

/// What is still owed after these lines, in the order of creation.
pub fn owed(lines: &[Line]) -> Vec<Resource> {
    let mut owed: Vec<Resource> = Vec::new();
    for line in lines {
        let at = owed.iter().position(|resource| resource.kind == line.kind && resource.name == line.name);
        match (line.step, at) {
            (Step::Intent | Step::Created, None) => owed.push(resource_of(line)),
            (Step::Intent, Some(_)) => {}
            (Step::Created, Some(at)) => {
                let asked = owed[at].asked.clone();
                let intended = owed[at].intended;
                owed[at] = Resource { asked, intended, ..resource_of(line) };
            }
            (Step::Removed | Step::Kept, Some(at)) => {
                owed.remove(at);
            }
            (Step::Removed | Step::Kept, None) => {}
        }
    }
    owed
}

fn resource_of(line: &Line) -> Resource {
    Resource {
        kind: line.kind,
        name: line.name.clone(),
        id: line.id.clone(),
        created: line.created.clone(),
        labels: line.labels.clone(),
        asked: line.at.clone(),
        doubt: None,
        intended: line.step == Step::Intent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(step: Step, kind: Kind, name: &str, id: Option<&str>) -> Line {
        Line { id: id.map(str::to_owned), ..Resource::intent(kind, name, BTreeMap::new()).line(step, None) }
    }

    #[test]
    fn what_has_an_intent_and_no_end_is_owed_in_order() {
        let lines = [
            line(Step::Intent, Kind::Folder, "/f", None),
            line(Step::Created, Kind::Folder, "/f", None),
            line(Step::Intent, Kind::Network, "n", None),
            line(Step::Created, Kind::Network, "n", Some("1")),
            line(Step::Intent, Kind::Container, "c", None),
            line(Step::Created, Kind::Container, "c", Some("2")),
            line(Step::Removed, Kind::Container, "c", Some("2")),
            line(Step::Intent, Kind::Image, "i", None),
            line(Step::Kept, Kind::Network, "other", Some("9")),
        ];
        let owed: Vec<_> = owed(&lines).into_iter().map(|it| (it.kind, it.name, it.id)).collect();
        let expected = [
            (Kind::Folder, "/f".to_owned(), None),
            (Kind::Network, "n".to_owned(), Some("1".to_owned())),
            (Kind::Image, "i".to_owned(), None),
        ];
        assert_eq!(owed, expected);
    }
}
