//! Two drawings of a workload: the pool over time, one panel a policy, and how long light keys waited under each.

use anyhow::{Context, Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::Path;
use support::workload::Figures;

const WIDTH: u32 = 960;
const PANEL: u32 = 170;
const HEIGHT: u32 = 420;
const HEAVY: RGBColor = RGBColor(0xd9, 0x5f, 0x02);
const LIGHT: RGBColor = RGBColor(0x1b, 0x6c, 0xa8);
/// One colour a policy.
const COLOURS: [RGBColor; 5] =
    [RGBColor(0x66, 0x66, 0x66), HEAVY, RGBColor(0x7b, 0x3f, 0x9e), RGBColor(0x1b, 0x9e, 0x77), LIGHT];
/// Waits in a plot end here: the longest that a policy lets anybody wait.
const LONGEST: f64 = 30.0;

/// Draws both; their file names.
pub(crate) fn draw(folder: &Path, workload: &str, runs: &[(&str, &Figures)]) -> Result<[String; 2]> {
    let names = [format!("{workload}-pool.svg"), format!("{workload}-waits.svg")];
    // The error of the backend borrows from it, so it is put into words here.
    pool(&folder.join(&names[0]), workload, runs).with_context(|| format!("cannot draw {}", names[0]))?;
    waits(&folder.join(&names[1]), workload, runs).with_context(|| format!("cannot draw {}", names[1]))?;
    Ok(names)
}

fn pool(file: &Path, workload: &str, runs: &[(&str, &Figures)]) -> Result<()> {
    let panels = u32::try_from(runs.len()).unwrap_or(1);
    let root = SVGBackend::new(file, (WIDTH, PANEL * panels)).into_drawing_area();
    root.fill(&WHITE).map_err(words)?;
    let most = runs.iter().flat_map(|(_, figures)| &figures.samples).map(|sample| sample.heavy + sample.light).max();
    for (area, (policy, figures)) in root.split_evenly((runs.len(), 1)).iter().zip(runs) {
        panel(area, &format!("{workload}, {policy}: slots in use"), figures, most.unwrap_or(1))?;
    }
    root.present().map_err(words)
}

/// Light keys at the bottom, the others on top of them.
fn panel(area: &DrawingArea<SVGBackend<'_>, Shift>, title: &str, figures: &Figures, most: u32) -> Result<()> {
    let end = figures.samples.last().map_or(1.0, |sample| sample.at);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 15))
        .margin(6)
        .x_label_area_size(22)
        .y_label_area_size(40)
        .build_cartesian_2d(0.0..end, 0..most + most / 10 + 1)
        .map_err(words)?;
    chart.configure_mesh().light_line_style(TRANSPARENT).y_labels(5).x_desc("s").draw().map_err(words)?;
    let all = figures.samples.iter().map(|sample| (sample.at, sample.heavy + sample.light));
    let light = figures.samples.iter().map(|sample| (sample.at, sample.light));
    chart.draw_series(AreaSeries::new(all, 0, HEAVY.mix(0.6))).map_err(words)?.label("heavy").legend(box_of(HEAVY));
    chart.draw_series(AreaSeries::new(light, 0, LIGHT.mix(0.9))).map_err(words)?.label("light").legend(box_of(LIGHT));
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw().map_err(words)
}

fn waits(file: &Path, workload: &str, runs: &[(&str, &Figures)]) -> Result<()> {
    let root = SVGBackend::new(file, (WIDTH, HEIGHT)).into_drawing_area();
    root.fill(&WHITE).map_err(words)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(format!("{workload}: requests of light keys served within a wait"), ("sans-serif", 15))
        .margin(6)
        .x_label_area_size(32)
        .y_label_area_size(44)
        .build_cartesian_2d((0.01..LONGEST).log_scale(), 0.0..100.0)
        .map_err(words)?;
    chart.configure_mesh().light_line_style(TRANSPARENT).x_desc("s").y_desc("%").draw().map_err(words)?;
    for ((policy, figures), colour) in runs.iter().zip(COLOURS) {
        chart
            .draw_series(LineSeries::new(served(figures), colour.stroke_width(2)))
            .map_err(words)?
            .label(*policy)
            .legend(box_of(colour));
    }
    let mut labels = chart.configure_series_labels();
    labels.position(SeriesLabelPosition::LowerRight).border_style(BLACK).background_style(WHITE.mix(0.8));
    labels.draw().map_err(words)?;
    root.present().map_err(words)
}

/// Percent of all requests, also those that failed, that had their slot within each wait.
fn served(figures: &Figures) -> Vec<(f64, f64)> {
    let all = f64::from(figures.light_requests.max(1));
    let mut served = 0.0;
    let mut points: Vec<(f64, f64)> = Vec::new();
    for wait in &figures.light_waits {
        served += 100.0 / all;
        match points.last_mut() {
            // Waits that look the same are one point.
            Some((at, share)) if wait.max(0.01) - *at < *at / 100.0 => *share = served,
            _ => points.push((wait.max(0.01), served)),
        }
    }
    points.push((LONGEST, served));
    points
}

/// The sign before a name in a legend.
fn box_of(colour: RGBColor) -> impl Fn((i32, i32)) -> Rectangle<(i32, i32)> {
    move |(x, y)| Rectangle::new([(x, y - 4), (x + 12, y + 4)], colour.filled())
}

fn words(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("{error}")
}
