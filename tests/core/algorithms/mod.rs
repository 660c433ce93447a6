//! Every algorithm: the laws that all obey, and a comparison with an oracle in rational arithmetic,
//! written in the slow obvious way.

mod answer;
mod block;
mod cascade;
mod fixed_window;
mod kinds;
mod laws;
mod leaky_bucket;
mod several;
mod sliding_log;
mod sliding_window;
mod spelling;
mod text;
mod three_color;
mod timeline;
mod token_bucket;
mod warm_up;
mod warm_up_spaced;
mod warm_ups;
