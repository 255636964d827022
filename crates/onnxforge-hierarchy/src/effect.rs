//! What passes did to modules: nodes before and after, and modules that are gone.

use serde::Serialize;

use super::module::{ModuleId, ModuleTable};
use super::{Hierarchy, Tags};
use onnxforge_ir::origin::Fate;
use onnxforge_ir::{Model, NodeId};

/// What became of a module, with everything inside of it.
#[derive(Clone, Debug, Serialize)]
pub struct ModuleEffect {
    /// Its path.
    pub module: String,
    /// Its tag.
    pub tag: String,
    /// Levels below the model.
    pub depth: usize,
    /// Nodes before; each counts for the module that it stands for.
    pub before: usize,
    /// Nodes after.
    pub after: usize,
    /// What its nodes became, where none is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gone: Option<&'static str>,
}

/// What passes did to each module that has a tag and had nodes. `before` was found for the model when it was loaded, `after` was carried over.
pub fn effects(model: &Model, before: &Hierarchy, after: &Hierarchy, tags: &Tags) -> Vec<ModuleEffect> {
    let table = before.table();
    let was = nodes_of_modules(table, model.source_nodes().map(|id| before.origin(id).primary()));
    let is = nodes_of_modules(table, model.nodes().map(|(id, _)| after.origin(id).primary()));
    let fates = model.fates();
    let tagged = tags.own().filter(|(_, id)| was[id.index()] > 0);
    tagged
        .map(|(tag, id)| ModuleEffect {
            module: table.get(id).path.to_string(),
            tag: tag.to_owned(),
            depth: tags.depth(table, id),
            before: was[id.index()],
            after: is[id.index()],
            gone: (is[id.index()] == 0).then(|| end(&fates, before, table, id)),
        })
        .collect()
}

/// How many nodes each module has, with everything inside of it, given the module of each node.
pub fn nodes_of_modules(table: &ModuleTable, modules: impl Iterator<Item = ModuleId>) -> Vec<usize> {
    let mut counts = vec![0usize; table.len()];
    modules.for_each(|module| counts[module.index()] += 1);
    // Those inside come later.
    let ids: Vec<ModuleId> = table.iter().map(|(id, _)| id).collect();
    for id in ids.into_iter().rev() {
        if let Some(parent) = table.parent(id) {
            counts[parent.index()] += counts[id.index()];
        }
    }
    counts
}

/// What the nodes of a module became that has none left.
fn end(fates: &[(NodeId, Fate)], before: &Hierarchy, table: &ModuleTable, module: ModuleId) -> &'static str {
    let own = fates.iter().filter(|(id, _)| table.is_within(before.origin(*id).primary(), module));
    let (mut merged, mut folded) = (false, false);
    for (_, fate) in own {
        merged |= matches!(fate, Fate::Kept | Fate::Merged(_));
        folded |= matches!(fate, Fate::Folded(_));
    }
    match (merged, folded) {
        (true, _) => "merged into nodes of other modules",
        (_, true) => "computed once and for all",
        _ => "did nothing that anybody needs",
    }
}

/// Whether nothing was attributed to a module that it did not come from, and every node comes from somewhere. Answers the first node
/// that breaks this.
pub fn conserved(model: &Model, before: &Hierarchy, after: &Hierarchy) -> Result<(), NodeId> {
    for (id, node) in model.nodes() {
        let sources = model.origins().sources(node.origin());
        let came_from =
            |module: &ModuleId| sources.iter().any(|&source| before.origin(source).modules.contains(module));
        let found = &after.origin(id).modules;
        if found.is_empty() || sources.is_empty() || !found.iter().all(came_from) {
            return Err(id);
        }
    }
    Ok(())
}
