//! `onnxforge extract`: a module as a model of its own.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::path::PathBuf;

use onnxforge::check::{Severity, check};
use onnxforge::hierarchy::extract::{Boundary, End, ExtractError, Extraction, Extractor};
use onnxforge::hierarchy::select::select;
use onnxforge::hierarchy::{Hierarchy, restore, store};
use onnxforge::infer::Inference;
use onnxforge::io::external::ExternalFiles;
use onnxforge::io::message::to_inline_message;
use onnxforge::ir::{Model, ValueId};
use onnxforge::verify;
use onnxforge::verify::parts::{Compared, Observed, compare_part, observe};
use serde::Serialize;

use super::ExternalArg;
use super::hierarchy::{View, Viewed};
use super::run::named_size;
use super::verify::{EngineArg, given};
use crate::failure::{Failure, Verdict};
use crate::files::WrittenFile;
use crate::output::{Output, bytes, forbid_inputs, table};

/// Cut a module out of a model, as a model that runs on its own.
///
/// Weights, called functions and whatever computes from constants alone come along; what the module reads besides becomes inputs, what others
/// read of it becomes outputs.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    viewed: Viewed,
    /// The module: a path such as encoder.layer.0, a tag such as /BertModel/BertEncoder, or a pattern (`*` for one level, `**` for any
    /// number).
    #[arg(short, long, value_name = "MODULE")]
    module: String,
    /// Where to write the model; for a pattern the folder of one file per module. Without it, only what the module takes and gives is told.
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Only this call of a module that is called several times, counted from 0.
    #[arg(long, value_name = "N")]
    call: Option<usize>,
    /// Run the whole model and what was cut out on the same values, and compare bit for bit.
    #[arg(long)]
    verify: bool,
    /// What computes for that.
    #[arg(long, value_enum, default_value = "auto", requires = "verify")]
    engine: EngineArg,
    /// Inputs of the whole model for that; others are made up.
    #[arg(long, value_name = "FILE.npz", requires = "verify")]
    inputs: Option<PathBuf>,
    /// The size of a named dimension of the whole model's inputs for that.
    #[arg(long, value_name = "NAME=N", value_parser = named_size, requires = "verify")]
    set_dim: Vec<(String, usize)>,
    /// Where weights go.
    #[arg(long, value_enum, default_value = "auto")]
    external: ExternalArg,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    parts: Vec<Part>,
    /// Modules that a pattern fits but that have no nodes, and why.
    without_nodes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Part {
    #[serde(flatten)]
    boundary: Boundary,
    /// What is wrong with it as a model.
    problems: Vec<String>,
    verified: Option<Compared>,
    files: Vec<WrittenFile>,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let View { model, hierarchy, policy, tags } = args.viewed.load(output)?;
    let of_model = |error: &dyn std::fmt::Display| Failure::at(&args.viewed.source.model, error);
    let paths = select(&hierarchy, &tags, &args.module).map_err(|error| of_model(&error))?;
    let facts = Inference::of(&model);
    let extractor = Extractor::new(&model, &hierarchy, &facts);
    let several = args.module.contains('*');
    if let Some(target) = &args.output {
        let (wrong, cure) = match several {
            true => (target.is_file(), "a pattern needs a folder for its files"),
            false => (target.is_dir(), "this is a folder; one module needs the name of a file"),
        };
        if wrong {
            return Err(Failure::at(target, cure));
        }
    }
    let (mut parts, mut without_nodes) = (Vec::new(), Vec::new());
    for path in &paths {
        match extractor.extract(path, args.call) {
            Ok(part) => parts.push(part),
            Err(error @ (ExtractError::NoNodes { .. } | ExtractError::Bodies { .. })) if several => {
                without_nodes.push(error.to_string());
            }
            Err(error) => return Err(of_model(&error)),
        }
    }
    let observed = if args.verify { Some(observed(args, &model, &facts, &parts, output)?) } else { None };
    let mut names = FileNames::default();
    let mut report = Report { schema: 1, parts: Vec::new(), without_nodes };
    for mut part in parts {
        if store::is_tagged(&model) {
            // The table goes with the nodes.
            let inner =
                Hierarchy::of(&part.cut.model, Some(&restore::recorded(&part.cut.model, &model, &hierarchy)));
            store::write(&mut part.cut.model, &inner, &policy, store::WriteOptions::default());
        }
        let verified = match &observed {
            Some((observed, options)) => {
                let compared = compare_part(&part.cut, observed, options);
                Some(compared.unwrap_or_else(|error| Compared::Different(error.to_string())))
            }
            None => None,
        };
        let mut files = Vec::new();
        if let Some(target) = &args.output {
            let path = if several { target.join(names.of(&part.boundary.module)) } else { target.clone() };
            forbid_inputs(&path, &args.viewed.source.files())?;
            files = output.save(&part.cut.model, &path, args.external)?;
        }
        report.parts.push(Part {
            problems: if args.output.is_some() || args.verify {
                problems(&part.cut.model)
            } else {
                Vec::new()
            },
            boundary: part.boundary,
            verified,
            files,
        });
    }
    let good =
        |part: &Part| part.problems.is_empty() && !matches!(part.verified, Some(Compared::Different(_)));
    let all_good = report.parts.iter().all(good);
    output.result(&report, |out| show(&report, several, out))?;
    Ok(if all_good { Verdict::Yes } else { Verdict::No })
}

/// The values at the ends of all parts, in one run of the whole model.
fn observed(
    args: &Args,
    model: &Model,
    facts: &Inference,
    parts: &[Extraction],
    output: &Output,
) -> Result<(Observed, verify::Options), Failure> {
    let options = verify::Options {
        samples: 1,
        given: given(args.inputs.as_deref(), model, output)?,
        dims: args.set_dim.iter().cloned().collect(),
        ..verify::Options::new(args.engine.engine(false))
    };
    let ends = parts.iter().flat_map(|part| part.cut.inputs.iter().chain(&part.cut.outputs)).copied();
    let mut ends: Vec<ValueId> = ends.collect();
    ends.sort();
    ends.dedup();
    Ok((observe(model, &ends, facts, &options)?, options))
}

/// What is wrong with a part as a model.
fn problems(model: &Model) -> Vec<String> {
    let message = match to_inline_message(model) {
        Ok(message) => message,
        Err(error) => return vec![error.to_string()],
    };
    let mut files = ExternalFiles::new(None, onnxforge::io::LinkPolicy::default());
    let found = check(&message, &mut files);
    let errors = found.iter().filter(|problem| problem.severity == Severity::Error);
    errors.map(|problem| format!("{}: {}", problem.place, problem.message)).collect()
}

/// The files of modules: no two have the same, and none lies outside of its folder.
#[derive(Default)]
struct FileNames {
    /// In small letters: to some systems large ones are the same.
    taken: HashSet<String>,
    /// How often a name was asked for.
    asked: HashMap<String, usize>,
}

impl FileNames {
    /// The file of a module.
    fn of(&mut self, path: &str) -> PathBuf {
        /// A number and the ending fit behind it on any system.
        const LONGEST: usize = 200;
        let is_safe = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        let safe = |letter: char| if is_safe(letter) { letter } else { '_' };
        let name: String = path.chars().take(LONGEST).map(safe).collect();
        let name = match name.trim_start_matches('.') {
            "" => "model",
            name => name,
        };
        let asked = self.asked.entry(name.to_ascii_lowercase()).or_default();
        loop {
            *asked += 1;
            let file = if *asked == 1 { name.to_owned() } else { format!("{name}-{asked}") };
            if self.taken.insert(file.to_ascii_lowercase()) {
                return PathBuf::from(format!("{file}.onnx"));
            }
        }
    }
}

fn show(report: &Report, several: bool, out: &mut dyn Write) -> io::Result<()> {
    for part in &report.parts {
        let boundary = &part.boundary;
        let name = if boundary.module.is_empty() { "the model" } else { &boundary.module };
        let feeders = match boundary.feeders {
            0 => String::new(),
            feeders => format!(", {feeders} of them computing from constants for it"),
        };
        let calls = if boundary.calls > 1 { format!(", {} calls", boundary.calls) } else { String::new() };
        writeln!(out, "{name}: {} nodes{feeders}{calls}", boundary.nodes)?;
        if !several {
            ends("input", "made by", "the model's input", &boundary.inputs, out)?;
            ends("output", "read by", "the model's output", &boundary.outputs, out)?;
            for shared in boundary.shared.iter().take(10) {
                writeln!(out, "shared: {} comes from {}, too", shared.node, shared.with.join(", "))?;
            }
            if boundary.shared.len() > 10 {
                writeln!(out, "… and {} more shared nodes", boundary.shared.len() - 10)?;
            }
        }
        if boundary.left_out > 0 {
            writeln!(
                out,
                "{} nodes of it stand in bodies of other nodes and are left out",
                boundary.left_out
            )?;
        }
        for problem in &part.problems {
            writeln!(out, "INVALID: {problem}")?;
        }
        match &part.verified {
            Some(Compared::Identical) => {
                writeln!(out, "computes what the whole model computes there, bit for bit")?;
            }
            Some(Compared::Different(what)) => writeln!(out, "DIFFERS from the whole model: {what}")?,
            Some(Compared::InBody) => {
                writeln!(out, "not compared: it stands in the body of a node, whose values no run shows")?;
            }
            None => {}
        }
        for file in &part.files {
            writeln!(out, "wrote {} ({})", file.path, bytes(file.bytes))?;
        }
    }
    for error in &report.without_nodes {
        writeln!(out, "skipped: {error}")?;
    }
    Ok(())
}

fn ends(kind: &str, other: &str, own: &str, ends: &[End], out: &mut dyn Write) -> io::Result<()> {
    if ends.is_empty() {
        return Ok(());
    }
    let mut rows = table(&[kind, "type", other]);
    for end in ends {
        let modules =
            end.modules.iter().map(|path| if path.is_empty() { "the model itself" } else { path.as_str() });
        let modules = modules.collect::<Vec<_>>().join(", ");
        rows.add_row([end.name.as_str(), &end.ty, if modules.is_empty() { own } else { &modules }]);
    }
    writeln!(out, "{rows}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_has_a_file_of_its_own() {
        let mut names = FileNames::default();
        let mut file = |path: &str| names.of(path).display().to_string();
        assert_eq!(
            (file(""), file("model"), file("a.b")),
            ("model.onnx".into(), "model-2.onnx".into(), "a.b.onnx".into())
        );
        assert_eq!(
            (file("a/b"), file("a_b"), file("A b")),
            ("a_b.onnx".into(), "a_b-2.onnx".into(), "A_b-3.onnx".into())
        );
        assert_eq!(
            (file("a_b-4"), file("a\nb"), file("a:b")),
            ("a_b-4.onnx".into(), "a_b-5.onnx".into(), "a_b-6.onnx".into())
        );
        assert_eq!((file("../../x"), file("..")), ("_.._x.onnx".into(), "model-3.onnx".into()));
        assert!(file(&"é".repeat(5000)).len() < 255);
    }
}
