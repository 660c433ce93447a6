//! How finely time is counted.

use crate::algorithm::span::Span;

/// How finely time is counted: in ticks of 2⁻³² ns, and in a script in multiples of a power of two of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Ticks {
    /// What is counted in multiples of, in ticks: 1 but for scripts.
    unit: u64,
}

impl Ticks {
    pub(super) const FINEST: Self = Self::new(Span::BITS as u8);

    /// Those of which a nanosecond has `2^bits`: at most as many as a [`Span`].
    pub(super) const fn new(bits: u8) -> Self {
        Self {
            unit: 1 << (Span::BITS - bits as u32),
        }
    }

    /// How many binary digits of a nanosecond are told apart.
    pub(super) fn bits(self) -> u32 {
        Span::BITS - self.unit.trailing_zeros()
    }

    #[inline]
    pub(super) fn unit(self) -> u128 {
        self.unit.into()
    }

    /// Rounded down.
    #[inline]
    pub(super) fn down(self, ticks: u128) -> u128 {
        ticks & !u128::from(self.unit - 1)
    }

    /// Rounded up.
    #[inline]
    pub(super) fn up(self, ticks: u128) -> u128 {
        self.down(ticks + u128::from(self.unit - 1))
    }

    /// A span in multiples, rounded down.
    pub(super) fn low(self, span: Span) -> u128 {
        span.ticks() / self.unit()
    }

    /// A span in multiples, rounded up.
    pub(super) fn high(self, span: Span) -> u128 {
        span.ticks().div_ceil(self.unit())
    }

    /// The span of so many multiples, or the longest.
    pub(super) fn span(self, multiples: u128) -> Span {
        Span::from_ticks(multiples.min(LONGEST / self.unit()) * self.unit())
    }
}

/// The longest span, in ticks.
pub(super) const LONGEST: u128 = Span::MAX_TICKS;

/// Ticks of so many nanoseconds.
#[inline]
pub(super) fn ticks_of(nanos: u64) -> u128 {
    u128::from(nanos) << Span::BITS
}

/// Whole nanoseconds of so many ticks, rounded up.
#[inline]
pub(super) fn nanos_of(ticks: u128) -> u128 {
    ticks.div_ceil(1 << Span::BITS)
}
