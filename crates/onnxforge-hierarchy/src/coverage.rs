//! How many nodes are known to come from a module, by what their operators are for.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;

use super::evidence::{Certainty, Evidence};
use super::{Hierarchy, Tags};
use onnxforge_ir::dtype::Kind;
use onnxforge_ir::{Model, Node, NodeId, ValueId};
use onnxforge_ops as ops;
use onnxforge_ops::def::Category;

/// The name of a category in reports.
pub fn name(category: Category) -> &'static str {
    match category {
        Category::Math => "mathematical",
        Category::Activation => "activation",
        Category::NeuralLayer => "neural_layers",
        Category::Reduction => "reduction",
        Category::Indexing => "lookup_indexing",
        Category::Manipulation => "tensor_manipulation",
        Category::Shape => "shape_metadata",
        Category::Constant => "parameter_constant",
        Category::Logic => "comparison_logic",
        Category::Conversion => "type_conversion",
        Category::ControlFlow => "control_flow",
        Category::Uncategorised => "uncategorised",
    }
}

/// The share of nodes of a category that should be covered; nothing is expected of what is not known.
pub fn threshold(category: Category) -> Option<f64> {
    match category {
        Category::Math | Category::Activation | Category::NeuralLayer | Category::Reduction => Some(0.95),
        Category::Indexing => Some(0.90),
        Category::Manipulation | Category::Shape | Category::Logic => Some(0.85),
        Category::ControlFlow => Some(0.80),
        Category::Constant => Some(0.70),
        Category::Conversion => Some(0.60),
        Category::Uncategorised => None,
    }
}

/// What a node's operator is for.
pub fn category(node: &Node) -> Category {
    ops::find(&node.op().domain, &node.op().name).map_or(Category::Uncategorised, |def| def.category)
}

/// How many nodes come from where.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counts {
    /// All.
    pub nodes: usize,
    /// Whoever made them wrote it down.
    pub exact: usize,
    /// Concluded from what is around them.
    pub inferred: usize,
    /// Not known.
    pub root: usize,
}

impl Counts {
    fn add(&mut self, certainty: Certainty) {
        self.nodes += 1;
        match certainty {
            Certainty::Exact => self.exact += 1,
            Certainty::Inferred => self.inferred += 1,
            Certainty::Root => self.root += 1,
        }
    }

    /// The share of nodes whose origin is known; that of no nodes is 1.
    pub fn coverage(&self) -> f64 {
        if self.nodes == 0 { 1.0 } else { (self.exact + self.inferred) as f64 / self.nodes as f64 }
    }
}

/// A category.
#[derive(Clone, Debug, Serialize)]
pub struct CategoryCoverage {
    /// Its name.
    pub category: &'static str,
    /// Its nodes.
    #[serde(flatten)]
    pub counts: Counts,
    /// The share that is known.
    pub coverage: f64,
    /// The share that should be.
    pub threshold: Option<f64>,
    /// Whether it is.
    pub ok: bool,
    /// Operators, and how many of their nodes are known and not known.
    pub operators: BTreeMap<String, Counts>,
}

/// A node whose origin is not known.
#[derive(Clone, Debug, Serialize)]
pub struct Uncovered {
    /// The node.
    pub node: String,
    /// Its category.
    pub category: &'static str,
    /// Whether it computes with parameters, which none of these should.
    pub uses_parameters: bool,
}

/// What is known of a model's nodes.
#[derive(Clone, Debug, Serialize)]
pub struct Coverage {
    /// All nodes.
    #[serde(flatten)]
    pub counts: Counts,
    /// The share that is known.
    pub coverage: f64,
    /// Nodes that compute with parameters.
    pub with_parameters: Counts,
    /// By what the origins are known from.
    pub evidence: BTreeMap<&'static str, usize>,
    /// Nodes that come from several modules.
    pub several_modules: usize,
    /// By what operators are for, in a fixed order; those without nodes are left out.
    pub categories: Vec<CategoryCoverage>,
    /// Nodes whose origin is not known.
    pub uncovered: Vec<Uncovered>,
    /// Modules without nodes, and why.
    pub without_nodes: Vec<WithoutNodes>,
}

/// A module without nodes.
#[derive(Clone, Debug, Serialize)]
pub struct WithoutNodes {
    /// Its path.
    pub module: String,
    /// Its tag.
    pub tag: String,
    /// What became of it.
    pub why: &'static str,
}

/// What is known of the nodes of a model.
pub fn coverage(model: &Model, hierarchy: &Hierarchy, tags: &Tags) -> Coverage {
    let mut counts = Counts::default();
    let mut with_parameters = Counts::default();
    let mut evidence: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut categories: BTreeMap<Category, (Counts, BTreeMap<String, Counts>)> = BTreeMap::new();
    let mut uncovered = Vec::new();
    let mut several_modules = 0;
    let users = parameter_users(model, hierarchy);
    for (id, node) in model.nodes() {
        let origin = hierarchy.origin(id);
        let certainty = origin.evidence.certainty();
        let category = category(node);
        counts.add(certainty);
        let (all, operators) = categories.entry(category).or_default();
        all.add(certainty);
        operators.entry(node.op().to_string()).or_default().add(certainty);
        *evidence.entry(origin.evidence.name()).or_default() += 1;
        several_modules += usize::from(origin.modules.len() > 1);
        let uses_parameters = users.contains(&id);
        if uses_parameters {
            with_parameters.add(certainty);
        }
        if origin.evidence == Evidence::Root {
            uncovered.push(Uncovered {
                node: model.node_label(id),
                category: name(category),
                uses_parameters,
            });
        }
    }
    let categories = categories.into_iter().map(|(category, (counts, operators))| {
        let (coverage, threshold) = (counts.coverage(), threshold(category));
        let ok = threshold.is_none_or(|threshold| coverage >= threshold);
        CategoryCoverage { category: name(category), counts, coverage, threshold, ok, operators }
    });
    Coverage {
        coverage: counts.coverage(),
        counts,
        with_parameters,
        evidence,
        several_modules,
        categories: categories.collect(),
        uncovered,
        without_nodes: without_nodes(model, hierarchy, tags),
    }
}

/// Modules that neither have nodes nor hold one that has.
fn without_nodes(model: &Model, hierarchy: &Hierarchy, tags: &Tags) -> Vec<WithoutNodes> {
    let table = hierarchy.table();
    let mut has = vec![false; table.len()];
    for (id, _) in model.nodes() {
        for &module in &hierarchy.origin(id).modules {
            table.chain(module).for_each(|above| has[above.index()] = true);
        }
    }
    let stored = hierarchy.stored(model);
    let empty = table.iter().filter(|(id, _)| !has[id.index()]);
    empty
        .map(|(id, module)| WithoutNodes {
            module: module.path.to_string(),
            tag: tags.get(id).to_owned(),
            why: hierarchy.why_without_nodes(id, &stored),
        })
        .collect()
}

/// The nodes that compute with parameters: they read one, or something that was made of constants with one among them.
fn parameter_users(model: &Model, hierarchy: &Hierarchy) -> HashSet<NodeId> {
    let is_parameter = |value: ValueId| {
        let owned = !hierarchy.constant(value).is_empty();
        let weights = |tensor: &onnxforge_ir::Tensor| {
            tensor.dtype().kind() == Kind::Float && !tensor.shape().is_empty()
        };
        model.constant(value).is_some_and(|tensor| owned || weights(tensor))
    };
    let mut made: HashSet<ValueId> = HashSet::new();
    let mut users = HashSet::new();
    for (id, node) in model.nodes() {
        let reads = node.inputs().iter().flatten();
        let mut all_fixed = !node.inputs().is_empty();
        let mut any = false;
        for &value in reads {
            let fixed = model.constant(value).is_some() || made.contains(&value);
            all_fixed &= fixed;
            any |= is_parameter(value) || made.contains(&value);
        }
        if any {
            users.insert(id);
            if all_fixed {
                made.extend(node.outputs().iter().flatten());
            }
        }
    }
    users
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operator_of_the_standard_has_a_category() {
        let unknown =
            |def: &&ops::def::OpDef| def.category == Category::Uncategorised && def.domain != "com.microsoft";
        let without: Vec<&str> = ops::all().filter(unknown).map(|def| def.name).collect();
        assert!(without.is_empty(), "{without:?}");
    }
}
