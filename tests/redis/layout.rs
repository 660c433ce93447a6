//! The keys in the server: names, expiries, and foreign values.

use tollgate::{
    Cost, Policy,
    key::Key,
    store::{Redis, Store, driver::Ask},
};

use super::{acquire, admitted, at_once, look, policy, servers, store};

fn names(server: &servers::Redis) -> Vec<String> {
    let keys = server.keys().into_iter();
    keys.map(|key| String::from_utf8(key).unwrap()).collect()
}

#[tokio::test]
async fn names_contain_no_client_unless_its_key_is_labelled() {
    let server = servers::Redis::start();
    let rule = at_once(10);
    let store = store(server.url()).await;
    acquire(&store, &rule, Key::from("alice@example.org"))
        .await
        .unwrap();
    let [digested] = <[String; 1]>::try_from(names(&server)).unwrap();
    let digest = digested.strip_prefix("tollgate:2:{").unwrap();
    let digest = digest.strip_suffix("}:api").unwrap();
    assert_eq!(digest.len(), 32, "{digest}");
    assert!(
        digest.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{digest}"
    );
    server.command(&["FLUSHALL"]);

    let labelled = Key::from("al{i}ce").labelled();
    let builder = Redis::<tollgate::TokenBucket>::builder(server.url()).prefix("shop");
    let shop = builder.connect().await.unwrap();
    acquire(&shop, &rule, labelled).await.unwrap();
    let [name] = <[String; 1]>::try_from(names(&server)).unwrap();
    assert!(
        name.starts_with("shop:2:{") && name.ends_with(r"al\x7bi\x7dce}:api"),
        "{name}"
    );
    // Another prefix is another store.
    assert_eq!(
        look(&store, &rule, labelled).await.unwrap().remaining(),
        Some(10)
    );
    assert_eq!(
        look(&shop, &rule, labelled).await.unwrap().remaining(),
        Some(9)
    );
}

/// The windows are long, so that none ends between a call and the look at its key.
#[tokio::test]
async fn every_key_expires_when_its_state_no_longer_matters() {
    /// Rules, and the most seconds for which their states matter.
    const RULES: &[(&str, i64)] = &[
        ("token-bucket 6/1m burst=5", 60),
        ("token-bucket 5/1m initial=0 keep=1h", 3600),
        ("fixed-window 10/1h", 3600),
        ("sliding-window 10/1h slices=4", 2 * 3600),
        ("sliding-log 10/1h", 3600),
        ("token-bucket 10/1h & fixed-window 20/3h", 3 * 3600),
    ];
    let server = servers::Redis::start();
    let store: Redis<tollgate::AnyRule> = Redis::connect(server.url()).await.unwrap();
    for (text, matters) in RULES {
        server.command(&["FLUSHALL"]);
        let rule = text.parse().unwrap();
        for cost in [1, 2, 50] {
            let cost = Cost::new(cost).unwrap();
            let ask = Ask::new(policy(), &rule, Key::GLOBAL, cost);
            store.acquire(&[ask]).await.unwrap();
        }
        for name in names(&server) {
            let left: i64 = server.command(&["PTTL", &name]).parse().unwrap();
            let most = (matters + 60) * 1000;
            assert!((1..=most).contains(&left), "{text}: {left} ms");
        }
    }
}

/// Checks the assertion that every test of this program makes at the end, for each server that it
/// started.
#[test]
#[should_panic(expected = "foreign never expires")]
fn a_key_that_never_expires_is_detected() {
    let server = servers::Redis::start();
    server.command(&["SET", "foreign", "1"]);
}

/// An expiry is moved only when it would be too early. It is never too early.
#[tokio::test]
async fn a_debt_expires_soon_after_it_is_repaid() {
    let server = servers::Redis::start();
    let rule = "token-bucket 1/1s burst=1000".parse().unwrap();
    let (store, key) = (store(server.url()).await, Key::from(7_u64));
    let mut moved = 0;
    for n in 0..60 {
        let before = std::time::Instant::now();
        let decision = super::acquire_many(&store, &rule, key, 1 + n % 3).await;
        let debt = decision.unwrap().reset_after();
        let [name] = <[String; 1]>::try_from(names(&server)).unwrap();
        let left: u64 = server.command(&["PTTL", &name]).parse().unwrap();
        let left = std::time::Duration::from_millis(left + 1);
        assert!(left + before.elapsed() >= debt, "{n}: {left:?} of {debt:?}");
        let most = debt + debt / 2 + std::time::Duration::from_secs(2);
        assert!(left <= most, "{n}: {left:?} of {debt:?}");
        let text = server.command(&["INFO", "commandstats"]);
        let calls = text.split("cmdstat_pexpireat:calls=").nth(1).unwrap();
        moved = calls.split(',').next().unwrap().parse().unwrap();
    }
    assert!((2..30).contains(&moved), "{moved} times in 60 calls");
}

/// Returns the number of calls of write commands, and the bytes of all values.
fn writes(server: &servers::Redis) -> (u64, Vec<String>) {
    let text = server.command(&["INFO", "commandstats"]);
    let writing = ["set", "setrange", "del", "expire", "pexpire", "pexpireat"];
    let calls = writing.iter().map(|name| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        let calls = line.and_then(|line| line.split(',').next());
        calls.map_or(0, |calls| calls.parse().unwrap())
    });
    let calls = calls.sum();
    let dumps = names(server)
        .into_iter()
        .map(|name| server.command(&["DUMP", &name]));
    (calls, dumps.collect())
}

#[tokio::test]
async fn a_refusal_writes_nothing() {
    let server = servers::Redis::start();
    let (store, rule, key) = (store(server.url()).await, at_once(3), Key::from(7_u64));
    assert_eq!(admitted(&store, &rule, key, 3).await, 3);
    let before = writes(&server);
    assert!(before.0 >= 3 && before.1.len() == 1, "{before:?}");
    assert_eq!(admitted(&store, &rule, key, 20).await, 0);
    look(&store, &rule, key).await.unwrap();
    // Asks that are refused together: the one that would have passed is not written either.
    let other = Policy::new("other");
    let asks = [
        Ask::new(&other, &rule, key, Cost::ONE),
        Ask::new(policy(), &rule, key, Cost::ONE),
    ];
    assert!(!store.acquire(&asks).await.unwrap().is_admitted());
    assert_eq!(writes(&server), before);
}

#[tokio::test]
async fn foreign_values_are_healed_and_counted() {
    let server = servers::Redis::start();
    let (store, rule, key) = (store(server.url()).await, at_once(3), Key::from(7_u64));
    acquire(&store, &rule, key).await.unwrap();
    let [name] = <[String; 1]>::try_from(names(&server)).unwrap();
    let mut healed = 0;
    let values: &[(&str, &[&[u8]])] = &[
        ("another type", &[b"RPUSH", b"$", b"1", b"2"]),
        ("another type", &[b"HSET", b"$", b"field", b"value"]),
        ("text", &[b"SET", b"$", b"hello"]),
        ("nothing", &[b"SET", b"$", b""]),
        ("cut short", &[b"SET", b"$", b"\x92\x01\x94\x01"]),
        (
            "an older version",
            &[b"SET", b"$", b"\x92\x00\x94\x01\x01\x01\x01"],
        ),
        (
            "a later version",
            &[b"SET", b"$", b"\x92\x02\x94\x01\x01\x01\x01"],
        ),
        ("a number for a part", &[b"SET", b"$", b"\x92\x01\x07"]),
    ];
    for (what, command) in values {
        server.command(&["DEL", &name]);
        let command: Vec<&[u8]> = command
            .iter()
            .map(|word| if *word == b"$" { name.as_bytes() } else { word })
            .collect();
        server.reply(&command);
        // A look returns what a decision would find, and does not change the value.
        assert_eq!(
            look(&store, &rule, key).await.unwrap().remaining(),
            Some(3),
            "{what}"
        );
        let first = acquire(&store, &rule, key).await;
        assert_eq!(first.unwrap().remaining(), Some(2), "{what}");
        healed += 1;
        assert_eq!(store.stats().healed, healed, "{what}");
        assert_eq!(admitted(&store, &rule, key, 5).await, 2, "{what}");
        assert_eq!(server.command(&["TYPE", &name]), "string", "{what}");
        let left: i64 = server.command(&["PTTL", &name]).parse().unwrap();
        assert!(left > 0, "{what}: {left}");
    }
    // Numbers that no version of this algorithm writes count as no state.
    server.reply(&[&b"SET"[..], name.as_bytes(), b"\x92\x01\x92\x01\x05"]);
    assert_eq!(admitted(&store, &rule, key, 5).await, 3);
    healed += 1;
    assert_eq!(store.stats().healed, healed);
    // In one call with others, each value is judged by itself.
    server.command(&["DEL", &name]);
    server.command(&["RPUSH", &name, "1"]);
    let other = Policy::new("other");
    let asks = [
        Ask::new(policy(), &rule, key, Cost::ONE),
        Ask::new(&other, &rule, key, Cost::ONE),
    ];
    assert!(store.acquire(&asks).await.unwrap().is_admitted());
    assert_eq!(store.stats().healed, healed + 1);
    // A reset removes any value.
    server.command(&["DEL", &name]);
    server.command(&["RPUSH", &name, "1"]);
    store.reset(policy(), &key).await.unwrap();
    assert_eq!(server.command(&["EXISTS", &name]), "0");
}

#[tokio::test]
async fn a_rule_that_does_not_fit_is_an_error() {
    let server = servers::Redis::start();
    let store = store(server.url()).await;
    let rule = "token-bucket 1/86400000000001ns burst=999".parse().unwrap();
    let error = acquire(&store, &rule, Key::from(7_u64)).await.unwrap_err();
    let why = error.to_string();
    assert!(why.contains("2^53"), "{why}");
    assert!(server.keys().is_empty());
}
