//! All figures.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::figure::Figure;
use crate::{
    accuracy::Accuracy, architectures::FleetFigure, contention::ContentionFigure, pacing::Pacing,
    warm_up::WarmUp,
};

/// A figure by its command. To add a figure, add a variant and two lines below.
#[derive(Subcommand)]
pub(crate) enum Drawn {
    /// Draws how well windows count the calls of the last minute
    Accuracy(With<Accuracy>),
    /// Draws the work of clients that race to write one row, and back off
    Contention(With<ContentionFigure>),
    /// Draws how architectures keep a limit on 1 to 200 nodes
    Fleet(Box<With<FleetFigure>>),
    /// Draws how evenly each rule paces a worker
    Pacing(With<Pacing>),
    /// Draws how a cold key warms up, and how it cools
    WarmUp(With<WarmUp>),
}

/// A figure with the flags that all figures have.
#[derive(Args)]
pub(crate) struct With<F: Args> {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    figure: F,
}

/// The flags that all figures have.
#[derive(Args)]
pub(crate) struct Common {
    /// The folder for the CSV and SVG files
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Determines each random number
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

impl Drawn {
    /// Returns the figure of a command.
    pub(crate) fn open(self) -> (Common, Box<dyn Figure>) {
        match self {
            Self::Accuracy(with) => with.open(),
            Self::Contention(with) => with.open(),
            Self::Fleet(with) => with.open(),
            Self::Pacing(with) => with.open(),
            Self::WarmUp(with) => with.open(),
        }
    }

    /// Returns all figures with the defaults of their flags, those that take longest first.
    pub(crate) fn all() -> Vec<Box<dyn Figure>> {
        vec![
            default::<FleetFigure>(),
            default::<Accuracy>(),
            default::<ContentionFigure>(),
            default::<Pacing>(),
            default::<WarmUp>(),
        ]
    }
}

impl<F: Args + Figure + 'static> With<F> {
    fn open(self) -> (Common, Box<dyn Figure>) {
        (self.common, Box::new(self.figure))
    }
}

/// Returns a figure with the defaults of its flags.
fn default<F: Args + Figure + 'static>() -> Box<dyn Figure> {
    let flags = F::augment_args(clap::Command::new("figures"));
    let figure = F::from_arg_matches(&flags.get_matches_from(["figures"]));
    Box::new(figure.unwrap_or_else(|error| error.exit()))
}
