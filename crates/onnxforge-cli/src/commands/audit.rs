//! `onnxforge audit`: what a model has that passes are about, and what they make of it.

use std::collections::BTreeSet;
use std::io::{self, Write};

use comfy_table::Cell;
use onnxforge::analysis::audit::{Audit, Finding, Listed, audit};
use onnxforge::hierarchy::Hierarchy;
use serde::Serialize;

use super::hierarchy::sidecar;
use super::{Models, short_name};
use crate::failure::{Failure, Verdict};
use crate::output::{Output, grouped, number, table};

/// List optimization opportunities, and what each is worth.
///
/// Shape chains, casts, attention, norms, constants and more; several models side by side. What a finding is worth is measured: its pass runs,
/// alone, on a copy of the model. With -v every match is listed, with the modules that its nodes come from.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    models: Models,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    models: Vec<Audited>,
}

#[derive(Debug, Serialize)]
struct Audited {
    model: String,
    #[serde(flatten)]
    audit: Audit,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let models = args.models.each(output, |path, model| {
        let hierarchy = Hierarchy::of(&model, sidecar(path, &model, output).as_ref());
        Ok(Audited { model: path.display().to_string(), audit: audit(&model, &hierarchy) })
    })?;
    let report = Report { schema: 1, models };
    output.result(&report, |out| {
        match report.models.as_slice() {
            [one] => show_one(one, out)?,
            several => show_side_by_side(several, out)?,
        }
        if tracing::enabled!(tracing::Level::INFO) {
            report.models.iter().try_for_each(|model| show_places(model, out))?;
        }
        Ok(())
    })?;
    Ok(Verdict::Yes)
}

fn found(audit: &Audit) -> impl Iterator<Item = &Finding> {
    audit.findings.iter().filter(|finding| finding.count > 0)
}

fn show_one(model: &Audited, out: &mut dyn Write) -> io::Result<()> {
    let audit = &model.audit;
    let opset = audit.opset.map_or_else(|| "-".to_owned(), |opset| opset.to_string());
    writeln!(
        out,
        "{} ({} nodes, {} without detours, opset {opset})",
        model.model,
        grouped(audit.nodes as u64),
        grouped(audit.nodes_tidied as u64)
    )?;
    let mut rows = table(&["finding", "places", "handled", "nodes", "pass"]);
    for finding in found(audit) {
        let pass = match finding.no_pass {
            Some(_) => "-".to_owned(),
            None => finding.passes.join(", "),
        };
        rows.add_row([
            Cell::new(finding.id),
            number(grouped(finding.count as u64)),
            number(if finding.passes.is_empty() { "-".to_owned() } else { grouped(finding.handled as u64) }),
            number(if finding.worth == 0 { "-".to_owned() } else { format!("{:+}", -finding.worth) }),
            Cell::new(pass),
        ]);
    }
    if found(audit).next().is_none() {
        return writeln!(out, "nothing was found");
    }
    writeln!(out, "{rows}")?;
    for finding in found(audit) {
        for line in notes(finding) {
            writeln!(out, "{}: {line}", finding.id)?;
        }
    }
    Ok(())
}

/// What there is to say about a finding besides its numbers.
fn notes(finding: &Finding) -> Vec<String> {
    let mut lines = Vec::new();
    let details: Vec<String> = finding
        .details
        .iter()
        .map(|(name, value)| format!("{} {}", name.replace('_', " "), short(*value)))
        .collect();
    if !details.is_empty() {
        lines.push(details.join(", "));
    }
    lines.extend(
        finding.stays.iter().map(|(reason, count)| format!("{} stay: {reason}", grouped(*count as u64))),
    );
    if let Some(newer) = &finding.newer {
        lines.push(format!(
            "with --opset {} the pass takes {} of {} ({:+} nodes)",
            newer.opset, newer.handled, newer.count, -newer.worth
        ));
    }
    if let Some(reason) = finding.no_pass {
        lines.push(format!("no pass: {reason}"));
    }
    if finding.bytes > 0 {
        lines.push(format!("constants shrink by {}", crate::output::bytes(finding.bytes.unsigned_abs())));
    }
    lines
}

/// A number without needless digits.
fn short(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

fn show_side_by_side(models: &[Audited], out: &mut dyn Write) -> io::Result<()> {
    let paths: Vec<&str> = models.iter().map(|model| model.model.as_str()).collect();
    let names = paths.iter().map(|path| short_name(path, &paths));
    let mut rows = table(&std::iter::once("finding").chain(names).collect::<Vec<_>>());
    let line = |label: &str, cell: &dyn Fn(&Audit) -> String| {
        let cells = models.iter().map(|model| number(cell(&model.audit)));
        std::iter::once(Cell::new(label)).chain(cells).collect::<Vec<_>>()
    };
    rows.add_row(line("nodes", &|audit| grouped(audit.nodes as u64)));
    rows.add_row(line("without detours", &|audit| grouped(audit.nodes_tidied as u64)));
    let Some(first) = models.first() else { return Ok(()) };
    for (place, finding) in first.audit.findings.iter().enumerate() {
        let is_found = |model: &Audited| model.audit.findings.get(place).is_some_and(|found| found.count > 0);
        if !models.iter().any(is_found) {
            continue;
        }
        rows.add_row(line(finding.id, &|audit| match audit.findings.get(place) {
            Some(finding) if finding.count > 0 && finding.passes.is_empty() => grouped(finding.count as u64),
            Some(finding) if finding.count > 0 => match &finding.newer {
                Some(newer) if finding.handled == 0 => {
                    format!("{} (opset {}: {:+})", grouped(finding.count as u64), newer.opset, -newer.worth)
                }
                _ => format!("{} ({:+})", grouped(finding.count as u64), -finding.worth),
            },
            _ => "-".to_owned(),
        }));
        let details = models.iter().filter_map(|model| model.audit.findings.get(place));
        let names: BTreeSet<&str> = details.flat_map(|finding| finding.details.keys().copied()).collect();
        for name in names {
            let label = format!("  {}", name.replace('_', " "));
            rows.add_row(line(&label, &|audit| {
                let detail = audit.findings.get(place).and_then(|finding| finding.details.get(name));
                detail.map_or_else(|| "-".to_owned(), |detail| short(*detail))
            }));
        }
    }
    writeln!(out, "{rows}")?;
    writeln!(
        out,
        "places, and in brackets the nodes that go when the pass runs alone, as the model is or with a newer operator set"
    )
}

fn show_places(model: &Audited, out: &mut dyn Write) -> io::Result<()> {
    for finding in found(&model.audit) {
        writeln!(out, "\n{}: {} ({})", model.model, finding.id, finding.text)?;
        for place in &finding.places {
            writeln!(out, "  {}", fate(place))?;
            for member in &place.nodes {
                let module = member.module.as_deref().map(|path| format!("  in {path}")).unwrap_or_default();
                writeln!(out, "    {}{module}", member.node)?;
            }
            for constant in &place.constants {
                writeln!(out, "    constant {constant}")?;
            }
        }
    }
    Ok(())
}

fn fate(place: &Listed) -> String {
    match (place.pass, &place.stays) {
        (Some(pass), _) => format!("handled by {pass}"),
        (None, Some(reason)) => format!("stays: {reason}"),
        (None, None) => "stays".to_owned(),
    }
}
