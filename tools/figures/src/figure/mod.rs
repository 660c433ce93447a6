//! The seams of figures: what a figure is, what it makes, and how that is written.
//!
//! | file | contents |
//! |---|---|
//! | `figure` | the trait of figures |
//! | `products` | the files that a figure makes |
//! | `table` | rows as CSV |
//! | `folder` | writes files whole or not at all |
//! | `progress` | the progress bar |
//! | `list` | all figures |
//! | `parallel` | does work on all cores |

#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod figure;
mod folder;
mod list;
mod parallel;
mod products;
mod progress;
mod table;

pub(crate) use self::{
    figure::Figure,
    folder::Folder,
    list::{Common, Drawn},
    parallel::in_parallel,
    products::Products,
    progress::{Bar, Progress},
    table::{Table, decimal, parts},
};
