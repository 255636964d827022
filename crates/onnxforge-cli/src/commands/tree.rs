//! `onnxforge tree`: the modules of a model, and what each is made of.

use std::collections::BTreeMap;
use std::io::{self, Write};

use onnxforge::hierarchy::{Hierarchy, ModuleId, Tags};
use onnxforge::ir::Model;
use serde::Serialize;

use super::hierarchy::{View as Seen, Viewed};
use crate::failure::{Failure, Verdict};
use crate::output::{Output, bytes, grouped, number, table};

/// Show the modules of a model: nodes, parameters and bytes of each.
///
/// Numbers include everything inside a module.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    viewed: Viewed,
    /// How many levels are shown.
    #[arg(long, value_name = "N", default_value_t = 3)]
    depth: usize,
    /// Show tags, or paths of attributes.
    #[arg(long, value_enum, default_value = "tag")]
    view: View,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum View {
    /// Classes of the modules that have tags.
    Tag,
    /// Paths of all modules.
    Path,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    modules: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    module: String,
    tag: String,
    class: Option<String>,
    depth: usize,
    /// Nodes of its own.
    own_nodes: usize,
    /// Nodes with everything inside of it.
    nodes: usize,
    /// Elements of stored tensors that belong to it or to what is inside of it.
    parameters: u64,
    bytes: u64,
    operators: BTreeMap<String, usize>,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let Seen { model, hierarchy, tags, .. } = args.viewed.load(output)?;
    let report = Report { schema: 1, modules: rows(&model, &hierarchy, &tags) };
    output.result(&report, |out| show(&report, &tags, &hierarchy, args, out))?;
    Ok(Verdict::Yes)
}

fn rows(model: &Model, hierarchy: &Hierarchy, tags: &Tags) -> Vec<Row> {
    let table = hierarchy.table();
    let row = |(id, module): (ModuleId, &onnxforge::hierarchy::Module)| Row {
        module: module.path.to_string(),
        tag: tags.get(id).to_owned(),
        class: module.class.as_ref().map(ToString::to_string),
        depth: table.depth(id),
        own_nodes: 0,
        nodes: 0,
        parameters: 0,
        bytes: 0,
        operators: BTreeMap::new(),
    };
    let mut rows: Vec<Row> = table.iter().map(row).collect();
    for (id, node) in model.nodes() {
        let origin = hierarchy.origin(id).primary();
        rows[origin.index()].own_nodes += 1;
        for above in table.chain(origin) {
            rows[above.index()].nodes += 1;
            *rows[above.index()].operators.entry(node.op().to_string()).or_default() += 1;
        }
    }
    for (value, constant) in model.initializers() {
        for above in table.chain(hierarchy.home(model, value)) {
            let row = &mut rows[above.index()];
            row.parameters =
                row.parameters.saturating_add(constant.dense().map_or(0, |tensor| tensor.len() as u64));
            row.bytes = row.bytes.saturating_add(constant.byte_len());
        }
    }
    rows
}

fn show(
    report: &Report,
    tags: &Tags,
    hierarchy: &Hierarchy,
    args: &Args,
    out: &mut dyn Write,
) -> io::Result<()> {
    let modules = hierarchy.table();
    let by_tag = args.view == View::Tag;
    let heading = ["module", "nodes", "parameters", "bytes", "path"];
    let mut rows = table(&heading[..if by_tag { 5 } else { 4 }]);
    let mut hidden = 0usize;
    for ((id, module), row) in modules.iter().zip(&report.modules) {
        if args.view == View::Tag && tags.kept(id) != id || row.nodes == 0 && row.bytes == 0 {
            continue;
        }
        let (depth, label) = match args.view {
            View::Tag => (tags.depth(modules, id), row.tag.rsplit('/').next().unwrap_or_default().to_owned()),
            View::Path => {
                let above = modules.parent(id).map_or("", |above| &modules.get(above).path);
                let own = row.module.get(above.len()..).unwrap_or_default().trim_start_matches('.');
                let class = module.short_class().map(|class| format!(" ({class})")).unwrap_or_default();
                (row.depth, format!("{}{class}", if own.is_empty() { "." } else { own }))
            }
        };
        if depth > args.depth {
            hidden += 1;
            continue;
        }
        let label = format!("{}{}", "  ".repeat(depth), if label.is_empty() { "/" } else { &label });
        let mut cells = vec![
            comfy_table::Cell::new(label),
            number(grouped(row.nodes as u64)),
            number(grouped(row.parameters)),
            number(bytes(row.bytes)),
        ];
        cells.extend(
            by_tag.then(|| comfy_table::Cell::new(if row.module.is_empty() { "." } else { &row.module })),
        );
        rows.add_row(cells);
    }
    writeln!(out, "{rows}")?;
    if hidden > 0 {
        writeln!(out, "{hidden} more deeper down; --depth {} shows the next level", args.depth + 1)?;
    }
    Ok(())
}
