//! Limits of several routes from a TOML file, whose rules are read again on SIGHUP.
//!
//! `cargo run --features axum,serde --example limits_file -- examples/limits_file/limits.toml`

use std::{collections::BTreeMap, env, error::Error, fs, net::SocketAddr};

use axum::{Router, extract::Request, routing::any};
use tokio::{net::TcpListener, signal::unix};
use tollgate::{BoxLayer, Limit, LiveRule, Policy, prelude::*};

#[cfg(test)]
mod tests;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[derive(serde::Deserialize)]
struct File {
    rules: BTreeMap<String, AnyRule>,
    routes: BTreeMap<String, Vec<String>>,
}

fn read(path: &str) -> Result<File> {
    Ok(toml::from_str(&fs::read_to_string(path)?)?)
}

#[derive(Default)]
struct Limits {
    rules: BTreeMap<String, LiveRule<AnyRule>>,
    routes: BTreeMap<String, BoxLayer<Request, AnyRule>>,
}

impl Limits {
    fn new(file: File) -> Result<Self> {
        let (mut limits, store) = (Self::default(), Local::new().boxed());
        let live = |(name, rule)| (name, LiveRule::new(rule));
        limits.rules = file.rules.into_iter().map(live).collect();
        for (route, names) in file.routes {
            let mut list = Vec::new();
            for name in names {
                let rule = limits.rules.get(&name).ok_or(format!("no rule `{name}`"))?;
                let limit = Limit::try_live(rule)?.policy(Policy::try_new(&name)?);
                list.push(limit.key(PeerIp::new()).boxed());
            }
            let layer = RateLimitLayer::list(list)?.try_store(store.clone())?;
            limits.routes.insert(route, layer);
        }
        Ok(limits)
    }

    /// Takes the rules over. Routes stay as they are, and the store in memory runs any rule.
    fn reload(&self, file: &File) -> Result<()> {
        let new = self.rules.keys().map(|name| file.rules.get(name));
        let new = new.collect::<Option<Vec<_>>>().ok_or("a rule is missing")?;
        let mut changes = self.rules.values().zip(new);
        changes.try_for_each(|(rule, new)| Ok(rule.set(new.clone())?))
    }
}

async fn serve(path: String, listener: TcpListener) -> Result<()> {
    let mut hangups = unix::signal(unix::SignalKind::hangup())?;
    let (limits, mut app) = (Limits::new(read(&path)?)?, Router::new());
    for (route, layer) in &limits.routes {
        app = app.route(route, any(async || "hello\n").layer(layer.clone()));
    }
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            if let Err(error) = read(&path).and_then(|file| limits.reload(&file)) {
                eprintln!("the rules stay as they are: {error}");
            }
        }
    });
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, app).await?)
}

#[tokio::main]
async fn main() -> Result<()> {
    let path = env::args().nth(1).ok_or("expected a TOML file")?;
    serve(path, TcpListener::bind("127.0.0.1:3000").await?).await
}
