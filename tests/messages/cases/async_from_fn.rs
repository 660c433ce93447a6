//! A key function to be combined with others that awaits.
//~ error[E0277]: a key function cannot return `{async closure body@cases/async_from_fn.rs:
//~ an `async` function returns none of them: await in an outer layer

use axum::extract::Request;
use tollgate::key::{Key, from_fn};

fn main() {
    let _ = from_fn(async |request: &Request| Key::from(request.uri().path()));
}
