//! Requests and responses.

use std::net::{IpAddr, Ipv4Addr};

use http::{HeaderValue, StatusCode};

use super::{NO, NO_LAYER, Surroundings};
use crate::{
    answer::Answer,
    clients::client,
    library::{Library, Rule},
    service::{PROXY, call, request},
};

pub fn refusal(library: &dyn Library, _: &Surroundings) -> String {
    let rule = Rule::per_hour(1);
    if let Some(service) = library.http(rule) {
        let first = call(&service, request(Some(client(0))));
        assert_eq!(first.status(), StatusCode::OK, "{}", library.package());
        let second = call(&service, request(Some(client(0))));
        return second.status().as_u16().to_string();
    }
    match library.layer(rule) {
        Some(layer) => {
            let mut budget = layer();
            let answers = (budget(client(0), 1), budget(client(0), 1));
            let waits = (Answer::Admitted, Answer::Refused(None));
            assert_eq!(answers, waits, "{}", library.package());
            "a layer that waits".to_owned()
        }
        None => "a value".to_owned(),
    }
}

/// Lists the fields that the layer adds.
pub fn fields(library: &dyn Library, _: &Surroundings) -> String {
    let Some(service) = library.http(Rule::per_hour(2)) else {
        return NO_LAYER.to_owned();
    };
    let response = call(&service, request(Some(client(0))));
    assert_eq!(response.status(), StatusCode::OK, "{}", library.package());
    let mut names: Vec<_> = response
        .headers()
        .keys()
        .map(|name| name.as_str())
        .collect();
    names.sort_unstable();
    if names.is_empty() {
        return "none".to_owned();
    }
    // The fields of the standard's drafts, and those that went before them.
    let families = [
        ("`ratelimit`", &["ratelimit", "ratelimit-policy"][..]),
        (
            "`ratelimit-*`",
            &["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"],
        ),
        (
            "`x-ratelimit-*`",
            &["x-ratelimit-limit", "x-ratelimit-remaining"],
        ),
    ];
    let mut found = Vec::new();
    for (family, members) in families {
        if members.iter().all(|member| names.contains(member)) {
            names.retain(|name| !members.contains(name));
            found.push(family);
        }
    }
    assert!(
        names.is_empty(),
        "{}: no family has {names:?}",
        library.package()
    );
    found.join(", ")
}

/// Sends requests of one client through the proxy, each with another address that the client wrote
/// itself.
pub fn spoofed(library: &dyn Library, _: &Surroundings) -> String {
    let Some(service) = library.behind_proxy(Rule::per_hour(2)) else {
        return NO_LAYER.to_owned();
    };
    let send = |written: u8, real: IpAddr| {
        let mut request = request(Some(PROXY));
        let value = format!("{}, {real}", Ipv4Addr::new(6, 6, 6, written));
        let value = HeaderValue::from_str(&value).expect("addresses");
        request.headers_mut().insert("x-forwarded-for", value);
        call(&service, request).status()
    };
    let statuses = [1, 2, 3].map(|written| send(written, client(0)));
    assert_eq!(statuses[..2], [StatusCode::OK; 2], "{}", library.package());
    // Otherwise all clients of the proxy would share the limit.
    let other = send(4, client(1));
    assert_eq!(other, StatusCode::OK, "{}", library.package());
    match statuses[2] {
        StatusCode::TOO_MANY_REQUESTS => "ignored".to_owned(),
        StatusCode::OK => "is the key".to_owned(),
        other => panic!("{}: {other}", library.package()),
    }
}

pub fn without_peer(library: &dyn Library, _: &Surroundings) -> String {
    let Some(service) = library.http(Rule::per_hour(1)) else {
        return NO_LAYER.to_owned();
    };
    let statuses = [(); 2].map(|()| call(&service, request(None)).status());
    match statuses {
        [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] => "one shared limit".to_owned(),
        [StatusCode::OK, StatusCode::OK] => format!("{NO} limit"),
        [first, _] => first.as_u16().to_string(),
    }
}
