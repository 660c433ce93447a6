//! Quotas, rules and keys in configuration files.

use tollgate::{AnyRule, Quota, key::AnyKey};

#[test]
fn quotas_rules_and_keys_are_strings() {
    let quota: Quota = serde_json::from_str("\"100/1m\"").unwrap();
    assert_eq!(quota, Quota::per_minute(100));
    assert_eq!(serde_json::to_string(&quota).unwrap(), "\"100/1m\"");

    let text = "\"token-bucket 10/s burst=20 & token-bucket 1000/1h\"";
    let rule: AnyRule = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&rule).unwrap(), text);

    let key: AnyKey = serde_json::from_str("\"peer-ip/64  + header X-Api-Key\"").unwrap();
    let text = "\"peer-ip + header x-api-key\"";
    assert_eq!(serde_json::to_string(&key).unwrap(), text);
}

#[test]
fn invalid_values_are_errors_with_a_reason() {
    let error = serde_json::from_str::<AnyRule>("\"token-bucket 0/1m\"").unwrap_err();
    assert!(error.to_string().contains("is 0"), "{error}");
    let error = serde_json::from_str::<AnyKey>("\"peer\"").unwrap_err();
    assert!(error.to_string().contains("unknown key `peer`"), "{error}");
    let error = serde_json::from_str::<Quota>("7").unwrap_err();
    assert!(error.to_string().contains("string"), "{error}");
}
