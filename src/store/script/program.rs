//! The programs, put together from their files.

use std::sync::LazyLock;

/// Each sets `shapes[kind]`, whether numbers are a state; `steps[kind]`; and `ends[kind]`, when one says no more.
const ALGORITHMS: [&str; 9] = [
    include_str!("lua/token_bucket.lua"),
    include_str!("lua/leaky_bucket.lua"),
    include_str!("lua/fixed_window.lua"),
    include_str!("lua/sliding_window.lua"),
    include_str!("lua/sliding_log.lua"),
    include_str!("lua/cascade.lua"),
    include_str!("lua/three_color.lua"),
    include_str!("lua/warm_up.lua"),
    include_str!("lua/warm_up_spaced.lua"),
];

/// Pieces that several programs have in common.
const PIECES: [(&str, &str); 9] = [
    ("bounds", include_str!("lua/bounds.lua")),
    ("shape", include_str!("lua/shape.lua")),
    ("kinds", include_str!("lua/kinds.lua")),
    ("readable", include_str!("lua/readable.lua")),
    ("buckets/clock", include_str!("lua/buckets/clock.lua")),
    ("buckets/form", include_str!("lua/buckets/form.lua")),
    ("buckets/read", include_str!("lua/buckets/read.lua")),
    ("buckets/step", include_str!("lua/buckets/step.lua")),
    ("buckets/write", include_str!("lua/buckets/write.lua")),
];

/// A program in Lua 5.1, as Redis runs it: with `redis`, `cmsgpack` and `struct`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Program(Which);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Which {
    Decide,
    Buckets,
    OneBucket,
    Swap,
}

impl Program {
    /// Decides calls, and tells what it found.
    pub(super) const DECIDE: Self = Self(Which::Decide);
    /// Decides calls about token buckets that start full, each about one key.
    pub(super) const BUCKETS: Self = Self(Which::Buckets);
    /// The same for equal calls about one key.
    pub(super) const ONE_BUCKET: Self = Self(Which::OneBucket);
    /// Replaces a state that is as it was.
    pub(super) const SWAP: Self = Self(Which::Swap);

    /// All programs, to be loaded beforehand.
    pub const ALL: [Self; 4] = [Self::DECIDE, Self::BUCKETS, Self::ONE_BUCKET, Self::SWAP];

    /// The source text.
    pub fn source(self) -> &'static str {
        static DECIDE: LazyLock<String> = LazyLock::new(|| {
            // What the files share; in Redis a script has no variables of its own but local ones.
            let mut source = String::from("local shapes, steps, ends = {}, {}, {}\n");
            source.push_str(include_str!("lua/bounds.lua"));
            source.push_str(include_str!("lua/kinds.lua"));
            source.push_str(include_str!("lua/shape.lua"));
            source.push_str(include_str!("lua/numbers.lua"));
            source.push_str(include_str!("lua/bucket.lua"));
            for algorithm in ALGORITHMS {
                source.extend(["do\n", algorithm, "end\n"]);
            }
            source.push_str(include_str!("lua/driver.lua"));
            put_together(&source)
        });
        static BUCKETS: LazyLock<String> =
            LazyLock::new(|| put_together(include_str!("lua/buckets/many.lua")));
        static ONE_BUCKET: LazyLock<String> =
            LazyLock::new(|| put_together(include_str!("lua/buckets/one.lua")));
        static SWAP: LazyLock<String> =
            LazyLock::new(|| put_together(include_str!("lua/swap.lua")));
        match self.0 {
            Which::Decide => &DECIDE,
            Which::Buckets => &BUCKETS,
            Which::OneBucket => &ONE_BUCKET,
            Which::Swap => &SWAP,
        }
    }
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
        assert!(
            Program::ONE_BUCKET
                .source()
                .contains("local function is_state")
        );
    }
}
