//! The libraries that are compared, each in a file.

mod governor;
#[allow(clippy::module_inception)]
mod library;
mod limitador;
mod rate_net;
mod throttle_net;
mod tollgate;
mod tower_governor;
mod tower_limit;
mod tower_rate_limiter;

pub use self::library::{Both, Budget, Library, Live, Mocked, Rule, Shared};

/// In the order of the table.
pub const ALL: [&dyn Library; 8] = [
    &tollgate::Tollgate,
    &governor::Governor,
    &tower_governor::TowerGovernor,
    &rate_net::RateNet,
    &tower_limit::TowerLimit,
    &tower_rate_limiter::TowerRateLimiter,
    &limitador::Limitador,
    &throttle_net::ThrottleNet,
];
