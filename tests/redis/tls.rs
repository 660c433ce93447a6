//! `rediss://`, and its counterparts for clusters and sentinels.

#[cfg(feature = "redis-tls")]
mod sentinels;
#[cfg(feature = "redis-tls")]
mod server;

use tollgate::{TokenBucket, store::Redis};

#[cfg(not(feature = "redis-tls"))]
#[tokio::test]
async fn without_the_feature_the_error_names_it() {
    for url in [
        "rediss://localhost",
        "rediss-cluster://localhost",
        "rediss-sentinel://localhost/name",
    ] {
        let connected = Redis::<TokenBucket>::connect(url).await;
        for store in [connected, Redis::connect_lazy(url)] {
            let why = store.unwrap_err().to_string();
            assert!(why.contains("feature `redis-tls`"), "{url}: {why}");
        }
    }
}

#[cfg(feature = "redis-tls")]
mod with_it {
    use super::{server::TlsRedis, *};
    use std::time::Duration;

    use tollgate::key::Key;

    use crate::{acquire, admitted, at_once, in_time, lazy, servers};

    fn builder(server: &TlsRedis) -> tollgate::store::RedisBuilder<TokenBucket> {
        Redis::<TokenBucket>::builder(server.url())
    }

    #[tokio::test]
    async fn a_server_with_a_custom_root() {
        let tls = TlsRedis::start(false);
        let trusting = builder(&tls).root_certificate(tls.tls.certificate.as_str());
        let store: Redis<TokenBucket> = trusting.connect().await.unwrap();
        let (rule, key) = (at_once(5), Key::from(7_u64));
        assert_eq!(admitted(&store, &rule, key, 3).await, 3);
        // One limit over both connections.
        let plain: Redis<TokenBucket> = Redis::connect(tls.server.url()).await.unwrap();
        assert_eq!(admitted(&plain, &rule, key, 3).await, 2);
        // The connection is reopened like any other.
        tls.server.restart();
        assert!(crate::until_answered(&store, &rule, key).await <= 1);
        assert_eq!(admitted(&store, &rule, key, 10).await, 4);
    }

    #[tokio::test]
    async fn a_cluster_with_a_custom_root() {
        let tls = TlsRedis::start_cluster();
        let unknown = Redis::<TokenBucket>::connect(tls.cluster_url()).await;
        assert!(unknown.is_err());
        let builder = Redis::<TokenBucket>::builder(tls.cluster_url());
        let trusting = builder.root_certificate(tls.tls.certificate.as_str());
        let store: Redis<TokenBucket> = trusting.connect().await.unwrap();
        assert_eq!(admitted(&store, &at_once(5), Key::from(7_u64), 8).await, 5);
        assert_eq!(tls.server.keys().len(), 1);
    }

    #[tokio::test]
    async fn a_tls_server_started_after_the_program_is_used() {
        let (alone, cluster) = (TlsRedis::start(false), TlsRedis::start_cluster());
        for (tls, url) in [(&alone, &alone.url()), (&cluster, &cluster.cluster_url())] {
            let trusting = lazy::of(url).root_certificate(tls.tls.certificate.as_str());
            let store: Redis<TokenBucket> = trusting.connect_lazy().unwrap();
            tls.server.pause();
            lazy::assert_silent(&store).await;
            tls.server.kill();
            lazy::assert_failures_follow_policy(&store).await;
            tls.server.restart();
            if url.starts_with("rediss-cluster") {
                tls.settle();
            }
            lazy::assert_admits_the_limit(&store).await;
        }
    }

    #[test]
    fn invalid_certificates_are_errors_before_any_connection() {
        let [own, other] = [(); 2].map(|()| super::server::tls(false));
        for url in [
            "rediss://nobody.invalid",
            "rediss-cluster://nobody.invalid",
            "rediss-sentinel://nobody.invalid/name",
        ] {
            let of = || Redis::<TokenBucket>::builder(url);
            let trusting = || of().root_certificate(own.certificate.as_str());
            let broken = of().root_certificate("none");
            let mixed = trusting().client_certificate(own.certificate.as_str(), other.key.as_str());
            for (wrong, part) in [(broken, "PEM"), (mixed, "KeyMismatch")] {
                let error = wrong.connect_lazy().unwrap_err();
                assert!(!error.is_unavailable() && !error.is_timeout(), "{error:?}");
                assert!(error.to_string().contains(part), "{error:?}");
            }
            let fit = trusting().client_certificate(own.certificate.as_str(), own.key.as_str());
            fit.connect_lazy().unwrap();
        }
    }

    #[tokio::test]
    async fn an_untrusted_certificate_is_an_error() {
        let (tls, other) = (TlsRedis::start(false), TlsRedis::start(false));
        let second = Duration::from_secs(1);
        // Trusting the roots of this machine, and trusting another root.
        let machine = builder(&tls).connect();
        let error = in_time(2 * second, machine).await.unwrap_err();
        assert!(error.is_unavailable(), "{error:?}");
        let strange = builder(&tls).root_certificate(other.tls.certificate.as_str());
        let error = strange.connect().await.unwrap_err();
        assert!(error.is_unavailable(), "{error:?}");
        assert!(
            error
                .to_string()
                .contains("`RedisBuilder::root_certificate`"),
            "{error:?}"
        );
        // The certificate is for `localhost` and `127.0.0.1`.
        let named = Redis::<TokenBucket>::builder(tls.url().replace("localhost", "127.0.0.2"));
        let named = named.root_certificate(tls.tls.certificate.as_str());
        let error = named.connect().await.unwrap_err();
        assert!(error.is_unavailable(), "{error:?}");
        // An invalid certificate is reported as such.
        let broken = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
        for broken in [broken, "", tls.tls.key.as_str()] {
            let error = builder(&tls).root_certificate(broken).connect();
            let error = error.await.unwrap_err();
            assert!(error.to_string().contains("PEM"), "{error:?}");
        }
        assert!(!format!("{:?}", builder(&tls).client_certificate("a", "b")).contains("key"));
    }

    /// Returns a certificate signed by an authority, valid until the end of that year.
    fn certificate(issuer: &rcgen::Issuer<'_, rcgen::KeyPair>, until: i32) -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(until, 12, 31);
        let certificate = params.signed_by(&key, issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// Existing connections continue. The next one fails, and its calls follow the policy.
    #[tokio::test]
    async fn an_expired_certificate_is_an_error_of_new_connections() {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let own = rcgen::KeyPair::generate().unwrap();
        let root = params.self_signed(&own).unwrap().pem();
        let issuer = rcgen::Issuer::new(params, own);
        let (valid, expired) = (certificate(&issuer, 4000), certificate(&issuer, 2020));
        let shown = servers::Tls {
            certificate: valid.0,
            key: valid.1,
            ..super::server::tls(false)
        };
        let tls = TlsRedis::start_with(servers::Redis::options(), shown);
        let trusting = builder(&tls).root_certificate(root.as_str());
        let store: Redis<TokenBucket> = trusting.clone().connect().await.unwrap();
        let (rule, key) = (at_once(9), Key::from(7_u64));
        assert_eq!(admitted(&store, &rule, key, 1).await, 1);

        let folder = tls.server.command(&["CONFIG", "GET", "dir"]);
        let folder = std::path::Path::new(folder.lines().last().unwrap());
        let file = |name: &str, text: &str| {
            std::fs::write(folder.join(name), text).unwrap();
            folder.join(name).to_str().unwrap().to_owned()
        };
        let (cert, private) = (file("old.pem", &expired.0), file("old-key.pem", &expired.1));
        let set = [
            "CONFIG",
            "SET",
            "tls-cert-file",
            &cert,
            "tls-key-file",
            &private,
        ];
        tls.server.command(&set);
        assert_eq!(admitted(&store, &rule, key, 3).await, 3);
        tls.server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        // The first calls may still use the connection that is being closed.
        while acquire(&store, &rule, key).await.is_ok() {}
        for _ in 0..3 {
            let error = acquire(&store, &rule, key).await.unwrap_err();
            assert!(error.is_unavailable(), "{error:?}");
            assert!(error.to_string().contains("expired"), "{error}");
            assert!(error.to_string().contains("renew"), "{error}");
        }
        let error = trusting.connect().await.unwrap_err();
        assert!(error.to_string().contains("expired"), "{error}");
    }

    #[tokio::test]
    async fn a_server_that_requires_client_certificates() {
        let tls = TlsRedis::start(true);
        let nobody = builder(&tls).root_certificate(tls.tls.certificate.as_str());
        let error = nobody.clone().connect().await.unwrap_err();
        assert!(error.is_unavailable(), "{error:?}");
        let known = nobody.client_certificate(tls.tls.certificate.as_str(), tls.tls.key.as_str());
        let store: Redis<TokenBucket> = known.connect().await.unwrap();
        let key = Key::from(7_u64);
        assert_eq!(admitted(&store, &at_once(2), key, 3).await, 2);
        servers::wait_until(
            "the key on the other server",
            Duration::from_secs(5),
            || match tls.server.keys().len() {
                1 => Ok(()),
                other => Err(other.to_string()),
            },
        );
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_connection_that_takes_longer_than_a_calls_deadline() {
        let tls = TlsRedis::start(false);
        let proxy = servers::Proxy::start(([127, 0, 0, 1], tls.tls.port).into());
        let url = format!("rediss://localhost:{}", proxy.address().port());
        let builder = Redis::<TokenBucket>::builder(url)
            .root_certificate(tls.tls.certificate.as_str())
            .response_timeout(20 * DEADLINE);
        let store: Redis<TokenBucket> = builder.connect().await.unwrap();
        // A call takes two thirds of its deadline, and the connection with its handshake at least
        // twice as long.
        const DEADLINE: Duration = Duration::from_millis(600);
        proxy.delay(DEADLINE / 3);
        let (rule, key) = (at_once(100), Key::from(7_u64));
        let call = async || tokio::time::timeout(DEADLINE, acquire(&store, &rule, key)).await;
        tls.server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        for _ in 0..20 {
            if let Ok(Ok(decision)) = call().await {
                assert!(decision.is_admitted());
                return;
            }
        }
        panic!("expected an established connection");
    }
}
