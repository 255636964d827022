//! What a run of a model at small sizes spends its time and memory on; that decides how models are compared.

use super::draws::is_random;
use onnxforge_ir::{Model, Node, ValueId};
use onnxforge_ops::callee::constant_nodes;
use onnxforge_ops::eval::shapes::{Search, Wanted};
use onnxforge_ops::liveness::peak;

/// Models with more bytes of constants than this are compared block by block: a session of a whole model takes them several times.
const LARGE: u64 = 32 << 20;
/// Unless the values of a run take more than this share of that: all that a block computes is kept until it was compared.
const SHARE: u64 = 4;
/// Up to so many multiplications for each weight, most of the work of a run is to read the weights.
const FEW: u64 = 32;

/// The burden of a run at the smallest sizes.
#[derive(Clone, Copy, Debug)]
pub struct Burden {
    /// Bytes of constants.
    weights: u64,
    /// Bytes of values that are there at one time and do not follow from constants.
    values: u64,
    /// Multiplications in MatMul, Gemm and Conv.
    products: u64,
    is_random: bool,
}

impl Burden {
    /// The burden of a model's run. Where no sizes are found, it is that of the weights alone.
    pub fn of(model: &Model) -> Self {
        let (weights, is_random) = (model.stored_bytes(), is_random(model));
        let Some(shapes) = Search::new(model, Wanted::default()).next() else {
            return Self { weights, values: 0, products: 0, is_random };
        };
        let dims = |value: Option<ValueId>| -> Option<Vec<u64>> {
            let shape = shapes.inference.shape(value?)?;
            shape.iter().map(|dim| u64::try_from(dim.as_const()?).ok()).collect()
        };
        let product = |dims: &[u64]| dims.iter().fold(1u64, |product, &dim| product.saturating_mul(dim));
        let products = |node: &Node| -> Option<u64> {
            let for_each = match node.op() {
                op if op.is("MatMul") || op.is("Gemm") => *dims(node.input(0))?.last()?,
                op if op.is("Conv") => product(dims(node.input(1))?.get(1..)?),
                _ => return None,
            };
            Some(product(&dims(node.output(0))?).saturating_mul(for_each))
        };
        let products = model.nodes().filter_map(|(_, node)| products(node)).fold(0, u64::saturating_add);
        // What follows from constants alone is computed where it is read.
        let constant = constant_nodes(model);
        let follows = |value: ValueId| model.value(value).node().is_some_and(|node| constant.contains(&node));
        let bytes = |value: ValueId| if follows(value) { Some(0) } else { shapes.bytes_of(value) };
        Self { weights, values: peak(model, &bytes).bytes, products, is_random }
    }

    /// Whether the model is compared with what became of it block by block.
    pub fn by_blocks(self) -> bool {
        self.weights > LARGE && self.values <= self.weights / SHARE && !self.is_random
    }

    /// Whether most of the work is to read weights. Then the native engine needs half of the memory that ONNX Runtime takes, and less time.
    pub fn is_reading(self) -> bool {
        self.products <= FEW.saturating_mul(self.weights / 4)
    }
}
