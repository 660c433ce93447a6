//! The most units that a node asks for ahead.

/// Returns the most units of a key that a node asks to hold, of a limit: a quarter, as a grant is at most a quarter of what the store has left.
///
/// So a node that was busy and is not any more keeps the others from that much at most.
pub(crate) fn most_held(limit: u64) -> u64 {
    (limit / 4).max(1)
}
