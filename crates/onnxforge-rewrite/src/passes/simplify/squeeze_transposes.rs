//! squeeze_transposes: a Transpose between Reshapes moves no axes of size 1.
//!
//! **Matches** a Transpose of more than four axes, some of size 1, behind a Reshape, Flatten, Squeeze or Unsqueeze or before one, or both, each read by the next alone, where
//! fewer nodes move the other axes, or four of them: Reshapes that only make such axes or remove them go.
//! **Accuracy** `BitExact`.
//! **Proof** The place of an element in memory depends on its indices along axes of size above 1, in their order; a Reshape keeps places.
//! **Never** where as many nodes are left.

use crate::passes::pass;
use crate::passes::recognize::orders::{as_ints, is_identity, permutation};
use crate::passes::recognize::reshape_target::reshaped;
use crate::passes::recognize::rows::reshape_of;
use crate::{At, Change, Cx, Skip};
use onnxforge_ir::dim::Dim;
use onnxforge_ir::{Accuracy, NodeId};

pass!(squeeze_transposes { stage: Canonicalize, needs: ["Transpose"], rules: [SQUEEZE] });

/// Layers are recognised by their four axes, of which the first may be of size 1.
const FEWEST: usize = 4;

static SQUEEZE: At =
    At { name: "squeeze", accuracy: Accuracy::BitExact, ops: &["Transpose"], apply: squeeze };

fn squeeze(cx: &Cx<'_>, transpose: NodeId) -> Result<Change, Skip> {
    let (mut x, turned) = (cx.input(transpose, 0)?, cx.output(transpose)?);
    let (order, shape) = (permutation(cx, transpose)?, cx.shape(x)?);
    let (mut kept, mut short): (Vec<usize>, Vec<usize>) =
        (0..order.len()).partition(|&axis| shape[axis].as_const() != Some(1));
    short.truncate(FEWEST.saturating_sub(kept.len()));
    kept.extend(short);
    kept.sort_unstable();
    if kept.len() == order.len() || cx.opset(transpose) < 5 {
        return Err(Skip::NOT_HERE);
    }
    let before = reshape_of(cx, x, transpose).filter(|_| cx.read_only_by(x, transpose).is_ok());
    let behind = cx
        .only_reader(turned)
        .filter(|&node| cx.output(node).is_ok_and(|y| reshape_of(cx, y, transpose) == Some(node)));
    let old: Vec<NodeId> = before.into_iter().chain([transpose]).chain(behind).collect();
    if let Some(before) = before {
        x = cx.input(before, 0)?;
    }
    let y = behind.map_or(Ok(turned), |behind| cx.output(behind))?;

    let places = order.iter().filter_map(|axis| kept.iter().position(|other| other == axis));
    let places: Vec<usize> = places.collect();
    let sizes = |axes: &[usize]| axes.iter().map(|&axis| shape[axis].clone()).collect::<Vec<Dim>>();
    let (parted, moved) = (sizes(&kept), sizes(&places.iter().map(|&place| kept[place]).collect::<Vec<_>>()));
    let (from, to) = (cx.shape(x)?, cx.shape(y)?);
    let moves = !is_identity(&places);
    let nodes = match moves {
        true => 1 + [(from, &*parted), (&*moved, to)].iter().filter(|(a, b)| !cx.same_shape(a, b)).count(),
        false => usize::from(!cx.same_shape(from, to)),
    };
    if nodes >= old.len() {
        return Err(Skip::NOT_HERE);
    }
    let mut change = cx.change(&old);
    let mut result = x.into();
    if moves {
        let flat = reshaped(cx, &mut change, result, from, &parted)?;
        result = change.op("Transpose", [flat], [("perm", as_ints(&places)).into()]);
    }
    let result = reshaped(cx, &mut change, result, if moves { &moved } else { from }, to)?;
    change.replace(y, result);
    Ok(change)
}
