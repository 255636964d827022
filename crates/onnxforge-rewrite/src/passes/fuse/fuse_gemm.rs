//! fuse_gemm: Transposes of operands become flags of Gemm, and a Gemm without bias takes one.
//!
//! **Matches** Gemm whose first or second operand another Transpose of two axes computes (`transposed`); Add of a Gemm without third operand, which nothing
//! else reads, and something that broadcasts to its shape (`bias`).
//! **Accuracy** `Rounding`: kernels for another layout add the same products in another order.
//! **Proof** Gemm with transA is defined as A′·B; a Transpose before it is undone by the other value of the flag. Gemm adds beta·C with C
//! broadcast to the shape of the product, as Add does; the driver proves the shape.
//! **Bound** Both forms sum the same n products, n roundings on the way of each in any order, and the bias with one more: n + 1, wherever in the sum
//! it is added. None is added.
//! **Never** more axes; a bias that broadcasts the product.

use crate::passes::pass;
use crate::passes::recognize::orders::permutation;
use crate::passes::recognize::sums::added_to;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::{Accuracy, NodeId};

pass!(fuse_gemm { stage: Cleanup, rules: [TRANSPOSED, BIAS] });

static TRANSPOSED: At =
    At { name: "transposed", accuracy: Accuracy::Rounding { ulps: 2.0 }, ops: &["Gemm"], apply: transposed };

fn transposed(cx: &Cx<'_>, gemm: NodeId) -> Result<Change, Skip> {
    let (node, call) = (cx.node(gemm), cx.call(gemm)?);
    for (index, flag) in [(0, "transA"), (1, "transB")] {
        let Some(transpose) = cx.producer(cx.input(gemm, index)?, "Transpose", gemm) else { continue };
        if permutation(cx, transpose)? != [1, 0] {
            continue;
        }
        let mut attrs = node.attrs().to_vec();
        attrs.retain(|attr| &*attr.name != flag);
        attrs.push((flag, i64::from(!call.flag(flag)?)).into());
        let mut change = cx.change(&[gemm]);
        change.absorb(transpose);
        let mut inputs: Vec<_> = node.inputs().iter().map(|&input| input.into()).collect();
        inputs[index] = cx.input(transpose, 0)?.into();
        let direct = change.call(node.op().clone(), inputs, 1, attrs);
        change.replace(cx.output(gemm)?, direct.output(0));
        return Ok(change);
    }
    Err(Skip::NOT_HERE)
}

static BIAS: At = At { name: "bias", accuracy: Accuracy::Rounding { ulps: 2.0 }, ops: &["Add"], apply: bias };

fn bias(cx: &Cx<'_>, sum: NodeId) -> Result<Change, Skip> {
    let (gemm, c) = added_to(cx, sum, "Gemm")?;
    let &[Some(a), Some(b)] = cx.node(gemm).inputs() else { return Err(Skip::NOT_HERE) };
    let y = cx.output(sum)?;
    if !cx.same_shape(cx.shape(cx.output(gemm)?)?, cx.shape(y)?) {
        return Err(Skip::at(Reason::Broadcast, c));
    }
    let mut attrs = cx.node(gemm).attrs().to_vec();
    attrs.retain(|attr| &*attr.name != "beta");
    let mut change = cx.change(&[gemm, sum]);
    let fused = change.op("Gemm", [a.into(), b.into(), c.into()], attrs);
    change.replace(y, fused);
    Ok(change)
}
