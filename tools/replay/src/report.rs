//! The report on an access log.

use std::io::{self, Write};

use crate::{
    calendar::Utc,
    comparison::{ComparedRule, Comparison},
    numbers::{Grouped, Share, Span},
    tally::{Tallies, Tally, Waits},
};

/// The data of a report.
pub(crate) struct Report<'a> {
    pub(crate) rule: &'a str,
    /// The kind of key, as a word.
    pub(crate) key: &'a str,
    pub(crate) lines: u64,
    pub(crate) malformed: u64,
    pub(crate) without_key: u64,
    pub(crate) turned_away: u64,
    pub(crate) tallies: &'a Tallies,
    /// The number of keys to list.
    pub(crate) top: usize,
    /// The other rule, and the comparison with it.
    pub(crate) compared: Option<(&'a str, &'a Comparison)>,
}

impl Report<'_> {
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let Tallies {
            total, unlisted, ..
        } = self.tallies;
        writeln!(out, "{}, for each {}\n", self.rule, self.key)?;
        columns(out, "<>><", &self.totals())?;
        let refused = self.tallies.refused();
        let named = &refused[..self.top.min(refused.len())];
        if !named.is_empty() {
            let count = match (named.len(), refused.len()) {
                (1, 1) => "1 key".to_owned(),
                (some, all) if some < all => {
                    format!("{some} of {} keys", Grouped(all as u128))
                }
                (_, all) => format!("{all} keys"),
            };
            writeln!(out, "\nWho would have been refused: {count}\n")?;
            self.name(out, named)?;
        }
        if *unlisted > 0 {
            let unlisted = Grouped((*unlisted).into());
            writeln!(
                out,
                "\n{unlisted} more refusals were of keys that there was no room for; a larger --keys \
                 would name them."
            )?;
        }
        if total.refused > 0 {
            let Waits { together, longest } = total.retries;
            writeln!(
                out,
                "\nClients that come again when they are told to would have waited {} in all, at most {} \
                 at a time.",
                Span(together),
                Span(longest.as_nanos())
            )?;
        }
        if total.delayed > 0 {
            let Waits { together, longest } = total.delays;
            writeln!(
                out,
                "\nDelayed requests would have waited {} in all, at most {} at a time.",
                Span(together),
                Span(longest.as_nanos())
            )?;
        }
        if let Some((other, comparison)) = self.compared {
            writeln!(out, "\nCompared with {other}, each rule as if alone\n")?;
            columns(out, "<>>>>", &comparison_rows(comparison))?;
        }
        Ok(())
    }

    fn totals(&self) -> Vec<Vec<String>> {
        let total = &self.tallies.total;
        let row = |name: &str, count: u64, share: &str, note: &str| {
            let count = Grouped(count.into()).to_string();
            [name, &count, share, note].map(str::to_owned).to_vec()
        };
        let share = |part| Share(part, total.requests()).to_string();
        let mut rows = vec![
            row("lines", self.lines, "", ""),
            row("admitted", total.admitted, &share(total.admitted), ""),
            row("delayed", total.delayed, &share(total.delayed), ""),
            row("refused", total.refused, &share(total.refused), ""),
        ];
        if self.turned_away > 0 {
            let note = "of the refused, for lack of room: a larger --keys would decide them";
            rows.push(row("turned away", self.turned_away, "", note));
        }
        if self.without_key > 0 {
            rows.push(row("without a key", self.without_key, "", "not decided"));
        }
        if self.malformed > 0 {
            rows.push(row("malformed", self.malformed, "", "skipped"));
        }
        rows
    }

    /// Writes a line for each key.
    fn name(&self, out: &mut impl Write, keys: &[(&[u8], &Tally)]) -> io::Result<()> {
        let delays = self.tallies.total.delayed > 0;
        let mut head = vec!["refused", "admitted"];
        if delays {
            head.push("delayed");
        }
        head.extend([
            "first refusal",
            "last refusal",
            "longest wait",
            "waits in all",
            self.key,
        ]);
        let mut rows = vec![head.into_iter().map(str::to_owned).collect()];
        for (key, tally) in keys {
            let mut row = vec![
                Grouped(tally.refused.into()).to_string(),
                Grouped(tally.admitted.into()).to_string(),
            ];
            if delays {
                row.push(Grouped(tally.delayed.into()).to_string());
            }
            let (first, last) = tally.refusals.unwrap_or_default();
            row.extend([
                Utc(first).to_string(),
                Utc(last).to_string(),
                Span(tally.retries.longest.as_nanos()).to_string(),
                Span(tally.retries.together).to_string(),
                // A log contains what clients sent, so control characters are escaped.
                String::from_utf8_lossy(key).escape_debug().to_string(),
            ]);
            rows.push(row);
        }
        columns(out, if delays { ">>><<>><" } else { ">><<>><" }, &rows)
    }
}

/// Returns a line for each count, with both rules side by side.
fn comparison_rows(comparison: &Comparison) -> Vec<Vec<String>> {
    let rules = comparison.rules();
    let requests = |rule: &ComparedRule| rule.admitted + rule.delayed + rule.refused;
    let row = |name: &str, cells: [[String; 2]; 2]| {
        let mut row = vec![name.to_owned()];
        row.extend(cells.into_iter().flatten());
        row
    };
    let of = |name, count: fn(&ComparedRule) -> u64| {
        let cells = rules.each_ref().map(|rule| {
            let count = count(rule);
            [
                Grouped(count.into()).to_string(),
                Share(count, requests(rule)).to_string(),
            ]
        });
        row(name, cells)
    };
    let without_share = |name, counts: [u64; 2], least: &str| {
        let cell = |count: u64| [format!("{least}{}", Grouped(count.into())), String::new()];
        row(name, counts.map(cell))
    };
    let least = if comparison.has_all_keys() {
        ""
    } else {
        "at least "
    };
    let keys = rules.map(|rule| rule.refused_keys);
    let names = ["--rule", "--compare"].map(|name| [name.to_owned(), String::new()]);
    let mut rows = vec![
        row("", names),
        of("admitted", |rule| rule.admitted),
        of("delayed", |rule| rule.delayed),
        of("refused", |rule| rule.refused),
        of("refused, but not by the other", |rule| rule.refused_alone),
        without_share("keys refused at least once", keys, least),
    ];
    let turned_away = comparison.turned_away();
    if turned_away != [0; 2] {
        rows.push(without_share("turned away", turned_away, ""));
    }
    rows
}

/// Writes rows as aligned columns: `<` for left, `>` for right.
pub(crate) fn columns(out: &mut impl Write, sides: &str, rows: &[Vec<String>]) -> io::Result<()> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<_> = (0..sides.len()).map(|at| width(at).unwrap_or(0)).collect();
    for row in rows {
        let mut line = String::new();
        for ((cell, side), width) in row.iter().zip(sides.chars()).zip(&widths) {
            line += "  ";
            line += &match side {
                '<' => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            };
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
