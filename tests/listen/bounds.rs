//! The bounds of one connection: its first head, its silence, and its handshake. In paused time.

use std::{
    convert::Infallible,
    io::ErrorKind,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, routing::get};
use bytes::Bytes;
use futures_util::stream;
use http::{Request, StatusCode};
use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    time::{Instant, sleep, timeout},
};
use tollgate::{
    InFlight, RateLimitLayer,
    listen::{ConnectionStats, Guarded},
    store::LocalBuilder,
    time::TokioClock,
};

use super::script::{Clients, Pipes, Read, dribble, next};

const SECOND: Duration = Duration::from_secs(1);
const HEAD: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// The frame of a request of HTTP/2 whose fields are complete.
const FIELDS: &[u8] = &[0, 0, 1, 1, 4, 0, 0, 0, 1, 0x82];
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

fn one_second(clients: &Clients) -> Guarded<Pipes> {
    clients.listener().head_within(SECOND)
}

/// Returns the time after which the server closes a connection on which the client sends these
/// pieces, each after a pause, and the counts; the time is `None` if it stays open.
async fn closed_after(
    guarded: impl Fn(&Clients) -> Guarded<Pipes>,
    pieces: &[&[u8]],
    pause: Duration,
) -> (Option<Duration>, ConnectionStats) {
    let clients = Clients::default();
    let mut listener = guarded(&clients).build().unwrap();
    let mut client = clients.connect("192.0.2.1");
    let begun = Instant::now();
    let (mut server, _) = next(&mut listener).await.unwrap();
    let sends = async {
        dribble(&mut client, pieces, pause).await;
        std::future::pending::<()>().await;
    };
    let ends = timeout(10 * SECOND, Read(&mut server));
    let ended = tokio::select! {
        ended = ends => ended,
        () = sends => unreachable!(),
    };
    let after = match ended {
        Err(_) => None,
        Ok(ended) => {
            let error = ended.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
            // It stays closed, in both directions.
            let text = error.to_string();
            let again = Read(&mut server).await.unwrap_err();
            assert_eq!(again.to_string(), text);
            assert!(server.write_all(b"late").await.is_err());
            Some(begun.elapsed())
        }
    };
    let stats = listener.connections().stats();
    assert_eq!((stats.open, stats.accepted, stats.ended_early), (1, 1, 0));
    drop(server);
    assert_eq!(listener.connections().stats().open, 0);
    (after, stats)
}

#[track_caller]
fn assert_about(after: Option<Duration>, expected: Duration) {
    let after = after.expect("it stays open");
    let late = after.checked_sub(expected).expect("it is too early");
    assert!(late <= Duration::from_millis(20), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_no_complete_head_in_time_is_closed() {
    let bytes: Vec<&[u8]> = HEAD.chunks(1).collect();
    let settings = [&[PREFACE][..], &[SETTINGS; 40]].concat();
    let cases: [(&[&[u8]], u64); 11] = [
        (&[], 0),
        // Half a head.
        (&[&HEAD[..20]], 10),
        // A byte each tenth of a second.
        (&bytes, 100),
        // Line ends before the request line are none of the head.
        (&[b"\r\n\r\n\n\n"], 10),
        // The preface of HTTP/2, whole and half, and what may follow it.
        (&[PREFACE], 10),
        (&[&PREFACE[..10]], 10),
        (&settings, 100),
        // Fields without an end, and half a frame.
        (&[PREFACE, SETTINGS, &[0, 0, 1, 1, 0, 0, 0, 0, 1, 0x82]], 10),
        (&[PREFACE, SETTINGS, &FIELDS[..9]], 10),
        // A hello of TLS without an end, and a whole one.
        (&[&[22, 3, 1, 0, 200, 1, 0, 0]], 10),
        (&[&[22, 3, 1, 0, 2, 1, 0]], 10),
    ];
    for (pieces, pause) in cases {
        let pause = Duration::from_millis(pause);
        let (after, stats) = closed_after(one_second, pieces, pause).await;
        assert_about(after, SECOND);
        assert_eq!(
            (stats.closed_head_late, stats.closed_idle),
            (1, 0),
            "{pieces:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_server_gets_a_head_of_lines_when_it_is_complete() {
    let clients = Clients::default();
    let mut listener = one_second(&clients).build().unwrap();
    let mut space = [0; 64];
    let soon = Duration::from_millis(100);

    let mut client = clients.connect("192.0.2.1");
    let (mut server, _) = next(&mut listener).await.unwrap();
    client.write_all(&HEAD[..20]).await.unwrap();
    assert!(timeout(soon, server.read(&mut space)).await.is_err());
    // With the beginning of the body, in pieces of any size.
    let rest = [&HEAD[20..], b"body"].concat();
    client.write_all(&rest).await.unwrap();
    let mut all = vec![0; HEAD.len() + 4];
    let (first, others) = all.split_at_mut(3);
    server.read_exact(first).await.unwrap();
    server.read_exact(others).await.unwrap();
    assert_eq!(all, [HEAD, b"body"].concat());
    client.write_all(b"more").await.unwrap();
    server.read_exact(&mut space[..4]).await.unwrap();
    assert_eq!(&space[..4], b"more");

    // The server answers half a head after which nothing comes.
    let mut client = clients.connect("192.0.2.1");
    let (mut server, _) = next(&mut listener).await.unwrap();
    client.write_all(&HEAD[..20]).await.unwrap();
    client.shutdown().await.unwrap();
    let mut half = Vec::new();
    server.read_to_end(&mut half).await.unwrap();
    assert_eq!(half, HEAD[..20]);

    // The clients of these may wait for the server.
    let hello: &[u8] = &[22, 3, 1, 0, 200, 1];
    for bytes in [PREFACE, hello] {
        let mut client = clients.connect("192.0.2.1");
        let (mut server, _) = next(&mut listener).await.unwrap();
        client.write_all(bytes).await.unwrap();
        let count = timeout(soon, server.read(&mut space)).await.unwrap();
        assert_eq!(space[..count.unwrap()], *bytes);
    }
}

#[tokio::test(start_paused = true)]
async fn a_complete_head_is_heard() {
    let parts: Vec<&[u8]> = HEAD.chunks(1).collect();
    let frames = [PREFACE, SETTINGS, FIELDS].concat();
    let frame_parts: Vec<&[u8]> = frames.chunks(1).collect();
    let continued: &[u8] = &[
        0, 0, 1, 1, 0, 0, 0, 0, 1, 0x82, 0, 0, 1, 9, 4, 0, 0, 0, 1, 0x84,
    ];
    let cases: [&[&[u8]]; 8] = [
        &[HEAD],
        &parts,
        &[b"\r\nGET / HTTP/1.1\nhost: a\n\n"],
        &[b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\nhalf"],
        &frame_parts,
        &[PREFACE, SETTINGS, continued],
        // Records of TLS: the client's handshake, and the first of application data.
        &[
            &[22, 3, 1, 0, 2, 1, 0],
            &[20, 3, 3, 0, 1, 1, 23, 3, 3, 0, 2, 7, 7],
        ],
        // What begins as the preface and ends as a head.
        &[b"PRI * HTTP/2.0\r\n\r\nGET"],
    ];
    for pieces in cases {
        let pause = Duration::from_millis(10);
        let (after, stats) = closed_after(one_second, pieces, pause).await;
        assert_eq!(after, None, "{pieces:?}");
        let closed = stats.closed_head_late + stats.closed_head_long + stats.closed_idle;
        assert_eq!(closed, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_of_a_megabyte_is_closed_when_it_is_too_long() {
    let line = [b'x'; 1024];
    let lines = vec![&line[..]; 1024];
    let pause = Duration::from_millis(1);
    let (after, stats) = closed_after(one_second, &lines, pause).await;
    // After 16 pieces the limit is reached.
    assert_about(after, Duration::from_millis(17));
    assert_eq!((stats.closed_head_long, stats.closed_head_late), (1, 0));

    // As long as allowed, with a body in the same piece; and a byte longer.
    for (most, is_closed) in [(HEAD.len(), false), (HEAD.len() - 1, true)] {
        let guarded = |clients: &Clients| one_second(clients).head_at_most(most);
        let bytes = [HEAD, &[b'b'; 4000]].concat();
        let (after, _) = closed_after(guarded, &[&bytes], pause).await;
        assert_eq!(after.is_some(), is_closed);
    }
}

#[tokio::test(start_paused = true)]
async fn silence_is_closed_and_a_byte_ends_it() {
    let guarded = |clients: &Clients| one_second(clients).idle_for(3 * SECOND);
    let (after, stats) = closed_after(guarded, &[HEAD], Duration::from_millis(100)).await;
    assert_about(after, Duration::from_millis(3100));
    assert_eq!((stats.closed_idle, stats.closed_head_late), (1, 0));

    // Bytes of the client, each before the bound is passed.
    let pieces = [HEAD, b"x", b"x", b"x"];
    let (after, _) = closed_after(guarded, &pieces, Duration::from_millis(900)).await;
    assert_about(after, Duration::from_millis(3600 + 3000));

    // It is the shorter bound that closes, also before the first head.
    let guarded = |clients: &Clients| one_second(clients).idle_for(SECOND / 2);
    let (after, stats) = closed_after(guarded, &[], SECOND).await;
    assert_about(after, SECOND / 2);
    assert_eq!((stats.closed_idle, stats.closed_head_late), (1, 0));
}

/// Returns a connection whose first head is complete, with its client.
async fn heard(
    guarded: Guarded<Pipes>,
    clients: &Clients,
) -> (tollgate::listen::GuardedIo<DuplexStream>, DuplexStream) {
    let mut listener = guarded.build().unwrap();
    let mut client = clients.connect("192.0.2.1");
    client.write_all(HEAD).await.unwrap();
    let (mut server, _) = next(&mut listener).await.unwrap();
    let mut head = [0; HEAD.len()];
    server.read_exact(&mut head).await.unwrap();
    assert_eq!(head, HEAD);
    (server, client)
}

/// Writing is no silence while the client reads; once its buffers are full, it is.
#[tokio::test(start_paused = true)]
async fn a_response_that_is_never_read_is_closed() {
    let clients = Clients::default();
    let guarded = clients.listener().idle_for(2 * SECOND);
    let (mut server, mut client) = heard(guarded, &clients).await;
    let begun = Instant::now();
    let writes = async {
        // Long past the bound, but never silent for so long.
        for _ in 0..5 {
            server.write_all(&[0; 1000]).await.unwrap();
            sleep(SECOND).await;
        }
        loop {
            if let Err(error) = server.write_all(&[0; 10_000]).await {
                return error;
            }
        }
    };
    let reads = async {
        client.read_exact(&mut [0; 5000]).await.unwrap();
        std::future::pending::<()>().await;
    };
    let error = tokio::select! {
        error = writes => error,
        () = reads => unreachable!(),
    };
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_about(Some(begun.elapsed()), 7 * SECOND);
}

/// Over HTTP/2, a client with a window of 0 reads no response, and PINGs are no silence: what its
/// call holds comes back after the maximal hold.
#[tokio::test(start_paused = true)]
async fn a_response_over_http2_that_is_never_read_is_held_for_the_maximal_hold() {
    let store = LocalBuilder::new().clock(TokioClock::new()).build();
    let layer = RateLimitLayer::new(InFlight::at_most(1).max_hold(60 * SECOND)).store(store);
    let frames = async || Body::from_stream(stream::iter(["one", "two"].map(Ok::<_, Infallible>)));
    let clients = Clients::default();
    let listener = clients.listener().idle_for(2 * SECOND).build().unwrap();
    let connections = listener.connections().clone();
    let app = Router::new().route("/", get(frames)).layer(layer);
    tokio::spawn(axum::serve(listener, app).into_future());

    let mut client = http2::Builder::new(TokioExecutor::new());
    client
        .timer(TokioTimer::new())
        .initial_stream_window_size(0)
        .keep_alive_interval(SECOND);
    let io = TokioIo::new(clients.connect("192.0.2.1"));
    let (mut sender, connection) = client.handshake(io).await.unwrap();
    tokio::spawn(connection);
    let mut ask = async || {
        let request = Request::get("http://a/")
            .body(Empty::<Bytes>::new())
            .unwrap();
        sender.send_request(request).await.unwrap()
    };
    let unread = ask().await;
    assert_eq!(unread.status(), StatusCode::OK);
    sleep(59 * SECOND).await;
    assert_eq!(ask().await.status(), StatusCode::TOO_MANY_REQUESTS);
    // Rounded up by a sixteenth at most.
    sleep(5 * SECOND).await;
    assert_eq!(ask().await.status(), StatusCode::OK);
    // Nobody has closed the connection.
    assert_eq!(connections.stats().open, 1);
    drop(unread);
}

/// By default, silence ends after ten minutes; it may be allowed for ever.
#[tokio::test(start_paused = true)]
async fn silence_has_a_default_and_may_last_for_days() {
    let clients = Clients::default();
    let begun = Instant::now();
    let (mut server, _client) = heard(one_second(&clients), &clients).await;
    assert!(Read(&mut server).await.is_err());
    assert_about(Some(begun.elapsed()), 600 * SECOND);

    let guarded = one_second(&clients).idle_for(Duration::MAX);
    let (mut server, mut client) = heard(guarded, &clients).await;
    let day = Duration::from_secs(86_400);
    assert!(timeout(10 * day, Read(&mut server)).await.is_err());
    client.write_all(b"GET").await.unwrap();
    assert_eq!(server.read(&mut [0; 10]).await.unwrap(), 3);
    client.shutdown().await.unwrap();
    assert_eq!(server.read(&mut [0; 10]).await.unwrap(), 0);
}

/// One task reads and one writes, as those of a protocol in both directions do: both find out that
/// the time is over, whichever waited last.
#[tokio::test(start_paused = true)]
async fn two_tasks_find_out_that_silence_lasted() {
    for writes_wait in [false, true] {
        let clients = Clients::default();
        let guarded = clients.listener().idle_for(SECOND);
        let (server, mut client) = heard(guarded, &clients).await;
        let begun = Instant::now();
        let (mut reads, mut writes) = tokio::io::split(server);
        let reader = tokio::spawn(async move {
            let error = reads.read_u8().await.unwrap_err();
            (error.kind(), Instant::now())
        });
        let writer = tokio::spawn(async move {
            // More than the pipe holds: it waits until the client reads.
            writes.write_all(&[0; 70_000]).await.unwrap();
            if writes_wait {
                let error = writes.write_all(&[0; 70_000]).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::TimedOut);
            }
            // Then it waits for something else.
            std::future::pending::<()>().await;
        });
        sleep(SECOND / 2).await;
        client.read_exact(&mut [0; 70_000]).await.unwrap();
        let (kind, at) = timeout(10 * SECOND, reader).await.unwrap().unwrap();
        assert_eq!(kind, ErrorKind::TimedOut);
        assert_about(Some(at - begun), SECOND * 3 / 2);
        writer.abort();
    }
}

/// A server that only flushes while it handles a request, as one of HTTP/1 does that has read a
/// byte of the next request, finds out, too.
#[tokio::test(start_paused = true)]
async fn a_server_that_only_flushes_finds_out() {
    let clients = Clients::default();
    let guarded = clients.listener().idle_for(SECOND);
    let (mut server, _client) = heard(guarded, &clients).await;
    let begun = Instant::now();
    let flushes = std::future::poll_fn(|cx| {
        use std::{pin::Pin, task::Poll};
        use tokio::io::AsyncWrite;
        match Pin::new(&mut server).poll_flush(cx) {
            Poll::Ready(Ok(())) => Poll::Pending,
            other => other,
        }
    });
    let ended = timeout(10 * SECOND, flushes).await.unwrap();
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::TimedOut);
    assert_about(Some(begun.elapsed()), SECOND);
}

/// What ends before a request, without a bound, is counted once.
#[tokio::test(start_paused = true)]
async fn what_ends_early_is_counted() {
    let clients = Clients::default();
    let mut listener = one_second(&clients).build().unwrap();
    let mut counts = Vec::new();
    for (bytes, waits) in [
        (&HEAD[..10], false),
        (HEAD, false),
        (HEAD, true),
        (&HEAD[..10], true),
    ] {
        let mut client = clients.connect("192.0.2.1");
        client.write_all(bytes).await.unwrap();
        let (mut server, _) = next(&mut listener).await.unwrap();
        if !waits {
            drop(client);
        }
        let _ = timeout(2 * SECOND, Read(&mut server)).await;
        drop(server);
        let stats = listener.connections().stats();
        counts.push((stats.ended_early, stats.closed_head_late));
    }
    assert_eq!(counts, [(1, 0), (1, 0), (1, 0), (1, 1)]);
}

/// A handshake that never ends, one that fails, and one that panics hold up nobody.
#[tokio::test(start_paused = true)]
async fn a_handshake_holds_up_nobody() {
    let clients = Clients::default();
    let handshake = |mut io: DuplexStream| async move {
        match io.read_u8().await? {
            b'w' => Err(ErrorKind::InvalidData.into()),
            b'p' => std::panic::resume_unwind(Box::new("a handshake that panics")),
            _ => Ok(io),
        }
    };
    let guarded = one_second(&clients).per_client(1).handshake(handshake);
    let mut listener = guarded.build().unwrap();
    let connections = listener.connections().clone();

    let never = clients.connect("192.0.2.1");
    let mut wrong = clients.connect("192.0.2.2");
    let mut panics = clients.connect("192.0.2.3");
    wrong.write_all(b"w").await.unwrap();
    panics.write_all(b"p").await.unwrap();
    let mut later = clients.connect("192.0.2.5");
    let mut right = clients.connect("192.0.2.4");
    right.write_all(b"r").await.unwrap();
    let (right_server, address) = next(&mut listener).await.unwrap();
    assert_eq!(address.ip().to_string(), "192.0.2.4");
    assert!(next(&mut listener).await.is_none());
    let stats = connections.stats();
    assert_eq!(
        (stats.closed_handshake, stats.open, stats.accepted),
        (2, 3, 1)
    );
    // In its task.
    later.write_all(b"p").await.unwrap();
    assert!(next(&mut listener).await.is_none());
    let stats = connections.stats();
    assert_eq!((stats.closed_handshake, stats.open), (3, 2));

    // The time of the first head is counted from the acceptance, so it is over for both.
    sleep(SECOND).await;
    assert!(next(&mut listener).await.is_none());
    let stats = connections.stats();
    assert_eq!((stats.closed_head_late, stats.open), (1, 1));
    let mut right_server = right_server;
    assert!(Read(&mut right_server).await.is_err());
    drop((never, right_server));
    assert_eq!(connections.stats().open, 0);

    // Their addresses hold nothing.
    for address in ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"] {
        let mut client = clients.connect(address);
        client.write_all(b"r").await.unwrap();
        assert!(next(&mut listener).await.is_some(), "{address}");
    }
}

/// Handshakes that go on when the listener is dropped are closed.
#[tokio::test(start_paused = true)]
async fn a_dropped_listener_leaves_nothing_behind() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let (clients, going_on) = (Clients::default(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&going_on);
    let guarded = clients.listener().handshake(move |io: DuplexStream| {
        count.fetch_add(1, Ordering::SeqCst);
        let counted = Counted(Arc::clone(&count));
        async move {
            let _counted = counted;
            std::future::pending::<()>().await;
            Ok(io)
        }
    });
    let mut listener = guarded.build().unwrap();
    let connections = listener.connections().clone();
    let _clients = [(); 5].map(|()| clients.connect("192.0.2.1"));
    assert!(next(&mut listener).await.is_none());
    assert_eq!(
        (connections.stats().open, going_on.load(Ordering::SeqCst)),
        (5, 5)
    );
    drop(listener);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(
        (connections.stats().open, going_on.load(Ordering::SeqCst)),
        (0, 0)
    );
}

/// Errors of the system pause, are counted, and lose no client.
#[tokio::test(start_paused = true)]
async fn errors_of_the_system_pause_and_are_counted() {
    let clients = Clients::default();
    let mut listener = clients.listener().build().unwrap();
    // About one connection: the next is accepted at once.
    clients.fail(ErrorKind::ConnectionAborted);
    let _first = clients.connect("192.0.2.1");
    assert!(next(&mut listener).await.is_some());
    // About the system, such as no file handles.
    for _ in 0..3 {
        clients.fail(ErrorKind::Other);
    }
    let _second = clients.connect("192.0.2.2");
    let begun = Instant::now();
    let accepted = timeout(SECOND, listener.accept()).await;
    assert!(accepted.is_ok() && clients.waiting() == 0);
    assert_about(Some(begun.elapsed()), Duration::from_millis(300));
    assert_eq!(listener.connections().stats().accept_errors, 4);
}
