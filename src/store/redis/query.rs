//! One command to one server.

use std::sync::Arc;

use redis::{Arg, Cmd, RedisResult, Value, aio::MultiplexedConnection};

/// The reply of a server.
pub(super) type Reply = RedisResult<Vec<u8>>;

/// A command for one server.
#[derive(Clone)]
pub(super) struct Query {
    pub(super) command: Arc<Cmd>,
    /// `true` after an `ASK` redirection: the slot of the key is migrating to that server.
    pub(super) asking: bool,
    /// `true` if only the first key of the script may be declared.
    pub(super) declares_one: bool,
}

impl Query {
    pub(super) fn new(command: Arc<Cmd>) -> Self {
        Self {
            command,
            asking: false,
            declares_one: false,
        }
    }

    /// Returns the command of the server.
    fn command(&self) -> Cmd {
        if self.declares_one {
            with_one_key(&self.command)
        } else {
            (*self.command).clone()
        }
    }

    pub(super) async fn run(self, mut connection: MultiplexedConnection) -> Reply {
        if !self.asking {
            return self.command.query_async(&mut connection).await;
        }
        // In one pipeline: `ASKING` applies to the next command of the connection, which many calls share.
        let mut both = redis::pipe();
        both.cmd("ASKING").add_command(self.command());
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

/// Returns `EVALSHA script 1 key argument key…` of `EVALSHA script n key… argument`: the scripts take keys that are not declared as further
/// arguments.
fn with_one_key(command: &Cmd) -> Cmd {
    let arguments: Vec<&[u8]> = command
        .args_iter()
        .filter_map(|argument| match argument {
            Arg::Simple(bytes) => Some(bytes),
            _ => None,
        })
        .collect();
    let [name, script, _, first, keys @ .., argument] = &arguments[..] else {
        return command.clone();
    };
    let mut one = Cmd::new();
    one.arg(name).arg(script).arg(1).arg(first).arg(argument);
    keys.iter().for_each(|key| {
        one.arg(key);
    });
    one
}
