//! Compiler messages for methods behind a disabled feature: they name the feature.
//!
//! Run `cargo test -p messages [--features redis]`, and with `TRYBUILD=overwrite` to write the files.

use std::{fs, path::Path};

/// Compares the messages with the files, and the files with the text expected for each method.
fn each_method_names_its_feature(feature: &str, folder: &str, methods: &[&str]) {
    crate::compare(&format!("cases/{folder}/*.rs"));
    let cases = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("cases")
        .join(folder);
    let files = fs::read_dir(cases).expect("the cases are there");
    let files = files.map(|file| file.expect("a file").path());
    let messages: String = files
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "stderr")
        })
        .map(|path| fs::read_to_string(path).expect("a text"))
        .collect();
    let message = format!("error[E0277]: this method needs the feature `{feature}` of tollgate");
    assert_eq!(
        messages.matches(&message).count(),
        methods.len(),
        "{messages}"
    );
    assert_eq!(
        messages.matches("error[").count(),
        methods.len(),
        "{messages}"
    );
    for method in methods {
        let bound = format!("::{method}`\n");
        assert!(messages.contains(&bound), "{method}: {messages}");
    }
}

#[cfg(not(feature = "tokio"))]
#[test]
fn methods_that_wait_name_their_feature() {
    let methods = [
        "timeout",
        "until_ready",
        "until_ready_for",
        "stream",
        "stream_by",
    ];
    each_method_names_its_feature("tokio", "no_tokio", &methods);
}

#[cfg(all(feature = "redis", not(feature = "redis-tls")))]
#[test]
fn methods_for_certificates_name_their_feature() {
    let methods = ["root_certificate", "client_certificate", "plain_sentinels"];
    each_method_names_its_feature("redis-tls", "no_tls", &methods);
}
