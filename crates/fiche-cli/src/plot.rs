//! Scatter plots of size against rate, as Figures 2 and 3 of Petri, Moffat, Nagesh and Wirth, *Access time
//! tradeoffs in archive compression* (2015).

use std::fmt::Write;

/// One method at several block lengths: size in percent, rate, and what more is to say.
pub struct Series {
    pub name: String,
    pub points: Vec<(f64, f64, String)>,
}

/// What lies across: the size of all there is.
pub const SIZE: &str = "size, percent of the corpus, everything counted";

/// The rate of reading.
pub const PIECES: &str = "pieces of 16 KiB a second";

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 560.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 250.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 56.0;
pub const COLORS: [&str; 10] = [
    "#1b6ca8", "#c8553d", "#3a7d44", "#8e44ad", "#b8860b", "#117a8b", "#d6336c", "#5c6b73",
    "#6a994e", "#22223b",
];

/// An SVG with rates, of which `what` says what they are, on a logarithmic axis; `across` says what the sizes are.
pub fn scatter(title: &str, across: &str, what: &str, series: &[Series]) -> String {
    let points = || series.iter().flat_map(|series| &series.points);
    let most = points().map(|point| point.0).fold(1.0, f64::max);
    let step = [10.0, 20.0, 50.0].into_iter().find(|step| most <= 6.0 * step).unwrap_or(100.0);
    let right = (most / step).ceil() * step;
    let (low, high) = points()
        .fold((f64::MAX, 1.0f64), |(low, high), point| (low.min(point.1), high.max(point.1)));
    let (low, high) = (low.max(0.1).log10().floor(), high.log10().ceil());
    let x = |size: f64| LEFT + (WIDTH - LEFT - RIGHT) * size / right;
    let y = |rate: f64| {
        let share = (rate.max(0.1).log10() - low) / (high - low).max(1.0);
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share
    };
    let mut svg = String::new();
    let mut line = |text: String| {
        let _ = writeln!(svg, "{text}");
    };
    line(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">"
    ));
    line("<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>".into());
    line(format!("<text x=\"{LEFT}\" y=\"24\" font-size=\"15\">{}</text>", escape(title)));
    let (bottom, end) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    for i in 0..=(right / step) as u32 {
        let size = step * f64::from(i);
        let at = x(size);
        line(format!("<path d=\"M{at:.1} {TOP}V{bottom}\" stroke=\"#e3e3e3\"/>"));
        let under = bottom + 18.0;
        line(format!("<text x=\"{at:.1}\" y=\"{under}\" text-anchor=\"middle\">{size:.0}</text>"));
    }
    for power in low as i32..=high as i32 {
        let (at, rate) = (y(10f64.powi(power)), 10f64.powi(power));
        line(format!("<path d=\"M{LEFT} {at:.1}H{end}\" stroke=\"#e3e3e3\"/>"));
        let (before, middle) = (LEFT - 8.0, at + 4.0);
        line(format!("<text x=\"{before}\" y=\"{middle:.1}\" text-anchor=\"end\">{rate}</text>"));
    }
    let (center, under) = (LEFT + (end - LEFT) / 2.0, HEIGHT - 14.0);
    line(format!(
        "<text x=\"{center}\" y=\"{under}\" text-anchor=\"middle\">{}</text>",
        escape(across)
    ));
    let half = TOP + (bottom - TOP) / 2.0;
    line(format!(
        "<text transform=\"translate(18 {half}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        escape(what)
    ));
    for (i, series) in series.iter().enumerate() {
        let color = COLORS[i % COLORS.len()];
        let path: Vec<String> = series
            .points
            .iter()
            .map(|(size, rate, _)| format!("{:.1} {:.1}", x(*size), y(*rate)))
            .collect();
        line(format!(
            "<path d=\"M{}\" fill=\"none\" stroke=\"{color}\" stroke-opacity=\"0.5\"/>",
            path.join("L")
        ));
        for (size, rate, label) in &series.points {
            let title = escape(&format!("{} {label}", series.name));
            line(format!(
                "{}<title>{title}: {size:.2}, {rate:.1}</title></path>",
                mark(i, x(*size), y(*rate), color)
            ));
        }
        let (at, key) = (TOP + 8.0 + 18.0 * i as f64, end + 16.0);
        line(format!("{}</path>", mark(i, key, at, color)));
        let (text, under) = (key + 10.0, at + 4.0);
        line(format!("<text x=\"{text}\" y=\"{under}\">{}</text>", escape(&series.name)));
    }
    line("</svg>".into());
    svg
}

/// Several plots as one SVG, one below the other.
#[allow(dead_code, reason = "fiche-bench, which has this file as well, does not need it")]
pub fn stacked(plots: &[String]) -> String {
    let height = HEIGHT * plots.len() as f64;
    let mut svg =
        format!("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\">\n");
    for (i, plot) in plots.iter().enumerate() {
        let place = format!("<svg y=\"{}\" height=\"{HEIGHT}\" ", HEIGHT * i as f64);
        svg += &plot.replacen("<svg ", &place, 1);
    }
    svg + "</svg>\n"
}

/// The mark of a series, left open: each ten have another shape, as they have the same colors.
fn mark(series: usize, x: f64, y: f64, color: &str) -> String {
    let shape = match series / COLORS.len() {
        0 => "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0",
        1 => "m-4 -4h8v8h-8z",
        _ => "m0 -5l5 5l-5 5l-5 -5z",
    };
    format!("<path d=\"M{x:.1} {y:.1}{shape}\" fill=\"{color}\">")
}

pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
