//! What the feature `redis-tls` would give: calling it says so.

use super::RedisBuilder;
use crate::missing::FeatureRedisTls;

// A bound without a parameter or a lifetime would be an error here, where it must be one of callers.
impl RedisBuilder {
    #[doc(hidden)]
    #[must_use]
    pub fn root_certificate(self, _: impl Into<Vec<u8>>) -> Self
    where
        for<'a> &'a Self: FeatureRedisTls,
    {
        self
    }

    #[doc(hidden)]
    #[must_use]
    pub fn client_certificate(self, _: impl Into<Vec<u8>>, _: impl Into<Vec<u8>>) -> Self
    where
        for<'a> &'a Self: FeatureRedisTls,
    {
        self
    }

    #[doc(hidden)]
    #[must_use]
    pub fn plain_sentinels(self) -> Self
    where
        for<'a> &'a Self: FeatureRedisTls,
    {
        self
    }
}
