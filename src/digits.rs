//! Numbers in decimal, where the machinery of `std::fmt` takes longer than what is written.

/// The numbers from 0 to 99, two digits each.
pub(crate) const PAIRS: &str = "\
    00010203040506070809101112131415161718192021222324\
    25262728293031323334353637383940414243444546474849\
    50515253545556575859606162636465666768697071727374\
    75767778798081828384858687888990919293949596979899";

/// Text that is written from its end, as digits come out; at most `N` bytes.
pub(crate) struct Backward<const N: usize> {
    bytes: [u8; N],
    start: usize,
}

impl<const N: usize> Backward<N> {
    #[inline]
    pub(crate) fn new() -> Self {
        Self {
            bytes: [0; N],
            start: N,
        }
    }

    /// Puts a few bytes in front.
    #[inline]
    pub(crate) fn text<const M: usize>(&mut self, text: &[u8; M]) {
        self.start -= M;
        self.bytes[self.start..self.start + M].copy_from_slice(text);
    }

    /// Puts a number in front.
    #[inline]
    pub(crate) fn number(&mut self, mut number: u64) {
        while number >= 100 {
            self.text(&pair(number % 100));
            number /= 100;
        }
        let [tens, ones] = pair(number);
        self.text(&[ones]);
        if number >= 10 {
            self.text(&[tens]);
        }
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// The two digits of a number below 100.
#[inline]
fn pair(number: u64) -> [u8; 2] {
    let at = 2 * number as usize;
    let digits = PAIRS.as_bytes();
    [digits[at], digits[at + 1]]
}
