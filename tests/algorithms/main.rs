//! Every algorithm: the laws that all keep, and each against an oracle of its own in rational arithmetic,
//! written the slow obvious way.

mod cascade;
mod fixed_window;
mod kinds;
mod laws;
mod leaky_bucket;
#[path = "../common/rate.rs"]
mod rate;
mod several;
mod sliding_log;
mod sliding_window;
mod spelling;
mod text;
mod three_color;
mod token_bucket;
mod warm_up;
mod warm_up_spaced;
mod warm_ups;
