//! Draws one second of requests as a bar.

use std::{env, io::IsTerminal};

pub(crate) struct Chart {
    /// The requests in a full bar.
    full: u64,
    colours: bool,
}

/// The maximum width of a bar on the screen.
const WIDTH: u64 = 36;
const GREEN: u8 = 32;
const RED: u8 = 31;
const BOLD: u8 = 1;

/// Returns `true` if rows may be overwritten, which is never the case in a file or a pipe.
pub(crate) fn is_live() -> bool {
    std::io::stdout().is_terminal() && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

impl Chart {
    pub(crate) fn of(full: u64) -> Self {
        // Any non-empty value disables colours, see no-color.org.
        let unwanted = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            full,
            colours: is_live() && !unwanted,
        }
    }

    pub(crate) fn legend(&self) -> String {
        let (admitted, refused) = (
            self.paint(GREEN, "█ admitted"),
            self.paint(RED, "░ refused"),
        );
        format!("{admitted}   {refused}")
    }

    pub(crate) fn heading(&self, text: &str) -> String {
        self.paint(BOLD, text)
    }

    pub(crate) fn row(&self, second: u64, admitted: u64, refused: u64) -> String {
        let (done, not) = (self.length(admitted), self.length(refused));
        let bar = |cell: &str, length| cell.repeat(usize::try_from(length).unwrap_or(0));
        format!(
            "{second:>4} s  {}{}{}  {admitted:>4} admitted {refused:>5} refused",
            self.paint(GREEN, &bar("█", done)),
            self.paint(RED, &bar("░", not)),
            bar(" ", self.length(self.full).saturating_sub(done + not)),
        )
    }

    /// The length of a bar: a whole number of cells for each request, or a share of the width.
    fn length(&self, requests: u64) -> u64 {
        if self.full <= WIDTH {
            requests * (WIDTH / self.full)
        } else {
            (requests * WIDTH / self.full).max(requests.min(1))
        }
    }

    fn paint(&self, colour: u8, text: &str) -> String {
        if self.colours && !text.is_empty() {
            format!("\x1b[{colour}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}
