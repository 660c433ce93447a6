//! The list of algorithms: the only code that names all of them.
//!
//! Each algorithm has one line: folder and types, name, first byte of encoded states, number in
//! scripts, Lua. Everything else that needs the list is generated from it. A test keeps the names,
//! bytes and numbers of releases.

/// Passes the list of algorithms to a macro, behind arguments in parentheses if there are any.
///
/// To add an algorithm, add its folder and a line here. A line contains the name of the folder, the
/// types of the rule and of its state, and:
///
/// - `name`: the first word of the rule's text, and the name of its [kind of
///   state](super::StateKind);
/// - `tag`: the first byte of an encoded state, with the algorithm in the upper five bits and the
///   version of the encoding in the lower three;
/// - `kind`: the number that identifies the algorithm in scripts; every part of a rule or a state
///   begins with it;
/// - `grants`: `true` if scripts grant units ahead, for which `script.lua` has a section
///   `remaining`;
/// - `text`: examples of the rule's text, for the documentation of [`AnyRule`](super::AnyRule).
///
/// Releases share stores: never change or reuse a name, a tag or a kind that was released. (Kind 4
/// was a sliding log whose instants all lay in the state. Kind 11 and the tag 0x59 are of
/// [blocks](super::Block).)
macro_rules! algorithms {
    ($make:ident $($arguments:tt)?) => {
        $make! {
            $($arguments)?
            token_bucket { TokenBucket, TokenBucketState } name "token-bucket", tag 0x11, kind 1, grants true, text "`token-bucket 100/1m burst=150 initial=300 keep=1h`";
            leaky_bucket { LeakyBucket, LeakyBucketState } name "leaky-bucket", tag 0x19, kind 5, grants false, text "`leaky-bucket 10/s queue=50 max-wait=2s`";
            fixed_window { FixedWindow, FixedWindowState } name "fixed-window", tag 0x22, kind 2, grants true, text "`fixed-window 100/1m offset=10s`, `offset=spread`, `from=first-call`";
            sliding_window { SlidingWindow, SlidingWindowState } name "sliding-window", tag 0x29, kind 3, grants true, text "`sliding-window 100/1m slices=4`";
            sliding_log { SlidingLog, SlidingLogState } name "sliding-log", tag 0x31, kind 10, grants true, text "`sliding-log 100/1m`";
            warm_up { WarmUp, WarmUpState } name "warm-up", tag 0x39, kind 8, grants false, text "`warm-up 200/s over=10s cold=3`";
            warm_up_spaced { WarmUpSpaced, WarmUpSpacedState } name "warm-up-spaced", tag 0x41, kind 9, grants false, text "`warm-up-spaced 2/s over=4s cold=3 max-wait=5s`";
            cascade { Cascade, CascadeState } name "cascade", tag 0x49, kind 6, grants false, text "`cascade 10/s burst=10 > 5/s burst=20`";
            three_color { ThreeColor, ThreeColorState } name "three-color", tag 0x51, kind 7, grants false, text "`three-color 100/s burst=100 peak=200/s peak-burst=200 aware`";
            in_flight { InFlight, InFlightState } name "in-flight", tag 0x61, kind 12, grants false, text "`in-flight 8 max-hold=5m lease=30s retry-after=2s`, `wait-at-most=1s`";
        }
    };
}

/// Declares the modules of the algorithms and exports their rules. Users write
/// `<Rule as Algorithm>::State` for the state.
macro_rules! modules {
    ($($folder:ident { $Rule:ident, $State:ident } $($column:ident $value:tt),+;)+) => {$(
        mod $folder;
        pub use self::$folder::$Rule;
        use self::$folder::$State;
    )+};
}

/// Re-exports the rules in the root of the crate.
macro_rules! rules {
    ($($folder:ident { $Rule:ident, $State:ident } $($column:ident $value:tt),+;)+) => {
        pub use self::algorithm::{$($Rule),+};
    };
}

pub(super) use modules;
pub(crate) use {algorithms, rules};

macro_rules! constants {
    ($(
        $folder:ident { $Rule:ident, $State:ident }
        name $name:literal, tag $tag:literal, kind $kind:literal, grants $grants:literal, text $text:literal;
    )+) => {
        $(impl super::$Rule {
            pub(super) const NAME: &'static str = $name;
            pub(super) const TAG: u8 = $tag;
            pub(super) const KIND: i64 = $kind;
        })+

        /// The names of all algorithms.
        pub(crate) const NAMES: &[&str] = &[$($name),+];
    };
}

algorithms!(constants);

/// An algorithm in Lua.
#[cfg(feature = "redis")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lua {
    /// The name of the algorithm's folder.
    pub(crate) folder: &'static str,
    /// The algorithm's number in scripts.
    pub(crate) kind: i64,
    /// `true` if units can be granted ahead.
    pub(crate) grants: bool,
    /// The file `script.lua`, which consists of sections.
    script: &'static str,
}

#[cfg(feature = "redis")]
impl Lua {
    /// Returns the section that sets `shapes[KIND]`, which checks that numbers are a state;
    /// `steps[KIND]`; and `ends[KIND]`, when a state can be forgotten. For a log beside the state
    /// also `reports[KIND]` and `writes[KIND]`.
    pub(crate) fn step(&self) -> &'static str {
        self.section("step").unwrap_or_default()
    }

    /// Returns the section that sets `settles[KIND]`, and uses the local functions of
    /// [`step`](Self::step).
    pub(crate) fn settle(&self) -> &'static str {
        self.section("settle").unwrap_or_default()
    }

    /// Returns the section that sets `remainders[KIND]`, the greatest cost that passes: of an
    /// algorithm whose units can be granted ahead.
    pub(crate) fn remaining(&self) -> Option<&'static str> {
        self.section("remaining")
    }

    /// Returns the lines behind `--- section: NAME`. Further sections are included by name.
    pub(crate) fn section(&self, name: &str) -> Option<&'static str> {
        let mut sections = self.script.split("\n--- section: ");
        sections.find_map(|section| section.strip_prefix(name)?.strip_prefix('\n'))
    }
}

#[cfg(feature = "redis")]
macro_rules! lua {
    ($(
        $folder:ident { $Rule:ident, $State:ident }
        name $name:literal, tag $tag:literal, kind $kind:literal, grants $grants:literal, text $text:literal;
    )+) => {
        /// All algorithms in Lua, and blocks.
        pub(crate) const LUA: &[Lua] = &[
            $(Lua {
            folder: stringify!($folder),
            kind: $kind,
            grants: $grants,
            script: include_str!(concat!(stringify!($folder), "/script.lua")),
            },)+
            BLOCK,
        ];
    };
}

#[cfg(feature = "redis")]
algorithms!(lua);

/// Blocks, which no text names, so that they are not in the list.
#[cfg(feature = "redis")]
const BLOCK: Lua = Lua {
    folder: "block",
    kind: super::Block::KIND,
    grants: false,
    script: include_str!("block.lua"),
};

#[cfg(test)]
mod tests {
    use super::{super::*, NAMES};

    /// Name, first byte and script kind of each algorithm, and the kind of its states.
    fn numbers() -> Vec<(&'static str, u8, i64, StateKind)> {
        macro_rules! numbers {
            ($($folder:ident { $Rule:ident, $State:ident } name $name:literal, tag $tag:literal, kind $kind:literal, grants $grants:literal, text $text:literal;)+) => {
                vec![$(($name, $tag, $kind, {
                    let example = $text.split('`').nth(1).unwrap();
                    example.parse::<$Rule>().unwrap().state_kind()
                })),+]
            };
        }
        registry::algorithms!(numbers)
    }

    #[cfg(feature = "redis")]
    #[test]
    fn scripts_have_the_sections_that_programs_need() {
        for lua in super::LUA {
            assert!(
                !lua.step().is_empty() && !lua.settle().is_empty(),
                "{lua:?}"
            );
            assert_eq!(lua.remaining().is_some(), lua.grants, "{lua:?}");
        }
    }

    /// They are written into stores that several releases share.
    #[test]
    fn numbers_stay_as_they_are() {
        let released = [
            ("token-bucket", 0x11, 1),
            ("leaky-bucket", 0x19, 5),
            ("fixed-window", 0x22, 2),
            ("sliding-window", 0x29, 3),
            ("sliding-log", 0x31, 10),
            ("warm-up", 0x39, 8),
            ("warm-up-spaced", 0x41, 9),
            ("cascade", 0x49, 6),
            ("three-color", 0x51, 7),
            ("in-flight", 0x61, 12),
        ];
        let numbers = numbers();
        for (name, tag, kind) in released {
            let expected = (name, tag, kind, StateKind::named(name));
            assert!(numbers.contains(&expected), "{expected:?} in {numbers:?}");
        }
        let block = (Block::TAG, Block::KIND, Block::LOOK.state_kind());
        assert_eq!(block, (0x59, 11, StateKind::named("block")));
    }

    #[test]
    fn no_two_algorithms_share_a_number() {
        let numbers = numbers();
        // Families of tags: the lower bits are the version. The others are of a pair, of `All`, of
        // a block and of a frame.
        let tags = numbers.iter().map(|(_, tag, ..)| *tag);
        let mut families: Vec<_> = tags
            .chain([0x01, All::TAG, Block::TAG, 0xf1])
            .map(|tag| tag >> 3)
            .collect();
        let mut kinds: Vec<_> = numbers
            .iter()
            .map(|(_, _, kind, _)| *kind)
            // 64 is of the marks of deltas.
            .chain([All::KIND, Block::KIND, 64])
            .collect();
        for (name, _, _, kind) in &numbers {
            assert_eq!(*kind, StateKind::named(name), "{name}");
            assert_ne!(*kind, Block::LOOK.state_kind(), "{name}");
        }
        families.sort_unstable();
        kinds.sort_unstable();
        assert!(
            families.windows(2).all(|two| two[0] != two[1]),
            "{families:?}"
        );
        assert!(kinds.windows(2).all(|two| two[0] != two[1]), "{kinds:?}");
        assert!(
            NAMES
                .iter()
                .enumerate()
                .all(|(n, name)| !NAMES[..n].contains(name))
        );
    }
}
