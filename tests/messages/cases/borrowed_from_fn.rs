//! A function to be combined with others that returns text of the request, where there may be none.
//~ error[E0277]: a key function cannot return `&str`
//~ of borrowed text `Key::from(text)`

use axum::extract::Request;
use tollgate::key::from_fn;

fn main() {
    let _ = from_fn(|request: &Request| request.uri().query());
}
