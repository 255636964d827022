//! Where the parts of a drawing go.

/// A part.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub width: f64,
    pub height: f64,
    /// Whether it stands in the last layer or in the first; nothing for one that stands where its neighbours say.
    pub last: Option<bool>,
}

/// Where everything is.
#[derive(Debug)]
pub struct Layout {
    pub width: f64,
    pub height: f64,
    /// Left, top, width and height of each part.
    pub boxes: Vec<(f64, f64, f64, f64)>,
    /// The points of each line, from the bottom of a part to the top of another.
    pub lines: Vec<Vec<(f64, f64)>>,
}

const GAP: f64 = 26.0;
const BETWEEN: f64 = 46.0;
/// Width that a line needs where it passes a layer.
const LANE: f64 = 12.0;
const SWEEPS: usize = 12;

/// A part, or a line on its way through a layer.
struct Stop {
    layer: usize,
    width: f64,
    height: f64,
    x: f64,
    above: Vec<usize>,
    below: Vec<usize>,
}

/// Lays out parts, given in the order in which they compute. A line that leads back is drawn upwards.
pub fn lay_out(parts: &[Part], edges: &[(usize, usize)]) -> Layout {
    let layers = layers(parts, edges);
    let mut stops: Vec<Stop> = parts
        .iter()
        .zip(&layers)
        .map(|(part, &layer)| Stop {
            layer,
            width: part.width,
            height: part.height,
            x: 0.0,
            above: Vec::new(),
            below: Vec::new(),
        })
        .collect();
    let mut ways: Vec<Vec<usize>> = Vec::new();
    for &(from, to) in edges {
        // From the upper end to the lower one; turned round in the end where it leads up.
        let (upper, lower) = if layers[from] <= layers[to] { (from, to) } else { (to, from) };
        let mut way = vec![upper];
        for layer in layers[upper] + 1..layers[lower] {
            stops.push(Stop {
                layer,
                width: LANE,
                height: 0.0,
                x: 0.0,
                above: Vec::new(),
                below: Vec::new(),
            });
            way.push(stops.len() - 1);
        }
        way.push(lower);
        for pair in way.windows(2) {
            if let [a, b] = *pair {
                stops[a].below.push(b);
                stops[b].above.push(a);
            }
        }
        ways.push(way);
    }
    let mut rows = ordered(&mut stops);
    place(&mut stops, &mut rows);
    let left = stops.iter().map(|stop| stop.x - stop.width / 2.0).fold(f64::INFINITY, f64::min);
    let mut tops: Vec<(f64, f64)> = Vec::new();
    let mut y = 0.0;
    for row in &rows {
        let height = row.iter().map(|&stop| stops[stop].height).fold(0.0, f64::max);
        tops.push((y, height));
        y += height + BETWEEN;
    }
    let middle = |stop: &Stop| tops[stop.layer].0 + tops[stop.layer].1 / 2.0;
    let left = if left.is_finite() { left } else { 0.0 };
    let boxes = parts.iter().zip(&stops).map(|(part, stop)| {
        (stop.x - left - part.width / 2.0, middle(stop) - part.height / 2.0, part.width, part.height)
    });
    let lines = edges.iter().zip(&ways).map(|(&(from, _), way)| {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for (at, &stop) in way.iter().enumerate() {
            let stop = &stops[stop];
            let (x, half) = (stop.x - left, stop.height / 2.0);
            match at {
                0 => points.push((x, middle(stop) + half)),
                _ if at + 1 == way.len() => points.push((x, middle(stop) - half)),
                // Straight through the layer.
                _ => {
                    let (top, height) = tops[stop.layer];
                    points.extend([(x, top), (x, top + height)]);
                }
            }
        }
        if way.first() != Some(&from) {
            points.reverse();
        }
        points
    });
    let right = stops.iter().map(|stop| stop.x - left + stop.width / 2.0).fold(0.0, f64::max);
    Layout { width: right, height: (y - BETWEEN).max(0.0), boxes: boxes.collect(), lines: lines.collect() }
}

/// The layer of each part: below everything that it reads, as far as that comes before it.
fn layers(parts: &[Part], edges: &[(usize, usize)]) -> Vec<usize> {
    let mut layers = vec![0usize; parts.len()];
    let mut reads: Vec<Vec<usize>> = vec![Vec::new(); parts.len()];
    let mut gives: Vec<Vec<usize>> = vec![Vec::new(); parts.len()];
    for &(from, to) in edges.iter().filter(|(from, to)| from < to) {
        reads[to].push(from);
        gives[from].push(to);
    }
    for at in 0..parts.len() {
        layers[at] = reads[at]
            .iter()
            .map(|&from| layers[from] + 1)
            .max()
            .unwrap_or(usize::from(parts[at].last.is_none()));
    }
    // Right above what reads it first, where nothing holds it further up.
    for at in (0..parts.len()).rev().filter(|&at| parts[at].last.is_none() && reads[at].is_empty()) {
        layers[at] = gives[at].iter().map(|&to| layers[to].saturating_sub(1)).min().unwrap_or(layers[at]);
    }
    let deepest = layers.iter().copied().max().unwrap_or(0);
    for (layer, part) in layers.iter_mut().zip(parts) {
        match part.last {
            Some(true) => *layer = deepest,
            Some(false) => *layer = 0,
            None => {}
        }
    }
    // Without a gap where no part stands.
    let mut used: Vec<usize> = layers.clone();
    used.sort_unstable();
    used.dedup();
    layers.iter().map(|layer| used.binary_search(layer).unwrap_or(0)).collect()
}

/// The stops of each layer from left to right.
fn ordered(stops: &mut [Stop]) -> Vec<Vec<usize>> {
    let count = stops.iter().map(|stop| stop.layer + 1).max().unwrap_or(0);
    let mut rows: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (at, stop) in stops.iter().enumerate() {
        rows[stop.layer].push(at);
    }
    let mut places = vec![0.0f64; stops.len()];
    let number = |row: &[usize], places: &mut Vec<f64>| {
        row.iter().enumerate().for_each(|(place, &stop)| places[stop] = place as f64);
    };
    rows.iter().for_each(|row| number(row, &mut places));
    for sweep in 0..SWEEPS {
        let down = sweep % 2 == 0;
        let way: Vec<usize> = if down { (0..count).collect() } else { (0..count).rev().collect() };
        for layer in way {
            let mean = |stop: usize| {
                let near = if down { &stops[stop].above } else { &stops[stop].below };
                let sum: f64 = near.iter().map(|&other| places[other]).sum();
                if near.is_empty() { places[stop] } else { sum / near.len() as f64 }
            };
            let mut row: Vec<(f64, usize)> = rows[layer].iter().map(|&stop| (mean(stop), stop)).collect();
            row.sort_by(|a, b| a.0.total_cmp(&b.0));
            rows[layer] = row.into_iter().map(|(_, stop)| stop).collect();
            number(&rows[layer], &mut places);
        }
    }
    rows
}

/// Moves the stops of each layer to where their neighbours are, in their order.
fn place(stops: &mut [Stop], rows: &mut [Vec<usize>]) {
    for row in rows.iter() {
        let mut x = 0.0;
        for &stop in row {
            stops[stop].x = x + stops[stop].width / 2.0;
            x += stops[stop].width + GAP;
        }
    }
    let count = rows.len();
    for sweep in 0..SWEEPS {
        let way: Vec<usize> = if sweep % 2 == 0 { (0..count).collect() } else { (0..count).rev().collect() };
        for layer in way {
            let wanted: Vec<f64> = rows[layer]
                .iter()
                .map(|&stop| {
                    let near = stops[stop].above.iter().chain(&stops[stop].below);
                    let (sum, number) =
                        near.fold((0.0, 0), |(sum, number), &other| (sum + stops[other].x, number + 1));
                    if number == 0 { stops[stop].x } else { sum / f64::from(number) }
                })
                .collect();
            // How far each must be from the first.
            let mut offsets = vec![0.0f64];
            for pair in rows[layer].windows(2) {
                if let [a, b] = *pair {
                    let apart = stops[a].width / 2.0 + GAP + stops[b].width / 2.0;
                    offsets.push(offsets.last().copied().unwrap_or(0.0) + apart);
                }
            }
            let free: Vec<f64> =
                wanted.iter().zip(&offsets).map(|(wanted, offset)| wanted - offset).collect();
            for ((&stop, x), offset) in rows[layer].iter().zip(isotonic(&free)).zip(&offsets) {
                stops[stop].x = x + offset;
            }
        }
    }
}

/// The ascending numbers that are closest to these.
fn isotonic(wanted: &[f64]) -> Vec<f64> {
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    for &one in wanted {
        let mut block = (one, 1);
        while let Some(&(mean, count)) = blocks.last()
            && mean > block.0
        {
            blocks.pop();
            let (a, b) = (count as f64, block.1 as f64);
            block = ((mean * a + block.0 * b) / (a + b), count + block.1);
        }
        blocks.push(block);
    }
    blocks.into_iter().flat_map(|(mean, count)| std::iter::repeat_n(mean, count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(width: f64) -> Part {
        Part { width, height: 20.0, last: None }
    }

    #[test]
    fn nothing_lies_over_anything_and_lines_lead_down() {
        let mut random = onnxforge_proto::random::Random::new(3);
        for _ in 0..60 {
            let count = 2 + random.below(40) as usize;
            let parts: Vec<Part> = (0..count).map(|_| part(30.0 + random.below(90) as f64)).collect();
            let edges: Vec<(usize, usize)> = (0..2 * count)
                .map(|_| (random.below(count as u64) as usize, random.below(count as u64) as usize))
                .filter(|(from, to)| from < to)
                .collect();
            let layout = lay_out(&parts, &edges);
            for (at, a) in layout.boxes.iter().enumerate() {
                assert!(a.0 > -0.01 && a.0 + a.2 < layout.width + 0.01 && a.1 + a.3 < layout.height + 0.01);
                for b in &layout.boxes[at + 1..] {
                    let apart = a.0 + a.2 < b.0 + 0.01 || b.0 + b.2 < a.0 + 0.01;
                    assert!(apart || a.1 + a.3 < b.1 + 0.01 || b.1 + b.3 < a.1 + 0.01);
                }
            }
            for (points, &(from, to)) in layout.lines.iter().zip(&edges) {
                assert!(points.windows(2).all(|pair| pair[0].1 <= pair[1].1 + 0.01), "{points:?}");
                let (first, last) = (points[0], points[points.len() - 1]);
                assert!((first.1 - layout.boxes[from].1 - layout.boxes[from].3).abs() < 0.01);
                assert!((last.1 - layout.boxes[to].1).abs() < 0.01);
            }
        }
    }

    #[test]
    fn a_line_back_leads_up() {
        let layout = lay_out(&[part(40.0), part(40.0)], &[(0, 1), (1, 0)]);
        let back = &layout.lines[1];
        assert!(back[0].1 > back[back.len() - 1].1);
    }

    #[test]
    fn the_closest_ascending_numbers() {
        assert_eq!(isotonic(&[1.0, 3.0, 2.0, 4.0]), [1.0, 2.5, 2.5, 4.0]);
        assert_eq!(isotonic(&[3.0, 2.0, 1.0]), [2.0, 2.0, 2.0]);
        assert!(isotonic(&[]).is_empty());
    }
}
