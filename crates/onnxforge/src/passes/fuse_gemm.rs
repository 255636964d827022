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

use super::eliminate_noop_transposes::permutation;
use super::pass;
use crate::ir::{Accuracy, NodeId};
use crate::rewrite::{At, Change, Cx, Fusion, Pattern, Reason, Skip};

pass!(fuse_gemm, &[&TRANSPOSED, &BIAS]);

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

static BIAS: Fusion<5> = Fusion {
    name: "bias",
    accuracy: Accuracy::Rounding { ulps: 2.0 },
    from: Pattern::new(
        "p = Gemm<..>(a, b)
         y = Add(p, c)",
    ),
    vars: ["a", "b", "c", "p", "y"],
    to: |cx, change, [a, b, c, p, y]| {
        if !cx.same_shape(cx.shape(p)?, cx.shape(y)?) {
            return Err(Skip::at(Reason::Broadcast, c));
        }
        let gemm = cx.model.value(p).node().ok_or(Skip::NOT_HERE)?;
        let mut attrs = cx.node(gemm).attrs().to_vec();
        attrs.retain(|attr| &*attr.name != "beta");
        let fused = change.op("Gemm", [a.into(), b.into(), c.into()], attrs);
        change.replace(y, fused);
        Ok(())
    },
};
