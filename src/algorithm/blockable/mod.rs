//! Rules whose keys can be blocked.

#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod blockable;
mod nodes;
mod state;
mod wire;

pub use self::blockable::Blockable;
use self::state::BlockableState;
