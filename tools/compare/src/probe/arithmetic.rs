//! Keys, costs, several limits.

use super::{NO, Surroundings, admitted, yes_no};
use crate::{
    answer::Answer,
    clients::client,
    library::{Library, Rule},
};

pub fn keys(library: &dyn Library, _: &Surroundings) -> String {
    let mut budget = library.budget(Rule::per_hour(2), None);
    assert_eq!(
        admitted(&mut budget, client(0), 3),
        2,
        "{}",
        library.package()
    );
    yes_no(budget(client(1), 1).is_admitted())
}

/// Counts those that admit a first call and refuse a tenth.
pub fn algorithms(library: &dyn Library, _: &Surroundings) -> String {
    let limits = library.algorithms(Rule::per_hour(3));
    let count = limits.len();
    for (name, mut budget) in limits {
        let answers: Vec<_> = (0..10).map(|_| budget(client(0), 1)).collect();
        let limits = answers[0].is_admitted() && !answers[9].is_admitted();
        assert!(limits, "{}: {name}: {answers:?}", library.package());
    }
    count.to_string()
}

pub fn costs(library: &dyn Library, _: &Surroundings) -> String {
    let Some(mut budget) = library.weighted(Rule::per_hour(5)) else {
        return NO.to_owned();
    };
    let above = budget(client(0), 6);
    // Were it charged, not all of the five would be left.
    let all = (
        budget(client(0), 3),
        budget(client(0), 3),
        budget(client(0), 2),
    );
    let is_weighted = matches!(
        all,
        (Answer::Admitted, Answer::Refused(_), Answer::Admitted)
    );
    assert!(is_weighted, "{}: {all:?}", library.package());
    match above {
        Answer::Admitted => "yes; admitted",
        Answer::Refused(_) => "yes; told to wait",
        Answer::Never => "yes; told never",
    }
    .to_owned()
}

pub fn both(library: &dyn Library, _: &Surroundings) -> String {
    let Some(mut limits) = library.both(Rule::per_hour(3), Rule::per_hour(1)) else {
        return NO.to_owned();
    };
    let by_both = admitted(&mut limits.both, client(0), 2);
    assert_eq!(by_both, 1, "{}", library.package());
    match admitted(&mut limits.first, client(0), 3) {
        2 => "yes".to_owned(),
        1 => "no: one is".to_owned(),
        other => panic!(
            "{}: {other} of the first limit were left",
            library.package()
        ),
    }
}

pub fn corrections(library: &dyn Library, _: &Surroundings) -> String {
    let Some(mut budget) = library.corrected(Rule::per_hour(5), client(0), 5, 2) else {
        return NO.to_owned();
    };
    let left = admitted(&mut budget, client(0), 5);
    assert_eq!(
        left,
        3,
        "{}: five were charged, and corrected to two",
        library.package()
    );
    yes_no(true)
}
