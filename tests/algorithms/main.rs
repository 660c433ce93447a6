//! Every algorithm: the laws that all keep, and a comparison with its own oracle in rational arithmetic, written the
//! slow obvious way.

mod answer;
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
