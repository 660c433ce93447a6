//! The programs, put together from their files.

use std::sync::LazyLock;

macro_rules! algorithm {
    ($name:literal) => {
        [
            include_str!(concat!("lua/", $name, ".lua")),
            include_str!(concat!("lua/settle/", $name, ".lua")),
        ]
    };
}

/// Each sets `shapes[kind]`, whether numbers are a state; `steps[kind]`; and `ends[kind]`, when one says no more.
/// The second file of a pair sets `settles[kind]`, and uses the local functions of the first.
const ALGORITHMS: [[&str; 2]; 9] = [
    algorithm!("token_bucket"),
    algorithm!("leaky_bucket"),
    algorithm!("fixed_window"),
    algorithm!("sliding_window"),
    algorithm!("sliding_log"),
    algorithm!("cascade"),
    algorithm!("three_color"),
    algorithm!("warm_up"),
    algorithm!("warm_up_spaced"),
];

macro_rules! piece {
    ($name:literal) => {
        ($name, include_str!(concat!("lua/", $name, ".lua")))
    };
}

/// Pieces that several programs or functions have in common.
const PIECES: [(&str, &str); 14] = [
    piece!("bounds"),
    piece!("kinds"),
    piece!("shape"),
    piece!("readable"),
    piece!("buckets/clock"),
    piece!("buckets/form"),
    piece!("buckets/read"),
    piece!("buckets/step"),
    piece!("buckets/write"),
    piece!("cascade/known"),
    piece!("fixed_window/holding"),
    piece!("warm_up_spaced/place"),
    piece!("warm_up_spaced/price"),
    piece!("warm_up_spaced/wait"),
];

/// A program in Lua 5.1, as Redis runs it: with `redis`, `cmsgpack` and `struct`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Program(Which);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Which {
    Decide,
    Settle,
    Buckets,
    OneBucket,
    Reset,
}

impl Program {
    /// Decides calls, and tells what it found.
    pub(super) const DECIDE: Self = Self(Which::Decide);
    /// Corrects earlier charges and then decides calls as [`DECIDE`](Self::DECIDE) does.
    ///
    /// It is a program of its own because Redis creates a script's functions anew for each call. Calls without corrections should
    /// not pay for those functions.
    pub(super) const SETTLE: Self = Self(Which::Settle);
    /// Decides calls about token buckets that start full, each about one key.
    pub(super) const BUCKETS: Self = Self(Which::Buckets);
    /// The same for equal calls about one key.
    pub(super) const ONE_BUCKET: Self = Self(Which::OneBucket);
    /// Forgets a key.
    pub(super) const RESET: Self = Self(Which::Reset);

    /// All programs, to be loaded beforehand.
    pub const ALL: [Self; 5] = [
        Self::DECIDE,
        Self::SETTLE,
        Self::BUCKETS,
        Self::ONE_BUCKET,
        Self::RESET,
    ];

    /// The source text.
    pub fn source(self) -> &'static str {
        static DECIDE: LazyLock<String> = LazyLock::new(|| of_all_algorithms(false));
        static SETTLE: LazyLock<String> = LazyLock::new(|| of_all_algorithms(true));
        static BUCKETS: LazyLock<String> =
            LazyLock::new(|| put_together(include_str!("lua/buckets/many.lua")));
        static ONE_BUCKET: LazyLock<String> =
            LazyLock::new(|| put_together(include_str!("lua/buckets/one.lua")));
        match self.0 {
            Which::Decide => &DECIDE,
            Which::Settle => &SETTLE,
            Which::Buckets => &BUCKETS,
            Which::OneBucket => &ONE_BUCKET,
            Which::Reset => include_str!("lua/reset.lua"),
        }
    }
}

/// Assembles the driver with all algorithms, with or without corrections.
fn of_all_algorithms(settles: bool) -> String {
    // What the files share; in Redis a script has no variables of its own but local ones.
    let mut source = String::from("local shapes, steps, ends = {}, {}, {}\n");
    source.push_str(include_str!("lua/bounds.lua"));
    source.push_str(include_str!("lua/kinds.lua"));
    source.push_str(include_str!("lua/shape.lua"));
    source.push_str(include_str!("lua/numbers.lua"));
    source.push_str(include_str!("lua/bucket.lua"));
    if settles {
        source.push_str("local settles = {}\n");
        source.push_str(include_str!("lua/settle/bucket.lua"));
    }
    for [steps, corrections] in ALGORITHMS {
        let corrections = if settles { corrections } else { "" };
        source.extend(["do\n", steps, corrections, "end\n"]);
    }
    let corrections = include_str!("lua/settle/driver.lua");
    let corrections = if settles { corrections } else { "" };
    source.push_str(&include_str!("lua/driver.lua").replace("-- (corrections)\n", corrections));
    put_together(&source)
}

/// The text with a piece for each line that includes it, and so on. A call of a function in Lua takes as long as the
/// work of one of these pieces, and to make the function anew for each request longer.
fn put_together(text: &str) -> String {
    let line = |line: &str| {
        let name = line.trim_start().strip_prefix("-- include ");
        let piece = PIECES.iter().find(|(known, _)| name == Some(*known));
        piece.map_or_else(|| format!("{line}\n"), |(_, piece)| put_together(piece))
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
        assert!(contains(Program::SETTLE, "in ipairs(request[4])"));
        assert!(!contains(Program::DECIDE, "settles["));
    }
}
