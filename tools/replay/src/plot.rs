//! Draws requests over time: admitted, delayed and refused ones on top of each other.

use std::{error::Error, fs, path::Path};

use plotters::{
    coord::{Shift, ranged1d::Ranged},
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use crate::{
    axis::Axis,
    numbers::{Grouped, Span},
    timeline::{Bars, Timeline},
};

const SIZE: (u32, u32) = (960, 480);
const MARGIN: i32 = 24;
const LINE: i32 = 26;
const GREY: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);
const MOST_BARS: u64 = 160;

/// The series from the bottom up, in Paul Tol's high-contrast colors, which are distinguishable
/// without color vision and in grey.
const SERIES: [(&str, RGBColor); 3] = [
    ("admitted", RGBColor(0x00, 0x44, 0x88)),
    ("delayed", RGBColor(0xdd, 0xaa, 0x33)),
    ("refused", RGBColor(0xbb, 0x55, 0x66)),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Writes the picture to a file, or returns a sentence that says why it could not.
pub(crate) fn draw(path: &Path, title: &str, timeline: &Timeline) -> Result<(), String> {
    let svg = picture(title, timeline).map_err(|error| format!("cannot draw: {error}"))?;
    fs::write(path, svg).map_err(|error| {
        format!(
            "cannot write {}: {error}; choose another file with --plot",
            path.display()
        )
    })
}

fn picture(title: &str, timeline: &Timeline) -> Result<String, Box<dyn Error>> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut y = MARGIN;
        for line in wrapped(title) {
            area.draw_text(&line, &text(20, HPos::Left), (MARGIN, y))?;
            y += LINE;
        }
        match timeline.bars(MOST_BARS) {
            None => area.draw_text("no requests", &text(16, HPos::Left), (MARGIN, y))?,
            Some(bars) => {
                draw_legend(&area, y, &bars)?;
                draw_bars(&area.split_vertically(y + LINE / 2).1, &bars)?;
            }
        }
        area.present()?;
    }
    Ok(svg)
}

/// Returns a style for text that is vertically centered on its point.
fn text(size: i32, side: HPos) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", size).into_font()).pos(Pos::new(side, VPos::Center))
}

/// Wraps a title between words into lines that fit.
fn wrapped(title: &str) -> Vec<String> {
    const WIDTH: usize = 96;
    let mut lines: Vec<String> = Vec::new();
    for word in title.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Draws the names of the series and their numbers of requests, in a row.
fn draw_legend(area: &Area<'_>, y: i32, bars: &Bars) -> Result<(), Box<dyn Error>> {
    const CELL: usize = 240;
    for (index, (name, colour)) in SERIES.iter().enumerate() {
        let x = MARGIN + (index * CELL) as i32;
        let count: u64 = bars.counts.iter().map(|counts| counts[index]).sum();
        area.draw(&Rectangle::new(
            [(x, y - 6), (x + 14, y + 8)],
            colour.filled(),
        ))?;
        let label = format!("{name} {}", Grouped(count.into()));
        area.draw_text(&label, &text(17, HPos::Left), (x + 22, y))?;
    }
    Ok(())
}

fn draw_bars(area: &Area<'_>, bars: &Bars) -> Result<(), Box<dyn Error>> {
    let end = bars.begin + bars.width * bars.counts.len() as u64;
    let time = Axis::of_time(bars.begin, end);
    let highest = bars.counts.iter().map(|counts| counts.iter().sum()).max();
    let count = Axis::of_counts(highest.unwrap_or(0));
    let label = |count: u64| Grouped(count.into()).to_string();
    let longest_label = label(count.range().end).len() as i32;
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_top(16)
        .margin_right(MARGIN + 24)
        .x_label_area_size(56)
        .y_label_area_size(44 + 8 * longest_label)
        .build_cartesian_2d(time.clone(), count)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GREY)
        .x_label_formatter(&|nanos| time.time_label(*nanos))
        .y_label_formatter(&|count| label(*count))
        .label_style(("sans-serif", 16))
        .axis_desc_style(("sans-serif", 17))
        .x_desc(time.time_name())
        .y_desc(format!("requests per {}", Span(bars.width.into())))
        .draw()?;
    let (first, width) = (bars.begin, bars.width);
    for (index, (_, colour)) in SERIES.iter().enumerate() {
        let bars = (0..).zip(&bars.counts);
        let bars = bars.filter(|(_, counts)| counts[index] > 0);
        chart.draw_series(bars.map(|(number, counts)| {
            let begin = first + number * width;
            let bottom: u64 = counts[..index].iter().sum();
            let corners = [(begin, bottom), (begin + width, bottom + counts[index])];
            Rectangle::new(corners, colour.filled())
        }))?;
    }
    Ok(())
}
