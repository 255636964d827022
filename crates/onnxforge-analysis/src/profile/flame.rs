//! A flame graph as one SVG file: modules as wide as the time that they take, what is inside of them below, operators at the end.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Profile;
use onnxforge_hierarchy::drawing::escaped;

const WIDTH: f64 = 1200.0;
const ROW: f64 = 18.0;
const HEAD: f64 = 28.0;
/// Frames narrower than this are not drawn: nobody could see them.
const NARROWEST: f64 = 0.3;
/// The width of a letter of the text in frames.
const LETTER: f64 = 6.6;

struct Frame {
    x: f64,
    width: f64,
    level: usize,
    text: String,
    title: String,
    /// Of a module; else of an operator.
    is_module: bool,
}

/// The drawing. It needs nothing from elsewhere, and shows the whole name and time of what the pointer is on.
pub fn flame(profile: &Profile, title: &str) -> String {
    let frames = frames(profile);
    let levels = frames.iter().map(|frame| frame.level + 1).max().unwrap_or(1);
    let height = HEAD + levels as f64 * ROW + 8.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"ui-monospace, Menlo, Consolas, monospace\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"8\" y=\"18\" font-size=\"13\">{}: {:.3} ms a run, {:.3} ms in nodes</text>\n",
        escaped(title),
        profile.total_ms.median,
        profile.nodes_ms.median
    );
    for frame in &frames {
        let y = HEAD + frame.level as f64 * ROW;
        let room = ((frame.width - 6.0) / LETTER).max(0.0) as usize;
        let fill = if frame.is_module { colour(&frame.text) } else { "#d9d9d9".to_owned() };
        let _ = write!(
            svg,
            "<g><title>{}</title><rect x=\"{:.2}\" y=\"{y:.1}\" width=\"{:.2}\" height=\"{:.1}\" rx=\"1.5\" fill=\"{fill}\"/>",
            escaped(&frame.title),
            frame.x,
            (frame.width - 0.4).max(0.1),
            ROW - 1.0
        );
        if room >= 3 {
            let text = shortened(&frame.text, room);
            let _ = write!(
                svg,
                "<text x=\"{:.2}\" y=\"{:.1}\">{}</text>",
                frame.x + 3.0,
                y + 12.5,
                escaped(&text)
            );
        }
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

fn frames(profile: &Profile) -> Vec<Frame> {
    let whole = profile.modules.first().map_or(0.0, |root| root.total_ms.median);
    if whole <= 0.0 {
        return Vec::new();
    }
    let scale = WIDTH / whole;
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); profile.modules.len()];
    for (at, module) in profile.modules.iter().enumerate() {
        if let Some(parent) = module.parent {
            children[parent].push(at);
        }
    }
    let mut operators: Vec<BTreeMap<&str, f64>> = vec![BTreeMap::new(); profile.modules.len()];
    let places: std::collections::HashMap<&str, usize> =
        profile.modules.iter().enumerate().map(|(at, module)| (module.module.as_str(), at)).collect();
    for node in &profile.nodes {
        if let Some(&at) = places.get(node.module.as_str()) {
            *operators[at].entry(&node.op).or_default() += node.self_ms.median;
        }
    }
    let mut frames = Vec::new();
    let mut open = vec![(0usize, 0.0f64, WIDTH, 0usize)];
    while let Some((at, x, width, level)) = open.pop() {
        let module = &profile.modules[at];
        let own = match module.parent.map(|parent| profile.modules[parent].module.as_str()) {
            Some(above) => {
                module.module.strip_prefix(above).unwrap_or(&module.module).trim_start_matches('.')
            }
            None => "",
        };
        let class = module.class.as_deref().unwrap_or_default();
        let text = [own, class].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
        let text = if text.is_empty() { "model".to_owned() } else { text };
        let title = format!(
            "{} {}\n{:.3} ms with everything inside, {:.3} ms own, {:.1} % of all nodes",
            if module.module.is_empty() { "the model" } else { &module.module },
            class,
            module.total_ms.median,
            module.self_ms.median,
            module.share * 100.0
        );
        frames.push(Frame { x, width, level, text, title, is_module: true });
        let mut inner: Vec<(f64, Result<usize, &str>)> = children[at]
            .iter()
            .map(|&child| (profile.modules[child].total_ms.median, Ok(child)))
            .chain(operators[at].iter().map(|(&op, &time)| (time, Err(op))))
            .collect();
        // Medians of parts may add up to a little more than that of the whole.
        let sum: f64 = inner.iter().map(|(time, _)| time).sum();
        let fit = if sum * scale > width { width / (sum * scale) } else { 1.0 };
        inner.retain(|(time, _)| time * scale * fit >= NARROWEST);
        let mut from = x;
        for (time, what) in inner {
            let wide = time * scale * fit;
            match what {
                Ok(child) => open.push((child, from, wide, level + 1)),
                Err(op) => {
                    let title = format!(
                        "{op} in {}\n{time:.3} ms",
                        if module.module.is_empty() { "the model" } else { &module.module }
                    );
                    frames.push(Frame {
                        x: from,
                        width: wide,
                        level: level + 1,
                        text: op.to_owned(),
                        title,
                        is_module: false,
                    });
                }
            }
            from += wide;
        }
    }
    frames
}

/// A light colour, the same for the same text.
fn colour(text: &str) -> String {
    // Instances of one class look alike.
    let class = text.rsplit(' ').next().unwrap_or(text);
    let hash = class
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!("hsl({} 70% {}%)", hash % 360, 72 + (hash >> 32) % 10)
}

fn shortened(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    text.chars().take(room.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_one_class_look_alike() {
        assert_eq!(shortened("attention", 5), "atte…");
        assert_eq!(colour("layer.0 BertLayer"), colour("layer.1 BertLayer"));
    }
}
