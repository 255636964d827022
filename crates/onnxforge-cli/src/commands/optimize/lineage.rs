//! The modules of a model through optimization.

use std::io::{self, Write};
use std::path::Path;

use onnxforge::hierarchy::effect::{ModuleEffect, conserved, effects, nodes_of_modules};
use onnxforge::hierarchy::report::{Optimization, PassEffect};
use onnxforge::hierarchy::sidecar::path_for;
use onnxforge::hierarchy::store::{self, WriteOptions};
use onnxforge::hierarchy::{Hierarchy, Policy, Tags};
use onnxforge::ir::Model;
use onnxforge::passes::pipeline::Outcome;

use crate::commands::hierarchy::sidecar;
use crate::commands::report::page_of;
use crate::commands::tag::write_sidecar;
use crate::failure::Failure;
use crate::files::WrittenFile;
use crate::output::{Output, number, table};

/// Levels of modules that are listed.
const SHOWN_DEPTH: usize = 2;
/// Modules that are listed.
const SHOWN_MODULES: usize = 16;

/// Where the nodes of a model come from, before passes change it.
pub struct Lineage {
    hierarchy: Hierarchy,
    /// The model was tagged.
    tagged: bool,
    /// It has a sidecar.
    beside: bool,
}

/// The same afterwards.
pub struct Carried {
    hierarchy: Hierarchy,
    policy: Policy,
    beside: bool,
    /// Nodes of each module before.
    before: Vec<usize>,
    /// What became of modules.
    pub effects: Vec<ModuleEffect>,
}

impl Lineage {
    /// What is known of a model that was loaded from `path`.
    pub fn of(path: &Path, model: &Model, output: &Output) -> Self {
        let recorded = sidecar(path, model, output);
        let beside = recorded.is_some();
        Self { hierarchy: Hierarchy::of(model, recorded.as_ref()), tagged: store::is_tagged(model), beside }
    }

    /// Carries everything over to what passes made of the model, and writes into it what its nodes would otherwise lose.
    pub fn carry(self, model: &mut Model) -> Result<Carried, Failure> {
        let Self { hierarchy: before, tagged, beside } = self;
        let after = before.carried(model);
        if let Err(node) = conserved(model, &before, &after) {
            let label = model.node_label(node);
            return Err(Failure::new(format!(
                "{label} is attributed to a module that it does not come from; please report this"
            )));
        }
        let policy = before.policy();
        let tags = Tags::new(before.table(), &policy);
        let effects = if before.is_known() { effects(model, &before, &after, &tags) } else { Vec::new() };
        let counts =
            nodes_of_modules(before.table(), model.source_nodes().map(|id| before.origin(id).primary()));
        if tagged {
            store::write(model, &after, &policy, WriteOptions::default());
        } else if before.is_known() {
            store::write_new(model, &before, &after);
        }
        Ok(Carried { hierarchy: after, policy, beside, before: counts, effects })
    }
}

impl Carried {
    /// Writes a sidecar for the result, if the model had one.
    pub fn write_sidecar(
        &self,
        path: &Path,
        model: &Model,
        output: &Output,
    ) -> Result<Vec<WrittenFile>, Failure> {
        match self.beside {
            true => write_sidecar(&path_for(path), path, model, &self.hierarchy, &self.policy, output),
            false => Ok(Vec::new()),
        }
    }

    /// Writes the page of the result.
    pub fn write_page(
        &self,
        page: &Path,
        path: &Path,
        model: &Model,
        outcome: &Outcome,
        output: &Output,
    ) -> Result<Vec<WrittenFile>, Failure> {
        let fired = outcome.passes.iter().filter(|pass| pass.edits > 0);
        let passes = fired.map(|pass| PassEffect {
            pass: pass.pass.name.to_owned(),
            edits: pass.edits,
            nodes: pass.nodes,
        });
        let optimization = Optimization {
            before: self.before.first().copied().unwrap_or(0),
            after: model.node_count(),
            passes: passes.collect(),
            modules: self.before.clone(),
        };
        let text = page_of(path, model, &self.hierarchy, &self.policy, &[], Some(optimization));
        output.files.write(page, |out| out.write_all(text.as_bytes()))
    }
}

/// What became of the modules near the top.
pub fn show(effects: &[ModuleEffect], out: &mut dyn Write) -> io::Result<()> {
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
        rows.add_row([
            comfy_table::Cell::new(label),
            number(effect.before),
            number(format!("{}{gone}", effect.after)),
        ]);
    }
    writeln!(out, "{rows}")?;
    let more = effects.len() - listed.len().min(SHOWN_MODULES);
    if more > 0 {
        writeln!(out, "{more} more modules; --json and --report show all of them")?;
    }
    Ok(())
}
