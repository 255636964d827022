//! fuse_matmul_add: a product of matrices and a sum become one Gemm.
//!
//! **Matches** Add of a MatMul of two matrices, which nothing else reads, and something that broadcasts to the product's shape.
//! **Accuracy** `Rounding`: a runtime may add the summand to the sum of products in another order.
//! **Proof** Gemm with alpha = beta = 1 is defined as A·B + C, with C broadcast to the shape of A·B. The driver proves the shape.
//! **Bound** Both forms sum n products and c: n + 1 roundings on the longest way, wherever in the sum c is added. None is added, at the scale
//! Σ|a·b| + |c|.
//! **Never** products of more than two axes, for which Gemm is not defined; summands that broadcast the product.

use crate::passes::pass;
use crate::passes::recognize::sums::added_to;
use crate::{At, Reason, Skip};
use onnxforge_ir::{Accuracy, DType};

pass!(fuse_matmul_add { stage: Cleanup, rules: [FUSE] });

static FUSE: At = At {
    name: "fuse",
    accuracy: Accuracy::Rounding { ulps: 2.0 },
    ops: &["Add"],
    apply: |cx, sum| {
        let (product, c) = added_to(cx, sum, "MatMul")?;
        let (a, b) = (cx.input(product, 0)?, cx.input(product, 1)?);
        if cx.rank(a)? != 2 || cx.rank(b)? != 2 {
            return Err(Skip::NOT_HERE);
        }
        // Integers have no Gemm before version 9, and runtimes lack it after.
        if !matches!(cx.dtype(a)?, DType::F32 | DType::F64 | DType::F16 | DType::BF16) {
            return Err(Skip::at(Reason::Type, a));
        }
        let y = cx.output(sum)?;
        if !cx.same_shape(cx.shape(cx.output(product)?)?, cx.shape(y)?) {
            return Err(Skip::at(Reason::Broadcast, c));
        }
        let mut change = cx.change(&[product, sum]);
        let gemm = change.op("Gemm", [a.into(), b.into(), c.into()], []);
        change.replace(y, gemm);
        Ok(change)
    },
};
