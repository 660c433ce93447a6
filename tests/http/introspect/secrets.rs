//! No token, subject or credential in `Debug`, logs or errors.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use tollgate::key::introspect::{Claims, Endpoint, Introspect, Introspected, Token};
use tower::{BoxError, Layer, Service, ServiceExt};

use crate::introspect::subject::{around, ask, with_token};

const TOKEN: &str = "tok3n-s3cret";

async fn look_up(token: Token) -> Result<Option<Claims>, BoxError> {
    let text = token.expose();
    if text.ends_with("down") {
        return Err(format!("could not ask http://localhost/?token={text}: {token:?}").into());
    }
    Ok(Some(
        Claims::new()
            .with_subject("ann-s3cret")
            .with_client_id("app-s3cret"),
    ))
}

#[tokio::test(flavor = "current_thread")]
async fn debug_redacts() {
    let endpoint = Endpoint::new("http://localhost/")
        .unwrap()
        .basic("api", "basic-s3cret");
    let builder = Introspect::builder(look_up);
    let mut texts = vec![format!("{endpoint:?} {builder:?}")];
    let layer = builder.build().unwrap();
    let mut subject = around(&layer);
    let response = subject.ready().await.unwrap().call(with_token(TOKEN));
    texts.push(format!("{response:?}"));
    response.await.unwrap();
    texts.push(format!("{layer:?} {subject:?} {:?}", layer.stats()));
    let seen = Arc::new(Mutex::new(String::new()));
    let kept = Arc::clone(&seen);
    let inner = tower::service_fn(move |request: http::Request<()>| {
        let found = request.extensions().get::<Introspected>().unwrap();
        *kept.lock().unwrap() = format!("{found:?} {:?} {:#?}", found.claims(), found.key());
        std::future::ready(Ok::<_, std::convert::Infallible>(http::Response::new(
            String::new(),
        )))
    });
    layer.layer(inner).oneshot(with_token(TOKEN)).await.unwrap();
    texts.push(seen.lock().unwrap().clone());
    assert!(texts.iter().all(|text| !text.is_empty()));
    for text in texts {
        assert!(!text.contains("s3cret"), "{text}");
    }
}

#[cfg(feature = "tracing")]
mod log {
    use tracing::{
        Dispatch, Event, Metadata, Subscriber,
        field::{Field, Visit},
        span,
        subscriber::{DefaultGuard, set_default},
    };

    use super::*;
    use crate::introspect::server::{Reply, Server};

    /// Records the fields of all events and spans of all crates, at every level.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<String>>>);

    struct Reader(String);

    impl Visit for Reader {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            self.0 += &format!(" {field}={value:?}");
        }
    }

    impl Log {
        /// Records until the guards are dropped.
        fn of_this_thread(&self) -> (Dispatch, DefaultGuard) {
            // While there is one subscriber alone, `tracing` asks that of the thread that meets an
            // event first. Threads of other tests have none.
            let second = Dispatch::new(self.clone());
            (second, set_default(self.clone()))
        }
    }

    impl Subscriber for Log {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
            let mut reader = Reader("span".to_owned());
            span.record(&mut reader);
            self.0.lock().unwrap().push(reader.0);
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, values: &span::Record<'_>) {
            let mut reader = Reader("record".to_owned());
            values.record(&mut reader);
            self.0.lock().unwrap().push(reader.0);
        }

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn event(&self, event: &Event<'_>) {
            let mut reader = Reader(event.metadata().target().to_owned());
            event.record(&mut reader);
            self.0.lock().unwrap().push(reader.0);
        }

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    #[tokio::test(flavor = "current_thread")]
    async fn failures_are_logged_once_a_minute_without_the_token() {
        let log = Log::default();
        let _guard = log.of_this_thread();
        let clock = tollgate::time::ManualClock::default();
        let layer = Introspect::builder(look_up)
            .clock(clock.clone())
            .build()
            .unwrap();
        let subject = around(&layer);
        let ours = || {
            let mut lines = std::mem::take(&mut *log.0.lock().unwrap());
            lines.retain(|line| line.starts_with("tollgate"));
            lines
        };
        for minute in 0..3_u64 {
            for _ in 0..10 {
                assert_eq!(ask(&subject, &format!("{TOKEN}-down")).await, "503");
            }
            let lines = ours();
            let [line] = &lines[..] else {
                panic!("{lines:?}")
            };
            assert!(
                line.contains("could not ask http://localhost/?token=<token>"),
                "{line}"
            );
            assert!(
                line.contains(&format!("failures={}", 10 * minute + 1)),
                "{line}"
            );
            assert!(
                line.contains(&format!("unlogged={}", 9 * minute.min(1))),
                "{line}"
            );
            assert!(line.contains("refused with 503"), "{line}");
            assert!(!line.contains("s3cret"), "{line}");
            clock.advance(std::time::Duration::from_secs(60));
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn nothing_on_the_way_to_a_server_logs_a_secret() {
        let log = Log::default();
        let _guard = log.of_this_thread();
        let server = Server::start(Reply::Close).await;
        for reply in [
            Reply::Full(
                "200 OK",
                format!(r#"{{"active":true,"sub":"ann-{TOKEN}"}}"#),
            ),
            Reply::Full("200 OK", format!(r#"{{"active":{TOKEN}}}"#)),
            Reply::Full("500 Oops", format!("{TOKEN} is odd")),
            Reply::Truncated(TOKEN.to_owned()),
            Reply::Close,
        ] {
            server.set(reply);
            let endpoint = Endpoint::new(&server.url())
                .unwrap()
                .basic("api", "basic-s3cret");
            let layer = Introspect::new(endpoint);
            let answer = ask(&around(&layer), TOKEN).await;
            assert!(answer == "503" || answer.starts_with("ann"), "{answer}");
        }
        server.stop().await;
        let lines = log.0.lock().unwrap().clone();
        assert_eq!(
            lines
                .iter()
                .filter(|line| line.starts_with("tollgate"))
                .count(),
            4
        );
        for line in lines {
            assert!(!line.contains("s3cret"), "{line}");
            // `basic-s3cret` in Base64.
            assert!(!line.contains("YmFzaWMtczNjcmV0"), "{line}");
        }
    }
}
