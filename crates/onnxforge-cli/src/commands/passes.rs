//! `onnxforge passes`: the catalogue.

use onnxforge::ir::Accuracy;
use onnxforge::passes;
use serde::Serialize;

use crate::failure::{Failure, Verdict};
use crate::output::{Output, table};

/// List the passes with what they promise, or tell all about one.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Tell all about this pass: what it matches, its accuracy and why it is right.
    pass: Option<String>,
}

#[derive(Debug, Serialize)]
struct Entry {
    name: &'static str,
    class: &'static str,
    /// It runs only where it is asked for.
    on_request: bool,
    summary: String,
    text: String,
}

/// The accuracy class in words.
pub fn class(accuracy: Accuracy) -> &'static str {
    match accuracy {
        Accuracy::BitExact => "bit-exact",
        Accuracy::ValueExact => "value-exact",
        Accuracy::Rounding { .. } => "rounding",
        Accuracy::Approximate { .. } => "approximate",
    }
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let chosen = match &args.pass {
        Some(name) => vec![super::optimize::find(name)?],
        None => passes::all().collect(),
    };
    let entry = |pass: &&'static onnxforge::passes::Pass| Entry {
        name: pass.name,
        class: class(pass.accuracy()),
        on_request: pass.is_optional(),
        summary: pass.summary(),
        text: pass.text(),
    };
    let entries: Vec<Entry> = chosen.iter().map(entry).collect();
    output.result(&entries, |out| {
        if args.pass.is_some() {
            return entries.iter().try_for_each(|entry| writeln!(out, "{}", entry.text));
        }
        let mut rows = table(&["pass", "class", "runs", "what it does"]);
        entries.iter().for_each(|entry| {
            let runs = if entry.on_request { "on request" } else { "" };
            rows.add_row([entry.name, entry.class, runs, &entry.summary]);
        });
        writeln!(out, "{rows}")
    })?;
    Ok(Verdict::Yes)
}
