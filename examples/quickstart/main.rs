//! An axum server with a rate limit chosen on the command line, and a demo of it.
//!
//! ```text
//! cargo run --features axum --example quickstart -- --demo
//! cargo run --features axum --example quickstart -- --rule "token-bucket 2/1s burst=2"
//! cargo run --features axum,config --example quickstart -- --config limits.toml
//! cargo run --features axum,redis --example quickstart -- --store redis://127.0.0.1:6379
//! cargo run --features axum,redis --example quickstart -- --store redis://127.0.0.1:6379 --lease 100ms --rule "token-bucket 1000/1s"
//! cargo run --features axum,memcached --example quickstart -- --store memcached://127.0.0.1:11211
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `routes.rs` | the limit, and the routes behind it: read this first |
//! | `file.rs` | limits from a file, `--config` and `--check` |
//! | `store.rs` | stores shared by several servers, and their failures |
//! | `handover.rs` | what the store must get before the server ends |
//! | `main.rs` | the server |
//! | `flags/` | the command line |
//! | `demo/` | a client that shows the limit at work |
#![cfg_attr(
    not(any(feature = "redis", feature = "memcached")),
    allow(dead_code, reason = "used by stores that are not built")
)]

mod demo;
#[cfg(feature = "config")]
mod file;
mod flags;
mod handover;
mod routes;
mod store;

use std::{
    env,
    error::Error,
    future::{IntoFuture, pending},
    io::{self, ErrorKind, Write},
    net::SocketAddr,
    pin::pin,
    process::ExitCode,
    time::Duration,
};

use axum::extract::connect_info::IntoMakeServiceWithConnectInfo;
use tokio::{net::TcpListener, signal, sync::oneshot, time::timeout};

use crate::{
    flags::{Args, Command},
    handover::Handover,
};

/// The longest time that requests have to end after a signal.
const FOR_REQUESTS: Duration = Duration::from_secs(10);
/// The longest time for the units that the store must get afterwards.
const FOR_THE_STORE: Duration = Duration::from_secs(2);

type App = IntoMakeServiceWithConnectInfo<axum::Router, SocketAddr>;

#[tokio::main]
async fn main() -> ExitCode {
    let result = match Command::parse(env::args_os().skip(1)) {
        Ok(Command::Help) => write!(io::stdout(), "{}", flags::HELP).map_err(Into::into),
        Ok(Command::Serve(args)) => serve(&args).await,
        Ok(Command::Demo(args)) => demo(&args).await,
        Ok(Command::Check(args)) => match check(&args).await {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Err(sentence) => {
            eprintln!("quickstart: {sentence}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader closed the output, as in `--demo | head`.
        Err(error) if is_broken_pipe(&*error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quickstart: {error}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// A server that is bound, and what it must do before it ends.
struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    app: App,
    handover: Handover,
}

async fn bind(args: &Args) -> Result<Bound, Box<dyn Error>> {
    let (store, handover) = store::open(args).await?;
    let listener = TcpListener::bind(args.listen).await.map_err(|error| {
        let listen = args.listen;
        match error.kind() {
            ErrorKind::AddrInUse => format!(
                "{listen} is in use already: stop what listens there, or choose another address, \
                 as in --listen 127.0.0.1:0"
            ),
            _ => {
                format!("cannot listen on {listen}: {error}; choose another address with --listen")
            }
        }
    })?;
    let address = listener.local_addr()?;
    let app = match &args.config {
        #[cfg(feature = "config")]
        Some(file) => file::app(args, file, store)?,
        _ => routes::app(args, store)?,
    };
    Ok(Bound {
        listener,
        address,
        // The limit reads the client's address from the connect info.
        app: app.into_make_service_with_connect_info::<SocketAddr>(),
        handover,
    })
}

async fn serve(args: &Args) -> Result<(), Box<dyn Error>> {
    let Bound {
        listener,
        address,
        app,
        handover,
    } = bind(args).await?;
    let header = match flags::example_header(&args.key) {
        Some((name, value)) => format!("-H '{name}: {}' ", value.to_str()?),
        None => String::new(),
    };
    let url = format!("http://{address}");
    let mut out = io::stdout();
    writeln!(out, "listening on {url}")?;
    let (rule, key, store) = (&args.rule, &args.key, &args.store);
    match &args.config {
        Some(file) => writeln!(out, "the limits of {file} in --store {store}; try\n")?,
        None => writeln!(out, "{rule} for --key \"{key}\" in --store {store}; try\n")?,
    }
    writeln!(out, "  curl -i {header}{url}/")?;
    writeln!(out, "  curl {header}{url}/decision")?;
    writeln!(
        out,
        "  for i in 1 2 3 4 5 6 7; do curl -s -o /dev/null -w '%{{http_code}} ' {header}{url}/; done\n"
    )?;
    let (stop, stopped) = oneshot::channel::<()>();
    let server = axum::serve(listener, app).with_graceful_shutdown(async {
        let _ = stopped.await;
    });
    let mut server = pin!(server.into_future());
    tokio::select! {
        ended = &mut server => return Ok(ended?),
        () = interrupted() => drop(stop),
    }
    match timeout(FOR_REQUESTS, server).await {
        Ok(ended) => ended?,
        Err(_) => eprintln!("quickstart: some requests did not end within {FOR_REQUESTS:?}"),
    }
    hand_over(handover).await;
    Ok(writeln!(out, "stopped")?)
}

/// Waits for Ctrl-C or SIGTERM. A second one ends the program at once.
async fn interrupted() {
    signalled().await;
    eprintln!("finishing what is under way; Ctrl-C again ends at once");
    tokio::spawn(async {
        signalled().await;
        std::process::exit(130);
    });
}

async fn signalled() {
    #[cfg(unix)]
    let terminated = async {
        match signal::unix::signal(signal::unix::SignalKind::terminate()) {
            Ok(mut terminate) => drop(terminate.recv().await),
            // No handler could be installed, so the signal ends the program.
            Err(_) => pending().await,
        }
    };
    #[cfg(not(unix))]
    let terminated = pending::<()>();
    let interrupted = async {
        if signal::ctrl_c().await.is_err() {
            pending::<()>().await;
        }
    };
    tokio::select! {
        () = terminated => {}
        () = interrupted => {}
    }
}

async fn hand_over(handover: Handover) {
    if let Some(missing) = handover.run(FOR_THE_STORE).await {
        eprintln!("quickstart: {missing}");
    }
}

/// Shows the mistakes and warnings of a file, and returns the status to exit with.
async fn check(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    #[cfg(feature = "config")]
    if let Some(file) = &args.config {
        let (store, _) = store::open(args).await?;
        return file::check(file, store);
    }
    #[cfg(not(feature = "config"))]
    let _ = args;
    Err("there is no file to check".into())
}

async fn demo(args: &Args) -> Result<(), Box<dyn Error>> {
    let Bound {
        listener,
        address,
        app,
        handover,
    } = bind(args).await?;
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    let result = demo::run(address, args, &mut io::stdout()).await;
    server.abort();
    hand_over(handover).await;
    result
}
