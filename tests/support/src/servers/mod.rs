//! Real servers for tests and benchmarks. They run on free ports of the loopback, and end when
//! their handles are dropped.
//!
//! All functions block the calling thread, and panic if the expected state is not reached in time.
//! Handles are `Send + Sync` and take `&self`: concurrent work runs on another thread
//! (`tokio::task::spawn_blocking`, or a runtime with several threads).
//!
//! Programs are looked up on the `PATH`. `test.sh` installs missing ones, and puts a Valkey into
//! `target/servers/`.
#![allow(clippy::disallowed_methods, reason = "servers live in real time")]

mod cluster;
mod dynalite;
mod etcd;
mod haproxy;
mod memcached;
mod place;
mod process;
mod proxy;
mod redis;
mod resp;
mod sentinel;
mod tls;
mod wait;

pub use cluster::{Cluster, Migration};
pub use dynalite::Dynalite;
pub use etcd::Etcd;
pub use haproxy::Haproxy;
pub use memcached::{Memcached, MemcachedOptions};
pub use place::{client, free_port, required};
pub use process::Server;
pub use proxy::{Flow, Proxy};
pub use redis::{Redis, RedisOptions};
pub use resp::{Reply, Resp};
pub use sentinel::Sentinel;
pub use tls::Tls;
pub use wait::{idle_wakeup, in_time, slack_since, wait_until, watch_this_runtime};
