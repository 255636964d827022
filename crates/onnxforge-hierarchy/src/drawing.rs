//! One module as a drawing: what flows between the modules and nodes right inside of it, as one SVG file.
//!
//! Parts stand in layers below what they read. Layers are ordered so that lines cross little (means of neighbours, several sweeps), and each
//! layer is then moved as close to its neighbours as order and distance allow, by isotonic regression.

mod layers;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;

use self::layers::{Layout, Part, lay_out};
use super::Hierarchy;
use super::module::{ModuleId, is_inside};
use onnxforge_ir::value::Use;
use onnxforge_ir::{Model, NodeId, Value, ValueId};
use onnxforge_ops::callee::constant_nodes;
use onnxforge_ops::infer::Inference;

/// Why a module is not drawn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DrawError {
    /// It left nothing in the graph.
    #[error("module {0:?} has no nodes")]
    NoNodes(String),
    /// Nobody could read it.
    #[error(
        "module {path:?} has {parts} parts, more than the {} that a drawing may have; choose a module inside of it",
        MOST_PARTS
    )]
    TooMany {
        /// The module.
        path: String,
        /// How many there are.
        parts: usize,
    },
}

/// Parts of a drawing.
const MOST_PARTS: usize = 600;

/// What stands in the drawing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Key {
    Input(ValueId),
    Module(ModuleId),
    Node(NodeId),
    Output(ValueId),
}

/// The drawing of a module.
pub fn drawing(
    model: &Model,
    hierarchy: &Hierarchy,
    facts: &Inference,
    path: &str,
) -> Result<String, DrawError> {
    let table = hierarchy.table();
    let home = |node: NodeId| -> Option<Key> {
        let own = hierarchy.origin(node).primary();
        let within = table.chain(own).take_while(|&id| is_inside(&table.get(id).path, path));
        // The outermost module around the node that is still inside of this one.
        let inner: Vec<ModuleId> = within.filter(|&id| &*table.get(id).path != path).collect();
        match inner.last() {
            Some(&module) => Some(Key::Module(module)),
            None => is_inside(&table.get(own).path, path).then_some(Key::Node(node)),
        }
    };
    let homes: HashMap<NodeId, Key> = model.nodes().filter_map(|(id, _)| Some((id, home(id)?))).collect();
    // In the order in which they compute.
    let mut keys: Vec<Key> = Vec::new();
    let mut seen: HashSet<Key> = HashSet::new();
    keys.extend(model.nodes().filter_map(|(id, _)| homes.get(&id).copied()).filter(|&key| seen.insert(key)));
    if keys.is_empty() {
        return Err(DrawError::NoNodes(path.to_owned()));
    }
    let mut lines: BTreeMap<(Key, Key), Vec<ValueId>> = BTreeMap::new();
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    // What is computed from constants alone is one, too; exporters share such values between all modules.
    let constant = constant_nodes(model);
    let flows = |value: &Value| {
        value.is_live()
            && value.constant().is_none()
            && value.node().is_none_or(|node| !constant.contains(&node))
    };
    for (id, value) in model.values().filter(|(_, value)| flows(value)) {
        let maker = value.node().map(|node| homes.get(&node).copied());
        let mut add = |from: Key, to: Key| {
            let line = lines.entry((from, to)).or_default();
            if from != to && !line.contains(&id) {
                line.push(id);
            }
        };
        let (mut is_read, mut leaves) = (false, false);
        for used in value.uses() {
            let reader = model.reader(used).map(|node| homes.get(&node).copied());
            match (maker, reader) {
                (Some(Some(from)), Some(Some(to))) => add(from, to),
                (None | Some(None), Some(Some(to))) => {
                    is_read = true;
                    add(Key::Input(id), to);
                }
                (Some(Some(_)), Some(None)) => leaves = true,
                (Some(Some(_)), None) => leaves |= matches!(used, Use::Output { .. }),
                _ => {}
            }
        }
        if let (Some(Some(from)), true) = (maker, leaves) {
            add(from, Key::Output(id));
            outputs.push(Key::Output(id));
        }
        inputs.extend(is_read.then_some(Key::Input(id)));
    }
    lines.retain(|(from, to), _| from != to);
    // What nothing leads to or from, as what exporters forgot to remove and what is computed from constants alone, would hide the rest.
    let linked: HashSet<Key> = lines.keys().flat_map(|&(from, to)| [from, to]).collect();
    let all = keys.len();
    if !linked.is_empty() {
        keys.retain(|key| !matches!(key, Key::Node(_)) || linked.contains(key));
    }
    let left_out = all - keys.len();
    let keys: Vec<Key> = inputs.into_iter().chain(keys).chain(outputs).collect();
    if keys.len() > MOST_PARTS {
        return Err(DrawError::TooMany { path: path.to_owned(), parts: keys.len() });
    }
    let mut counts: HashMap<Key, usize> = HashMap::new();
    homes.values().for_each(|&key| *counts.entry(key).or_default() += 1);
    let texts: Vec<Texts> = keys
        .iter()
        .map(|key| match *key {
            Key::Input(value) | Key::Output(value) => {
                Texts { title: model.value(value).name().to_string(), aside: ty(model, facts, value) }
            }
            Key::Node(node) => Texts { title: model.node(node).op().to_string(), aside: String::new() },
            Key::Module(module) => {
                let module_entry = table.get(module);
                let own = module_entry
                    .path
                    .strip_prefix(path)
                    .unwrap_or(&module_entry.path)
                    .trim_start_matches('.');
                let count = counts.get(key).copied().unwrap_or(0);
                let class = module_entry.short_class().unwrap_or_default();
                let nodes = format!("{count} node{}", if count == 1 { "" } else { "s" });
                let aside = if class.is_empty() { nodes } else { format!("{class} · {nodes}") };
                Texts { title: own.to_owned(), aside }
            }
        })
        .collect();
    let parts: Vec<Part> = keys.iter().zip(&texts).map(|(key, texts)| texts.part(key)).collect();
    let place: HashMap<Key, usize> = keys.iter().enumerate().map(|(at, &key)| (key, at)).collect();
    let edges: Vec<(usize, usize)> = lines.keys().map(|(from, to)| (place[from], place[to])).collect();
    let layout = lay_out(&parts, &edges);
    let labels: Vec<String> = lines
        .iter()
        .map(|(ends, values)| match (ends, &values[..]) {
            // Their boxes have the type.
            ((Key::Input(_), _) | (_, Key::Output(_)), _) => String::new(),
            (_, [one]) => ty(model, facts, *one),
            (_, several) => format!("{} tensors", several.len()),
        })
        .collect();
    let title = match table.find(path).map(|id| table.get(id)) {
        Some(module) => [path, module.short_class().unwrap_or_default()].join(" "),
        None => path.to_owned(),
    };
    let note = match left_out {
        0 => String::new(),
        1 => "without 1 node that no line leads to".to_owned(),
        count => format!("without {count} nodes that no line leads to"),
    };
    Ok(svg((title.trim(), &note), &keys, &texts, &layout, &labels))
}

struct Texts {
    title: String,
    aside: String,
}

impl Texts {
    fn part(&self, key: &Key) -> Part {
        let wide = |text: &str, letter: f64| (text.chars().count().min(LONGEST) as f64) * letter + 22.0;
        let (height, least) = match key {
            Key::Module(_) => (44.0, 84.0),
            Key::Node(_) => (26.0, 54.0),
            Key::Input(_) | Key::Output(_) => (36.0, 60.0),
        };
        let layer = match key {
            Key::Input(_) => Some(false),
            Key::Output(_) => Some(true),
            _ => None,
        };
        Part { width: wide(&self.title, 7.4).max(wide(&self.aside, 6.2)).max(least), height, last: layer }
    }
}

/// Letters of a text that are shown.
const LONGEST: usize = 40;

fn ty(model: &Model, facts: &Inference, value: ValueId) -> String {
    match facts.tensor(value) {
        Some(fact) => fact.display(facts.symbols()).to_string(),
        None => model.declared_type(value).to_string(),
    }
}

fn svg(
    (title, note): (&str, &str),
    keys: &[Key],
    texts: &[Texts],
    layout: &Layout,
    labels: &[String],
) -> String {
    const MARGIN: f64 = 24.0;
    const HEAD: f64 = 34.0;
    let (width, height) = (layout.width + 2.0 * MARGIN, layout.height + 2.0 * MARGIN + HEAD);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" \
         font-family=\"system-ui, Helvetica, Arial, sans-serif\" font-size=\"12\">\n\
         <defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"6\" markerHeight=\"6\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#667\"/></marker></defs>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n<text x=\"{MARGIN}\" y=\"26\" font-size=\"14\" font-weight=\"600\">{}</text>\n{}<g transform=\"translate({MARGIN} {})\">\n",
        escaped(title),
        if note.is_empty() {
            String::new()
        } else {
            format!("<text x=\"{MARGIN}\" y=\"42\" font-size=\"10.5\" fill=\"#667\">{note}</text>\n")
        },
        MARGIN + HEAD
    );
    let mut words = String::new();
    for (points, label) in layout.lines.iter().zip(labels) {
        let Some((first, rest)) = points.split_first() else { continue };
        let mut path = format!("M{:.1} {:.1}", first.0, first.1);
        let mut from = *first;
        for &to in rest {
            let middle = f64::midpoint(from.1, to.1);
            let _ =
                write!(path, "C{:.1} {middle:.1} {:.1} {middle:.1} {:.1} {:.1}", from.0, to.0, to.0, to.1);
            from = to;
        }
        let end = rest.first().unwrap_or(first);
        let _ =
            writeln!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"#99a\" marker-end=\"url(#arrow)\"/>");
        if !label.is_empty() {
            let _ = writeln!(
                words,
                "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"9.5\" fill=\"#556\" stroke=\"#fff\" stroke-width=\"3\" paint-order=\"stroke\" text-anchor=\"middle\">{}</text>",
                f64::midpoint(first.0, end.0),
                f64::midpoint(first.1, end.1) + 3.0,
                escaped(&shortened(label))
            );
        }
    }
    svg.push_str(&words);
    for (at, (key, texts)) in keys.iter().zip(texts).enumerate() {
        let (x, y, width, height) = layout.boxes[at];
        let (fill, stroke, rx) = match key {
            Key::Module(_) => ("#fff", "#8a9ce0", 7),
            Key::Node(_) => ("#e9edfc", "none", 12),
            Key::Input(_) | Key::Output(_) => ("#f4f4f1", "none", 4),
        };
        let middle = x + width / 2.0;
        let lines = if texts.aside.is_empty() { 1.0 } else { 2.0 };
        let base = y + height / 2.0 - (lines - 1.0) * 8.0 + 4.0;
        let _ = write!(
            svg,
            "<g><title>{}\n{}</title><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"{rx}\" fill=\"{fill}\" stroke=\"{stroke}\"/>\
             <text x=\"{middle:.1}\" y=\"{base:.1}\" text-anchor=\"middle\" font-weight=\"{}\">{}</text>",
            escaped(&texts.title),
            escaped(&texts.aside),
            if matches!(key, Key::Module(_)) { 600 } else { 400 },
            escaped(&shortened(&texts.title))
        );
        if lines > 1.0 {
            let text = escaped(&shortened(&texts.aside));
            let _ = write!(
                svg,
                "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"10.5\" fill=\"#667\">{text}</text>",
                base + 15.0
            );
        }
        svg.push_str("</g>\n");
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    text.chars().take(LONGEST - 1).chain(['…']).collect()
}

/// A text that stays one in a drawing, whatever letters a name of the model has.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\n' => safe.push('\n'),
            // Neither control characters nor the two that are none may stand in XML.
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => {
                safe.push('\u{fffd}');
            }
            letter => safe.push(letter),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_text() {
        assert_eq!(escaped("<script>\"&\u{1b}"), "&lt;script&gt;&quot;&amp;\u{fffd}");
        assert_eq!(shortened(&"a".repeat(50)).chars().count(), LONGEST);
    }
}
