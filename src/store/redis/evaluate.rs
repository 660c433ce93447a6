//! Runs the scripts over a connection to Redis.

use std::sync::OnceLock;

use redis::Cmd;

use super::{RedisConnection, error, hash_slot::hash_slot};
use crate::store::{Error, Evaluate, Program};

impl RedisConnection {
    /// Returns the hash slot of a key; 0 outside of a cluster.
    fn slot(&self, key: &[u8]) -> u16 {
        if self.transport.is_cluster() {
            hash_slot(key)
        } else {
            0
        }
    }
}

impl Evaluate for RedisConnection {
    fn group(&self, key: &[u8]) -> u32 {
        u32::from(self.slot(key))
    }

    fn shard(&self, key: &dyn Fn() -> Box<[u8]>) -> u32 {
        self.transport.shard(|| hash_slot(&key()))
    }

    async fn evaluate(
        &self,
        program: Program,
        keys: Vec<Box<[u8]>>,
        argument: Vec<u8>,
    ) -> Result<Vec<u8>, Error> {
        let command = |name: &str, script: &str| {
            let data = keys.iter().map(|key| key.len()).sum::<usize>() + argument.len();
            let mut command = Cmd::with_capacity(keys.len() + 4, script.len() + data + 16);
            command.arg(name).arg(script).arg(keys.len());
            for key in &keys {
                command.arg(&key[..]);
            }
            command.arg(&argument[..]);
            command
        };
        let slot = keys.first().map_or(0, |key| self.slot(key));
        let by_digest = command("EVALSHA", digest(program));
        match self.transport.query(slot, by_digest).await? {
            // A server that restarted, or whose scripts were flushed: `EVAL` loads the script as well.
            Err(error) if error.code() == Some("NOSCRIPT") => {
                let with_source = command("EVAL", program.source());
                Box::pin(self.transport.query(slot, with_source)).await?
            }
            reply => reply,
        }
        .map_err(error::store_error)
    }

    fn unwritten(&self, why: &str) -> Error {
        let error = error::write_error(why);
        if error::ends_connection(&error) {
            self.transport.give_up();
        }
        error::unwritten(error)
    }

    fn address(&self) -> Option<&str> {
        self.address.as_deref()
    }
}

/// Returns the SHA-1 digest by which a server identifies a script.
fn digest(program: Program) -> &'static str {
    static DIGESTS: [OnceLock<String>; Program::ALL.len()] =
        [const { OnceLock::new() }; Program::ALL.len()];
    DIGESTS[program.place()].get_or_init(|| {
        let script = redis::Script::new(program.source());
        script.get_hash().to_owned()
    })
}
