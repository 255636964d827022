//! eliminate_zero_rnn_state: initial states and biases of zeros are left out.
//!
//! **Matches** LSTM, GRU and RNN whose bias, initial hidden state or initial cell state is provably all zero: a constant of
//! zeros, or zeros that were only given a shape.
//! **Accuracy** `ValueExact`: a zero of the other sign may be added.
//! **Proof** The standard takes each of these inputs to be zero where it is left out.
//! **Trust** The shapes of the results follow from X, W, R and attributes, which stay; a bias or an initial state says nothing about them.
//! **Never** peepholes, which are multiplied by a state that may be infinite; states that only look like zeros.

use crate::passes::pass;
use crate::{At, Cx, Skip};
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{Accuracy, AttrValue, Trust, ValueId};

pass!(eliminate_zero_rnn_state {
    stage: Canonicalize,
    needs: ["LSTM", "GRU", "RNN"],
    trusts: [SameShapeRule],
    rules: [ZERO_STATE],
});

/// Inputs that are zero where they are left out: bias, initial hidden state, initial cell state.
const ZERO_BY_DEFAULT: [usize; 3] = [3, 5, 6];
/// Operators that only give the elements of their first input another place or another type.
const MOVES: [&str; 9] =
    ["Expand", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Tile", "Cast"];
/// How many nodes lie between the zeros and their use.
const MAX_DEPTH: usize = 8;

static ZERO_STATE: At = At {
    name: "zero_state",
    accuracy: Accuracy::ValueExact,
    ops: &["LSTM", "GRU", "RNN"],
    apply: |cx, id| {
        let node = cx.node(id);
        let zero = |index: usize| {
            ZERO_BY_DEFAULT.contains(&index)
                && node.input(index).is_some_and(|value| is_zero(cx, value, MAX_DEPTH))
        };
        let zeros: Vec<usize> = (0..node.inputs().len()).filter(|&index| zero(index)).collect();
        if zeros.is_empty() {
            return Err(Skip::NOT_HERE);
        }
        let mut change = cx.change(&[id]);
        let inputs = node.inputs().iter().enumerate();
        let inputs = inputs.map(|(index, &input)| match zeros.contains(&index) {
            true => Operand::Absent,
            false => input.into(),
        });
        change.recall(cx, id, inputs.collect());
        change.trust(Trust::SameShapeRule);
        Ok(change)
    },
};

/// Whether every element of a value is provably zero, of either sign.
fn is_zero(cx: &Cx<'_>, value: ValueId, depth: usize) -> bool {
    if cx.uniform(value) == Some(0.0) {
        return true;
    }
    let Some(made) = cx.model.value(value).node().filter(|_| depth > 0) else { return false };
    let node = cx.node(made);
    if !node.op().domain.is_empty() || cx.call(made).is_err() {
        return false;
    }
    match &*node.op().name {
        "ConstantOfShape" => match node.attr("value") {
            None => true,
            Some(AttrValue::Tensor(tensor)) => {
                let array = onnxforge_ops::Array::from_tensor(tensor).and_then(|array| array.to_f64s());
                array.is_ok_and(|numbers| !numbers.is_empty() && numbers.iter().all(|&number| number == 0.0))
            }
            Some(_) => false,
        },
        "Concat" => node.inputs().iter().flatten().all(|&part| is_zero(cx, part, depth - 1)),
        name if MOVES.contains(&name) => node.input(0).is_some_and(|from| is_zero(cx, from, depth - 1)),
        _ => false,
    }
}
