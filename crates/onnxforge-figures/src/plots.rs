//! Plots as SVG: each is one text without anything from elsewhere, readable on light and dark pages and without colour vision.

use crate::escaped;

const WIDTH: f64 = 860.0;
/// Room for axes and labels.
const LEFT: f64 = 64.0;
const BELOW: f64 = 44.0;
const MARGIN: f64 = 16.0;
/// Colours that readers who do not see red and green can tell apart.
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#555555"];

/// A drawing under construction.
struct Drawing {
    svg: String,
    height: f64,
}

impl Drawing {
    fn new(title: &str, height: f64) -> Self {
        let svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<title>{}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
            escaped(title)
        );
        Self { svg, height }
    }

    fn add(&mut self, element: &str) {
        self.svg += element;
        self.svg.push('\n');
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), style: &str) {
        self.add(&format!("<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" {style}/>", from.0, from.1, to.0, to.1));
    }

    fn text(&mut self, at: (f64, f64), anchor: &str, text: &str) {
        self.add(&format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            at.0,
            at.1,
            escaped(text)
        ));
    }

    fn turned(&mut self, at: (f64, f64), angle: f64, anchor: &str, text: &str) {
        self.add(&format!(
            "<text transform=\"translate({:.1} {:.1}) rotate({angle})\" text-anchor=\"{anchor}\">{}</text>",
            at.0,
            at.1,
            escaped(text)
        ));
    }

    fn rect(&mut self, at: (f64, f64), size: (f64, f64), fill: &str, title: &str) {
        self.add(&format!(
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{fill}\"><title>{}</title></rect>",
            at.0,
            at.1,
            size.0.max(0.0),
            size.1.max(0.0),
            escaped(title)
        ));
    }

    fn circle(&mut self, at: (f64, f64), fill: &str, title: &str) {
        let title = escaped(title);
        self.add(&format!(
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"{fill}\"><title>{title}</title></circle>",
            at.0, at.1
        ));
    }

    fn legend(&mut self, names: &[String]) {
        for (place, name) in names.iter().enumerate() {
            let at = LEFT + place as f64 * (WIDTH - LEFT) / names.len().max(1) as f64;
            self.circle((at, MARGIN), colour(place), name);
            self.text((at + 10.0, MARGIN + 4.0), "start", name);
        }
    }

    fn done(self) -> String {
        self.svg + "</svg>\n"
    }
}

fn colour(place: usize) -> &'static str {
    COLOURS[place % COLOURS.len()]
}

/// An axis: which part of the drawing stands for which numbers.
#[derive(Clone, Copy)]
struct Axis {
    numbers: (f64, f64),
    places: (f64, f64),
    logarithmic: bool,
}

impl Axis {
    /// An axis for these numbers, with some room around them.
    fn of(numbers: impl Iterator<Item = f64>, places: (f64, f64), logarithmic: bool) -> Self {
        let scale = |value: f64| if logarithmic { value.max(f64::MIN_POSITIVE).log10() } else { value };
        let (low, high) = numbers
            .filter(|value| value.is_finite())
            .map(scale)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
        let room = ((high - low) * 0.05).max(if logarithmic { 0.1 } else { 1e-9 });
        Self { numbers: (low - room, high + room), places, logarithmic }
    }

    fn at(&self, value: f64) -> f64 {
        let value = if self.logarithmic { value.max(f64::MIN_POSITIVE).log10() } else { value };
        let share = (value - self.numbers.0) / (self.numbers.1 - self.numbers.0);
        self.places.0 + share.clamp(0.0, 1.0) * (self.places.1 - self.places.0)
    }

    /// Round numbers along the axis.
    fn ticks(&self) -> Vec<f64> {
        let (low, high) = self.numbers;
        if self.logarithmic {
            let step = ((high - low) / 8.0).ceil().max(1.0);
            let steps = (0..).map(|place| (low / step).ceil() * step + f64::from(place) * step);
            let powers: Vec<f64> =
                steps.take_while(|power| *power <= high).map(|power| 10f64.powf(power)).collect();
            if powers.len() >= 2 {
                return powers;
            }
            let known = [0.1f64, 0.2, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0];
            return known.into_iter().filter(|value| (low..=high).contains(&value.log10())).collect();
        }
        let rough = (high - low) / 6.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        let ticks = (0..).map(|place| (low / step).ceil() * step + f64::from(place) * step);
        ticks.take_while(|tick| *tick <= high).collect()
    }
}

/// A number at an axis.
fn shown(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        1e-3..1e5 => format!("{}", (value * 1e4).round() / 1e4),
        _ => format!("{value:.0e}"),
    }
}

/// Numbers by rows and columns, as colours.
pub struct HeatMap<'a> {
    /// What the plot shows.
    pub title: &'a str,
    /// Names of rows.
    pub rows: &'a [String],
    /// Names of columns.
    pub columns: &'a [String],
    /// The number of a cell.
    pub value: &'a dyn Fn(usize, usize) -> Option<f64>,
}

impl HeatMap<'_> {
    /// The plot.
    pub fn svg(&self) -> String {
        const CELL: f64 = 15.0;
        let (left, top) = (220.0, 190.0);
        let wide = ((WIDTH - left - MARGIN) / self.columns.len().max(1) as f64).min(CELL * 2.0);
        let mut drawing = Drawing::new(self.title, top + self.rows.len() as f64 * CELL + MARGIN);
        for (place, name) in self.columns.iter().enumerate() {
            drawing.turned((left + (place as f64 + 0.7) * wide, top - 6.0), -60.0, "start", name);
        }
        for (row, name) in self.rows.iter().enumerate() {
            let y = top + row as f64 * CELL;
            drawing.text((left - 6.0, y + CELL - 4.0), "end", name);
            for (column, model) in self.columns.iter().enumerate() {
                let value = (self.value)(row, column);
                let at = (left + column as f64 * wide, y);
                let said = value.map_or_else(|| "not known".to_owned(), |value| format!("{value:+}"));
                let title = format!("{name}, {model}: {said}");
                drawing.rect(at, (wide - 1.0, CELL - 1.0), &heat(value), &title);
            }
        }
        drawing.done()
    }
}

/// Blue for nodes that went, orange for nodes that came, the darker the more.
fn heat(value: Option<f64>) -> String {
    let Some(value) = value else { return "#ccc".to_owned() };
    let strength = (value.abs() + 1.0).ln() / 1000f64.ln();
    let light = (96.0 - 60.0 * strength.min(1.0)).round();
    let hue = if value < 0.0 { 210 } else { 25 };
    if value == 0.0 { "#f4f4f4".to_owned() } else { format!("hsl({hue} 75% {light}%)") }
}

/// Two bars for each name.
pub fn bars(title: &str, names: &[String], pairs: &[[f64; 2]], legend: [&str; 2]) -> String {
    const ROW: f64 = 22.0;
    let left = 190.0;
    let mut drawing = Drawing::new(title, names.len() as f64 * ROW + 3.0 * MARGIN + BELOW);
    drawing.legend(&legend.map(str::to_owned));
    let highest = pairs.iter().flatten().copied();
    let axis = Axis::of(highest.chain([0.0]), (left, WIDTH - MARGIN), false);
    let bottom = drawing.height - BELOW;
    for tick in axis.ticks() {
        drawing.line((axis.at(tick), 2.0 * MARGIN), (axis.at(tick), bottom), "stroke=\"#ddd\"");
        drawing.text((axis.at(tick), bottom + 16.0), "middle", &shown(tick));
    }
    for (place, (name, pair)) in names.iter().zip(pairs).enumerate() {
        let y = 2.5 * MARGIN + place as f64 * ROW;
        drawing.text((left - 6.0, y + 12.0), "end", name);
        for (which, value) in pair.iter().enumerate() {
            let at = (axis.at(0.0), y + which as f64 * 8.0);
            drawing.rect(
                at,
                (axis.at(*value) - axis.at(0.0), 7.0),
                colour(which),
                &format!("{name}, {}: {value}", legend[which]),
            );
        }
    }
    drawing.done()
}

/// How numbers of each name are spread: the least, the quarters, the middle and the greatest.
pub fn boxes(title: &str, label: &str, samples: &[(String, Vec<f64>)]) -> String {
    const ROW: f64 = 20.0;
    let left = 190.0;
    let mut drawing = Drawing::new(title, samples.len() as f64 * ROW + 2.0 * MARGIN + BELOW);
    let positive = samples.iter().flat_map(|(_, values)| values).copied().filter(|value| *value > 0.0);
    let axis = Axis::of(positive, (left, WIDTH - MARGIN), true);
    let bottom = drawing.height - BELOW;
    for tick in axis.ticks() {
        drawing.line((axis.at(tick), MARGIN), (axis.at(tick), bottom), "stroke=\"#ddd\"");
        drawing.text((axis.at(tick), bottom + 16.0), "middle", &shown(tick));
    }
    drawing.text((f64::midpoint(left, WIDTH), bottom + 34.0), "middle", label);
    for (place, (name, values)) in samples.iter().enumerate() {
        let y = MARGIN + place as f64 * ROW + ROW / 2.0;
        drawing.text((left - 6.0, y + 4.0), "end", name);
        let mut sorted: Vec<f64> = values.iter().copied().filter(|value| *value > 0.0).collect();
        sorted.sort_by(f64::total_cmp);
        if sorted.is_empty() {
            drawing.text((left + 4.0, y + 4.0), "start", "no difference at all");
            continue;
        }
        let at = |share: f64| axis.at(sorted[((sorted.len() - 1) as f64 * share).round() as usize]);
        drawing.line((at(0.0), y), (at(1.0), y), "stroke=\"#333\"");
        let title = format!(
            "{name}: {} to {}, middle {}",
            shown(sorted[0]),
            shown(sorted[sorted.len() - 1]),
            shown(sorted[sorted.len() / 2])
        );
        drawing.rect((at(0.25), y - 6.0), ((at(0.75) - at(0.25)).max(2.0), 12.0), colour(0), &title);
        drawing.line((at(0.5), y - 6.0), (at(0.5), y + 6.0), "stroke=\"#fff\" stroke-width=\"2\"");
    }
    drawing.done()
}

/// A point of a scatter plot, with the interval in which its height lies.
#[derive(Clone, Debug)]
pub struct Point {
    /// What is said of it where the pointer rests.
    pub title: String,
    /// The group that it belongs to, by place.
    pub group: usize,
    /// How far to the right it lies.
    pub x: f64,
    /// How high it lies.
    pub y: f64,
    /// Where its height may lie just as well.
    pub interval: Option<(f64, f64)>,
}

/// Points by two numbers.
pub struct Scatter<'a> {
    /// What the plot shows.
    pub title: &'a str,
    /// What lies along the axis across.
    pub x: &'a str,
    /// What lies along the axis up.
    pub y: &'a str,
    /// Names of groups, each with a colour of its own.
    pub groups: &'a [String],
    /// What is plotted.
    pub points: &'a [Point],
    /// A height that matters, such as 1 for "as fast as before".
    pub line: Option<f64>,
    /// Whether equal distances up are equal ratios.
    pub logarithmic: bool,
    /// Where the line that is closest to the points begins, and how steep it is.
    pub regression: Option<(f64, f64)>,
}

impl Scatter<'_> {
    /// The plot.
    pub fn svg(&self) -> String {
        let mut drawing = Drawing::new(self.title, 460.0);
        drawing.legend(self.groups);
        let (top, bottom) = (2.5 * MARGIN, drawing.height - BELOW);
        let across = Axis::of(self.points.iter().map(|point| point.x), (LEFT, WIDTH - MARGIN), false);
        let heights = self.points.iter().flat_map(|point| {
            let (low, high) = point.interval.unwrap_or((point.y, point.y));
            [point.y, low, high]
        });
        let up = Axis::of(heights.chain(self.line), (bottom, top), self.logarithmic);
        for tick in across.ticks() {
            drawing.line((across.at(tick), top), (across.at(tick), bottom), "stroke=\"#ddd\"");
            drawing.text((across.at(tick), bottom + 16.0), "middle", &shown(tick));
        }
        for tick in up.ticks() {
            drawing.line((LEFT, up.at(tick)), (WIDTH - MARGIN, up.at(tick)), "stroke=\"#ddd\"");
            drawing.text((LEFT - 6.0, up.at(tick) + 4.0), "end", &shown(tick));
        }
        if let Some(line) = self.line {
            drawing.line((LEFT, up.at(line)), (WIDTH - MARGIN, up.at(line)), "stroke=\"#333\"");
        }
        if let Some((start, slope)) = self.regression {
            let place = |x: f64| (across.at(x), up.at(start + slope * x));
            let ends = self
                .points
                .iter()
                .map(|point| point.x)
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
            drawing.line(place(ends.0), place(ends.1), "stroke=\"#333\" stroke-dasharray=\"6 4\"");
        }
        drawing.text((f64::midpoint(LEFT, WIDTH), bottom + 34.0), "middle", self.x);
        drawing.turned((MARGIN, f64::midpoint(top, bottom)), -90.0, "middle", self.y);
        for point in self.points {
            let fill = colour(point.group);
            if let Some((low, high)) = point.interval {
                let style = format!("stroke=\"{fill}\" stroke-opacity=\"0.5\"");
                drawing.line((across.at(point.x), up.at(low)), (across.at(point.x), up.at(high)), &style);
            }
            drawing.circle((across.at(point.x), up.at(point.y)), fill, &point.title);
        }
        drawing.done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number of an attribute.
    fn numbers(svg: &str, name: &str) -> Vec<f64> {
        let start = format!(" {name}=\"");
        let parts = svg.split(&start).skip(1);
        parts.filter_map(|part| part.split('"').next()?.parse().ok()).collect()
    }

    #[test]
    fn every_point_is_inside_and_every_name_is_text() {
        let point = |x: f64, y: f64| Point {
            title: "a<b".to_owned(),
            group: 0,
            x,
            y,
            interval: Some((y * 0.5, y * 2.0)),
        };
        let points = [point(0.0, 0.7), point(100.0, 3.0), point(-5.0, 1.0)];
        let groups = ["one".to_owned(), "two".to_owned()];
        for logarithmic in [false, true] {
            let scatter = Scatter {
                title: "t",
                x: "x",
                y: "y",
                groups: &groups,
                points: &points,
                line: Some(1.0),
                logarithmic,
                regression: Some((1.0, 0.01)),
            };
            let svg = scatter.svg();
            assert!(numbers(&svg, "cx").iter().all(|x| (0.0..=WIDTH).contains(x)));
            assert!(numbers(&svg, "cy").iter().all(|y| (0.0..=460.0).contains(y)));
            assert!(svg.contains("a&lt;b") && !svg.contains("a<b") && svg.ends_with("</svg>\n"));
        }
    }

    #[test]
    fn plots_of_nothing_are_plots() {
        assert!(boxes("t", "x", &[("none".to_owned(), vec![0.0])]).contains("no difference at all"));
        assert!(bars("t", &[], &[], ["before", "after"]).ends_with("</svg>\n"));
        let map =
            HeatMap { title: "t", rows: &["p".to_owned()], columns: &["m".to_owned()], value: &|_, _| None };
        assert!(map.svg().contains("not known"));
    }

    #[test]
    fn longer_bars_stand_for_larger_numbers() {
        let names = ["a".to_owned(), "b".to_owned()];
        let widths = numbers(&bars("t", &names, &[[10.0, 5.0], [100.0, 0.0]], ["before", "after"]), "width");
        assert!(widths[0] < widths[2] && widths[1] < widths[0] && widths[3] == 0.0);
    }
}
