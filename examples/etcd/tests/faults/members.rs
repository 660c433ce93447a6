//! A cluster of three members, one of which fails.

use std::time::Duration;

use etcd_client::{Client, ConnectOptions};
use tollgate::store::{StoreError, driver::CompareAndSwap};
use tollgate_etcd::Etcd;

use crate::common::{connect, servers, why};

/// Loads until twenty loads in a row succeed. Returns the errors before that.
async fn until_answered(etcd: &Etcd) -> Vec<StoreError> {
    let (mut errors, mut answers) = (Vec::new(), 0);
    while answers < 20 {
        match etcd.load(b"key").await {
            Ok(_) => answers += 1,
            Err(error) => {
                errors.push(error);
                answers = 0;
                assert!(errors.len() < 100, "{errors:?}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    errors
}

/// Returns a store that uses the first of these members.
async fn connected_to(members: &[&servers::Etcd]) -> Etcd {
    let urls: Vec<_> = members.iter().map(|member| member.url()).collect();
    for _ in 0..20 {
        // An election takes a second or two.
        let etcd = connect(&urls)
            .await
            .response_timeout(Duration::from_secs(3));
        if until_answered(&etcd).await.is_empty() {
            return etcd;
        }
    }
    panic!("expected a cluster at rest")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_member_is_used_when_one_is_down_or_silent() {
    let cluster = servers::Etcd::start_cluster();
    let [one, two, three] = &cluster[..] else {
        panic!("expected three members, found {cluster:?}");
    };
    let etcd = connected_to(&[one, two, three]).await;
    one.kill();
    let errors = until_answered(&etcd).await;
    assert!(errors[0].is_unavailable(), "{errors:?}");
    one.restart();

    let etcd = connected_to(&[two, three, one]).await;
    two.pause();
    let errors = until_answered(&etcd).await;
    assert!(errors[0].is_timeout(), "{errors:?}");

    // One of three members has no majority, so it cannot serve linearizable reads.
    three.pause();
    for _ in 0..3 {
        let error = etcd.load(b"key").await.unwrap_err();
        assert!(error.is_timeout() || error.is_unavailable(), "{error:?}");
    }
    two.resume();
    three.resume();
    until_answered(&etcd).await;
}

/// A client is made in the runtime of its first call, and works as long as that one.
#[test]
fn a_runtime_that_ends_leaves_the_store_to_another() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    let server = servers::Etcd::start();
    let etcd = runtime().block_on(async {
        let etcd = connect(&[server.url()]).await.response_timeout(SIGN_IN);
        until_answered(&etcd).await;
        etcd
    });
    let errors = runtime().block_on(until_answered(&etcd));
    assert!(errors.len() <= 1, "{errors:?}");
}

/// A password check takes tens of milliseconds, on an idle processor.
const SIGN_IN: Duration = Duration::from_secs(10);

fn as_root(password: &str) -> Option<ConnectOptions> {
    Some(ConnectOptions::new().with_user("root", password))
}

/// Makes every call need a user, and returns a client that has one.
async fn require_user(member: &servers::Etcd) -> Client {
    let mut client = Client::connect([member.url()], None).await.unwrap();
    client.user_add("root", "secret", None).await.unwrap();
    client.role_add("root").await.unwrap();
    client.user_grant_role("root", "root").await.unwrap();
    client.auth_enable().await.unwrap();
    let client = Client::connect([member.url()], as_root("secret")).await;
    client.unwrap()
}

/// A new password, here the same one, ends the tokens at each member at once, as five quiet minutes
/// do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_outlives_its_tokens_and_members_that_are_down() {
    let cluster = servers::Etcd::start_cluster();
    let [one, two, _] = &cluster[..] else {
        panic!("expected three members, found {cluster:?}");
    };
    let urls: Vec<_> = cluster.iter().map(|member| member.url()).collect();
    let mut admin = require_user(two).await;
    let connect = async |password| {
        let etcd = Etcd::connect(&urls, as_root(password).unwrap()).await;
        etcd.map(|etcd| etcd.response_timeout(SIGN_IN))
    };
    let etcd = connect("secret").await.unwrap();
    until_answered(&etcd).await;

    admin.user_change_password("root", "secret").await.unwrap();
    let errors = until_answered(&etcd).await;
    assert!(
        errors.iter().all(|error| error.is_unavailable()),
        "{errors:?}"
    );

    // The next member has a token of its own, which has ended, too.
    one.kill();
    let errors = until_answered(&etcd).await;
    assert!(
        errors.iter().all(|error| error.is_unavailable()),
        "{errors:?}"
    );

    // Two of three members are enough to start with.
    let late = connect("secret").await.unwrap();
    until_answered(&late).await;
    let error = connect("wrong").await.unwrap_err();
    assert!(why(&error).contains("authentication failed"), "{error}");
}

#[tokio::test]
async fn connecting_to_a_cluster_without_members_is_an_error() {
    let none: [&str; 0] = [];
    for (members, text) in [(&none[..], "no endpoint"), (&["http://"], "invalid uri")] {
        let error = Etcd::connect(members, ConnectOptions::new()).await;
        let why = why(&error.unwrap_err());
        assert!(why.contains(text), "{why}");
    }
}
