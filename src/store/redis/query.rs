//! One command to one server.

use std::sync::Arc;

use redis::{Cmd, RedisResult, Value, aio::MultiplexedConnection};

/// The reply of a server.
pub(super) type Reply = RedisResult<Vec<u8>>;

/// A command for one server.
#[derive(Clone)]
pub(super) struct Query {
    pub(super) command: Arc<Cmd>,
    /// `true` after an `ASK` redirection: the slot of the key is migrating to that server.
    pub(super) asking: bool,
}

impl Query {
    pub(super) fn new(command: Arc<Cmd>) -> Self {
        Self {
            command,
            asking: false,
        }
    }

    pub(super) async fn run(self, mut connection: MultiplexedConnection) -> Reply {
        if !self.asking {
            return self.command.query_async(&mut connection).await;
        }
        // In one pipeline: `ASKING` applies to the next command of the connection, which many calls share.
        let mut both = redis::pipe();
        both.cmd("ASKING").add_command((*self.command).clone());
        let both: Vec<RedisResult<Value>> =
            both.ignore_errors().query_async(&mut connection).await?;
        let mut last = Ok(Value::Nil);
        for reply in both {
            last = reply;
            if last.is_err() {
                break;
            }
        }
        Ok(redis::from_redis_value(last?)?)
    }
}
