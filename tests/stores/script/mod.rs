//! The scripts without a server: in an interpreter that counts what they do.

mod interpreter;
mod work;
