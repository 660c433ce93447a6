//! Introspection of bearer tokens: the cache against a model, the endpoint against a real HTTP
//! server that fails in many ways.

mod answers;
mod bounds;
mod end_to_end;
mod endpoint;
mod flights;
mod model;
mod secrets;
mod server;
mod subject;
