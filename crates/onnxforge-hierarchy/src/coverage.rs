//! How many nodes are known to come from a module, by what their operators are for.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;

use super::consumers::{Consumed, consumed};
use super::evidence::{Certainty, Evidence};
use super::{Hierarchy, Tags};
use onnxforge_ir::dtype::Kind;
use onnxforge_ir::{Model, Node, NodeId, ValueId};
use onnxforge_ops as ops;
use onnxforge_ops::def::Category;

/// The categories, in the order in which reports list them.
pub const CATEGORIES: [Category; 12] = [
    Category::Math,
    Category::Activation,
    Category::NeuralLayer,
    Category::Reduction,
    Category::Indexing,
    Category::Manipulation,
    Category::Shape,
    Category::Constant,
    Category::Logic,
    Category::Conversion,
    Category::ControlFlow,
    Category::Uncategorised,
];

/// The name of a category in reports.
pub fn name(category: Category) -> &'static str {
    match category {
        Category::Math => "mathematical_operations",
        Category::Activation => "activation_functions",
        Category::NeuralLayer => "neural_network_layers",
        Category::Reduction => "reduction_operations",
        Category::Indexing => "lookup_indexing",
        Category::Manipulation => "tensor_manipulation",
        Category::Shape => "shape_metadata",
        Category::Constant => "parameter_constants",
        Category::Logic => "comparison_logic",
        Category::Conversion => "type_conversion",
        Category::ControlFlow => "control_flow",
        Category::Uncategorised => "uncategorized",
    }
}

/// The category of a name, or of a part of one that no other has.
pub fn find(wanted: &str) -> Result<Category, NoCategory> {
    let fits = || CATEGORIES.into_iter().filter(|&category| name(category).contains(wanted));
    let exact = CATEGORIES.into_iter().find(|&category| name(category) == wanted);
    match (exact, fits().count()) {
        (Some(category), _) => Ok(category),
        (None, 1) if !wanted.is_empty() => fits().next().ok_or_else(|| NoCategory::of(wanted, 0)),
        (None, count) => Err(NoCategory::of(wanted, count)),
    }
}

/// A name that means no category.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} category {wanted:?}; there are {}",
    if *ambiguous { "more than one" } else { "no" },
    CATEGORIES.map(name).join(", ")
)]
pub struct NoCategory {
    /// What was asked for.
    pub wanted: String,
    /// It is a part of several names.
    pub ambiguous: bool,
}

impl NoCategory {
    fn of(wanted: &str, fits: usize) -> Self {
        Self { wanted: wanted.to_owned(), ambiguous: fits > 1 }
    }
}

/// Whether nodes of a category do what a model is for, so that nearly all of them should be known.
pub fn is_critical(category: Category) -> bool {
    matches!(category, Category::Math | Category::Activation | Category::NeuralLayer | Category::Reduction)
}

/// The percentage of nodes of each category that should be covered.
#[derive(Clone, Debug, Default)]
pub struct Thresholds {
    chosen: BTreeMap<Category, f64>,
}

impl Thresholds {
    /// Another percentage for one category.
    pub fn set(&mut self, category: Category, percent: f64) {
        self.chosen.insert(category, percent);
    }

    /// That of a category; nothing is expected of what is not known, unless it was chosen.
    pub fn of(&self, category: Category) -> Option<f64> {
        let usual = match category {
            Category::Math | Category::Activation | Category::NeuralLayer | Category::Reduction => Some(95.0),
            Category::Indexing => Some(90.0),
            Category::Manipulation | Category::Shape | Category::Logic => Some(85.0),
            Category::ControlFlow => Some(80.0),
            Category::Constant => Some(70.0),
            Category::Conversion => Some(60.0),
            Category::Uncategorised => None,
        };
        self.chosen.get(&category).copied().or(usual)
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

    /// How many are known.
    pub fn known(&self) -> usize {
        self.exact + self.inferred
    }

    /// The share of nodes whose origin is known; that of no nodes is 1.
    pub fn coverage(&self) -> f64 {
        if self.nodes == 0 { 1.0 } else { self.known() as f64 / self.nodes as f64 }
    }
}

/// A category.
#[derive(Clone, Debug, Serialize)]
pub struct CategoryCoverage {
    /// Its name.
    pub category: &'static str,
    /// How many nodes it has.
    pub total: usize,
    /// How many of them are known.
    pub tagged: usize,
    /// That as a percentage.
    pub percentage: f64,
    /// The percentage that should be known.
    pub threshold: Option<f64>,
    /// Whether its nodes do what a model is for.
    pub critical: bool,
    /// Whether as many are known as should be.
    pub ok: bool,
    /// Its nodes.
    #[serde(flatten)]
    pub counts: Counts,
    /// The share that is known.
    pub coverage: f64,
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
    /// The share whose module is the right one, at least: the mean of [`Hierarchy::confidence`].
    pub confidence: f64,
    /// Nodes that compute with parameters.
    pub with_parameters: Counts,
    /// By what the origins are known from.
    pub evidence: BTreeMap<&'static str, usize>,
    /// Nodes that come from several modules.
    pub several_modules: usize,
    /// By what operators are for, in a fixed order; those without nodes are left out.
    pub categories: Vec<CategoryCoverage>,
    /// Tensors whose consumers are known.
    pub consumers: Consumed,
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
pub fn coverage(model: &Model, hierarchy: &Hierarchy, tags: &Tags, thresholds: &Thresholds) -> Coverage {
    let mut counts = Counts::default();
    let mut with_parameters = Counts::default();
    let mut evidence: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut categories: BTreeMap<Category, (Counts, BTreeMap<String, Counts>)> = BTreeMap::new();
    let mut uncovered = Vec::new();
    let mut several_modules = 0;
    let mut confidence = 0.0;
    let users = parameter_users(model, hierarchy);
    for (id, node) in model.nodes() {
        let origin = hierarchy.origin(id);
        let certainty = origin.evidence.certainty();
        let category = category(node);
        counts.add(certainty);
        confidence += hierarchy.confidence(id);
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
        let (coverage, threshold) = (counts.coverage(), thresholds.of(category));
        let percentage = coverage * 100.0;
        CategoryCoverage {
            category: name(category),
            total: counts.nodes,
            tagged: counts.known(),
            percentage,
            threshold,
            critical: is_critical(category),
            ok: threshold.is_none_or(|threshold| percentage >= threshold),
            counts,
            coverage,
            operators,
        }
    });
    Coverage {
        coverage: counts.coverage(),
        confidence: if counts.nodes == 0 { 1.0 } else { confidence / counts.nodes as f64 },
        counts,
        with_parameters,
        evidence,
        several_modules,
        categories: categories.collect(),
        consumers: consumed(model, hierarchy),
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
    fn part_of_a_name_is_enough_where_it_means_one() {
        assert_eq!(find("math"), Ok(Category::Math));
        assert_eq!(find("control_flow"), Ok(Category::ControlFlow));
        assert!(find("operations").unwrap_err().to_string().starts_with("more than one category"));
        let none = find("nothing").unwrap_err().to_string();
        assert!(none.starts_with("no category \"nothing\"") && none.contains("uncategorized"), "{none}");
        assert!(find("").is_err());
    }

    #[test]
    fn thresholds_can_be_chosen_one_by_one() {
        let mut thresholds = Thresholds::default();
        thresholds.set(Category::Math, 50.0);
        thresholds.set(Category::Uncategorised, 1.0);
        let of = |category| thresholds.of(category);
        assert_eq!((of(Category::Math), of(Category::Activation)), (Some(50.0), Some(95.0)));
        assert_eq!(
            (of(Category::Uncategorised), Thresholds::default().of(Category::Uncategorised)),
            (Some(1.0), None)
        );
        assert!(
            CATEGORIES
                .into_iter()
                .filter(|&category| is_critical(category))
                .all(|critical| { Thresholds::default().of(critical) == Some(95.0) })
        );
    }

    #[test]
    fn every_operator_of_the_standard_has_a_category() {
        let unknown =
            |def: &&ops::def::OpDef| def.category == Category::Uncategorised && def.domain != "com.microsoft";
        let without: Vec<&str> = ops::all().filter(unknown).map(|def| def.name).collect();
        assert!(without.is_empty(), "{without:?}");
    }
}
