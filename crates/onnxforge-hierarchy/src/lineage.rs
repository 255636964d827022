//! The modules of a model through optimization.

use super::effect::{ModuleEffect, conserved, effects, nodes_of_modules};
use super::recorded::Recorded;
use super::store::{self, WriteOptions};
use super::{Hierarchy, Policy, Tags};
use onnxforge_ir::Model;

/// Where the nodes of a model come from, before passes change it.
#[derive(Clone, Debug)]
pub struct Lineage {
    hierarchy: Hierarchy,
    is_tagged: bool,
}

/// The same afterwards.
#[derive(Clone, Debug)]
pub struct Carried {
    /// Where the nodes of the result come from.
    pub hierarchy: Hierarchy,
    /// Which modules have tags.
    pub policy: Policy,
    /// Nodes of each module before, in the order of the table.
    pub before: Vec<usize>,
    /// What became of modules, where they are known.
    pub effects: Vec<ModuleEffect>,
}

/// A node that is attributed to a module that none of its parents comes from: a mistake of this library.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{node} is attributed to a module that it does not come from; please report this")]
pub struct Stray {
    /// The node.
    pub node: String,
}

impl Lineage {
    /// What is known of a model, from itself and from what was recorded beside it.
    pub fn of(model: &Model, recorded: Option<&Recorded>) -> Self {
        Self { hierarchy: Hierarchy::of(model, recorded), is_tagged: store::is_tagged(model) }
    }

    /// Where the nodes come from.
    pub fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    /// Carries everything over to what passes made of the model, and writes into it what its nodes would otherwise lose.
    pub fn carry(self, model: &mut Model) -> Result<Carried, Stray> {
        let Self { hierarchy: before, is_tagged } = self;
        let after = before.carried(model);
        conserved(model, &before, &after).map_err(|node| Stray { node: model.node_label(node) })?;
        let policy = before.policy();
        let tags = Tags::new(before.table(), &policy);
        let effects = if before.is_known() { effects(model, &before, &after, &tags) } else { Vec::new() };
        let counts =
            nodes_of_modules(before.table(), model.source_nodes().map(|id| before.origin(id).primary()));
        if is_tagged {
            let options = WriteOptions::of(model);
            store::write(model, &after, &policy, options);
        } else if before.is_known() {
            store::write_new(model, &before, &after);
        }
        Ok(Carried { hierarchy: after, policy, before: counts, effects })
    }
}
