//! One plot as an SVG image: lines or stacked areas over time, with faults marked. Pure.
//!
//! The image carries its own style, readable on light and dark pages: colours are drawn as those of
//! `PALETTE`'s light half, and a rule of CSS replaces each where the reader prefers dark. Text is in the
//! reader's own font.

use std::fmt::Write;
use std::ops::Range;

use anyhow::anyhow;
use plotters::backend::SVGBackend;
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, DashedPathElement, PathElement, Polygon, Rectangle, Text};
use plotters::style::{Color, FontFamily, RGBColor, ShapeStyle, TextStyle};

/// Width and height, in pixels of the image. A page may scale it.
const SIZE: (u32, u32) = (960, 320);
/// The most points of a line. Of more, each point shows the greatest of its neighbours.
pub const MAX_POINTS: usize = 960;
/// How many values an axis names, about.
const TICKS: f64 = 6.0;
/// The space above the lines, in pixels: title, legend, and two rows of names.
const HEAD: i32 = 86;
/// The width of a letter in the small text, in pixels; no font is at hand to measure with.
const LETTER: i32 = 6;
/// What stands in a plot without values.
const NOTHING: &str = "nothing was measured";

const INK: RGBColor = RGBColor(0x20, 0x24, 0x28);
const MUTED: RGBColor = RGBColor(0x6B, 0x72, 0x80);
const GRID: RGBColor = RGBColor(0xE3, 0xE6, 0xEA);
const FAULT: RGBColor = RGBColor(0xB3, 0x26, 0x1E);
const LINES: [RGBColor; 12] = [
    RGBColor(0x1F, 0x6F, 0xB4),
    RGBColor(0xD9, 0x73, 0x0D),
    RGBColor(0x2E, 0x8B, 0x57),
    RGBColor(0x7D, 0x4F, 0xB8),
    RGBColor(0x8A, 0x60, 0x42),
    RGBColor(0xC6, 0x5B, 0x9B),
    RGBColor(0x17, 0x8A, 0x94),
    RGBColor(0x9A, 0x8A, 0x12),
    RGBColor(0x4B, 0x53, 0xC9),
    RGBColor(0x5F, 0x7D, 0x1E),
    RGBColor(0xA8, 0x3E, 0x5C),
    RGBColor(0x5B, 0x6E, 0x80),
];
/// Each colour, and what stands for it on a dark page.
const PALETTE: [(RGBColor, &str); 16] = [
    (INK, "#E4E7EA"),
    (MUTED, "#9AA3AE"),
    (GRID, "#31373E"),
    (FAULT, "#FF8A80"),
    (LINES[0], "#6FB1F0"),
    (LINES[1], "#F2A65A"),
    (LINES[2], "#66C993"),
    (LINES[3], "#B99AE8"),
    (LINES[4], "#C9A27F"),
    (LINES[5], "#EE9DCB"),
    (LINES[6], "#5CC8D2"),
    (LINES[7], "#D8C84E"),
    (LINES[8], "#949CF5"),
    (LINES[9], "#AECB62"),
    (LINES[10], "#EC8BA6"),
    (LINES[11], "#A9BCCD"),
];

/// What a plot shows.
pub struct Plot<'a> {
    /// What is over time, with its unit.
    pub title: &'a str,
    /// The lines.
    pub lines: Vec<Line>,
    /// How the lines are drawn.
    pub form: Form,
    /// The span of the horizontal axis.
    pub span: (f64, f64),
    /// Its unit.
    pub unit: &'a str,
    /// Moments at which something else began: seconds and name.
    pub phases: &'a [(f64, String)],
    /// Faults: from, until, name.
    pub faults: &'a [(f64, f64, String)],
}

/// How the lines of a plot are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As lines from zero.
    Linear,
    /// As lines over zero and powers of ten.
    Logarithmic,
    /// As areas, each upon the one before.
    Stacked,
}

/// One line: its name, and its values by seconds. `None` is a gap.
pub struct Line {
    /// What it shows.
    pub name: String,
    /// Seconds and values.
    pub points: Vec<(f64, Option<f64>)>,
}

impl<'a> Plot<'a> {
    /// A plot of lines whose points are at rates, in changes a second.
    pub fn by_rate(title: &'a str, lines: Vec<Line>) -> Self {
        let rates = lines.iter().flat_map(|line| &line.points).map(|(rate, _)| *rate);
        let span = (0.0, rates.fold(1.0, f64::max));
        let form = Form::Logarithmic;
        Self { title, lines, form, span, unit: "/s", phases: &[], faults: &[] }
    }
}

/// An axis from one value to another, with those that it names.
struct Axis {
    range: Range<f64>,
    named: Vec<f64>,
}

type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, until): (i32, i32)) -> i32 {
        let share = (value - self.range.start) / (self.range.end - self.range.start);
        from + (share * f64::from(until - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.named.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl Plot<'_> {
    /// The plot as an SVG image.
    ///
    /// # Errors
    /// If the library cannot draw it.
    pub fn svg(&self) -> anyhow::Result<String> {
        let mut svg = String::new();
        {
            let canvas = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            self.draw(&canvas)
                .map_err(|error| anyhow!("draw the plot {:?}: {error}", self.title))?;
        }
        let end = svg.find('>').map_or(0, |end| end + 1);
        svg.insert_str(end, &style());
        Ok(svg)
    }

    fn draw(&self, canvas: &Canvas<'_>) -> Result<(), Box<dyn std::error::Error>> {
        let lines = self.drawn_lines();
        let highest = lines.iter().flat_map(|line| line.points.iter().filter_map(|(_, y)| *y));
        let (top, marks) = self.vertical(highest.fold(0.0, f64::max));
        let (from, until) = self.span;
        let mut chart = ChartBuilder::on(canvas)
            .margin_top(HEAD)
            .margin_right(16)
            .x_label_area_size(28)
            .y_label_area_size(58)
            .build_cartesian_2d(
                Axis { range: from..until.max(from + 1.0), named: ticks(from, until) },
                Axis { range: 0.0..top, named: marks },
            )?;
        let logarithmic = self.form == Form::Logarithmic;
        chart
            .configure_mesh()
            .bold_line_style(GRID)
            .light_line_style(GRID)
            .axis_style(MUTED)
            .label_style(text(13.0, MUTED))
            .x_label_formatter(&|x| format!("{x} {}", self.unit))
            .y_label_formatter(&|y| {
                shown(if logarithmic { (10f64.powf(*y) - 1.0).round() } else { *y })
            })
            .draw()?;
        self.mark(&mut chart, canvas, top)?;
        for (n, line) in lines.iter().enumerate().rev() {
            draw_line(&mut chart, line, LINES[n % LINES.len()], self.form == Form::Stacked)?;
        }
        self.legend(canvas)?;
        let is_empty = |line: &Line| line.points.iter().all(|(_, value)| value.is_none());
        if self.lines.iter().all(is_empty) {
            let middle = (SIZE.0 as i32 / 2 - 60, (SIZE.1 as i32 + HEAD) / 2 - 20);
            canvas.draw(&Text::new(NOTHING.to_owned(), middle, text(16.0, MUTED)))?;
        }
        Ok(())
    }

    /// The lines in the units of the axis: thinned, and stacked or in powers of ten.
    fn drawn_lines(&self) -> Vec<Line> {
        let mut below: Vec<f64> = Vec::new();
        let lines = self.lines.iter().map(|line| {
            let mut points = thinned(&line.points);
            below.resize(points.len(), 0.0);
            for ((_, value), below) in points.iter_mut().zip(&mut below) {
                *value = match self.form {
                    Form::Linear => *value,
                    Form::Logarithmic => value.map(|value| (1.0 + value).log10()),
                    Form::Stacked => {
                        *below += value.unwrap_or_default();
                        Some(*below)
                    }
                };
            }
            Line { name: line.name.clone(), points }
        });
        lines.collect()
    }

    /// The top of the vertical axis, and the values that it names.
    fn vertical(&self, highest: f64) -> (f64, Vec<f64>) {
        if self.form == Form::Logarithmic {
            let powers = (0..).map(|n| 10f64.powi(n));
            let named: Vec<f64> = std::iter::once(0.0)
                .chain(powers)
                .map(|value| (1.0 + value).log10())
                .take_while(|value| *value <= highest.max(1.0) + 1.0)
                .collect();
            let top = named.iter().copied().find(|value| *value > highest);
            return (top.unwrap_or(highest), named);
        }
        let top = if highest > 0.0 { highest * 1.08 } else { 1.0 };
        (top, ticks(0.0, top))
    }

    /// Marks phases and faults, with their names above the lines.
    fn mark(
        &self,
        chart: &mut Chart<'_, '_>,
        canvas: &Canvas<'_>,
        top: f64,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let width = f64::from(SIZE.0) / (self.span.1 - self.span.0).max(1.0);
        for (at, _) in self.phases {
            let dashes = DashedPathElement::new([(*at, 0.0), (*at, top)], 2, 4, MUTED);
            chart.draw_series(std::iter::once(dashes))?;
        }
        for (from, until, _) in self.faults {
            let until = until.max(from + 1.0 / width);
            let area = Rectangle::new([(*from, 0.0), (until, top)], FAULT.mix(0.16).filled());
            chart.draw_series(std::iter::once(area))?;
            let line = PathElement::new(vec![(*from, 0.0), (*from, top)], FAULT);
            chart.draw_series(std::iter::once(line))?;
        }
        let phases = self.phases.iter().map(|(at, name)| (*at, name.as_str(), MUTED, 0));
        let faults = self.faults.iter().map(|(at, _, name)| (*at, name.as_str(), FAULT, 1));
        let mut all: Vec<_> = phases.chain(faults).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (n, (at, name, colour, row)) in all.iter().enumerate() {
            let same_row = all[n + 1..].iter().filter(|next| next.3 == *row);
            let next = same_row.map(|next| next.0).fold(self.span.1, f64::min);
            let room = ((next - at) * width) as usize / LETTER as usize;
            let place = (chart.backend_coord(&(*at, top)).0, HEAD - 32 + row * 15);
            canvas.draw(&Text::new(shortened(name, room), place, text(12.0, *colour)))?;
        }
        Ok(())
    }

    /// The title, and below it the name of each line beside its colour.
    fn legend(&self, canvas: &Canvas<'_>) -> Result<(), Box<dyn std::error::Error>> {
        canvas.draw(&Text::new(self.title.to_owned(), (12, 8), text(16.0, INK)))?;
        let mut x = 14;
        for (n, line) in self.lines.iter().enumerate() {
            let left = self.lines.len() - n;
            // What does not fit is counted.
            if left > 1 && x + 36 + LETTER * (line.name.len() as i32 + 12) > SIZE.0 as i32 {
                canvas.draw(&Text::new(format!("and {left} more"), (x, 32), text(13.0, MUTED)))?;
                break;
            }
            let colour = LINES[n % LINES.len()].filled();
            canvas.draw(&Rectangle::new([(x, 34), (x + 12, 44)], colour))?;
            canvas.draw(&Text::new(line.name.clone(), (x + 17, 32), text(13.0, MUTED)))?;
            x += 36 + LETTER * line.name.len() as i32;
        }
        Ok(())
    }
}

fn draw_line(
    chart: &mut Chart<'_, '_>,
    line: &Line,
    colour: RGBColor,
    as_area: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    let stroke: ShapeStyle = colour.stroke_width(2);
    for stretch in line.points.split(|(_, value)| value.is_none()) {
        let points: Vec<(f64, f64)> =
            stretch.iter().filter_map(|(x, y)| y.map(|y| (*x, y))).collect();
        let (Some(first), Some(last)) = (points.first(), points.last()) else { continue };
        if as_area {
            let mut outline = points.clone();
            outline.extend([(last.0, 0.0), (first.0, 0.0)]);
            chart.draw_series(std::iter::once(Polygon::new(outline, colour.filled())))?;
        } else if points.len() == 1 {
            chart.draw_series(std::iter::once(Circle::new(*first, 2, colour.filled())))?;
        } else {
            chart.draw_series(std::iter::once(PathElement::new(points, stroke)))?;
        }
    }
    Ok(())
}

fn text(size: f64, colour: RGBColor) -> TextStyle<'static> {
    let style = TextStyle::from((FontFamily::SansSerif, size));
    TextStyle { color: colour.to_backend_color(), ..style }
}

/// Rules that replace each colour where the reader prefers dark.
fn style() -> String {
    let mut rules = String::new();
    for (RGBColor(r, g, b), dark) in PALETTE {
        let light = format!("#{r:02X}{g:02X}{b:02X}");
        write!(rules, "[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}")
            .expect("writing to a String cannot fail");
    }
    format!(
        "<style>text{{font-family:system-ui,sans-serif}}\
         @media(prefers-color-scheme:dark){{{rules}}}</style>"
    )
}

/// At most [`MAX_POINTS`] points: of neighbours the greatest.
fn thinned(points: &[(f64, Option<f64>)]) -> Vec<(f64, Option<f64>)> {
    let step = points.len().div_ceil(MAX_POINTS).max(1);
    let greatest = |chunk: &[(f64, Option<f64>)]| {
        let values = chunk.iter().filter_map(|(_, value)| *value);
        (chunk[0].0, values.reduce(f64::max))
    };
    points.chunks(step).map(greatest).collect()
}

/// Round values between two others.
fn ticks(from: f64, until: f64) -> Vec<f64> {
    let rough = ((until - from) / TICKS).max(f64::MIN_POSITIVE);
    let decade = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * decade).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(rough);
    let first = (from / step).ceil() as i64;
    (first..).map(|n| n as f64 * step).take_while(|tick| *tick <= until).take(100).collect()
}

/// A value as an axis shows it.
fn shown(value: f64) -> String {
    match value {
        _ if value >= 1e6 => format!("{}M", rounded(value / 1e6)),
        _ if value >= 1e4 => format!("{}k", rounded(value / 1e3)),
        _ => rounded(value),
    }
}

fn rounded(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// As much of a name as there is room for, in letters.
fn shortened(name: &str, room: usize) -> String {
    if name.chars().count() <= room {
        return name.to_owned();
    }
    let kept: String = name.chars().take(room.saturating_sub(1)).collect();
    if kept.is_empty() { kept } else { format!("{}…", kept.trim_end()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plot without lines.
    fn plot(form: Form) -> Plot<'static> {
        let (lines, span) = (Vec::new(), (0.0, 100.0));
        Plot { title: "shards", lines, form, span, unit: "s", phases: &[], faults: &[] }
    }

    fn check_ticks(from: f64, until: f64, expect: &[f64]) {
        let found = ticks(from, until);
        assert!(
            found.len() == expect.len()
                && found.iter().zip(expect).all(|(a, b)| (a - b).abs() < 1e-9),
            "{found:?}"
        );
    }

    #[test]
    fn axes_name_round_values() {
        check_ticks(0.0, 60.0, &[0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
        check_ticks(0.0, 1.3, &[0.0, 0.5, 1.0]);
        check_ticks(17.0, 90.0, &[20.0, 40.0, 60.0, 80.0]);
        let texts = [0.0, 0.25, 2.0, 1_500.0, 20_000.0, 2.5e6].map(shown);
        assert_eq!(texts, ["0", "0.25", "2", "1500", "20k", "2.5M"]);
    }

    #[test]
    fn long_lines_keep_their_peaks() {
        let points: Vec<_> =
            (0..3_000).map(|n| (f64::from(n), Some(f64::from(n % 1_000)))).collect();
        let thin = thinned(&points);
        assert!(thin.len() <= MAX_POINTS && thin.len() > MAX_POINTS / 2);
        let peaks = thin.iter().filter(|(_, value)| *value == Some(999.0)).count();
        assert_eq!(peaks, 3);
        assert_eq!(thinned(&points[..MAX_POINTS]), points[..MAX_POINTS]);
        let gap = [(0.0, None); MAX_POINTS + 1];
        assert!(thinned(&gap).iter().all(|(_, value)| value.is_none()));
    }

    #[test]
    fn names_are_cut_where_there_is_no_room() {
        assert_eq!(shortened("rolling update", 14), "rolling update");
        assert_eq!(shortened("rolling update", 9), "rolling…");
        assert_eq!(shortened("rolling update", 1), "");
    }

    #[test]
    fn logarithmic_axes_begin_with_zero_and_end_above_the_highest() {
        let at = |value: f64| (1.0 + value).log10();
        let (top, named) = plot(Form::Logarithmic).vertical(at(250.0));
        assert_eq!((top, &named[..4]), (at(1e3), &[0.0, at(1.0), at(10.0), at(100.0)][..]));
        assert_eq!(plot(Form::Logarithmic).vertical(0.0).0, at(1.0));
        assert_eq!(plot(Form::Linear).vertical(0.0), (1.0, ticks(0.0, 1.0)));
    }

    #[test]
    fn stacked_areas_add_up() {
        let line = |name: &str, value| Line {
            name: name.to_owned(),
            points: vec![(0.0, Some(value)), (1.0, None)],
        };
        let lines = vec![line("a", 2.0), line("b", 3.0)];
        let drawn = Plot { lines, ..plot(Form::Stacked) }.drawn_lines();
        assert_eq!(drawn[0].points, [(0.0, Some(2.0)), (1.0, Some(0.0))]);
        assert_eq!(drawn[1].points, [(0.0, Some(5.0)), (1.0, Some(0.0))]);
    }

    #[test]
    fn an_image_has_what_it_shows_and_its_own_style() {
        let points = (0..10).map(|n| (f64::from(n), (n != 5).then_some(f64::from(n) * 40.0)));
        let plot = Plot {
            lines: vec![Line { name: "p99".into(), points: points.collect() }],
            phases: &[(2.0, "load".into())],
            faults: &[(30.0, 45.0, "kill <0>".into())],
            ..plot(Form::Logarithmic)
        };
        let svg = plot.svg().unwrap();
        for part in
            ["<svg ", "<style>", "prefers-color-scheme:dark", "p99", "load", "kill &lt;0&gt;"]
        {
            assert!(svg.contains(part), "{part} is not in {svg}");
        }
        assert!(!svg.contains(NOTHING), "{svg}");
        // A gap parts the line in two.
        let stroke = "fill=\"none\" opacity=\"1\" stroke=\"#1F6FB4\"";
        assert_eq!(svg.matches(stroke).count(), 2, "{svg}");
    }

    #[test]
    fn marks_have_their_names_in_whatever_order_they_come() {
        let fault = |from, until, name: &str| (from, until, name.to_owned());
        let faults = [fault(60.0, 70.0, "cut cluster 2"), fault(10.0, 20.0, "kill replica 0")];
        let svg = Plot { faults: &faults, ..plot(Form::Stacked) }.svg().unwrap();
        assert!(svg.contains("cut cluster 2") && svg.contains("kill replica 0"), "{svg}");
    }

    #[test]
    fn names_that_do_not_fit_are_counted() {
        let named = |count: usize| {
            let line = |n| Line { name: format!("replica-2.{n}"), points: vec![(0.0, Some(1.0))] };
            let lines = (0..count).map(line).collect();
            let svg = Plot { lines, ..plot(Form::Linear) }.svg().unwrap();
            let shown = svg.matches("replica-2.").count();
            assert_eq!(svg.contains(&format!("and {} more", count - shown)), shown < count);
            shown
        };
        assert_eq!(named(3), 3);
        assert_eq!(named(40), named(30));
    }

    #[test]
    fn an_empty_plot_can_be_drawn() {
        for form in [Form::Linear, Form::Logarithmic, Form::Stacked] {
            let svg = Plot { span: (0.0, 0.0), ..plot(form) }.svg().unwrap();
            assert!(svg.ends_with("</svg>\n") && svg.contains(NOTHING), "{svg}");
        }
    }
}
