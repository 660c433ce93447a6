//! The policies under which blocks are kept.

use std::sync::OnceLock;

use crate::policy::Policy;

/// The policies of blocks, by the digests of those whose keys they block. Those of further policies are made for each call.
#[derive(Debug, Default)]
pub(super) struct BlockPolicies([OnceLock<(u64, Policy)>; 32]);

impl BlockPolicies {
    /// Returns the policy under which the blocks of a policy's keys are kept.
    pub(super) fn of(&self, policy: &Policy) -> Policy {
        let digest = policy.digest();
        for known in &self.0 {
            let (of, of_blocks) = known.get_or_init(|| (digest, policy.of_blocks()));
            if *of == digest {
                return of_blocks.clone();
            }
        }
        policy.of_blocks()
    }
}
