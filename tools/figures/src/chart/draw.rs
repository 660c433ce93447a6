//! Draws a picture by `plotters`.

use std::error::Error;

use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::picture::{Line, Panel, Picture, Series};

const WIDTH: u32 = 960;
const MARGIN: i32 = 20;
const LINE: i32 = 24;
const GREY: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);

/// Paul Tol's muted colours and black, which are distinguishable without color vision.
const COLOURS: [RGBColor; 10] = [
    RGBColor(0x00, 0x00, 0x00),
    RGBColor(0xcc, 0x66, 0x77),
    RGBColor(0x33, 0x22, 0x88),
    RGBColor(0x11, 0x77, 0x33),
    RGBColor(0xdd, 0xaa, 0x33),
    RGBColor(0x88, 0xcc, 0xee),
    RGBColor(0xaa, 0x44, 0x99),
    RGBColor(0x88, 0x88, 0x88),
    RGBColor(0x44, 0xaa, 0x99),
    RGBColor(0x99, 0x99, 0x33),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Returns the picture as SVG.
pub(super) fn draw(picture: &Picture) -> Result<String, Box<dyn Error>> {
    let title = wrapped(&picture.title);
    let top = MARGIN + LINE * title.len() as i32;
    let height = picture.panels.iter().map(|panel| panel.height).sum::<u32>() + top as u32;
    let left = 50 + 8 * picture.panels.iter().map(longest_label).max().unwrap_or(0) as i32;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE)?;
        for (line, y) in title.iter().zip((MARGIN..).step_by(LINE as usize)) {
            area.draw_text(line, &text(19, HPos::Left), (MARGIN, y))?;
        }
        let mut rest = area.split_vertically(top).1;
        for panel in &picture.panels {
            let (here, below) = rest.split_vertically(panel.height);
            draw_panel(&here, panel, left)?;
            rest = below;
        }
        area.present()?;
    }
    Ok(svg)
}

fn draw_panel(area: &Area<'_>, panel: &Panel, left: i32) -> Result<(), Box<dyn Error>> {
    let mut y = LINE / 2;
    if !panel.title.is_empty() {
        area.draw_text(&panel.title, &text(16, HPos::Left), (MARGIN, y))?;
        y += LINE;
    }
    let y = draw_legend(area, y, &panel.series)?;
    let area = area.split_vertically(y).1;
    let (x_axis, y_axis) = (&panel.x, &panel.y);
    let range = y_axis.range();
    let mut chart = ChartBuilder::on(&area)
        .margin_right(MARGIN + 24)
        .margin_left(8)
        .margin_bottom(MARGIN - 8)
        .x_label_area_size(if x_axis.label.is_empty() { 22 } else { 48 })
        .y_label_area_size(left)
        .build_cartesian_2d(x_axis.range(), range)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GREY)
        .x_labels(x_axis.ticks(12))
        .y_labels(y_axis.ticks(panel.height as usize / 50))
        .x_label_formatter(&|position| x_axis.text(*position))
        .y_label_formatter(&|position| y_axis.text(*position))
        .label_style(("sans-serif", 15))
        .axis_desc_style(("sans-serif", 16))
        .x_desc(&x_axis.label)
        .y_desc(&y_axis.label)
        .draw()?;
    for series in &panel.series {
        let style = style(series);
        let points = points(panel, series);
        match series.line {
            Line::Solid | Line::Steps => {
                chart.draw_series(LineSeries::new(points, style))?;
            }
            Line::Dashed => {
                chart.draw_series(DashedLineSeries::new(points, 7, 4, style))?;
            }
            Line::Dotted => {
                chart.draw_series(DashedLineSeries::new(points, 2, 4, style))?;
            }
            Line::Dots => {
                let dot = |point| Circle::new(point, 3, style.filled());
                chart.draw_series(points.into_iter().map(dot))?;
            }
        }
    }
    Ok(())
}

/// Returns the length of the longest label of the vertical axis, about.
fn longest_label(panel: &Panel) -> usize {
    let range = panel.y.range();
    let labels = [range.start, range.end].map(|end| panel.y.text(end).chars().count());
    labels.into_iter().max().unwrap_or(0).min(8)
}

/// Returns the positions of the points on the axes.
fn points(panel: &Panel, series: &Series) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    for (x, y) in &series.points {
        let point = (panel.x.position(*x), panel.y.position(*y));
        if let Some((_, before)) = points.last().filter(|_| series.line == Line::Steps) {
            points.push((point.0, *before));
        }
        points.push(point);
    }
    points
}

/// Draws the names of the series in rows. Returns where the last row ends.
fn draw_legend(area: &Area<'_>, mut y: i32, series: &[Series]) -> Result<i32, Box<dyn Error>> {
    let named = || series.iter().filter(|series| !series.name.is_empty());
    if named().next().is_none() {
        return Ok(y);
    }
    let mut x = MARGIN;
    for series in named() {
        let width = 60 + 8 * series.name.chars().count() as i32;
        if x > MARGIN && x + width > WIDTH as i32 {
            (x, y) = (MARGIN, y + LINE);
        }
        let style = style(series);
        match series.line {
            Line::Dots => area.draw(&Circle::new((x + 14, y), 4, style.filled()))?,
            Line::Dashed => {
                for from in [x, x + 11, x + 22] {
                    area.draw(&PathElement::new([(from, y), (from + 7, y)], style))?;
                }
            }
            Line::Dotted => {
                for from in (x..x + 28).step_by(6) {
                    area.draw(&PathElement::new([(from, y), (from + 2, y)], style))?;
                }
            }
            Line::Solid | Line::Steps => {
                area.draw(&PathElement::new([(x, y), (x + 28, y)], style))?;
            }
        }
        area.draw_text(&series.name, &text(15, HPos::Left), (x + 36, y))?;
        x += width;
    }
    Ok(y + LINE)
}

fn style(series: &Series) -> ShapeStyle {
    COLOURS[series.colour % COLOURS.len()].stroke_width(2)
}

/// Returns a style for text that is vertically centered on its point.
fn text(size: i32, side: HPos) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", size).into_font()).pos(Pos::new(side, VPos::Center))
}

/// Wraps a title between words into lines that fit.
fn wrapped(title: &str) -> Vec<String> {
    const MOST: usize = 100;
    let mut lines: Vec<String> = Vec::new();
    for word in title.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= MOST => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
