//! What a run of a model takes: operations, and memory for what is computed on the way.
//!
//! Both are expressions of the model's dimensions, and numbers at given sizes. Memory is that of the values that are alive at the same time when the
//! nodes of the graph run in their order: each from the node that computes it to the last one that reads it, the model's inputs throughout.
//! Nothing is computed in place, and weights are not counted. Runtimes need less where they reuse memory, and more where kernels need some for
//! themselves.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use super::cost::count;
use onnxforge_ir::dim::{Dim, Symbol};
use onnxforge_ir::{Model, ValueId};
use onnxforge_ops::callee::Functions;
use onnxforge_ops::infer::Inference;
use onnxforge_ops::liveness::peak;

/// What a run takes.
#[derive(Clone, Debug, Serialize)]
pub struct Effort {
    /// Floating point operations, as `analysis::cost` counts them.
    pub flops: Figure,
    /// Multiplications with addition, as products of matrices and convolutions have them.
    pub macs: Figure,
    /// Bytes of the values that are alive at the same time.
    pub memory: Figure,
    /// The node at which that is most.
    pub memory_at: Option<String>,
    /// Dimensions whose size was not given; the numbers are for a size of 1.
    pub assumed: Vec<String>,
    /// Nodes of the graph whose operations are not known.
    pub unknown_nodes: usize,
    /// Values of the graph whose size is not known.
    pub unknown_values: usize,
}

/// A figure.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figure {
    /// At the given sizes.
    pub value: u64,
    /// In terms of the model's dimensions; `None` where that would be too long.
    pub expression: Option<String>,
}

/// What a run of `model` takes, with dimensions of these sizes; those that are not given are 1.
pub fn effort(model: &Model, sizes: &HashMap<String, u64>) -> Effort {
    let inference = Inference::of(model);
    let functions = Functions::of(model);
    let sized = AtSizes { inference: &inference, sizes };
    let (mut flops, mut macs) = (Sum::new(), Sum::new());
    let mut unknown_nodes = 0;
    let mut symbols = BTreeSet::new();
    for (id, _) in model.nodes_in(model.main()) {
        let size = |symbol| sized.size(symbol);
        let found = count(model, &inference, &functions, id);
        let counted = found.and_then(|found| {
            let products = found.products();
            Some((found.evaluate(&size)?, products.evaluate(&size)?, found, products))
        });
        let Some((operations, of_products, found, products)) = counted else {
            unknown_nodes += 1;
            continue;
        };
        let half = |dim: Dim| dim.divide_exact(&Dim::from(2));
        flops.add(found.to_dim(), Some(operations));
        macs.add(products.to_dim().and_then(half), Some(of_products / 2));
    }
    let peak = peak(model, &|value| Some(sized.bytes(value)?.1));
    let mut live = Sum::new();
    for &value in &peak.alive {
        let (dim, bytes) = sized.bytes(value).unzip();
        live.add(dim.flatten(), bytes);
    }
    for dim in [&flops.dim, &macs.dim, &live.dim].into_iter().flatten() {
        symbols.extend(dim.symbols());
    }
    let named = |symbol: &Symbol| inference.symbols().name(*symbol).into_owned();
    let assumed = symbols.iter().map(named).filter(|name| !sizes.contains_key(name)).collect();
    Effort {
        flops: flops.figure(&inference),
        macs: macs.figure(&inference),
        memory: live.figure(&inference),
        memory_at: peak.at.map(|id| model.node_label(id)),
        assumed,
        unknown_nodes,
        unknown_values: peak.unknown,
    }
}

/// Sizes of dimensions.
struct AtSizes<'a> {
    inference: &'a Inference,
    sizes: &'a HashMap<String, u64>,
}

impl AtSizes<'_> {
    fn size(&self, symbol: Symbol) -> Option<i64> {
        let given = self.sizes.get(&*self.inference.symbols().name(symbol)).copied().unwrap_or(1);
        Some(i64::try_from(given).unwrap_or(i64::MAX))
    }

    /// Bytes of a value, as an expression and as a number.
    fn bytes(&self, value: ValueId) -> Option<(Option<Dim>, u64)> {
        let fact = self.inference.tensor(value)?;
        let (bits, shape) = (u64::from(fact.dtype?.bits()), fact.shape.as_ref()?);
        // Strings have no size that is known beforehand.
        if bits == 0 {
            return None;
        }
        let mut elements = 1u64;
        for dim in shape {
            let size = dim.evaluate(&|symbol| self.size(symbol))?;
            elements = elements.saturating_mul(u64::try_from(size).unwrap_or(0));
        }
        let whole = |dim: Dim| dim.mul(&Dim::from(i64::try_from(bits / 8).ok()?));
        let expression = Dim::product(shape).filter(|_| bits >= 8).and_then(whole);
        Some((expression, elements.saturating_mul(bits).div_ceil(8)))
    }
}

/// A sum, as an expression as long as that is possible, and as a number.
#[derive(Clone)]
struct Sum {
    dim: Option<Dim>,
    value: u64,
}

impl Sum {
    fn new() -> Self {
        Self { dim: Some(Dim::from(0)), value: 0 }
    }

    fn add(&mut self, dim: Option<Dim>, value: Option<u64>) {
        self.dim = match (&self.dim, dim) {
            (Some(sum), Some(dim)) => sum.add(&dim),
            _ => None,
        };
        self.value = self.value.saturating_add(value.unwrap_or(0));
    }

    fn figure(&self, inference: &Inference) -> Figure {
        let expression = self.dim.as_ref().map(|dim| dim.display(inference.symbols()).to_string());
        Figure { value: self.value, expression }
    }
}
