//! The programs, assembled from their files.

use std::{borrow::Cow, sync::LazyLock};

use crate::{
    algorithm::{LUA, Lua},
    store::Spend,
};

macro_rules! piece {
    ($name:literal) => {
        ($name, include_str!(concat!("lua/", $name, ".lua")))
    };
}

/// The pieces that several programs or functions include, besides those of algorithms.
const PIECES: [(&str, &str); 9] = [
    piece!("bounds"),
    piece!("kinds"),
    piece!("shape"),
    piece!("readable"),
    piece!("buckets/clock"),
    piece!("buckets/form"),
    piece!("buckets/read"),
    piece!("buckets/step"),
    piece!("buckets/write"),
];

/// A program in Lua 5.1, as Redis runs it: with `redis`, `cmsgpack` and `struct`.
///
/// ```
/// use tollgate::store::Program;
///
/// // To load all of them when a connection is made:
/// let sources = Program::ALL.map(Program::source);
/// assert!(sources.iter().all(|source| source.contains("KEYS")));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Program(Which);

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
    pub(super) const DECIDE: Self = Self(Which::Decide);
    /// Corrects earlier charges and then decides calls as [`DECIDE`](Self::DECIDE) does.
    ///
    /// It is a program of its own because Redis creates a script's functions anew for each call. Calls without corrections should
    /// not pay for those functions.
    pub(super) const SETTLE: Self = Self(Which::Settle);
    /// Does what [`SETTLE`](Self::SETTLE) does, and grants units ahead: each ask has one number more. A program of its own for the same
    /// reason.
    pub(super) const GRANT: Self = Self(Which::Grant);
    /// Makes corrections once for each number of a node. It decides no calls.
    pub(super) const SYNC: Self = Self(Which::Sync);
    /// Decides calls about token buckets that start full, each about one key.
    pub(super) const BUCKETS: Self = Self(Which::Buckets);
    /// Decides equal calls about one key.
    pub(super) const ONE_BUCKET: Self = Self(Which::OneBucket);
    /// Forgets a key.
    pub(super) const RESET: Self = Self(Which::Reset);

    /// Counts a node.
    pub(super) const COUNT_NODE: Self = Self(Which::CountNode);

    /// All programs.
    pub const ALL: [Self; 8] = [
        Self::DECIDE,
        Self::SETTLE,
        Self::GRANT,
        Self::SYNC,
        Self::BUCKETS,
        Self::ONE_BUCKET,
        Self::RESET,
        Self::COUNT_NODE,
    ];

    /// Returns the source text.
    pub fn source(self) -> &'static str {
        static DECIDE: LazyLock<String> = LazyLock::new(|| of_all_algorithms(Which::Decide));
        static SETTLE: LazyLock<String> = LazyLock::new(|| of_all_algorithms(Which::Settle));
        static GRANT: LazyLock<String> = LazyLock::new(|| of_all_algorithms(Which::Grant));
        static SYNC: LazyLock<String> = LazyLock::new(|| of_all_algorithms(Which::Sync));
        static BUCKETS: LazyLock<String> =
            LazyLock::new(|| put_together(include_str!("lua/buckets/many.lua")));
        static ONE_BUCKET: LazyLock<String> =
            LazyLock::new(|| put_together(include_str!("lua/buckets/one.lua")));
        match self.0 {
            Which::Decide => &DECIDE,
            Which::Settle => &SETTLE,
            Which::Grant => &GRANT,
            Which::Sync => &SYNC,
            Which::Buckets => &BUCKETS,
            Which::OneBucket => &ONE_BUCKET,
            Which::Reset => include_str!("lua/reset.lua"),
            Which::CountNode => include_str!("lua/count_node.lua"),
        }
    }
}

/// Assembles the driver with all algorithms, and with what else the program does.
fn of_all_algorithms(which: Which) -> String {
    let settles = which != Which::Decide;
    let (grants, syncs) = (which == Which::Grant, which == Which::Sync);
    // The variables that the files share. In Redis, a script can only declare local ones.
    let mut source =
        String::from("local shapes, steps, ends, reports, writes = {}, {}, {}, {}, {}\n");
    // The numbers of an ask.
    source.push_str(&format!("local STRIDE = {}\n", if grants { 4 } else { 3 }));
    if grants {
        // A grant is at most what remains, divided by that.
        let shares = 1 << Spend::SHARE;
        source.push_str(&format!("local remainders, SHARES = {{}}, {shares}\n"));
    }
    source.push_str(include_str!("lua/bounds.lua"));
    source.push_str(include_str!("lua/kinds.lua"));
    source.push_str(include_str!("lua/shape.lua"));
    source.push_str(include_str!("lua/numbers.lua"));
    source.push_str(include_str!("lua/bucket.lua"));
    if settles {
        source.push_str("local settles = {}\n");
        source.push_str(include_str!("lua/settle/bucket.lua"));
    }
    for lua in LUA {
        let settle = if settles { lua.settle } else { "" };
        let remaining = lua.remaining().filter(|_| grants).unwrap_or_default();
        source.extend(["do\n", &kind(lua), lua.step, settle, remaining, "end\n"]);
    }
    let mut driver = include_str!("lua/driver.lua").to_owned();
    for (mark, is_wanted, text) in [
        (
            "-- (corrections)\n",
            settles,
            include_str!("lua/settle/driver.lua"),
        ),
        ("-- (marks)\n", syncs, include_str!("lua/sync/marks.lua")),
        ("-- (as of)\n", syncs, include_str!("lua/sync/as_of.lua")),
        (
            "-- (kept marks)\n",
            syncs,
            include_str!("lua/sync/keep.lua"),
        ),
        ("-- (grants)\n", grants, include_str!("lua/grant.lua")),
        ("-- (granted)\n", grants, include_str!("lua/granted.lua")),
    ] {
        driver = driver.replace(mark, if is_wanted { text } else { "" });
    }
    source.push_str(&driver);
    put_together(&source)
}

/// Declares the number by which scripts know an algorithm.
fn kind(lua: &Lua) -> String {
    format!("local KIND = {}\n", lua.kind)
}

/// Returns the piece of a name: that of an algorithm is `folder/file`, and `folder/kind` is its number.
fn piece(name: &str) -> Option<Cow<'static, str>> {
    if let Some((_, piece)) = PIECES.iter().find(|(known, _)| *known == name) {
        return Some((*piece).into());
    }
    let (folder, file) = name.split_once('/')?;
    let lua = LUA.iter().find(|lua| lua.folder == folder)?;
    if file == "kind" {
        return Some(kind(lua).into());
    }
    let (_, piece) = lua.pieces.iter().find(|(known, _)| *known == file)?;
    Some((*piece).into())
}

/// Replaces each line that includes a piece by the piece, recursively.
///
/// A function call in Lua takes as long as the work of a piece, and Redis creates functions anew for each request.
fn put_together(text: &str) -> String {
    let line = |line: &str| {
        let piece = line
            .trim_start()
            .strip_prefix("-- include ")
            .and_then(piece);
        piece.map_or_else(|| format!("{line}\n"), |piece| put_together(&piece))
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::Program;

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
            assert!(!contains(program, "MARKS") && !contains(program, "is_new"));
        }
        for program in [Program::DECIDE, Program::SETTLE, Program::SYNC] {
            assert!(!contains(program, "granted(") && !contains(program, "remainders["));
        }
    }
}
