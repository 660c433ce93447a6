//! Certificates for Redis, without TLS.
//~ 3 x error[E0277]: this method needs the feature `redis-tls` of tollgate
//~ <impl RedisBuilder<Rule>>::root_certificate`
//~ <impl RedisBuilder<Rule>>::client_certificate`
//~ <impl RedisBuilder<Rule>>::plain_sentinels`

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
