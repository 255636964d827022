//! `onnxforge report`: a page that shows the modules of a model.

use std::path::PathBuf;

use onnxforge::hierarchy::drawing::drawing;
use onnxforge::hierarchy::explorer::graphs;
use onnxforge::hierarchy::select::select;
use onnxforge::infer::Inference;
use onnxforge::page::{Besides, page};

use super::Written;
use super::hierarchy::{View, Viewed};
use crate::arguments::{check_dims, named_size};
use crate::failure::{Failure, Verdict};
use crate::output::{Output, forbid_inputs};

/// Write an HTML page that shows the modules of a model.
///
/// A graph to open module by module, and a tree with nodes, parameters, bytes and FLOPs, and each module's inputs, outputs and nodes. The page is one file that needs no network.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    viewed: Viewed,
    /// Where to write the page, or the drawing (FILE.svg) of --graph.
    #[arg(short, long, value_name = "FILE.html", required_unless_present = "model_explorer")]
    output: Option<PathBuf>,
    /// The size of a named dimension for counting operations; others are 1.
    #[arg(long, value_name = "NAME=N", value_parser = named_size)]
    set_dim: Vec<(String, usize)>,
    /// Write one drawing instead of the page: what flows between the parts of this module (a path or tag; / for the model).
    #[arg(long, value_name = "MODULE", requires = "output", conflicts_with = "model_explorer")]
    graph: Option<String>,
    /// Write the graph for Model Explorer, grouped by modules.
    #[arg(long, value_name = "FILE.json")]
    model_explorer: Option<PathBuf>,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    for target in args.output.iter().chain(&args.model_explorer) {
        forbid_inputs(target, &args.viewed.source.files())?;
    }
    output.files.require_folders(args.output.iter().chain(&args.model_explorer))?;
    let View { model, hierarchy, policy, tags } = args.viewed.load(output)?;
    check_dims("--set-dim", &args.set_dim, &model)?;
    let mut files = Vec::new();
    if let (Some(path), Some(wanted)) = (&args.output, &args.graph) {
        let about = |error: Failure| error.about(&args.viewed.source.model);
        let found = select(&hierarchy, &tags, wanted).map_err(|error| about(error.into()))?;
        let [module] = &found[..] else {
            return Err(Failure::new(format!("--graph {wanted:?} means {} modules; name one", found.len())));
        };
        let drawing = drawing(&model, &hierarchy, &Inference::of(&model), module);
        let drawing = drawing.map_err(|error| about(error.into()))?;
        files.extend(output.files.write(path, |out| out.write_all(drawing.as_bytes()))?);
    } else if let Some(path) = &args.output {
        let file = args.viewed.source.model.display().to_string();
        let page = page(&file, &model, &hierarchy, &policy, &args.set_dim, Besides::default());
        files.extend(output.files.write(path, |out| out.write_all(page.as_bytes()))?);
    }
    if let Some(path) = &args.model_explorer {
        let facts = Inference::of(&model);
        let name = args.viewed.source.model.file_name().unwrap_or_default().to_string_lossy();
        let graph = graphs(&model, &name, &hierarchy, &tags, &facts);
        files.extend(output.files.write(path, |out| Ok(serde_json::to_writer(out, &graph)?))?);
    }
    Written::new(files).show(output)?;
    Ok(Verdict::Yes)
}
