//! The pages for operators, and that of the comparison: each row has a test, and each number is one
//! that the crate computes.

use std::{fs, path::Path};

use tollgate::{AnyRule, Quota, algorithm::FleetRule};

/// Parses `program module::test`, as the page writes it.
fn named(page: &str) -> Vec<(&str, &str, &str)> {
    let quoted = page.split('`').skip(1).step_by(2);
    let parts = quoted.filter_map(|text| {
        let (program, path) = text.split_once(' ')?;
        let (module, test) = path.rsplit_once("::")?;
        let is_name = |name: &str| {
            name.bytes()
                .all(|byte| byte.is_ascii_lowercase() || b"_:".contains(&byte))
        };
        [program, module, test]
            .into_iter()
            .all(is_name)
            .then_some((program, module, test))
    });
    parts.collect()
}

fn page(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(path).expect("the page")
}

#[test]
fn each_row_of_the_page_has_a_test() {
    let (page, tests) = (page("src/operations.md"), page("tests/operations.md"));
    let is_number = |text: &&str| text.parse::<u32>().is_ok();
    let rows = page.lines().filter_map(|line| {
        let number = line.strip_prefix("| ")?.split(' ').next()?;
        Some(number).filter(is_number)
    });
    // Four rows are numbers in the text.
    let mut rows: Vec<_> = rows.chain(["1", "5", "6", "75"]).collect();
    let mut tested: Vec<_> = tests.split("**").filter(is_number).collect();
    rows.sort_unstable();
    tested.sort_unstable();
    assert_eq!(rows, tested);
}

#[test]
fn every_test_that_the_pages_name_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = [
        "src/operations.md",
        "tests/operations.md",
        "src/comparison.md",
    ]
    .map(page);
    let pages = pages.concat();
    let named = named(&pages);
    assert!(named.len() >= 80, "{named:?}");
    for (program, module, test) in named {
        // The package does not contain projects of their own.
        if program == "rollout" && !root.join("tests/rollout").exists() {
            continue;
        }
        // A module has a file or a folder of its own, or is inside its parent's file.
        let folder = root.join("tests").join(program);
        let outer = module.rsplit_once("::").map_or(module, |(outer, _)| outer);
        let files = [module, outer].map(|module| module.replace("::", "/"));
        let files = files
            .iter()
            .flat_map(|path| [format!("{path}.rs"), format!("{path}/mod.rs")]);
        let file = files
            .map(|path| folder.join(path))
            .find(|file| file.exists());
        let file = file.unwrap_or_else(|| panic!("{program} has no module {module}"));
        let source = fs::read_to_string(&file);
        let source = source.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert!(source.contains(&format!("fn {test}(")), "{module}::{test}");
    }
}

/// The prices of leases are those that the crate computes.
#[test]
fn leases_cost_what_the_page_says() {
    let page = page("src/fleets.md");
    let section = page
        .split("| limit | lease duration |")
        .nth(1)
        .expect("the table");
    let rows = section.lines().skip(2).map_while(|row| {
        let mut cells = row.strip_prefix('|')?.split(" | ");
        Some([cells.next()?, cells.next()?, cells.next()?])
    });
    let mut count = 0;
    for cells in rows {
        let [rule, lease, tightened] = cells.map(|cell| cell.trim_matches([' ', '`', '|']));
        let rule: AnyRule = rule.parse().expect("a rule");
        let (time, is_default) = match lease.strip_suffix(", its default") {
            Some(time) => (time, true),
            None => (lease, false),
        };
        // A time is written as the period of a quota is.
        let quota: Quota = format!("1/{time}").parse().expect("a time");
        let time = quota.period();
        assert_eq!(rule.default_lease_duration() == time, is_default, "{rule}");
        let expected: AnyRule = tightened.parse().expect("a rule");
        let computed = rule.tightened(time, 1).expect("it can be leased");
        assert_eq!(computed, expected, "{rule} for {lease}");
        count += 1;
    }
    assert!(count >= 10, "{count}");
}

/// The page names each counter of the wrappers by which nodes decide alone, and no other.
#[test]
fn every_counter_of_nodes_that_decide_alone_is_on_the_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = page("src/operations.md");
    let source = fs::read_to_string(root.join("src/fleet/stats.rs")).expect("the counters");
    for (counters, function) in [
        ("LeaseStats", "Leased::stats"),
        ("SyncStats", "Synced::stats"),
    ] {
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| [`{function}`]")));
        let row = row.unwrap_or_else(|| panic!("no row of {function}"));
        let lines = source.split_once(&format!("pub struct {counters} {{"));
        let (_, lines) = lines.unwrap_or_else(|| panic!("no {counters}"));
        let fields = lines.lines().take_while(|line| line.trim() != "}");
        let fields = fields.filter_map(|line| {
            let (name, _) = line.trim().split_once(": u64 = ")?;
            Some(name)
        });
        let mut fields: Vec<_> = fields.collect();
        let names = row.split('`').skip(1).step_by(2);
        let mut named: Vec<_> = names.filter(|name| *name != function).collect();
        fields.sort_unstable();
        named.sort_unstable();
        assert_eq!(named, fields, "{function}");
        assert!(fields.len() >= 15, "{function}: {fields:?}");
    }
}
