//! Scatter plots as SVG.

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
/// Room for the axes at the left and below, and for nothing on the other sides.
const AXIS: f64 = 56.0;
const MARGIN: f64 = 16.0;
/// Colours that readers who do not see red and green can tell apart.
const COLOURS: [&str; 5] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#999900"];

/// A point, with the interval in which its height lies.
#[derive(Clone, Debug)]
pub struct Point {
    pub title: String,
    /// Its place in the list of groups.
    pub group: usize,
    pub x: f64,
    pub y: f64,
    pub low: f64,
    pub high: f64,
}

/// What the plot and its axes show.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub y: &'a str,
    /// Names of the groups of points.
    pub groups: &'a [&'a str],
}

/// The plot: x from 0 to 100, y logarithmic around a line at 1.
pub fn scatter(labels: &Labels<'_>, points: &[Point]) -> String {
    let lowest = points.iter().map(|point| point.low).fold(0.9, f64::min);
    let highest = points.iter().map(|point| point.high).fold(1.1, f64::max);
    let x = |value: f64| AXIS + value / 100.0 * (WIDTH - AXIS - MARGIN);
    let share = |value: f64| (value.ln() - lowest.ln()) / (highest.ln() - lowest.ln());
    let y = |value: f64| HEIGHT - AXIS - share(value) * (HEIGHT - AXIS - 3.0 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<title>{}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
        escaped(labels.title)
    );
    let mut add = |line: String| svg += &(line + "\n");
    let line = |from: (f64, f64), to: (f64, f64), style: &str| {
        format!("<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" {style}/>", from.0, from.1, to.0, to.1)
    };
    let text = |at: (f64, f64), anchor: &str, text: &str| {
        format!("<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>", at.0, at.1, escaped(text))
    };
    for percent in (0..=100).step_by(20) {
        let at = x(f64::from(percent));
        add(line((at, y(lowest)), (at, y(highest)), "stroke=\"#ddd\""));
        add(text((at, y(lowest) + 18.0), "middle", &percent.to_string()));
    }
    for tick in [0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0] {
        if (lowest..=highest).contains(&tick) {
            let stroke = if tick == 1.0 { "stroke=\"#333\"" } else { "stroke=\"#ddd\"" };
            add(line((x(0.0), y(tick)), (x(100.0), y(tick)), stroke));
            add(text((x(0.0) - 8.0, y(tick) + 4.0), "end", &tick.to_string()));
        }
    }
    add(text((x(50.0), HEIGHT - MARGIN), "middle", labels.x));
    let middle = (MARGIN, f64::midpoint(y(lowest), y(highest)));
    let turned = format!("<g transform=\"rotate(-90 {:.1} {:.1})\">", middle.0, middle.1);
    add(turned + &text(middle, "middle", labels.y) + "</g>");
    for (place, (name, colour)) in labels.groups.iter().zip(COLOURS).enumerate() {
        let at = AXIS + place as f64 * (WIDTH - AXIS) / labels.groups.len() as f64;
        add(format!("<circle cx=\"{at:.1}\" cy=\"{MARGIN}\" r=\"5\" fill=\"{colour}\"/>"));
        add(text((at + 10.0, MARGIN + 4.0), "start", name));
    }
    for point in points {
        let colour = COLOURS[point.group % COLOURS.len()];
        let (at, style) = (x(point.x), format!("stroke=\"{colour}\" stroke-opacity=\"0.5\""));
        add(line((at, y(point.low)), (at, y(point.high)), &style));
        let title = escaped(&point.title);
        let centre = format!("cx=\"{at:.1}\" cy=\"{:.1}\"", y(point.y));
        add(format!("<circle {centre} r=\"4\" fill=\"{colour}\"><title>{title}</title></circle>"));
    }
    svg + "</svg>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_inside() {
        let point =
            |x: f64, y: f64| Point { title: "a<b".to_owned(), group: 0, x, y, low: y * 0.5, high: y * 2.0 };
        let labels = Labels { title: "t", x: "x", y: "y", groups: &["one", "two"] };
        let svg = scatter(&labels, &[point(0.0, 0.7), point(100.0, 3.0)]);
        let circles = svg.lines().filter(|line| line.contains("<title>a&lt;b</title>"));
        let numbers =
            |line: &str| -> Vec<f64> { line.split('"').filter_map(|part| part.parse().ok()).collect() };
        let places: Vec<Vec<f64>> = circles.map(numbers).collect();
        assert_eq!(places.len(), 2);
        for place in places {
            assert!(
                (AXIS..=WIDTH - MARGIN).contains(&place[0]) && (MARGIN..=HEIGHT - AXIS).contains(&place[1])
            );
        }
        assert!(svg.ends_with("</svg>\n"));
    }
}
