//! `onnxforge fingerprint`: what kind of network a model is.

use std::io::{self, Write};

use comfy_table::Cell;
use onnxforge::analysis::fingerprint::{Features, Fingerprint, Input};
use serde::Serialize;

use super::{Models, short_name};
use crate::failure::{Failure, Verdict};
use crate::output::{Output, grouped, number, table};

/// Classify models: vision, transformer, hybrid, llm, audio, other.
///
/// Shows how sure that is, and why. Only structure counts: operators, shapes, and how values flow. Names decide nothing.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    models: Models,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    models: Vec<Seen>,
}

#[derive(Debug, Serialize)]
struct Seen {
    model: String,
    #[serde(flatten)]
    fingerprint: Fingerprint,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let models = args.models.each(output, |path, model| {
        Ok(Seen { model: path.display().to_string(), fingerprint: Fingerprint::of(&model) })
    })?;
    let report = Report { schema: 1, models };
    output.result(&report, |out| match report.models.as_slice() {
        [one] => show_one(one, out),
        several => show_side_by_side(several, out),
    })?;
    Ok(Verdict::Yes)
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn show_one(seen: &Seen, out: &mut dyn Write) -> io::Result<()> {
    let found = &seen.fingerprint;
    writeln!(out, "{}: {} ({})", seen.model, found.class.name(), percent(found.confidence))?;
    for reason in &found.reasons {
        writeln!(out, "  {reason}")?;
    }
    let mut rows = table(&["feature", ""]);
    for (label, value) in features(&found.features).into_iter().filter(|(_, value)| value != "-") {
        rows.add_row([Cell::new(label), number(value)]);
    }
    writeln!(out, "{rows}")?;
    let mut rows = table(&["pass", "why it matters here"]);
    for fit in found.passes() {
        let asked = match fit.by_default || fit.chosen {
            true => "",
            false => " (not by default)",
        };
        rows.add_row([format!("{}{asked}", fit.pass), fit.why.clone()]);
    }
    if !found.passes().is_empty() {
        writeln!(out, "{rows}")?;
    }
    Ok(())
}

fn show_side_by_side(models: &[Seen], out: &mut dyn Write) -> io::Result<()> {
    let paths: Vec<&str> = models.iter().map(|seen| seen.model.as_str()).collect();
    let mut rows = table(&["model", "class", "sure", "because"]);
    for (seen, path) in models.iter().zip(&paths) {
        let found = &seen.fingerprint;
        rows.add_row([
            Cell::new(short_name(path, &paths)),
            Cell::new(found.class.name()),
            number(percent(found.confidence)),
            Cell::new(found.reasons.join("; ")),
        ]);
    }
    writeln!(out, "{rows}")
}

/// Label and value of what was counted; `-` for nothing.
fn features(features: &Features) -> Vec<(&'static str, String)> {
    let f = features;
    let count = |count: usize| if count == 0 { "-".to_owned() } else { grouped(count as u64) };
    let yes = |is: bool| if is { "yes" } else { "-" }.to_owned();
    let inputs: Vec<String> = f.inputs.iter().map(input).collect();
    vec![
        ("inputs", inputs.join(", ")),
        ("nodes", count(f.nodes)),
        ("matmuls with weights", count(f.matmuls)),
        (
            "convolutions along 1, 2, 3 axes",
            match f.convs {
                [0, 0, 0] => "-".to_owned(),
                [one, two, three] => format!("{one}, {two}, {three}"),
            },
        ),
        (
            "matmuls for each convolution",
            f.matmuls_per_conv.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
        ),
        ("Reshapes among nodes", percent(f.reshapes)),
        ("Transposes among nodes", percent(f.transposes)),
        ("Softmax", count(f.softmaxes)),
        ("attention", count(f.attention)),
        ("attention with groups of heads", count(f.grouped_attention)),
        ("attention to an encoder", count(f.cross_attention)),
        ("causal", yes(f.is_causal)),
        ("caches", count(f.caches)),
        ("LayerNorm", count(f.layer_norms)),
        ("RMSNorm", count(f.rms_norms)),
        ("BatchNormalization", count(f.batch_norms)),
        ("GELU", count(f.gelus)),
        ("SiLU", count(f.silus)),
        ("SwiGLU", count(f.gates)),
        ("rotations by position", count(f.rotations)),
        ("recurrent layers", count(f.recurrent)),
        ("estimators", count(f.estimators)),
        ("a score for each entry of the vocabulary", yes(f.scores_vocabulary)),
        ("a wave comes out", yes(f.gives_wave)),
    ]
}

fn input(input: &Input) -> String {
    match input {
        Input::Tokens { vocabulary, width } => format!("token ids ({vocabulary} × {width})"),
        Input::Image { channels } => format!("image ({channels} channels)"),
        Input::Wave => "wave".to_owned(),
        Input::Spectrogram { bins } => format!("spectrogram ({bins} channels)"),
        Input::Vectors => "vectors".to_owned(),
        Input::Features => "features".to_owned(),
        Input::Cache => "cache".to_owned(),
        Input::Other => "other".to_owned(),
    }
}
