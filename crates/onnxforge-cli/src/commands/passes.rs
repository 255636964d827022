//! `onnxforge passes`: the catalogue.

use onnxforge::passes::targets::{FORMATS, TARGETS, Target};
use onnxforge::passes::{self, Pass};
use serde::Serialize;

use crate::arguments::find;
use crate::failure::{Failure, Verdict};
use crate::output::{Output, table};

/// List the passes with their accuracy, or describe one.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Show what this pass matches, its accuracy and its proof.
    pass: Option<String>,
}

#[derive(Debug, Serialize)]
struct Entry {
    name: &'static str,
    class: &'static str,
    /// It runs only where it is asked for.
    on_request: bool,
    /// The targets for which it runs, unless it runs for all or on request.
    targets: Vec<&'static str>,
    summary: String,
    text: String,
}

/// The targets for which a pass runs, unless it runs for all.
fn for_targets(pass: &Pass) -> Vec<&'static str> {
    let wants = |target: &&&'static Target| pass.runs_for(target);
    let all = TARGETS.iter().chain(&FORMATS);
    let targets: Vec<&str> = all.clone().filter(wants).map(|target| target.name).collect();
    if targets.len() == all.count() { Vec::new() } else { targets }
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let chosen = match &args.pass {
        Some(name) => vec![find(name)?],
        None => passes::all().collect(),
    };
    let entry = |pass: &&'static Pass| Entry {
        name: pass.name,
        class: pass.accuracy().class(),
        on_request: pass.is_optional(),
        targets: if pass.is_optional() { Vec::new() } else { for_targets(pass) },
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
            let runs = match &entry.targets[..] {
                _ if entry.on_request => "on request".to_owned(),
                [] => String::new(),
                targets => format!("for {}", targets.join(", ")),
            };
            rows.add_row([entry.name, entry.class, &runs, &entry.summary]);
        });
        writeln!(out, "{rows}")
    })?;
    Ok(Verdict::Yes)
}
