//! The programs, assembled from their files.
//!
//! Token buckets that start full have programs of their own (`lua/buckets/`), with states at fixed
//! widths. Redis makes each function of a script anew for each `EVALSHA`, so they build none. An
//! expiry is half of a write, so it is set half as long again as the debt and moved only when
//! needed, by `PEXPIREAT`, which means the same instant on each replica.
//!
//! Grants have a program of their own (`lua/grant.lua`), because of its functions: on the server a
//! grant takes 1.2 of the time of a call that the driver decides, and four times that of a bucket's
//! own program. Its parts share the arithmetic of the steps by included pieces, so that no ordinary
//! program has a function more. It counts the granted units beside the admissions, so a grant on
//! which both sides disagree is an error, too.
//!
//! Refusals are decided apart from writes. A server that is full or takes no writes rejects the
//! first write of a program. The programs make it with `pcall` and then return what they found:
//! refused clients get their refusal, others the server's error.

use std::{borrow::Cow, sync::OnceLock};

use crate::{
    algorithm::{LUA, Lua},
    store::Spend,
};

macro_rules! piece {
    ($name:literal) => {
        ($name, include_str!(concat!("lua/", $name, ".lua")))
    };
}

/// Pieces of text that several programs or functions include, besides those of algorithms.
const PIECES: [(&str, &str); 13] = [
    piece!("keys"),
    piece!("value"),
    piece!("bounds"),
    piece!("kinds"),
    piece!("shape"),
    piece!("readable"),
    piece!("buckets/clock"),
    piece!("buckets/form"),
    piece!("buckets/wide"),
    piece!("buckets/read"),
    piece!("buckets/step"),
    piece!("buckets/write"),
    piece!("sync/number"),
];

/// Text that all programs with algorithms begin with.
const SHARED: [&str; 5] = [
    include_str!("lua/kinds.lua"),
    include_str!("lua/shape.lua"),
    include_str!("lua/numbers.lua"),
    include_str!("lua/factors.lua"),
    include_str!("lua/bucket.lua"),
];

/// The part of the program that adds deltas which comes before all functions.
const SYNC_BUCKETS: &str = include_str!("lua/sync/buckets.lua");

/// The value of a key, which that part has read already.
const READ: &str = "redis.pcall('GET', KEYS[n])";

/// A program in Lua 5.1, as Redis runs it: with `redis`, `cmsgpack` and `struct`.
///
/// ```
/// use tollgate::store::driver::Program;
///
/// // To load all of them when a connection is made:
/// let sources = Program::ALL.map(Program::source);
/// assert!(sources.iter().all(|source| source.contains("KEYS")));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Program {
    which: Which,
    /// Index of the only algorithm that it runs; `None` for all of them.
    only: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Which {
    Decide,
    Settle,
    Grant,
    Sync,
    Buckets,
    OneBucket,
    Reset,
    CountNode,
}

impl Program {
    /// Decides calls, and answers with the states that it found.
    pub(super) const DECIDE: Self = Self::new(Which::Decide);
    /// Corrects earlier charges and then decides calls as [`DECIDE`](Self::DECIDE) does.
    ///
    /// It is a program of its own because Redis creates a script's functions anew for each call.
    /// Calls without corrections should not pay for those functions.
    pub(super) const SETTLE: Self = Self::new(Which::Settle);
    /// Does what [`SETTLE`](Self::SETTLE) does, and grants units ahead of their use: each ask has
    /// one more number. It is a program of its own for the same reason.
    pub(super) const GRANT: Self = Self::new(Which::Grant);
    /// Adds deltas, each sequence number of a node once. It decides no calls.
    pub(super) const SYNC: Self = Self::new(Which::Sync);
    /// Decides calls about token buckets that start full, each about one key.
    pub(super) const BUCKETS: Self = Self::new(Which::Buckets);
    /// Decides equal calls about one key.
    pub(super) const ONE_BUCKET: Self = Self::new(Which::OneBucket);
    /// Deletes keys.
    pub(super) const RESET: Self = Self::new(Which::Reset);

    /// Counts a node.
    pub(super) const COUNT_NODE: Self = Self::new(Which::CountNode);

    /// All programs.
    pub const ALL: [Self; SEVERAL.len() + 2 * LUA.len()] = {
        let mut all = [Self::DECIDE; SEVERAL.len() + 2 * LUA.len()];
        let mut n = 0;
        while n < all.len() {
            all[n] = match n.checked_sub(SEVERAL.len()) {
                None => SEVERAL[n],
                Some(n) => Self {
                    which: [Which::Decide, Which::Settle][n % 2],
                    only: Some(n / 2),
                },
            };
            n += 1;
        }
        all
    };

    const fn new(which: Which) -> Self {
        Self { which, only: None }
    }

    /// Returns the program that runs one algorithm alone, by its index, or `self` if there is none.
    /// It creates only a fraction of the functions, which take most of the time of a request.
    pub(super) fn only(self, algorithm: usize) -> Self {
        match self.which {
            Which::Decide | Which::Settle => Self {
                only: Some(algorithm),
                ..self
            },
            _ => self,
        }
    }

    /// Returns `true` if the argument has corrections.
    pub(super) fn corrects(self) -> bool {
        matches!(self.which, Which::Settle | Which::Grant | Which::Sync)
    }

    /// Returns the index in [`ALL`](Self::ALL).
    pub(crate) fn index(self) -> usize {
        match self.only {
            None => self.which as usize,
            Some(n) => SEVERAL.len() + 2 * n + usize::from(self.corrects()),
        }
    }

    /// Assembles the sources of all programs, unless that is done. Takes milliseconds, and in a
    /// debug build a hundred times as long as a call.
    pub(super) fn assemble_all() {
        for program in Self::ALL {
            program.source();
        }
    }

    /// Returns the source text.
    pub fn source(self) -> &'static str {
        static SOURCES: [OnceLock<String>; Program::ALL.len()] =
            [const { OnceLock::new() }; Program::ALL.len()];
        let make = || match self.which {
            Which::Buckets => put_together(include_str!("lua/buckets/many.lua")),
            Which::OneBucket => put_together(include_str!("lua/buckets/one.lua")),
            Which::Reset => put_together(include_str!("lua/reset.lua")),
            Which::CountNode => include_str!("lua/count_node.lua").to_owned(),
            which => match self.only {
                None => of_algorithms(which, LUA),
                Some(n) => of_algorithms(which, &LUA[n..=n]),
            },
        };
        SOURCES[self.index()].get_or_init(make)
    }
}

/// Programs that are not for one algorithm alone, in the order of `Which`.
const SEVERAL: [Program; 8] = [
    Program::DECIDE,
    Program::SETTLE,
    Program::GRANT,
    Program::SYNC,
    Program::BUCKETS,
    Program::ONE_BUCKET,
    Program::RESET,
    Program::COUNT_NODE,
];

/// Assembles a program from the driver, these algorithms, and the functions that it needs.
fn of_algorithms(which: Which, algorithms: &[Lua]) -> String {
    let settles = which != Which::Decide;
    let (grants, syncs) = (which == Which::Grant, which == Which::Sync);
    let buckets = if syncs { SYNC_BUCKETS } else { "" };
    let mut source = [
        include_str!("lua/bounds.lua"),
        include_str!("lua/request.lua"),
        buckets,
    ]
    .concat();
    // Variables that the files share. In Redis, a script can only declare local ones.
    source.push_str("local shapes, steps, ends, reports, writes = {}, {}, {}, {}, {}\n");
    // How many numbers an ask has.
    source.push_str(&format!("local STRIDE = {}\n", if grants { 4 } else { 3 }));
    if grants {
        // A grant is at most the remaining units divided by this.
        let shares = 1 << Spend::SHARE;
        source.push_str(&format!("local remainders, SHARES = {{}}, {shares}\n"));
    }
    source.extend(SHARED);
    if settles {
        source.extend([
            "local settles = {}\n",
            include_str!("lua/settle/bucket.lua"),
        ]);
    }
    for lua in algorithms {
        let settle = if settles { lua.settle() } else { "" };
        let remaining = lua.remaining().filter(|_| grants).unwrap_or_default();
        source.extend(["do\n", &kind(lua), lua.step(), settle, remaining, "end\n"]);
    }
    let mut driver = include_str!("lua/driver.lua").to_owned();
    for (placeholder, is_wanted, text) in [
        (
            "-- (corrections)\n",
            settles,
            include_str!("lua/settle/driver.lua"),
        ),
        ("-- (marks)\n", syncs, include_str!("lua/sync/marks.lua")),
        ("-- (made)\n", syncs, include_str!("lua/sync/made.lua")),
        ("-- (seen)\n", syncs, include_str!("lua/sync/seen.lua")),
        ("-- (as of)\n", syncs, include_str!("lua/sync/as_of.lua")),
        (
            "-- (kept marks)\n",
            syncs,
            include_str!("lua/sync/keep.lua"),
        ),
        ("-- (grants)\n", grants, include_str!("lua/grant.lua")),
        ("-- (granted)\n", grants, include_str!("lua/granted.lua")),
    ] {
        driver = driver.replace(placeholder, if is_wanted { text } else { "" });
    }
    if syncs {
        driver = driver.replace(READ, "values[n]");
    }
    source.push_str(&driver);
    let mut source = without_comments(&put_together(&source));
    while let Some(shorter) = without_unused_functions(&source) {
        source = shorter;
    }
    source
}

/// Returns a program without the functions that nothing calls; `None` if there are none.
///
/// Redis creates the functions of a program anew for each request, which takes most of the time of
/// a short one.
fn without_unused_functions(source: &str) -> Option<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_unused = |line: &str| {
        let function = line.trim_start().strip_prefix("local function ");
        let Some(name) = function.and_then(|function| function.split('(').next()) else {
            return false;
        };
        let mut uses = source.match_indices(name).filter(|(at, _)| {
            !source[..*at].ends_with(is_part) && !source[at + name.len()..].starts_with(is_part)
        });
        // The first one is its declaration.
        uses.nth(1).is_none()
    };
    let (mut left, mut lines) = (String::with_capacity(source.len()), source.lines());
    while let Some(line) = lines.next() {
        if is_unused(line) {
            // The `end` has the indentation of the declaration.
            let before = indentation(line);
            lines.find(|line| line.strip_prefix(before) == Some("end"));
        } else {
            left.extend([line, "\n"]);
        }
    }
    (left.len() < source.len()).then_some(left)
}

/// Removes comments, which may mention functions that are not called.
fn without_comments(source: &str) -> String {
    let lines = source.lines();
    let code = lines.filter(|line| !line.trim_start().starts_with("--"));
    code.flat_map(|line| [line, "\n"]).collect()
}

fn indentation(line: &str) -> &str {
    &line[..line.len() - line.trim_start().len()]
}

/// Returns the line that declares the number of an algorithm in scripts.
fn kind(lua: &Lua) -> String {
    format!("local KIND = {}\n", lua.kind)
}

/// Returns a piece by its name. A piece of an algorithm is `folder/section`, and `folder/kind`
/// declares its number.
fn piece(name: &str) -> Option<Cow<'static, str>> {
    if let Some((_, piece)) = PIECES.iter().find(|(known, _)| *known == name) {
        return Some((*piece).into());
    }
    let (folder, section) = name.split_once('/')?;
    let lua = LUA.iter().find(|lua| lua.folder == folder)?;
    if section == "kind" {
        return Some(kind(lua).into());
    }
    lua.section(section).map(Cow::from)
}

/// Replaces each line that includes a piece by the piece, with the indentation of that line,
/// recursively.
///
/// Pieces are not functions: a call in Lua takes as long as the work of a piece, and Redis creates
/// functions anew for each request.
fn put_together(text: &str) -> String {
    let mut whole = String::new();
    for line in text.lines() {
        let Some(piece) = line
            .trim_start()
            .strip_prefix("-- include ")
            .and_then(piece)
        else {
            whole.extend([line, "\n"]);
            continue;
        };
        for inner in put_together(&piece).lines() {
            let before = if inner.is_empty() {
                ""
            } else {
                indentation(line)
            };
            whole.extend([before, inner, "\n"]);
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::Program;

    #[test]
    fn each_program_stands_at_its_index() {
        for (index, program) in Program::ALL.into_iter().enumerate() {
            assert_eq!(program.index(), index, "{program:?}");
        }
    }

    #[test]
    fn only_functions_that_nothing_calls_are_left_out() {
        let source = "local function a()\n  local function d()\n  end\n  b()\nend\nlocal function b()\nend\nlocal function c()\n  a()\nend\nb()\n";
        let mut left = source.to_owned();
        while let Some(shorter) = super::without_unused_functions(&left) {
            left = shorter;
        }
        assert_eq!(left, "local function b()\nend\nb()\n");
        assert_eq!(super::without_unused_functions(&left), None);
    }

    #[test]
    fn all_pieces_are_there() {
        for program in Program::ALL {
            let missing = program
                .source()
                .lines()
                .find(|line| line.contains("-- include"));
            assert_eq!(missing, None, "{program:?}");
        }
        let contains = |program: Program, text| program.source().contains(text);
        assert!(contains(Program::ONE_BUCKET, "local function is_state"));
        assert!(contains(Program::SETTLE, "in ipairs(request[5])"));
        assert!(!contains(Program::DECIDE, "settles["));
        assert!(contains(Program::GRANT, "in ipairs(request[5])"));
        assert!(contains(Program::GRANT, "cost = granted("));
        assert!(contains(Program::SYNC, "is_new(") && contains(Program::SYNC, "marks.stop"));
        for program in [Program::DECIDE, Program::SETTLE, Program::GRANT] {
            assert!(!contains(program, "MARKS") && !contains(program, "is_new("));
        }
        for program in [Program::DECIDE, Program::SETTLE, Program::SYNC] {
            assert!(!contains(program, "granted(") && !contains(program, "remainders["));
        }
    }
}
