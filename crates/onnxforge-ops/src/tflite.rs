//! Operators of TensorFlow Lite that differ from the standard's: images have their channels last, and weights their place for that.
//!
//! They have the attributes of the standard operators that they stand for, `auto_pad` being `VALID` or `SAME_UPPER`, and compute the same on axes in another
//! order. A model with them is one that a `.tflite` file holds; no ONNX runtime knows them.

use super::array::each_wide;
use super::def::{Category, OpDef};
use super::error::{OpError, invalid};
use super::eval_call::{Eval, one};
use super::infer_call::Infer;
use super::kernel::product::fully_connected;
use super::kernel::strided::transpose;
use super::{Array, Fact, TensorFact, Value};

/// The domain of these operators.
pub const DOMAIN: &str = "onnxforge.tflite";

/// The operators of this family.
pub static OPS: &[OpDef] = &[
    layer("Conv2D", infer::<0>, eval::<0>),
    layer("DepthwiseConv2D", infer::<1>, eval::<1>),
    layer("TransposeConv", infer::<2>, eval::<2>),
    layer("MaxPool2D", infer::<3>, eval::<3>),
    layer("AveragePool2D", infer::<4>, eval::<4>),
    layer("FullyConnected", infer_fully_connected, eval_fully_connected),
    layer("Resize2D", infer_resize, eval_resize),
];

const fn layer(name: &'static str, infer: super::def::InferFn, eval: super::def::EvalFn) -> OpDef {
    OpDef::new(name, Category::NeuralLayer, infer, eval).of(DOMAIN).widening()
}

/// The order in which the standard has the axes of an image whose channels are last.
const FIRST: [usize; 4] = [0, 3, 1, 2];
/// And back.
const LAST: [usize; 4] = [0, 2, 3, 1];

/// A standard operator on images with channels last.
struct Moved {
    name: &'static str,
    opset: i64,
    /// The order in which the standard has the axes of the weights.
    weights: Option<[usize; 4]>,
}

/// What the operators with images and perhaps weights stand for, as they are listed.
const MOVED: [Moved; 5] = [
    // Weights are (maps, height, width, channels of a group).
    Moved { name: "Conv", opset: 11, weights: Some(FIRST) },
    // Weights are (1, height, width, maps).
    Moved { name: "Conv", opset: 11, weights: Some([3, 0, 1, 2]) },
    // Weights are (maps, height, width, channels).
    Moved { name: "ConvTranspose", opset: 11, weights: Some([3, 0, 1, 2]) },
    Moved { name: "MaxPool", opset: 12, weights: None },
    Moved { name: "AveragePool", opset: 11, weights: None },
];

impl Moved {
    /// The orders of the first two inputs.
    fn orders(&self) -> impl Iterator<Item = (usize, [usize; 4])> {
        [Some(FIRST), self.weights].into_iter().flatten().enumerate()
    }
}

/// What is known of a tensor, with its axes in another order.
fn moved_fact(cx: &Infer<'_>, index: usize, order: [usize; 4]) -> Option<Fact> {
    let shape = cx.shape(index)?;
    let shape = order.iter().map(|&axis| shape.get(axis).cloned()).collect::<Option<Vec<_>>>()?;
    Some(TensorFact { dtype: cx.dtype(index), shape: Some(shape), value: None }.into())
}

/// The shape of the first of these, if it is known.
fn shape_of(facts: &[Fact]) -> Option<&[onnxforge_ir::dim::Dim]> {
    facts.first().and_then(Fact::tensor)?.shape.as_deref()
}

fn infer<const KIND: usize>(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.copy_dtype(0, 0);
    let moved = &MOVED[KIND];
    let mut facts = Vec::new();
    for (index, order) in moved.orders() {
        match cx.rank(index) {
            Some(4) => facts.push(moved_fact(cx, index, order)),
            Some(rank) => return invalid(format!("an image or weights of {rank} axes")),
            None => return Ok(()),
        }
    }
    let outputs = cx.standard(moved.name, moved.opset, &facts)?;
    if let Some(shape) = shape_of(&outputs) {
        let shape = LAST.iter().map(|&axis| shape.get(axis).cloned()).collect::<Option<_>>();
        if let Some(shape) = shape {
            cx.set_shape(0, shape);
        }
    }
    Ok(())
}

fn eval<const KIND: usize>(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let moved = &MOVED[KIND];
    let mut inputs = Vec::new();
    for (index, order) in moved.orders() {
        inputs.push(Some(in_order(cx, cx.array(index)?, &order)?.into()));
    }
    if moved.weights.is_some() {
        inputs.push(cx.value(2).cloned());
    }
    let y = single(cx.standard(moved.name, moved.opset, inputs)?)?;
    one(in_order(cx, &y, &LAST)?)
}

fn in_order(cx: &Eval<'_>, x: &Array, order: &[usize]) -> Result<Array, OpError> {
    if x.rank() != order.len() {
        return invalid(format!("{:?} where {} axes are needed", x.shape(), order.len()));
    }
    transpose(x, order, cx.memory())
}

fn single(outputs: Vec<Value>) -> Result<Array, OpError> {
    match outputs.into_iter().next() {
        Some(Value::Tensor(array)) => Ok(array),
        _ => invalid("an operator that gave no tensor"),
    }
}

/// `x · wᵀ + b` with weights (maps, features) and any number of axes before the last of x.
fn infer_fully_connected(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.copy_dtype(0, 0);
    let (Some([outer @ .., features]), Some(weights)) = (cx.shape(0), cx.shape(1)) else { return Ok(()) };
    let [maps, of] = weights else { return invalid(format!("weights of {} axes", weights.len())) };
    cx.unify(features, of)?;
    cx.set_shape(0, outer.iter().chain([maps]).cloned().collect());
    Ok(())
}

fn eval_fully_connected(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (x, weights) = (cx.array(0)?, cx.array(1)?);
    let product = each_wide!(x, T => fully_connected::<T>(x, weights, cx.memory()))?;
    match cx.value(2).cloned() {
        None => one(product),
        Some(bias) => cx.standard("Add", 14, vec![Some(product.into()), Some(bias)]),
    }
}

/// An image of another height and width, which are the second input.
fn infer_resize(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.copy_dtype(0, 0);
    let Some(shape) = cx.shape(0) else { return Ok(()) };
    let [batch, _, _, channels] = shape else { return invalid(format!("an image of {} axes", shape.len())) };
    let [height, width] = match cx.dims(1).as_deref() {
        Some([height, width]) => [height.clone(), width.clone()],
        Some(sizes) => return invalid(format!("{} sizes", sizes.len())),
        None => [cx.fresh(), cx.fresh()],
    };
    cx.set_shape(0, vec![batch.clone(), height, width, channels.clone()]);
    Ok(())
}

fn eval_resize(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let sizes = cx.array(1)?.to_i64s()?;
    let (&[batch, _, _, channels], &[height, width]) = (cx.array(0)?.shape(), &sizes[..]) else {
        return invalid("an image of four axes and two sizes are needed");
    };
    let sizes = Array::vector(vec![batch as i64, height, width, channels as i64]);
    cx.standard("Resize", 13, vec![cx.value(0).cloned(), None, None, Some(sizes.into())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_inverse() {
        assert_eq!(LAST.map(|axis| FIRST[axis]), [0, 1, 2, 3]);
    }
}
