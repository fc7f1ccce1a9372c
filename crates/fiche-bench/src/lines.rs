//! Plots with axes that begin at zero: values over something, and bars.

use std::fmt::Write;

use crate::plot::{COLORS, escape};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 56.0;

/// Values of one thing.
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// How the points of a line are shown.
#[derive(Clone, Copy, PartialEq)]
pub enum Shown {
    Line,
    Dots,
}

/// A step of an axis that leads to so much, such that there are some five.
fn step(most: f64) -> f64 {
    let power = 10f64.powf((most.max(1e-9) / 5.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|n| n * power)
        .into_iter()
        .find(|step| most <= 5.5 * step)
        .unwrap_or(power)
}

/// Title and axes; `lower` are the marks below, at shares of the width.
fn frame(title: &str, across: &str, what: &str, most: f64, lower: &[(f64, String)]) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n<text x=\"{LEFT}\" y=\"24\" font-size=\"15\">{}</text>\n",
        escape(title)
    );
    let (bottom, end) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    let step = step(most);
    for i in 0..=(most / step).ceil() as u32 {
        let value = step * f64::from(i);
        let at = y(value, most);
        let _ = writeln!(svg, "<path d=\"M{LEFT} {at:.1}H{end}\" stroke=\"#e3e3e3\"/>");
        let (before, middle) = (LEFT - 8.0, at + 4.0);
        let shown = (value * 1000.0).round() / 1000.0;
        let _ = writeln!(
            svg,
            "<text x=\"{before}\" y=\"{middle:.1}\" text-anchor=\"end\">{shown}</text>"
        );
    }
    for (share, label) in lower {
        let (at, under) = (LEFT + (end - LEFT) * share, bottom + 18.0);
        let _ = writeln!(
            svg,
            "<text x=\"{at:.1}\" y=\"{under}\" text-anchor=\"middle\">{}</text>",
            escape(label)
        );
    }
    let (center, under) = (LEFT + (end - LEFT) / 2.0, HEIGHT - 14.0);
    let half = TOP + (bottom - TOP) / 2.0;
    let _ = writeln!(
        svg,
        "<text x=\"{center}\" y=\"{under}\" text-anchor=\"middle\">{}</text>\n\
         <text transform=\"translate(18 {half}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        escape(across),
        escape(what)
    );
    svg
}

/// The end of the axis of values: a whole number of steps.
fn top(most: f64) -> f64 {
    (most / step(most)).ceil() * step(most)
}

fn y(value: f64, most: f64) -> f64 {
    HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top(most)
}

fn key(svg: &mut String, i: usize, name: &str) {
    let (at, x) = (TOP + 8.0 + 18.0 * i as f64, WIDTH - RIGHT + 16.0);
    let _ = writeln!(
        svg,
        "<path d=\"M{x} {at}h10\" stroke=\"{}\" stroke-width=\"8\"/>\n<text x=\"{}\" y=\"{}\">{}</text>",
        COLORS[i % COLORS.len()],
        x + 16.0,
        at + 4.0,
        escape(name)
    );
}

/// Values over `across`.
pub fn over(title: &str, across: &str, what: &str, shown: Shown, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let most = points().map(|point| point.1).fold(1e-9, f64::max);
    let right = top(points().map(|point| point.0).fold(1e-9, f64::max));
    let step = step(right);
    let marks: Vec<(f64, String)> = (0..=(right / step).round() as u32)
        .map(|i| {
            (
                f64::from(i) * step / right,
                format!("{}", (f64::from(i) * step * 1000.0).round() / 1000.0),
            )
        })
        .collect();
    let mut svg = frame(title, across, what, most, &marks);
    for (i, line) in lines.iter().enumerate() {
        let color = COLORS[i % COLORS.len()];
        let at = |point: &(f64, f64)| {
            let x = LEFT + (WIDTH - RIGHT - LEFT) * point.0 / right;
            format!("{x:.1} {:.1}", y(point.1, most))
        };
        let places: Vec<String> = line.points.iter().map(at).collect();
        let _ = match shown {
            Shown::Line => writeln!(
                svg,
                "<path d=\"M{}\" fill=\"none\" stroke=\"{color}\"/>",
                places.join("L")
            ),
            Shown::Dots => writeln!(
                svg,
                "<path d=\"M{}h1\" stroke=\"{color}\" stroke-width=\"1.5\"/>",
                places.join("h1M")
            ),
        };
        key(&mut svg, i, &line.name);
    }
    svg + "</svg>\n"
}

/// Groups of bars: the name of each, and a value for each of `names`, or none.
pub fn bars(title: &str, what: &str, names: &[&str], groups: &[(String, Vec<f64>)]) -> String {
    let most = groups.iter().flat_map(|group| &group.1).copied().fold(1e-9, f64::max);
    let whole = groups.len().max(1) as f64;
    let marks: Vec<(f64, String)> = groups
        .iter()
        .enumerate()
        .map(|(i, group)| ((i as f64 + 0.5) / whole, group.0.clone()))
        .collect();
    let mut svg = frame(title, "", what, most, &marks);
    let room = (WIDTH - RIGHT - LEFT) / whole;
    let width = room * 0.85 / names.len().max(1) as f64;
    for (g, (group, values)) in groups.iter().enumerate() {
        for (i, value) in values.iter().enumerate() {
            let (x, at) = (LEFT + room * (g as f64 + 0.075) + width * i as f64, y(*value, most));
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{at:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{}\"><title>{} {}: {value:.2}</title></rect>",
                HEIGHT - BOTTOM - at,
                COLORS[i % COLORS.len()],
                escape(group),
                escape(names[i])
            );
        }
    }
    for (i, name) in names.iter().enumerate() {
        key(&mut svg, i, name);
    }
    svg + "</svg>\n"
}
