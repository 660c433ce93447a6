//! Tests that the source tree obeys the laws of `DESIGN.md`.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Returns every file below `src` with its lines of code: without comments, documentation and
/// tests. The folders `proof` hold tests alone.
fn sources() -> Vec<(PathBuf, Vec<String>)> {
    fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !path.ends_with("proof") {
                    walk(&path, files);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    walk(&root, &mut files);
    files.sort();
    let code = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let untested = text.split("#[cfg(test)]\nmod tests {").next();
        let lines = untested
            .unwrap_or_default()
            .lines()
            .map(|line| {
                line.split("//")
                    .next()
                    .unwrap_or_default()
                    .trim()
                    .to_owned()
            })
            .filter(|line| !line.is_empty())
            .collect();
        (path.strip_prefix(&root).unwrap().to_owned(), lines)
    };
    files.into_iter().map(code).collect()
}

fn below<'a>(
    sources: &'a [(PathBuf, Vec<String>)],
    folders: &'a [&str],
) -> impl Iterator<Item = &'a (PathBuf, Vec<String>)> {
    let found: Vec<_> = sources
        .iter()
        .filter(|(path, _)| folders.iter().any(|folder| path.starts_with(folder)))
        .collect();
    assert!(
        !found.is_empty(),
        "nothing below {folders:?}: the layout has changed"
    );
    found.into_iter()
}

/// Returns the paths below `crate::` in the `use` items and the code of a file, flattened.
fn names_of_the_crate(lines: &[String]) -> Vec<String> {
    names_below("crate::", lines)
}

fn names_below(prefix: &str, lines: &[String]) -> Vec<String> {
    let code = lines.join(" ");
    let mut names = Vec::new();
    for (at, _) in code.match_indices(prefix) {
        flatten("", &code[at + prefix.len()..], &mut names);
    }
    names
}

/// Flattens `a::{b, c::d}, …` into `a::b` and `a::c::d`. Returns the number of bytes that it read.
fn flatten(prefix: &str, text: &str, names: &mut Vec<String>) -> usize {
    let mut name = String::new();
    let mut at = 0;
    while let Some(character) = text[at..].chars().next() {
        match character {
            '{' => {
                at += 1;
                let inner = format!("{prefix}{name}");
                loop {
                    at += flatten(&inner, &text[at..], names);
                    let rest = text[at..].trim_start();
                    at = text.len() - rest.len();
                    if rest.starts_with(',') {
                        at += 1;
                    } else {
                        return at + rest.starts_with('}') as usize;
                    }
                }
            }
            ' ' if name.is_empty() => at += 1,
            ' ' if text[at..].starts_with(" as ") => {
                let alias = text[at + 4..].find([',', ';', '}', ' ']);
                at += alias.map_or(text[at..].len(), |length| 4 + length);
            }
            character if character.is_alphanumeric() || "_:".contains(character) => {
                name.push(character);
                at += character.len_utf8();
            }
            _ => break,
        }
    }
    if !name.is_empty() {
        names.push(format!("{prefix}{name}"));
    }
    at
}

/// Panics if a file uses an item of the crate that is not in or below `allowed`. Who may name a
/// `Mutex` may lock it.
fn assert_uses_only(path: &Path, lines: &[String], allowed: &[&str]) {
    for name in names_of_the_crate(lines) {
        let fine = allowed
            .iter()
            .chain(&["locks"])
            .any(|allowed| name == *allowed || name.starts_with(&format!("{allowed}::")));
        assert!(fine, "{}: uses `crate::{name}`", path.display());
    }
}

#[test]
fn paths_are_flattened() {
    let line = "use crate::{time::{Clock, Timestamp}, error::Error}; let x = crate::store::StoreError::new(1);";
    assert_eq!(
        names_of_the_crate(&[line.to_owned()]),
        [
            "time::Clock",
            "time::Timestamp",
            "error::Error",
            "store::StoreError::new"
        ]
    );
    let line = "use crate::{a::B as _, c::{d as e, F}}; crate::g::h as usize";
    assert_eq!(
        names_of_the_crate(&[line.to_owned()]),
        ["a::B", "c::d", "c::F", "g::h"]
    );
}

#[test]
fn relative_paths_are_resolved() {
    let lines = [
        "use super::{",
        "a::B,",
        "super::c::D,",
        "};",
        "mod inner {",
        "pub use super::e::F;",
        "}",
        "fn new() -> super::G { super::super::H }",
        "pub(in super::super) fn i() {}",
    ];
    assert_eq!(
        supers("x::y::z", &lines.map(str::to_owned)),
        [
            "x::y::a::B",
            "x::c::D",
            "x::y::z::e::F",
            "x::y::G",
            "x::H",
            "x"
        ]
    );
    assert_eq!(module_of(Path::new("store/local/mod.rs")), "store::local");
    assert_eq!(module_of(Path::new("store/ask.rs")), "store::ask");
    let rings = ["store::local::map", "fleet::leased::call", "nowhere"].map(ring);
    assert_eq!(rings, [Some(0), Some(3), None]);
}

/// A program that no step of `./test.sh` names is built and never run; a step that no job names
/// does not run in CI.
#[test]
fn every_test_program_and_every_step_is_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap();
    let (script, jobs) = (read("test.sh"), read(".github/workflows/ci.yml"));
    let words = |text: &str| -> Vec<String> {
        let is_name = |character: char| character.is_alphanumeric() || character == '_';
        let words = text.split(|character| !is_name(character));
        words.map(str::to_owned).collect()
    };
    let jobs = words(&jobs);
    // The lines that name programs: elsewhere their names may be those of steps, or words.
    let lists = ["--test ", "programs=", "programs+=", "for program in"];
    let runs = script.lines().filter(|line| {
        let is_list = lists.iter().any(|list| line.contains(list));
        is_list && !line.trim_start().starts_with('#')
    });
    let runs: Vec<String> = runs.flat_map(words).collect();
    let mut programs = 0;
    for tests in [
        "tests",
        "examples/etcd/tests",
        "examples/kafka/tests",
        "examples/prometheus/tests",
        "tests/support/tests",
        "tools/replay/tests",
    ] {
        for entry in fs::read_dir(root.join(tests)).unwrap() {
            let path = entry.unwrap().path();
            let is_program = path.extension().is_some_and(|extension| extension == "rs")
                || path.join("main.rs").exists();
            if is_program {
                let name = path.file_stem().unwrap().to_str().unwrap();
                assert!(
                    runs.iter().any(|word| word == name),
                    "test.sh does not run {name}"
                );
                programs += 1;
            }
        }
    }
    assert!(programs > 20, "{programs}");
    // Examples that have tests.
    let manifest = read("Cargo.toml");
    let examples = manifest.split("\n[[example]]\n").skip(1);
    let tested = examples.filter(|example| example.contains("test = true"));
    let names = tested.filter_map(|example| example.split('"').nth(1));
    let names: Vec<_> = names.collect();
    assert!(names.contains(&"guide"), "{names:?}");
    for name in names {
        let run = format!("--example {name}");
        assert!(script.contains(&run), "test.sh does not run {name}");
    }
    let steps = script
        .lines()
        .filter_map(|line| line.trim().strip_prefix("steps"));
    let all = steps.skip_while(|line| !line.starts_with("=(format shared"));
    let all: Vec<_> = all
        .take(2)
        .flat_map(words)
        .filter(|word| !word.is_empty())
        .collect();
    assert!(all.len() > 10, "{all:?}");
    for step in all {
        assert!(jobs.contains(&step), "no job of ci.yml runs {step}");
    }
}

#[test]
fn algorithms_are_pure() {
    let allowed = ["algorithm", "quota", "decision", "error", "time::Timestamp"];
    let impure = [
        "Instant",
        "SystemTime",
        "Mutex",
        "RwLock",
        "Atomic",
        "OnceLock",
        "thread",
        "rand",
        "std::io",
        "std::fs",
        "std::net",
        "async ",
        ".await",
        "Cell",
        "static ",
    ];
    let sources = sources();
    for (path, lines) in below(&sources, &["algorithm"]) {
        assert_uses_only(path, lines, &allowed);
        for line in lines {
            let line = line.replace("'static", "");
            for word in impure {
                assert!(
                    !line.contains(word),
                    "{}: `{word}` in `{line}`",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn pacing_uses_no_store_and_reads_no_clock_if_given_the_time() {
    let allowed = ["pace", "algorithm", "time", "decision", "error", "quota"];
    let sources = sources();
    for (path, lines) in below(&sources, &["pace"]) {
        assert_uses_only(path, lines, &allowed);
    }
    for (path, lines) in below(&sources, &["pace/mod.rs", "pace/round_robin.rs"]) {
        for line in lines {
            let reads = line.contains(".now()");
            assert!(!reads, "{}: `{line}` reads a clock", path.display());
        }
    }
}

#[test]
fn limiters_use_stores_by_their_traits() {
    let allowed = [
        "algorithm::Algorithm",
        "algorithm::Blockable",
        "decision",
        "error",
        "key",
        "limiter",
        "live_rule",
        "policy",
        "store::Ask",
        "store::BlockFuture",
        "store::Blocks",
        "store::Check",
        "store::MayFail",
        "store::NeverWaits",
        "store::Progress",
        "store::Settlement",
        "store::Steps",
        "store::StepsFuture",
        "store::Store",
        "store::run",
        "time",
    ];
    let sources = sources();
    for (path, lines) in below(&sources, &["limiter.rs"]) {
        assert_uses_only(path, lines, &allowed);
    }
}

#[test]
fn what_nodes_decide_alone_is_pure() {
    let lease = [
        "fleet::lease",
        "fleet::LeaseStats",
        "algorithm::FleetRule",
        "algorithm::Leasable",
        "algorithm::Step",
        "algorithm::Validity",
        "decision",
        "quota",
        "random",
        "store::Spend",
        "time::Timestamp",
    ];
    let synced = [
        "fleet::keys",
        "fleet::sync",
        "algorithm::FleetRule",
        "algorithm::Step",
        "algorithm::Syncable",
        "decision",
        "error",
        "quota",
        "time::Timestamp",
    ];
    let impure = [".now()", "Mutex", "Atomic", "async ", "std::net", "tokio"];
    let sources = sources();
    for (folder, allowed) in [("fleet/lease", &lease[..]), ("fleet/sync", &synced[..])] {
        for (path, lines) in below(&sources, &[folder]) {
            assert_uses_only(path, lines, allowed);
            for line in lines {
                let is_pure = !impure.iter().any(|word| line.contains(word));
                assert!(is_pure, "{}: `{line}`", path.display());
            }
        }
    }
}

#[test]
fn backoff_uses_neither_stores_nor_clients() {
    for (path, lines) in below(&sources(), &["backoff"]) {
        assert_uses_only(path, lines, &["backoff", "random"]);
    }
}

#[test]
fn observers_use_neither_the_middleware_nor_responses() {
    let allowed = [
        "observe", "decision", "key", "policy", "stats", "striped", "time",
    ];
    // Counters of stores, layers and responders, and the traits that their types are bound by.
    let publish = [
        "algorithm",
        "store",
        "config",
        "listen",
        "middleware::RateLimitLayer",
        "respond::DrainBodies",
        "respond::DrainStats",
    ];
    let publish = [&allowed[..], &publish[..]].concat();
    let sources = sources();
    for (path, lines) in below(&sources, &["observe"]) {
        let publishes = path.starts_with("observe/metrics");
        let allowed = if publishes {
            &publish[..]
        } else {
            &allowed[..]
        };
        assert_uses_only(path, lines, allowed);
    }
}

#[test]
fn decisions_and_policies_use_neither_stores_nor_the_middleware() {
    let sources = sources();
    for (path, lines) in below(&sources, &["decision", "policy.rs"]) {
        for name in names_of_the_crate(lines) {
            let module = name.split("::").next().unwrap_or_default();
            assert!(
                !["store", "middleware"].contains(&module),
                "{}: uses `crate::{name}`",
                path.display()
            );
        }
    }
}

/// The rings of the crate, from the inside out, and their modules. A module imports from its own
/// ring and from those inside.
const RINGS: [(&str, &[&str]); 5] = [
    (
        "core",
        &[
            "algorithm",
            "decision",
            "derive",
            "error",
            "key",
            "locks",
            "log",
            "policy",
            "quota",
            "random",
            "stats",
            "store::ask",
            "store::boxed",
            "store::check",
            "__delegate",
            "store::delegate",
            "store::delta",
            "store::engine",
            "store::error",
            "store::local",
            "store::names",
            "store::node_counts",
            "store::traits",
            "striped",
            "sync",
            "time",
        ],
    ),
    (
        "layer",
        &[
            "backoff",
            "charging",
            "config",
            "dry_run",
            "introspect",
            "limiter",
            "listen",
            "live_rule",
            "middleware",
            "observe",
            "outcome",
            "pace",
            "permit",
            "renewals",
            "respond",
            "trace",
        ],
    ),
    (
        "stores",
        &[
            "store::cas",
            "store::counter",
            "store::memcached",
            "store::redis",
            "store::script",
            "store::store_ext",
            "store::transactional",
            "store::wrappers",
        ],
    ),
    ("fleet", &["fleet"]),
    ("testing", &["testing"]),
];

/// Imports from a ring further out that are still there: the importing module, and the modules that
/// it imports.
const OUTWARD: [(&str, &[&str]); 3] = [
    ("limiter", &["store::wrappers"]),
    // Publishes the counters of every store.
    ("observe::metrics", &["fleet", "store"]),
    // Has a method for each wrapper.
    ("store::store_ext", &["fleet"]),
];

/// Modules outside the rings: they only re-export, or name types of every ring in messages of the
/// compiler.
const OUTSIDE: [&str; 8] = [
    "",
    "future",
    "key::introspect",
    "prelude",
    "store",
    "store::driver",
    "store::wrappers",
    "unsatisfied",
];

fn is_in(module: &str, outer: &str) -> bool {
    let rest = module.strip_prefix(outer);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Returns the index of the ring of a module, by the longest path that contains it.
fn ring(module: &str) -> Option<usize> {
    let rings = RINGS.iter().enumerate();
    let modules = rings.flat_map(|(ring, (_, modules))| modules.iter().map(move |it| (ring, it)));
    let around = modules.filter(|(_, outer)| is_in(module, outer));
    let (ring, _) = around.max_by_key(|(_, outer)| outer.len())?;
    Some(ring)
}

/// Returns the path of the module in a file, as in `store::local`; of `lib.rs` the empty one.
fn module_of(path: &Path) -> String {
    let path = path.with_extension("");
    let names: Vec<_> = path.iter().map(|name| name.to_str().unwrap()).collect();
    let names = match names.as_slice() {
        ["lib"] => &[],
        [folder @ .., "mod"] => folder,
        names => names,
    };
    names.join("::")
}

/// Returns the paths below the crate of all names that begin with `super::`, in imports and in
/// code.
fn supers(module: &str, lines: &[String]) -> Vec<String> {
    let mut code = String::new();
    // The inline modules around each line, by the line's first byte.
    let mut around: Vec<(usize, Vec<&str>)> = Vec::new();
    let (mut depth, mut inline) = (0, Vec::<(usize, &str)>::new());
    for line in lines {
        inline.retain(|(outer, _)| depth > *outer);
        around.push((code.len(), inline.iter().map(|(_, name)| *name).collect()));
        let name = line
            .rsplit_once("mod ")
            .and_then(|(_, rest)| rest.strip_suffix(" {"));
        if let Some(name) = name {
            inline.push((depth, name));
        }
        depth += line.matches('{').count();
        depth = depth.saturating_sub(line.matches('}').count());
        code.push_str(line);
        code.push(' ');
    }
    let (mut all, mut read) = (Vec::new(), 0);
    for (at, _) in code.match_indices("super::") {
        let before = code[..at].chars().next_back().unwrap_or(' ');
        if at < read || before.is_alphanumeric() || "_:".contains(before) {
            continue;
        }
        let (_, inline) = &around[around.partition_point(|(line, _)| *line <= at) - 1];
        let module: Vec<_> = module.split("::").chain(inline.iter().copied()).collect();
        let mut names = Vec::new();
        read = at + flatten("", &code[at..], &mut names);
        all.extend(names.iter().map(|name| from_super(&module, name)));
    }
    all
}

/// Returns the path below the crate of a name that begins with `super::` in this module.
fn from_super(module: &[&str], name: &str) -> String {
    let mut at = module.to_vec();
    for step in name.split("::") {
        if step == "super" {
            at.pop();
        } else {
            at.push(step);
        }
    }
    at.join("::")
}

/// Returns the names that the modules without code re-export, and where these are defined.
fn re_exports(sources: &[(PathBuf, Vec<String>)]) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (path, lines) in sources {
        let module = module_of(path);
        if !path.ends_with("mod.rs") && !module.is_empty() {
            continue;
        }
        let below = |name: &str| match module.as_str() {
            "" => name.to_owned(),
            module => format!("{module}::{name}"),
        };
        let own = names_below("use self::", lines).into_iter();
        let own = own.map(|name| below(&name));
        let others = names_below("use crate::", lines);
        all.extend(own.chain(others).map(|target| {
            let last = target.rsplit("::").next().unwrap_or_default();
            (below(last), target.clone())
        }));
    }
    // `store` has the names of `store::driver`, too, within the crate.
    let driver = sources
        .iter()
        .find(|(path, _)| path.ends_with("store/driver.rs"));
    let (_, lines) = driver.expect("the names of `store::driver`");
    let own = names_below("use super::", lines).into_iter();
    let own = own.map(|name| format!("store::{name}"));
    for target in own.chain(names_below("use crate::", lines)) {
        let last = target.rsplit("::").next().unwrap_or_default();
        for module in ["store", "store::driver"] {
            all.push((format!("{module}::{last}"), target.clone()));
        }
    }
    all
}

#[test]
fn modules_import_only_from_inner_rings() {
    let sources = sources();
    let re_exports = re_exports(&sources);
    // Follows a name through the modules that re-export it.
    let defined = |name: String| {
        let mut name = name;
        for _ in 0..4 {
            let longer = re_exports
                .iter()
                .find(|(exported, target)| is_in(&name, exported) && exported != target);
            let Some((exported, target)) = longer else {
                break;
            };
            name = format!("{target}{}", &name[exported.len()..]);
        }
        name
    };
    let mut used = [false; OUTWARD.len()];
    let (mut imports, mut outward) = (0, Vec::new());
    for (path, lines) in &sources {
        let module = module_of(path);
        if OUTSIDE.contains(&module.as_str()) {
            continue;
        }
        let own = ring(&module).unwrap_or_else(|| panic!("`{module}` is in no ring"));
        let supers = supers(&module, lines);
        for name in names_of_the_crate(lines).into_iter().chain(supers) {
            let target = defined(name);
            // Rules are re-exported by a macro. A module around this one is a visibility.
            let is_rule = target.starts_with(char::is_uppercase);
            if is_rule || is_in(&module, &target) {
                continue;
            }
            let Some(other) = ring(&target) else {
                let is_outside = OUTSIDE[1..].iter().any(|outside| is_in(&target, outside));
                assert!(
                    is_outside,
                    "{module} imports `{target}`, which is in no ring"
                );
                continue;
            };
            imports += 1;
            if other <= own {
                continue;
            }
            let allowed = OUTWARD.iter().position(|(inner, outer)| {
                is_in(&module, inner) && outer.iter().any(|outer| is_in(&target, outer))
            });
            let Some(allowed) = allowed else {
                let (own, other) = (RINGS[own].0, RINGS[other].0);
                outward.push(format!("{module} ({own}) imports `{target}` ({other})"));
                continue;
            };
            used[allowed] = true;
        }
    }
    assert!(imports > 1000, "{imports}");
    assert!(outward.is_empty(), "{outward:#?}");
    assert_eq!(
        used,
        [true; OUTWARD.len()],
        "an exception is not needed any more"
    );
}

#[test]
fn the_middleware_uses_no_algorithm_and_no_concrete_store() {
    let concrete = [
        "Local",
        "Redis",
        "Memcached",
        "Http",
        "Grpc",
        "TokenBucket",
        "AnyRule",
    ];
    let sources = sources();
    for (path, lines) in below(&sources, &["middleware"]) {
        // The constructors with the default types.
        if path.ends_with("boxed.rs") {
            continue;
        }
        for name in names_of_the_crate(lines) {
            // The trait names the kind of a rule's states, and its text.
            assert!(
                name == "algorithm::Algorithm" || !name.starts_with("algorithm"),
                "{}: uses `crate::{name}`",
                path.display()
            );
            assert!(
                !name.starts_with("store::local"),
                "{}: uses `crate::{name}`",
                path.display()
            );
            let last = name.rsplit("::").next().unwrap_or_default();
            assert!(
                !concrete.contains(&last),
                "{}: uses `crate::{name}`",
                path.display()
            );
        }
    }
}

#[test]
fn only_responses_and_keys_use_http() {
    for (path, lines) in sources() {
        if [
            "respond",
            "config",
            "key",
            "introspect",
            "listen",
            "prelude.rs",
            "lib.rs",
        ]
        .iter()
        .any(|folder| path.starts_with(folder))
        {
            continue;
        }
        for line in lines {
            for word in [
                "http::",
                "Grpc",
                "StatusCode",
                "HeaderMap",
                "HeaderValue",
                "axum",
                "tonic::",
            ] {
                assert!(
                    !line.contains(word),
                    "{}: `{word}` in `{line}`",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn only_the_clock_reads_time() {
    for (path, lines) in sources() {
        if path.starts_with("time") {
            continue;
        }
        for line in lines {
            for word in ["Instant::", "SystemTime", "quanta::", "_rdtsc", "elapsed()"] {
                assert!(
                    !line.contains(word),
                    "{}: `{word}` in `{line}`",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn only_stores_access_state() {
    for (path, lines) in sources() {
        // Policies, look-ups in flight, connections, and the fields of one response are no state of
        // a limit.
        let others = [
            "store",
            "fleet",
            "config/in_use.rs",
            "observe/metrics/mod.rs",
            "introspect/cache.rs",
            "listen/heard.rs",
            "respond/headers/existing.rs",
        ];
        if others.iter().any(|other| path.starts_with(other)) {
            continue;
        }
        for line in lines {
            for word in ["dashmap", "hashbrown", "DashMap", "HashMap", "BTreeMap"] {
                assert!(
                    !line.contains(word),
                    "{}: `{word}` in `{line}`",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn nothing_uses_the_testing_module() {
    let sources = sources();
    assert_eq!(below(&sources, &["testing/mod.rs"]).count(), 1);
    for (path, lines) in sources
        .iter()
        .filter(|(path, _)| !path.starts_with("testing"))
    {
        for name in names_of_the_crate(lines) {
            let uses = name.split("::").next() == Some("testing");
            assert!(!uses, "{}: uses `crate::{name}`", path.display());
        }
    }
}

/// The suite uses a store only through its traits, so that it works for stores of other crates.
#[test]
fn the_conformance_suite_uses_no_concrete_store() {
    let allowed = [
        "algorithm",
        "time",
        "decision",
        "key",
        "policy",
        "random",
        "store::Ask",
        "store::Batch",
        "store::Check",
        "store::BoxFuture",
        "store::Decisions",
        "store::Delta",
        "store::NodeCounts",
        "store::OwnedAsks",
        "store::Pulled",
        "store::Renewed",
        "store::Settlement",
        "store::Store",
        "testing",
    ];
    let sources = sources();
    for (path, lines) in below(&sources, &["testing/conformance"]) {
        assert_uses_only(path, lines, &allowed);
    }
}

#[test]
fn the_default_features_depend_on_no_framework_and_no_runtime() {
    let manifest =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    assert!(manifest.contains("\ndefault = []\n"));
    let (_, dependencies) = manifest.split_once("\n[dependencies]\n").unwrap();
    let (dependencies, _) = dependencies.split_once("\n[").unwrap();
    for framework in [
        "axum",
        "futures-core",
        "hyper-util",
        "metrics",
        "quick_cache",
        "redis",
        "serde",
        "serde_json",
        "tokio",
        "tonic",
        "tower",
        "tracing",
    ] {
        let optional = dependencies
            .lines()
            .find(|line| {
                line.starts_with(&format!("{framework} = {{ ")) && line.contains("optional")
            })
            .unwrap_or_default();
        assert!(
            optional.contains("optional = true"),
            "{framework} is not optional"
        );
    }
}

/// Comments and documentation wrap where code does. Examples have a law of their own; tables and
/// quotes cannot be wrapped.
#[test]
fn comments_wrap_at_a_hundred_columns() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut long = Vec::new();
    for (path, _) in sources() {
        let text = fs::read_to_string(root.join(&path)).unwrap();
        let mut in_example = false;
        for (number, line) in text.lines().enumerate() {
            let comment = line.trim_start();
            let Some(comment) = comment.strip_prefix("//") else {
                // An attribute begins an example that needs a feature.
                in_example |= line.contains("doc = \"```");
                in_example &= !line.ends_with(['{', '}', ';']);
                continue;
            };
            let comment = comment.trim_start_matches(['/', '!']).trim();
            in_example ^= comment.starts_with("```");
            // A code span is one word.
            let mut texts = comment.split('`').step_by(2);
            let is_one_word = texts.all(|text| !text.contains(' '));
            let cannot = in_example || comment.starts_with(['|', '>']) || is_one_word;
            if line.chars().count() > 100 && !cannot {
                long.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    assert!(long.is_empty(), "{long:#?}");
}

/// The width of an example on a page of the documentation, in a window of 1,400 pixels. Longer
/// lines are cut.
const WIDTH_OF_EXAMPLES: usize = 94;

/// Examples fit into their pages. Diagrams and layouts of data, in blocks of `text`, may be wider.
#[test]
fn examples_fit_into_their_pages() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let rust = sources().into_iter().map(|(path, _)| path);
    let pages = ["", "guide"].into_iter().flat_map(|folder| {
        let entries = fs::read_dir(root.join(folder)).unwrap();
        entries.map(move |entry| Path::new(folder).join(entry.unwrap().file_name()))
    });
    let pages = pages.filter(|path| path.extension().is_some_and(|kind| kind == "md"));
    let mut long = Vec::new();
    for path in rust.chain(pages) {
        let text = fs::read_to_string(root.join(&path)).unwrap();
        let is_page = path.extension().is_some_and(|kind| kind == "md");
        // Within a block: whether it is an example.
        let mut block = None;
        for (number, line) in text.lines().enumerate() {
            let comment = ["//!", "///"]
                .iter()
                .find_map(|prefix| line.trim_start().strip_prefix(prefix));
            let shown = match comment {
                _ if is_page => line,
                Some(comment) => comment.strip_prefix(' ').unwrap_or(comment),
                None => {
                    // An attribute begins an example that needs a feature.
                    block = line
                        .contains("doc = \"```")
                        .then(|| !line.contains("```text"));
                    continue;
                }
            };
            let trimmed = shown.trim_start();
            if let Some(kind) = trimmed.strip_prefix("```") {
                block = match block {
                    Some(_) => None,
                    None => Some(kind != "text"),
                };
            } else if block == Some(true)
                && shown.chars().count() > WIDTH_OF_EXAMPLES
                && !trimmed.starts_with("# ")
            {
                long.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    assert!(long.is_empty(), "{long:#?}");
}

/// Returns the names of the programs in `examples/guide`, and the code between their markers.
fn programs() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/guide");
    let mut programs = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if ["main", "client"].contains(&name.as_str()) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let parts: Vec<_> = text.split("// Copy from here.\n").collect();
        let [head, rest] = parts[..] else {
            panic!("{name}.rs: expected one line `// Copy from here.`");
        };
        let parts: Vec<_> = rest.split("// Copy to here.\n").collect();
        let [code, tail] = parts[..] else {
            panic!("{name}.rs: expected one line `// Copy to here.`");
        };
        // The code is complete as it is copied.
        let is_outside = |line: &str| !line.is_empty() && !line.starts_with("//!");
        assert!(
            !head.lines().any(is_outside),
            "{name}.rs: only documentation comes before the code to copy"
        );
        assert!(
            !tail.lines().any(|line| line.starts_with("use ")),
            "{name}.rs: the code to copy contains what it imports"
        );
        assert!(
            text.contains("::test"),
            "{name}.rs: expected a test of the program"
        );
        programs.push((name, code.to_owned()));
    }
    assert!(programs.len() >= 10, "{} programs", programs.len());
    programs.sort();
    programs
}

/// The programs are to be copied, so they are short.
#[test]
fn programs_of_the_guide_have_at_most_forty_lines() {
    for (name, code) in programs() {
        let lines = code.lines().filter(|line| !line.is_empty()).count();
        assert!(lines > 0, "the program `{name}` is empty");
        assert!(lines <= 40, "the program `{name}` has {lines} lines");
    }
}

/// Returns the names of the programs whose code a page shows. The programs own the code, and the
/// page repeats it.
fn programs_on(page: &str, text: &str, programs: &[(String, String)]) -> Vec<String> {
    // What is shown beside them: examples that rustdoc runs, and what is no Rust.
    let others = ["", "rust", "rust,no_run", "text", "toml", "console"];
    let (mut shown, mut label, mut block) = (Vec::new(), None, None::<(&str, String)>);
    for line in text.lines() {
        match &mut block {
            None => {
                if let Some(kind) = line.strip_prefix("```") {
                    block = Some((kind, String::new()));
                } else if let Some(name) = line.strip_prefix("`examples/guide/") {
                    label = name.strip_suffix(".rs`:");
                }
            }
            Some((kind, code)) if line == "```" => {
                if *kind == "rust,ignore" {
                    let name = label.take().unwrap_or_else(|| {
                        panic!("{page}: expected a line as in `examples/guide/plans.rs`: above")
                    });
                    let program = programs.iter().find(|(program, _)| program == name);
                    let (_, program) = program.unwrap_or_else(|| panic!("no program `{name}`"));
                    assert_eq!(
                        code, program,
                        "copy the code from examples/guide/{name}.rs to src/guide/{page}.md"
                    );
                    shown.push(name.to_owned());
                } else {
                    assert!(others.contains(kind), "{page}: ```{kind}");
                }
                block = None;
            }
            Some((_, code)) => {
                code.push_str(line);
                code.push('\n');
            }
        }
    }
    assert!(block.is_none(), "{page}: a block without an end");
    assert_eq!(label, None, "{page}: expected the code of a program");
    shown
}

/// Each page has a program that runs, and the index leads to both.
#[test]
fn each_page_of_the_guide_shows_programs_that_run() {
    let listed = |file: &'static str, begin: &str, end: &str| -> Vec<&'static str> {
        let (_, rest) = file.split_once(begin).expect("a list");
        let (list, _) = rest.split_once(end).expect("the end of a list");
        list.split([',', ' ', '\n'])
            .filter(|name| !name.is_empty())
            .collect()
    };
    let pages = listed(include_str!("../src/lib.rs"), "    pages!(", ")");
    let run = listed(
        include_str!("../examples/guide/main.rs"),
        "= programs![",
        "]",
    );
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guide");
    let files = fs::read_dir(&folder).unwrap().count();
    assert_eq!(pages.len() + 1, files, "lib.rs names all files but index");

    let programs = programs();
    let index = include_str!("../src/guide/index.md");
    let mut rows = index.lines().filter(|line| line.starts_with("| "));
    assert!(rows.next().is_some(), "the head of the index");
    let mut shown = Vec::new();
    for page in pages {
        let text = fs::read_to_string(folder.join(page).with_extension("md")).unwrap();
        let on_page = programs_on(page, &text, &programs);
        assert!(!on_page.is_empty(), "{page}: expected a program");
        let row = rows.next().unwrap_or_default();
        let link = format!("](crate::guide::{page}) |");
        assert!(row.contains(&link), "`{row}`: expected `{link}`");
        for program in &on_page {
            let name = format!("`{program}`");
            assert!(row.contains(&name), "`{row}`: expected {name}");
        }
        shown.extend(on_page);
    }
    assert_eq!(
        shown, run,
        "the pages have all programs, in the order of examples/guide/main.rs"
    );
    shown.sort_unstable();
    let names: Vec<_> = programs.into_iter().map(|(name, _)| name).collect();
    assert_eq!(shown, names, "the example lists all programs");
}
