//! Whether one name on several dimensions is one size.
//!
//! A name is a promise that exporters break: texts and images that both have a `batch`. It holds as far as the graph forces dimensions to be
//! equal, or as the model cannot run when they differ.

use std::collections::{BTreeMap, HashSet};

use super::{Problem, Shapes, Slot, Trust, Wanted, tensors};
use onnxforge_ir::dim::{Dim, Symbol};
use onnxforge_ir::types::DeclaredDim;
use onnxforge_ir::{Model, Type};
use onnxforge_proto::Str;

/// A dimension of an input.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The input.
    pub input: Str,
    /// The axis.
    pub axis: usize,
}

/// What is to be thought of names that stand on several dimensions.
#[derive(Debug, Default)]
pub struct Names {
    /// Dimensions that may differ from others of their name, and shapes at which they do and nothing keeps the model from running. Those of one entry
    /// are equal.
    pub apart: Vec<(Vec<Place>, Shapes)>,
    /// The same where a size of 1 is the only one that may differ, because it broadcasts.
    pub broadcast: Vec<(Vec<Place>, Shapes)>,
}

impl Names {
    /// What inference can tell of the names of a model.
    pub fn of(model: &Model, wanted: Wanted) -> Self {
        let mut names = Self::default();
        if !repeats(model) {
            return names;
        }
        let problem = Problem::new(model, wanted);
        let graph = problem.system(Trust::Graph);
        let shared = problem.shared(&graph);
        if shared.is_empty() {
            return names;
        }
        let Some(base) = super::first(&problem) else { return names };
        let at = |symbol: Symbol| {
            let place = problem.slots.iter().position(|slot| slot.symbol == symbol);
            place.and_then(|place| i64::try_from(base[place]).ok())
        };
        let sizes: BTreeMap<Symbol, i64> =
            problem.free(&graph).into_iter().filter_map(|symbol| Some((symbol, at(symbol)?))).collect();
        for (symbol, slots) in shared {
            let Some(&usual) = sizes.get(&symbol).filter(|size| **size > 1) else { continue };
            let tried = |size: i64| {
                let mut sizes = sizes.clone();
                sizes.insert(symbol, size);
                problem.at(&problem.evaluated(&graph, &sizes)?, true).ok()
            };
            let places = || slots.iter().map(|slot| slot.place()).collect();
            if let Some(shapes) = tried(usual + 1).or_else(|| tried(2 * usual)) {
                names.apart.push((places(), shapes));
            } else if let Some(shapes) = tried(1) {
                names.broadcast.push((places(), shapes));
            }
        }
        names
    }
}

/// Whether a name stands on several dimensions of inputs.
fn repeats(model: &Model) -> bool {
    let mut seen = HashSet::new();
    tensors(model).any(|port| {
        let Type::Tensor(_, Some(dims)) = port.declared() else { return false };
        dims.iter().any(|dim| matches!(dim, DeclaredDim::Named(name) if !seen.insert(name.clone())))
    })
}

impl Slot {
    fn place(&self) -> Place {
        Place { input: self.input.clone(), axis: self.axis }
    }
}

impl Problem<'_> {
    /// Dimensions that share a name with others which the graph does not force to be equal to them, by the symbol that they are.
    fn shared(&self, graph: &super::System<'_>) -> Vec<(Symbol, Vec<&Slot>)> {
        let mut by_name: BTreeMap<&Str, Vec<(Dim, Vec<&Slot>)>> = BTreeMap::new();
        for slot in &self.slots {
            let Some(name) = &slot.name else { continue };
            let size = graph.resolved(&slot.symbol.into());
            let groups = by_name.entry(name).or_default();
            match groups.iter_mut().find(|(known, _)| *known == size) {
                Some((_, slots)) => slots.push(slot),
                None => groups.push((size, vec![slot])),
            }
        }
        let shared = by_name.into_values().filter(|groups| groups.len() > 1).flatten();
        shared.filter_map(|(size, slots)| Some((size.as_symbol()?, slots))).collect()
    }
}
