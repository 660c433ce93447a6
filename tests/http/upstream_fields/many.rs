//! Upstreams that send thousands of members.

use std::fmt::Display;

use support::counting::allocations;

use super::{FORMATS, SETTINGS, annotated, headers_of};

/// The lines of an upstream with this many members.
type Lines = Vec<(&'static str, String)>;

const R: &str = "ratelimit";
const P: &str = "ratelimit-policy";

fn joined<T: Display>(members: impl Iterator<Item = T>) -> String {
    let members: Vec<_> = members.map(|member| member.to_string()).collect();
    members.join(", ")
}

fn shapes(count: usize) -> Vec<Lines> {
    let all = || 0..count;
    let available = |n: usize| format!("\"{n}\";r=9;t=9");
    // The last one is that of the first member.
    let policy = |n: usize| format!("\"{}\";q=9;w=9", count - 1 - n);
    let dictionary = |n: usize| format!("limit=9, remaining={n}, reset=9");
    vec![
        vec![
            (R, joined(all().map(available))),
            (P, joined(all().map(policy))),
        ],
        vec![(R, joined(all().map(available)))],
        vec![(P, joined(all().map(policy)))],
        all()
            .flat_map(|n| [(R, available(n)), (P, policy(n))])
            .collect(),
        all()
            .flat_map(|n| [(R, "\"api\";r=9".to_owned()), (P, format!("\"api\";q={n}"))])
            .collect(),
        all().map(|n| (R, dictionary(n))).collect(),
        all()
            .flat_map(|n| [(R, dictionary(n)), (P, n.to_string())])
            .collect(),
        vec![(P, joined(all()))],
        vec![
            ("ratelimit-limit", joined(all())),
            ("ratelimit-remaining", "9".to_owned()),
            (P, joined(all())),
        ],
        // Spread over lines that cannot be read by themselves.
        all()
            .map(|n| (R, format!("{}\"{n}", if n == 0 { "" } else { "\";r=9, " })))
            .collect(),
        vec![(R, format!("\"a\";r=9{}", ";x=1".repeat(count)))],
    ]
}

/// Each parse of a line allocates for each member. A search through all members for each of them
/// would square the number.
#[test]
fn the_work_is_linear_in_the_fields_of_an_upstream() {
    for (few, many) in shapes(100).into_iter().zip(shapes(400)) {
        for format in FORMATS {
            for setting in SETTINGS {
                let work = |lines: &Lines| {
                    let lines = lines.iter().map(|(name, value)| (*name, value.as_str()));
                    let theirs = headers_of(&lines.collect::<Vec<_>>());
                    annotated(theirs.clone(), format, setting, "api", 50);
                    allocations(|| annotated(theirs, format, setting, "api", 50)).0
                };
                let (few_work, many_work) = (work(&few), work(&many));
                let shape = &few[..few.len().min(2)];
                assert!(
                    many_work <= 4 * few_work + 100,
                    "{few_work} and {many_work} allocations, {format}, {setting:?}: {shape:?}"
                );
            }
        }
    }
}
