//! Words for the operator in a body for clients.
//~ error[E0277]: `OperatorHelp` doesn't implement `std::fmt::Display`
//~ `OperatorHelp` doesn't implement `std::fmt::Display`

use tollgate::respond::Http;

fn main() {
    let _ = Http::body(|refusal, _| match refusal.help() {
        Some(help) => format!("{help}"),
        None => refusal.to_string(),
    });
}
