//! The pass rates of a run as case × drill. Owns which rows and columns there are and in which order: cases as the run has
//! them, undisturbed trials first, then the drills. Counts nothing by itself: a place holds the run's own record.

use crate::ids::CaseId;
use crate::results::record::CaseRecord;
use std::collections::{HashMap, HashSet};

/// Cases by drills.
#[derive(Debug, Clone)]
pub struct Matrix<'a> {
    /// The drills; none is undisturbed.
    pub columns: Vec<Option<&'a str>>,
    /// Each case with a place for each column; none where the run has no such trials (a shard, for one).
    pub rows: Vec<(&'a CaseId, Vec<Option<&'a CaseRecord>>)>,
}

impl<'a> Matrix<'a> {
    /// Of a run's cases; none where there is nothing to put beside each other.
    pub fn of(cases: &'a [CaseRecord]) -> Option<Self> {
        let mut columns: Vec<Option<&str>> = Vec::new();
        let mut ids: Vec<&CaseId> = Vec::new();
        let mut places: HashMap<(&CaseId, Option<&str>), &CaseRecord> = HashMap::new();
        let mut known: HashSet<&CaseId> = HashSet::new();
        for case in cases {
            let drill = case.drill.as_deref();
            if !columns.contains(&drill) {
                columns.push(drill);
            }
            if known.insert(&case.case) {
                ids.push(&case.case);
            }
            places.insert((&case.case, drill), case);
        }
        columns.sort_by_key(Option::is_some);
        let place = |id: &'a CaseId, drill: Option<&'a str>| places.get(&(id, drill)).copied();
        let row = |id: &'a CaseId| (id, columns.iter().map(|drill| place(id, *drill)).collect());
        let rows = ids.into_iter().map(row).collect();
        (columns.len() > 1).then_some(Self { columns, rows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{Counts, Outcome};

    fn case(name: &str, drill: Option<&str>, outcome: Outcome) -> CaseRecord {
        CaseRecord::new(CaseId::try_from(name.to_owned()).unwrap(), drill.map(str::to_owned), &Counts::of([outcome]))
    }

    #[test]
    fn undisturbed_comes_first_and_a_place_without_trials_is_empty() {
        let cases = [
            case("b", Some("slow"), Outcome::Failed),
            case("b", None, Outcome::Passed),
            case("a", Some("cut"), Outcome::Uncertain),
            case("a", None, Outcome::Passed),
        ];
        let matrix = Matrix::of(&cases).unwrap();
        assert_eq!(matrix.columns, [None, Some("slow"), Some("cut")]);
        let shown: Vec<_> = matrix
            .rows
            .iter()
            .map(|(id, places)| (id.as_str(), places.iter().map(|it| it.map(|it| it.pass_rate)).collect::<Vec<_>>()))
            .collect();
        let right =
            [("b", vec![Some(Some(1.0)), Some(Some(0.0)), None]), ("a", vec![Some(Some(1.0)), None, Some(None)])];
        assert_eq!(shown, right);
    }

    #[test]
    fn one_column_is_no_matrix() {
        for drill in [None, Some("slow")] {
            assert!(Matrix::of(&[case("a", drill, Outcome::Passed)]).is_none());
        }
        assert!(Matrix::of(&[]).is_none());
    }
}
