//! The tracing span of a decision that is not ready at once.

use crate::store::{Ask, Backend};

/// The span `tollgate.decide`, from the call to the store's answer. Does nothing without the
/// feature `tracing`.
pub(crate) struct DecisionSpan {
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

impl DecisionSpan {
    /// Creates the span of a call with these asks.
    pub(crate) fn new<Rule>(asks: &[Ask<'_, Rule>], store: &impl Backend) -> Self {
        let _ = (asks, store);
        Self {
            // The fields are evaluated only if a subscriber enables the span.
            #[cfg(feature = "tracing")]
            span: tracing::debug_span!(
                "tollgate.decide",
                policies = policies(asks),
                address = store.address()
            ),
        }
    }

    /// Runs `poll` within the span.
    pub(crate) fn in_scope<T>(&self, poll: impl FnOnce() -> T) -> T {
        #[cfg(feature = "tracing")]
        let _entered = self.span.enter();
        poll()
    }
}

/// Joins the names of the policies with commas.
#[cfg(feature = "tracing")]
fn policies<Rule>(asks: &[Ask<'_, Rule>]) -> String {
    let names: Vec<&str> = asks.iter().map(|ask| ask.policy().name()).collect();
    names.join(", ")
}
