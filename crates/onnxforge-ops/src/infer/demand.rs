//! What the walk over a graph shows of the sizes of its inputs.
//!
//! A size that a node demands of an input holds in every run that succeeds: a cache of `batch` examples to which keys of one are appended has one.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use onnxforge_ir::dim::{Dim, Requirement, Symbol, Symbols};
use onnxforge_ir::value::Use;
use onnxforge_ir::{Model, NodeId};

/// What a walk shows of dimensions of inputs. Each walk numbers their symbols in the same way.
#[derive(Debug, Default)]
pub struct Shown {
    /// Those that may be 0.
    pub may_be_empty: BTreeSet<Symbol>,
    /// Those that are of one size in every run that succeeds.
    pub sizes: BTreeMap<Symbol, i64>,
}

impl Shown {
    /// Says what is known of a dimension.
    pub fn settle(&self, dim: &mut Dim, symbols: &Symbols) {
        let size = |symbol: Symbol| self.sizes.get(&symbol).map(|&size| Dim::from(size));
        if !self.sizes.is_empty()
            && let Some(settled) = dim.substitute(&size, symbols)
        {
            *dim = settled;
        }
    }
}

/// Sizes of inputs without which the graph cannot run.
#[derive(Debug, Default)]
pub struct Demands {
    /// Nodes of the graph that outputs depend on. A runtime need not run the others.
    live: HashSet<NodeId>,
    /// How many symbols stand for dimensions of inputs.
    pub inputs: usize,
    pub sizes: BTreeMap<Symbol, i64>,
}

impl Demands {
    pub fn of(model: &Model) -> Self {
        let main = model.main();
        let mut live = HashSet::new();
        // Nodes stand after what they read.
        let order: Vec<NodeId> = model.nodes_in(main).map(|(id, _)| id).collect();
        for &id in order.iter().rev() {
            let is_read = |used: &Use| match *used {
                Use::Output { .. } => true,
                // What a body reads counts as read.
                Use::Input { node, .. } => live.contains(&node) || model.node(node).scope() != main,
            };
            let mut outputs = model.node(id).outputs().iter().flatten();
            if outputs.any(|&output| model.value(output).uses().iter().any(is_read)) {
                live.insert(id);
            }
        }
        Self { live, ..Self::default() }
    }

    /// Whether outputs depend on a node, so that a run comes by.
    pub fn counts(&self, id: NodeId) -> bool {
        self.live.contains(&id)
    }

    /// What the node asked for.
    pub fn see(&mut self, id: NodeId, requirements: &[Requirement]) {
        if !self.live.contains(&id) {
            return;
        }
        for requirement in requirements {
            let Requirement::Equal(a, b) = requirement else { continue };
            let size = [(a, b), (b, a)].into_iter().find_map(|(a, b)| Some((a.as_symbol()?, b.as_const()?)));
            if let Some((symbol, size @ 0..)) = size
                && (symbol.id() as usize) < self.inputs
            {
                self.sizes.entry(symbol).or_insert(size);
            }
        }
    }
}
