//! `onnxforge compare`: whether two models have the same topology.

use std::cell::OnceCell;
use std::io::{self, Write};
use std::path::PathBuf;

use onnxforge::analysis::topology::{Differences, Few, NodeDifference, Sameness, Side, Topology, compare};
use onnxforge::hierarchy::Hierarchy;
use onnxforge::ir::NodeId;
use serde::Serialize;

use crate::failure::{Failure, Verdict};
use crate::output::{Output, grouped};

/// How many differences of a kind are shown.
const SHOWN: usize = 10;

/// Compare the graphs of two models; show where they first differ.
///
/// Identical models differ in metadata and documentation only; structurally equal models also in names and in the order of nodes.
/// Weights are compared bit for bit, wherever they are stored. Exits with 1 when the models are neither.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The first model.
    first: PathBuf,
    /// The second model.
    second: PathBuf,
    /// Exit with 0 only if the models are identical.
    #[arg(long)]
    exact: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    #[serde(flatten)]
    topology: Topology,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let (first, second) = (output.files.load(&args.first)?, output.files.load(&args.second)?);
    // Modules matter only where something differs.
    let modules: [OnceCell<Hierarchy>; 2] = Default::default();
    let module = |side: Side, node: NodeId| {
        let (model, known) = match side {
            Side::First => (&first, &modules[0]),
            Side::Second => (&second, &modules[1]),
        };
        let hierarchy = known.get_or_init(|| Hierarchy::of(model, None));
        let path = &hierarchy.table().get(hierarchy.origin(node).primary()).path;
        (!path.is_empty()).then(|| path.to_string())
    };
    let report = Report { schema: 1, topology: compare(&first, &second, &module) };
    output.result(&report, |out| show(&report.topology, out))?;
    let wanted = if args.exact { Sameness::Identical } else { Sameness::Equal };
    Ok(if report.topology.sameness >= wanted { Verdict::Yes } else { Verdict::No })
}

fn show(topology: &Topology, out: &mut dyn Write) -> io::Result<()> {
    let [first, second] = topology.nodes.map(|count| grouped(count as u64));
    match topology.sameness {
        Sameness::Identical => writeln!(out, "identical but for metadata: {first} nodes")?,
        Sameness::Equal => writeln!(out, "structurally equal, not identical: {first} nodes")?,
        Sameness::Different => writeln!(out, "different: {first} nodes and {second}")?,
    }
    match (&topology.differences, &topology.not_identical) {
        (Some(differences), _) => show_differences(differences, out)?,
        (None, Some(what)) => writeln!(out, "  first difference: {}", line(what))?,
        (None, None) => {}
    }
    match topology.unread {
        [0, 0] => Ok(()),
        [first, second] => writeln!(
            out,
            "elements of {first} tensors of the first model and {second} of the second cannot be read; \
             they count as equal where they should lie at the same place"
        ),
    }
}

fn show_differences(found: &Differences, out: &mut dyn Write) -> io::Result<()> {
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
    let version = |version: Option<i64>| version.map_or_else(|| "none".to_owned(), |v| v.to_string());
    for (what, ports) in [("input", &found.inputs), ("output", &found.outputs)] {
        list(out, &format!("{what}s"), ports, |port| {
            vec![format!("{what} {}: {} and {}", port.index, or_none(&port.first), or_none(&port.second))]
        })?;
    }
    list(out, "operator sets", &found.opsets, |opset| {
        let of = opset.function.as_ref().map_or_else(String::new, |name| format!(" of function {name}"));
        let (first, second) = (version(opset.first), version(opset.second));
        vec![format!("operator set {}{of}: {first} and {second}", opset.domain)]
    })?;
    list(out, "operators", &found.operators, |op| {
        vec![format!("calls of {}: {} and {}", op.op, op.first, op.second)]
    })?;
    list(out, "constants", &found.constants, |constant| {
        let name = if constant.first == constant.second {
            constant.first.clone()
        } else {
            format!("{} and {}", constant.first, constant.second)
        };
        let by = constant.read_by.as_ref().map_or_else(String::new, |node| format!(", read by {node}"));
        vec![format!("constant {name}{by}: {}", constant.differs)]
    })?;
    let [first, second] = found.nodes_without_partner;
    if first + second > 0 {
        writeln!(out, "  nodes without partner: {first} and {second}; where that begins:")?;
    }
    list(out, "nodes of the first", &found.first, |node| lines("first", node))?;
    // A node that was told as close to one of the first model is not told again.
    let told =
        |node: &&NodeDifference| !found.first.first.iter().any(|of| of.close_to.as_ref() == Some(&node.node));
    let rest = found.second.first.iter().filter(told).cloned().collect::<Vec<_>>();
    let total = found.second.total - (found.second.first.len() - rest.len());
    list(out, "nodes of the second", &Few { total, first: rest }, |node| lines("second", node))?;
    found.conflict.iter().try_for_each(|conflict| writeln!(out, "  {}", line(conflict)))
}

fn lines(side: &str, node: &NodeDifference) -> Vec<String> {
    let within = node.within.as_ref().map_or_else(String::new, |within| format!(" in {within}"));
    let module = node.module.as_ref().map_or_else(String::new, |module| format!(" of {module}"));
    let close = match &node.close_to {
        Some(close) if *close != node.node => format!(", close to {close}"),
        _ => String::new(),
    };
    let mut lines = vec![format!("{side}: {}{within}{module}{close}", node.node)];
    lines.extend(node.differs.iter().take(SHOWN).map(|what| format!("  {what}")));
    lines
}

/// Some of the differences, and how many more there are.
fn list<T>(
    out: &mut dyn Write,
    what: &str,
    few: &Few<T>,
    show: impl Fn(&T) -> Vec<String>,
) -> io::Result<()> {
    for one in few.first.iter().take(SHOWN) {
        show(one).iter().try_for_each(|text| writeln!(out, "  {}", line(text)))?;
    }
    match few.total.saturating_sub(few.first.len().min(SHOWN)) {
        0 => Ok(()),
        more => writeln!(out, "  and {more} more {what}"),
    }
}

/// One line that can be read, whatever names contain.
fn line(text: &str) -> String {
    const LONGEST: usize = 400;
    let mut line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST).collect();
    if text.chars().nth(LONGEST).is_some() {
        line.push('…');
    }
    line
}
