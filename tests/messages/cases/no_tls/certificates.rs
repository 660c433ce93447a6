//! Certificates for Redis, without TLS.

use tollgate::{TokenBucket, store::RedisBuilder};

fn trusting(builder: RedisBuilder<TokenBucket>, pem: Vec<u8>) -> RedisBuilder<TokenBucket> {
    builder
        .root_certificate(pem.clone())
        .client_certificate(pem.clone(), pem)
        .plain_sentinels()
}

fn main() {
    let _ = trusting;
}
