//! Words for the operator in a body for clients.

use tollgate::respond::Http;

fn main() {
    let _ = Http::body(|refusal, _| match refusal.help() {
        Some(help) => format!("{help}"),
        None => refusal.to_string(),
    });
}
