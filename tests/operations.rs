//! The page for operators names a test for each claim.

use std::{fs, path::Path};

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

#[test]
fn every_test_that_the_page_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("src/operations.md")).expect("the page");
    let named = named(&page);
    assert!(named.len() >= 20, "{named:?}");
    for (program, module, test) in named {
        // The package does not contain projects of their own.
        if program == "rollout" && !root.join("tests/rollout").exists() {
            continue;
        }
        // A nested module has a file of its own, or is inside its parent's file.
        let of = |module: &str| {
            let path = module.replace("::", "/");
            root.join(format!("tests/{program}/{path}.rs"))
        };
        let inner = of(module);
        let file = match module.rsplit_once("::") {
            Some((outer, _)) if !inner.exists() => of(outer),
            _ => inner,
        };
        let source = fs::read_to_string(&file);
        let source = source.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert!(source.contains(&format!("fn {test}(")), "{module}::{test}");
    }
}
