//! What a node becomes with its axes in other orders.

use super::operators::spelled;
use super::spelling::{Orders, Side, Told};
use crate::Cx;
use crate::passes::recognize::orders::{as_ints, is_identity};
use crate::passes::recognize::reshape_target::constant_target;
use onnxforge_ir::{Accuracy, Attr, AttrValue, DType, NodeId, Op, Tensor};

/// A node as it is with its axes in other orders.
#[derive(Clone, Debug)]
pub struct Moved {
    /// The orders of its tensors.
    pub orders: Orders,
    /// The operator.
    pub op: Op,
    /// Its attributes.
    pub attrs: Vec<Attr>,
    /// Inputs that become other constants.
    pub constants: Vec<(usize, Tensor)>,
    /// How far runtimes may come to other results.
    pub accuracy: Accuracy,
}

/// The node with its axes in other orders, so that the tensor at `side` is in `order`; `None` where it cannot be, or stays as it is.
pub fn moved(cx: &Cx<'_>, id: NodeId, side: Side, order: &[usize]) -> Option<Moved> {
    let node = cx.node(id);
    let (spelling, told, accuracy) = spelled(cx, id).ok()?;
    cx.budget.allows(accuracy).ok()?;
    let orders = spelling.orders(side, order)?;
    for (&input, order) in node.inputs().iter().zip(&orders.inputs) {
        let constant = input.and_then(|value| cx.model.constant(value));
        let dtype =
            constant.filter(|_| order.as_ref().is_some_and(|order| !is_identity(order))).map(Tensor::dtype);
        // Such elements have no place in bytes of their own.
        if dtype.is_some_and(|dtype| dtype == DType::String || !dtype.bits().is_multiple_of(8)) {
            return None;
        }
    }
    let first = || orders.inputs.first()?.as_ref();
    let (mut op, mut attrs, mut constants) = (node.op().clone(), node.attrs().to_vec(), Vec::new());
    match told {
        Told::Nothing => {}
        Told::Axis(axis) => {
            let (to, last) = (place(first()?, axis)?, first()?.len() - 1);
            // Runtimes compute these along the last axis, and transpose where it is another one.
            let along_last = ["Softmax", "LogSoftmax", "Hardmax"].iter().any(|name| op.is(name));
            if along_last && axis == last && to != last {
                return None;
            }
            set(&mut attrs, "axis", AttrValue::Int(to as i64));
        }
        Told::Axes(axes, input, side) => {
            let order = if side == Side::Output { &orders.output } else { first()? };
            let mut to = axes.iter().map(|&axis| place(order, axis)).collect::<Option<Vec<_>>>()?;
            // To the axes of these belong other lists in the same order.
            if !["Slice", "Pad", "Resize"].iter().any(|name| op.is(name)) {
                to.sort_unstable();
            }
            match node.attr("axes") {
                Some(_) => set(&mut attrs, "axes", AttrValue::Ints(as_ints(&to))),
                None => constants.push((input, Tensor::from_i64s(&as_ints(&to)))),
            }
        }
        Told::Each(input, list) => {
            constants.push((input, Tensor::from_i64s(&each(&list, &orders.output)?)));
        }
        Told::EachFloat(input, list) => {
            let list: Vec<f32> = each(&list, &orders.output)?.iter().map(|&number| number as f32).collect();
            // Some runtimes interpolate only along the last axes.
            if accuracy != Accuracy::BitExact && list.iter().take(2).any(|&scale| scale != 1.0) {
                return None;
            }
            constants.push((input, Tensor::from_f32s(vec![list.len()], &list).ok()?));
        }
        Told::EachAttr(name, list) => set(&mut attrs, name, AttrValue::Ints(each(&list, &orders.output)?)),
        Told::Target => {
            let (x, y) = (cx.shape(cx.input(id, 0).ok()?).ok()?, cx.shape(cx.output(id).ok()?).ok()?);
            let from: Vec<_> = first()?.iter().map(|&axis| x[axis].clone()).collect();
            let to: Vec<_> = orders.output.iter().map(|&axis| y[axis].clone()).collect();
            constants.push((1, Tensor::from_i64s(&constant_target(cx, &from, &to)?)));
            (op, attrs) = (Op::standard("Reshape"), Vec::new());
        }
        Told::Pooled(reduction) => {
            let (order, rank) = (first()?, first()?.len());
            let mut axes = (2..rank).map(|axis| place(order, axis)).collect::<Option<Vec<_>>>()?;
            axes.sort_unstable();
            if rank < 3 {
                return None;
            }
            (op, attrs) = (Op::standard(reduction), vec![("keepdims", 1).into()]);
            match cx.opset(id) {
                ..18 => attrs.push(("axes", as_ints(&axes)).into()),
                _ => constants.push((1, Tensor::from_i64s(&as_ints(&axes)))),
            }
        }
    }
    Some(Moved { orders, op, attrs, constants, accuracy })
}

/// Where an axis is now.
fn place(order: &[usize], axis: usize) -> Option<usize> {
    order.iter().position(|&from| from == axis)
}

/// A list with an element for each axis in the new order, or several in a row.
fn each<T: Copy>(list: &[T], order: &[usize]) -> Option<Vec<T>> {
    if list.is_empty() || order.is_empty() || !list.len().is_multiple_of(order.len()) {
        return None;
    }
    Some(list.chunks(order.len()).flat_map(|part| order.iter().map(|&axis| part[axis])).collect())
}

fn set(attrs: &mut Vec<Attr>, name: &'static str, value: AttrValue) {
    match attrs.iter_mut().find(|attr| &*attr.name == name) {
        Some(attr) => attr.value = value,
        None => attrs.push(Attr::new(name, value)),
    }
}
