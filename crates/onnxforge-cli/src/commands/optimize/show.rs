//! What was done, for people.

use std::io::{self, Write};

use comfy_table::Cell;
use onnxforge::hierarchy::effect::ModuleEffect;
use onnxforge::kind::Kind;
use onnxforge::passes::pipeline::Stop;
use onnxforge::verify::guard::Proof;

use super::Shown;
use crate::commands::{upgrade, verify};
use crate::files::show_files;
use crate::output::{bytes, grouped, number, table};

/// Levels of modules that are listed.
const SHOWN_DEPTH: usize = 2;
/// Modules that are listed.
const SHOWN_MODULES: usize = 16;

impl Shown {
    pub fn show(&self, out: &mut dyn Write) -> io::Result<()> {
        let report = &self.report;
        show_kind(&report.kind, out)?;
        match &report.opset {
            Some(converted) => upgrade::show(converted, report.tried.as_ref(), out)?,
            None => upgrade::show_tried(report.tried.as_ref(), out)?,
        }
        self.show_operators(out)?;
        self.show_passes(out)?;
        show_modules(&report.modules, out)?;
        match report.stop {
            Stop::Fixpoint => {}
            Stop::Edits => writeln!(out, "stopped after the number of edits that was asked for")?,
            Stop::Rounds => {
                writeln!(
                    out,
                    "stopped after {} rounds, although passes still found something",
                    report.rounds
                )?;
            }
        }
        show_proof(&report.verification, out)?;
        let reverted = report.verification.reverted.iter().filter(|wrong| wrong.reproducer.is_some());
        for (path, wrong) in self.reproducers.iter().zip(reverted) {
            writeln!(
                out,
                "{path} shows it: onnxforge optimize {path} -o OUT --passes {}; please report it",
                wrong.pass
            )?;
        }
        show_files(&self.files, out)
    }

    fn show_operators(&self, out: &mut dyn Write) -> io::Result<()> {
        let (before, after) = (&self.report.before, &self.report.after);
        let mut rows = table(&["operator", "before", "after"]);
        let mut row = |name: &str, counts: [String; 2]| {
            let [before, after] = counts.map(number);
            rows.add_row([Cell::new(name), before, after]);
        };
        for (op, (before, after)) in &self.report.operators {
            if before != after {
                row(op, [*before, *after].map(|count| grouped(count as u64)));
            }
        }
        row("all nodes", [before, after].map(|size| grouped(size.all_nodes as u64)));
        row("constants", [before, after].map(|size| bytes(size.constants)));
        writeln!(out, "{rows}")
    }

    fn show_passes(&self, out: &mut dyn Write) -> io::Result<()> {
        let fired: Vec<_> = self.report.passes.iter().filter(|pass| pass.edits > 0).collect();
        if fired.is_empty() {
            return Ok(());
        }
        let mut rows = table(&["pass", "edits", "nodes", "bytes", "ms"]);
        for pass in fired {
            rows.add_row([
                Cell::new(pass.name),
                number(grouped(pass.edits as u64)),
                number(format!("{:+}", pass.nodes)),
                number(format!("{:+}", pass.bytes)),
                number(format!("{:.1}", pass.milliseconds)),
            ]);
        }
        writeln!(out, "{rows}")
    }
}

/// What kind of network it is, and what that decided, in one line.
fn show_kind(kind: &Kind, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{} ({:.0} %): {}", kind.class.name(), kind.confidence * 100.0, kind.reasons.join("; "))?;
    for chosen in &kind.chosen {
        write!(out, "; {} runs, too: {}", chosen.pass, chosen.why)?;
    }
    writeln!(out)
}

/// What became of the modules near the top.
fn show_modules(effects: &[ModuleEffect], out: &mut dyn Write) -> io::Result<()> {
    let listed: Vec<&ModuleEffect> = effects
        .iter()
        .filter(|effect| effect.depth <= SHOWN_DEPTH && effect.before != effect.after)
        .collect();
    if effects.len() < 2 || listed.is_empty() {
        return Ok(());
    }
    let mut rows = table(&["module", "nodes before", "after"]);
    for effect in listed.iter().take(SHOWN_MODULES) {
        let gone = effect.gone.map(|gone| format!(" ({gone})")).unwrap_or_default();
        let label =
            format!("{}{}", "  ".repeat(effect.depth), effect.tag.rsplit('/').next().unwrap_or_default());
        rows.add_row([Cell::new(label), number(effect.before), number(format!("{}{gone}", effect.after))]);
    }
    writeln!(out, "{rows}")?;
    let more = effects.len() - listed.len().min(SHOWN_MODULES);
    if more > 0 {
        writeln!(out, "{more} more modules; --json and --report show all of them")?;
    }
    Ok(())
}

fn show_proof(proof: &Proof, out: &mut dyn Write) -> io::Result<()> {
    for wrong in &proof.reverted {
        writeln!(
            out,
            "REVERTED: {} of {} was wrong at edit {}: {} ({})",
            wrong.rule, wrong.pass, wrong.edit, wrong.value, wrong.difference
        )?;
    }
    let local = &proof.local;
    if local.checked + local.unchecked.len() > 0 {
        write!(out, "{} checked where they happened", counted(local.checked, "edit"))?;
        if local.repeated > 0 {
            write!(out, " ({} by others that look alike)", grouped(local.repeated as u64))?;
        }
        for (reason, count) in &local.unchecked {
            write!(out, "; {} not: {reason}", grouped(*count as u64))?;
        }
        writeln!(out)?;
    }
    if let Some(reason) = &proof.unverified {
        writeln!(
            out,
            "NOT compared with the original: {reason}; give sizes (--verify-dim NAME=N) or inputs (--inputs)"
        )?;
    }
    let Some(report) = &proof.global else { return show_loading(proof, out) };
    if let Some(reason) = &proof.fallback {
        writeln!(out, "the {} engine took over: {reason}", report.engine.name())?;
    }
    let worst = report.outputs.iter().filter_map(|output| output.difference.as_ref());
    let worst = worst.map(|difference| difference.max_rel).fold(0.0, f64::max);
    writeln!(
        out,
        "compared with the original{}: {}{} ({}, {} inside, {}, engine {})",
        if report.by_blocks { " block by block" } else { "" },
        verify::said(report.verdict),
        if worst > 0.0 { format!(", {worst:.1e} at most") } else { String::new() },
        counted(report.outputs.len(), "output"),
        counted(report.inside, "value"),
        counted(report.samples, "sample"),
        report.engine.name(),
    )?;
    show_loading(proof, out)?;
    if let Some(why) = report.undetermined() {
        writeln!(out, "{why}; give inputs for which the model is reliable (--inputs)")?;
    }
    for sizes in &report.unequal {
        writeln!(
            out,
            "dimensions of one name are assumed to be equal; where they are not, the result differs: {sizes}"
        )?;
    }
    if !report.sizes.is_empty() {
        writeln!(out, "sizes: {}", report.sizes.join("; "))?;
    }
    Ok(())
}

fn show_loading(proof: &Proof, out: &mut dyn Write) -> io::Result<()> {
    if let Some(version) = &proof.loaded_by {
        writeln!(out, "ONNX Runtime {version} loads the result")?;
    }
    if let Some(error) = &proof.not_loaded {
        writeln!(out, "ONNX Runtime loads the result no more than the model before the passes: {error}")?;
    }
    Ok(())
}

/// A number of things.
fn counted(count: usize, what: &str) -> String {
    format!("{} {what}{}", grouped(count as u64), if count == 1 { "" } else { "s" })
}
