//! Times of modules for people.

use std::collections::HashMap;
use std::io::{self, Write};

use comfy_table::Cell;
use onnxforge::bench::Estimate;
use onnxforge::profile::{GroupTime, ModuleTime, Ran};

use super::{Args, By, ModelReport, Report};
use crate::output::{bar, number, table};

/// The overhead of the profiler from which on it is the larger part of what is measured.
const ROUGH: f64 = 1.0;

impl Report {
    pub fn show(&self, args: &Args, out: &mut dyn Write) -> io::Result<()> {
        match (args.by, &self.models[..]) {
            (By::Module, [one]) => one.tree(args.depth, out)?,
            (By::Module, several) => beside(several, args.depth, out)?,
            (by, models) => {
                for model in models {
                    if models.len() > 1 {
                        writeln!(out, "{}", model.model)?;
                    }
                    match by {
                        By::Operator => groups("operator", &model.profile.operators, args.top, out)?,
                        By::Class => groups("class", &model.profile.classes, args.top, out)?,
                        _ => model.nodes(args.top, out)?,
                    }
                }
            }
        }
        for model in &self.models {
            model.summary(self.models.len() > 1, out)?;
        }
        let engine = match self.engine {
            Ran::Ort => format!("ONNX Runtime {}", self.runtime.as_deref().unwrap_or("of unknown version")),
            Ran::Native => "native engine (ONNX Runtime is faster, and spends its time elsewhere)".to_owned(),
        };
        let inputs =
            self.inputs.iter().map(|input| format!("{} {}{:?}", input.name, input.r#type, input.shape));
        writeln!(
            out,
            "{engine}, {} {}, {} sessions; intervals of {:.1} %; inputs: {}",
            self.threads,
            if self.threads == 1 { "thread" } else { "threads" },
            self.sessions,
            self.confidence.unwrap_or(0.0) * 100.0,
            inputs.collect::<Vec<_>>().join(", ")
        )
    }
}

impl ModelReport {
    fn tree(&self, depth: usize, out: &mut dyn Write) -> io::Result<()> {
        let mut rows = table(&["module", "total, ms", "share", "", "self, ms", "nodes", "path"]);
        let (lines, hidden) = lines(&self.profile.modules, &self.tagged, depth);
        for (level, at) in lines {
            let module = &self.profile.modules[at];
            rows.add_row([
                Cell::new(label(module, level)),
                number(shown(&module.total_ms)),
                number(percent(module.share)),
                Cell::new(bar((module.share * 1e6) as u64, 1_000_000, 12)),
                number(milliseconds(self.own(at))),
                number(module.nodes),
                Cell::new(if module.module.is_empty() { "." } else { &module.module }),
            ]);
        }
        writeln!(out, "{rows}")?;
        if hidden > 0 {
            writeln!(out, "{hidden} more deeper down; --depth {} shows the next level", depth + 1)?;
        }
        Ok(())
    }

    /// The time of the nodes of a module and of those inside of it that have no line of their own.
    fn own(&self, at: usize) -> f64 {
        let modules = &self.profile.modules;
        let home = |mut at: usize| {
            while !self.tagged[at]
                && let Some(parent) = modules[at].parent
            {
                at = parent;
            }
            at
        };
        (0..modules.len()).filter(|&inner| home(inner) == at).map(|inner| modules[inner].self_ms.median).sum()
    }

    fn nodes(&self, top: usize, out: &mut dyn Write) -> io::Result<()> {
        let mut rows = table(&["node", "operator", "ms", "module", "known"]);
        for node in self.profile.nodes.iter().take(top) {
            let known = serde_json::to_value(node.certainty).ok();
            rows.add_row([
                Cell::new(&node.node),
                Cell::new(&node.op),
                number(shown(&node.self_ms)),
                Cell::new(if node.module.is_empty() { "." } else { &node.module }),
                Cell::new(known.as_ref().and_then(|known| known.as_str()).unwrap_or_default()),
            ]);
        }
        writeln!(out, "{rows}")?;
        more(self.profile.nodes.len(), top, "nodes", out)
    }

    fn summary(&self, with_name: bool, out: &mut dyn Write) -> io::Result<()> {
        let profile = &self.profile;
        let name = if with_name { format!("{}: ", self.model) } else { String::new() };
        writeln!(
            out,
            "{name}{} ms a run: {} in nodes, {} between them; the profiler made runs {} longer",
            shown(&profile.total_ms),
            milliseconds(profile.nodes_ms.median),
            milliseconds(profile.between_ms),
            percent(profile.overhead.max(0.0))
        )?;
        if profile.overhead > ROUGH {
            writeln!(
                out,
                "{name}its nodes are too short for the profiler: shares are rough, and times are scaled to a run without it"
            )?;
        }
        let found = profile.attributed;
        writeln!(
            out,
            "{name}of the time in nodes, {} is attributed exactly, {} by inference, {} not at all; {} to modules inside of the model",
            percent(found.exact),
            percent(found.inferred),
            percent(found.unknown),
            percent(found.below_root)
        )
    }
}

/// Modules that have a line, each with its level, the longest of each level first; and how many lie deeper.
fn lines(modules: &[ModuleTime], tagged: &[bool], depth: usize) -> (Vec<(usize, usize)>, usize) {
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); modules.len()];
    for (at, module) in modules.iter().enumerate() {
        let mut around = module.parent;
        while let Some(above) = around.filter(|&above| !tagged[above]) {
            around = modules[above].parent;
        }
        if let Some(around) = around.filter(|_| tagged[at] && module.nodes > 0) {
            children[around].push(at);
        }
    }
    let time = |at: &usize| modules[*at].total_ms.median;
    let (mut lines, mut hidden) = (Vec::new(), 0);
    let mut open = if modules.is_empty() { Vec::new() } else { vec![(0, 0)] };
    while let Some((level, at)) = open.pop() {
        if level > depth {
            hidden += 1;
        } else {
            lines.push((level, at));
        }
        let mut inner = children[at].clone();
        // The last one pushed comes first.
        inner.sort_by(|a, b| time(a).total_cmp(&time(b)));
        open.extend(inner.into_iter().map(|inner| (level + 1, inner)));
    }
    (lines, hidden)
}

/// Models side by side, module by module, in the order of the first.
fn beside(models: &[ModelReport], depth: usize, out: &mut dyn Write) -> io::Result<()> {
    let mut heading = vec!["module".to_owned()];
    for (at, model) in models.iter().enumerate() {
        let name = model.model.rsplit(['/', '\\']).next().unwrap_or(&model.model);
        heading.push(format!("{name}, ms"));
        if at > 0 {
            heading.push("by".to_owned());
        }
    }
    heading.push("path".to_owned());
    let mut rows = table(&heading.iter().map(String::as_str).collect::<Vec<_>>());
    let by_path: Vec<HashMap<&str, &ModuleTime>> = models
        .iter()
        .map(|model| model.profile.modules.iter().map(|module| (module.module.as_str(), module)).collect())
        .collect();
    let first = &models[0];
    let (lines, hidden) = lines(&first.profile.modules, &first.tagged, depth);
    for (level, at) in lines {
        let module = &first.profile.modules[at];
        let mut cells = vec![Cell::new(label(module, level)), number(shown(&module.total_ms))];
        for other in &by_path[1..] {
            match other.get(module.module.as_str()).filter(|other| other.nodes > 0) {
                Some(other) => {
                    let (before, after) = (module.total_ms, other.total_ms);
                    // Only what both intervals leave no doubt about is called a change.
                    let sure = after.low > before.high || after.high < before.low;
                    let by = if before.median > 0.0 { after.median / before.median - 1.0 } else { 0.0 };
                    cells.push(number(shown(&after)));
                    cells.push(number(if sure {
                        format!("{:+.1} %", by * 100.0)
                    } else {
                        "noise".to_owned()
                    }));
                }
                None => cells.extend([number("-"), number("gone")]),
            }
        }
        cells.push(Cell::new(if module.module.is_empty() { "." } else { &module.module }));
        rows.add_row(cells);
    }
    writeln!(out, "{rows}")?;
    if hidden > 0 {
        writeln!(out, "{hidden} more deeper down; --depth {} shows the next level", depth + 1)?;
    }
    Ok(())
}

fn groups(kind: &str, groups: &[GroupTime], top: usize, out: &mut dyn Write) -> io::Result<()> {
    let mut rows = table(&[kind, "total, ms", "share", "", "self, ms", "count"]);
    for group in groups.iter().take(top) {
        rows.add_row([
            Cell::new(&group.name),
            number(shown(&group.total_ms)),
            number(percent(group.share)),
            Cell::new(bar((group.share * 1e6) as u64, 1_000_000, 12)),
            number(milliseconds(group.self_ms.median)),
            number(group.count),
        ]);
    }
    writeln!(out, "{rows}")?;
    more(groups.len(), top, "lines", out)
}

fn more(count: usize, top: usize, what: &str, out: &mut dyn Write) -> io::Result<()> {
    match count.saturating_sub(top) {
        0 => Ok(()),
        more => writeln!(out, "{more} more {what}; --top shows more"),
    }
}

fn label(module: &ModuleTime, level: usize) -> String {
    let own = module.tag.rsplit('/').next().unwrap_or_default();
    format!("{}{}", "  ".repeat(level), if own.is_empty() { "/" } else { own })
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn milliseconds(time: f64) -> String {
    // Three digits, whatever the magnitude.
    let digits = (2 - time.abs().max(1e-3).log10().floor() as i32).clamp(0, 4) as usize;
    format!("{time:.digits$}")
}

fn shown(estimate: &Estimate) -> String {
    let Estimate { median, low, high } = *estimate;
    format!("{} [{}, {}]", milliseconds(median), milliseconds(low), milliseconds(high))
}
