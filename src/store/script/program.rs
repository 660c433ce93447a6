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

/// A program in Lua 5.1, as Redis runs it: with `redis`, `cmsgpack` and `struct`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Program(Which);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Which {
    Decide,
    Buckets,
    Swap,
}

impl Program {
    /// Decides calls, and tells what it found.
    pub(super) const DECIDE: Self = Self(Which::Decide);
    /// Decides calls about token buckets that start full, each about one key.
    pub(super) const BUCKETS: Self = Self(Which::Buckets);
    /// Replaces a state that is as it was.
    pub(super) const SWAP: Self = Self(Which::Swap);

    /// All programs, to be loaded beforehand.
    pub const ALL: [Self; 3] = [Self::DECIDE, Self::BUCKETS, Self::SWAP];

    /// The source text.
    pub fn source(self) -> &'static str {
        static DECIDE: LazyLock<String> = LazyLock::new(|| {
            // What the files share; in Redis a script has no variables of its own but local ones.
            let mut source = String::from("local shapes, steps, ends = {}, {}, {}\n");
            source.push_str(include_str!("lua/shape.lua"));
            source.push_str(include_str!("lua/numbers.lua"));
            source.push_str(include_str!("lua/bucket.lua"));
            for algorithm in ALGORITHMS {
                source.extend(["do\n", algorithm, "end\n"]);
            }
            source.push_str(include_str!("lua/driver.lua"));
            source
        });
        match self.0 {
            Which::Decide => &DECIDE,
            Which::Buckets => concat!(
                include_str!("lua/shape.lua"),
                include_str!("lua/buckets.lua")
            ),
            Which::Swap => include_str!("lua/swap.lua"),
        }
    }
}
