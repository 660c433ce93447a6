//! Certificates for Redis, without TLS.

use tollgate::store::RedisBuilder;

fn trusting(builder: RedisBuilder, pem: Vec<u8>) -> RedisBuilder {
    builder
        .root_certificate(pem.clone())
        .client_certificate(pem.clone(), pem)
        .plain_sentinels()
}

fn main() {
    let _ = trusting;
}
