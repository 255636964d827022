//! ort_matmul: transposed factors and a constant factor become part of ONNX Runtime's FusedMatMul.
//!
//! **Matches** a MatMul or FusedMatMul of Transposes that swap the last two axes, or that move the first axis behind the others but the last, or both
//! (`transposed`), a Transpose that swaps the last two axes of a product of computed factors that nothing else reads (`turned`), and Mul or Div by one number of such a
//! product (`scaled`). For the target `ort`.
//! **Accuracy** `Rounding`: kernels for another layout add the same products in another order; a quotient becomes a product with the inverse, or sums
//! are scaled on the way.
//! **Proof** This is the definition of the operator: α · A' · B', where A' and B' may be transposed, with the first axis as one of the matrix or not; (A · B)ᵀ is Bᵀ · Aᵀ.
//! **Bound** `transposed` and `turned` sum the same n products: n roundings before and after. `scaled`: before, n and one for the factor; after, one of α (computed in 64
//! bits) and one of its product: n + 2, one more, half an ulp at the scale |α| · Σ|a·b|.
//! **Never** other orders of axes; vectors; a product of no summands, for which ONNX Runtime gives anything when it is transposed; a first axis that moves where the other factor has more or fewer axes, which ONNX Runtime refuses; products with constants that are transposed, since ONNX
//! Runtime packs the second factor only; numbers of 64 bits;
//! factors that are 0, very small, very large or no number.

use crate::passes::pass;
use crate::passes::recognize::constant_math::RANGE;
use crate::passes::recognize::constant_math::number;
use crate::passes::recognize::orders::{Order, permutation, swaps_last, then};
use crate::passes::targets::ORT;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::{Accuracy, Attr, DType, NodeId, ValueId};

pass!(ort_matmul { stage: Target, runs: Only(&[&ORT]), rules: [TRANSPOSED, TURNED, SCALED] });

const PRODUCTS: &[&str] = &["MatMul", "com.microsoft.FusedMatMul"];

static TRANSPOSED: At =
    At { name: "transposed", accuracy: Accuracy::Rounding { ulps: 2.0 }, ops: PRODUCTS, apply: transposed };
static TURNED: At =
    At { name: "turned", accuracy: Accuracy::Rounding { ulps: 2.0 }, ops: &["Transpose"], apply: turned };
static SCALED: At =
    At { name: "scaled", accuracy: Accuracy::Rounding { ulps: 4.0 }, ops: &["Mul", "Div"], apply: scaled };

/// What a product does to its factors: the order of the axes of each, and the number before both.
struct Product {
    orders: [Moves; 2],
    alpha: f32,
}

/// How a factor is transposed: whether its first axis moves behind the others but the last, and whether the last two change places after that.
#[derive(Clone, Copy, PartialEq)]
struct Moves {
    batch: bool,
    swap: bool,
}

impl Moves {
    /// All of them, the simplest first: of few axes, several are the same.
    const ALL: [Self; 4] = [
        Self { batch: false, swap: false },
        Self { batch: false, swap: true },
        Self { batch: true, swap: false },
        Self { batch: true, swap: true },
    ];

    fn order(self, rank: usize) -> Order {
        let mut order: Order = (0..rank).collect();
        if self.batch {
            order[..rank - 1].rotate_left(1);
        }
        if self.swap {
            order.swap(rank - 2, rank - 1);
        }
        order
    }
}

impl Product {
    fn of(cx: &Cx<'_>, id: NodeId) -> Result<Self, Skip> {
        let call = cx.call(id)?;
        let flag = |name: &str| call.int_or(name, 0).map(|flag| flag != 0);
        let orders = [
            Moves { batch: flag("transBatchA")?, swap: flag("transA")? },
            Moves { batch: flag("transBatchB")?, swap: flag("transB")? },
        ];
        Ok(Self { orders, alpha: call.float_or("alpha", 1.0)? })
    }

    fn attributes(&self) -> Vec<Attr> {
        let [a, b] = self.orders;
        let flags =
            [("transA", a.swap), ("transB", b.swap), ("transBatchA", a.batch), ("transBatchB", b.batch)];
        let set = flags.into_iter().filter(|&(_, set)| set).map(|(name, _)| (name, 1).into());
        std::iter::once(("alpha", self.alpha).into()).chain(set).collect()
    }
}

fn transposed(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let mut product = Product::of(cx, id)?;
    let mut factors = [cx.input(id, 0)?, cx.input(id, 1)?];
    let mut absorbed = Vec::new();
    for (factor, moves) in factors.iter_mut().zip(&mut product.orders) {
        let Some(transpose) = cx.producer(*factor, "Transpose", id) else { continue };
        let rank = cx.rank(*factor)?;
        if rank < 2 {
            continue;
        }
        let order = then(&permutation(cx, transpose)?, &moves.order(rank));
        if let Some(whole) = Moves::ALL.into_iter().find(|whole| whole.order(rank) == order) {
            *factor = cx.input(transpose, 0)?;
            *moves = whole;
            absorbed.push(transpose);
        }
    }
    if absorbed.is_empty() {
        return Err(Skip::NOT_HERE);
    }
    for factor in factors {
        if !matches!(cx.dtype(factor)?, DType::F32 | DType::F16 | DType::BF16) {
            return Err(Skip::at(Reason::Type, factor));
        }
        if cx.rank(factor)? < 2 {
            return Err(Skip::at(Reason::Rule("a factor is a vector"), factor));
        }
    }
    if product.orders.iter().any(|moves| moves.batch) && cx.rank(factors[0])? != cx.rank(factors[1])? {
        return Err(Skip::because("a first axis moves, and the factors have not as many axes as each other"));
    }
    let mut change = cx.change(&[id]);
    absorbed.into_iter().for_each(|transpose| change.absorb(transpose));
    let fused = change.contrib("FusedMatMul", factors.map(Into::into), 1, product.attributes());
    change.replace(cx.output(id)?, fused.output(0));
    Ok(change)
}

fn turned(cx: &Cx<'_>, transpose: NodeId) -> Result<Change, Skip> {
    let value = cx.input(transpose, 0)?;
    let id = PRODUCTS.iter().find_map(|op| cx.producer(value, op, transpose)).ok_or(Skip::NOT_HERE)?;
    let (a, b) = (cx.input(id, 0)?, cx.input(id, 1)?);
    let Product { orders: [first, second], alpha } = Product::of(cx, id)?;
    if !swaps_last(&permutation(cx, transpose)?) || first.batch || second.batch {
        return Err(Skip::NOT_HERE);
    }
    if !matches!(cx.dtype(a)?, DType::F32 | DType::F16 | DType::BF16) {
        return Err(Skip::at(Reason::Type, a));
    }
    if cx.rank(a)? < 2 || cx.rank(b)? < 2 {
        return Err(Skip::at(Reason::Rule("a factor is a vector"), a));
    }
    if let Some(&constant) = [a, b].iter().find(|&&factor| cx.model.constant(factor).is_some()) {
        return Err(Skip::at(Reason::Rule("a factor is constant"), constant));
    }
    // Where there is nothing to sum, ONNX Runtime 1.31 leaves memory as it was; MatMul gives zeros.
    let inner = cx.shape(a)?.iter().rev().nth(usize::from(first.swap));
    if !inner.is_some_and(|size| size.provably_positive(cx.symbols())) {
        return Err(Skip::at(Reason::UnknownShape, a));
    }
    cx.read_only_by(value, transpose)?;
    let turn = |moves: Moves| Moves { swap: !moves.swap, ..moves };
    let product = Product { orders: [turn(second), turn(first)], alpha };
    let mut change = cx.change(&[id, transpose]);
    let fused = change.contrib("FusedMatMul", [b.into(), a.into()], 1, product.attributes());
    change.replace(cx.output(transpose)?, fused.output(0));
    Ok(change)
}

fn scaled(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let (a, b) = (cx.input(id, 0)?, cx.input(id, 1)?);
    let product = |value: ValueId| PRODUCTS.iter().find_map(|op| cx.producer(value, op, id));
    let divides = cx.node(id).op().is("Div");
    let (product_id, value, factor) = match (product(a), product(b)) {
        (Some(found), None) => (found, a, b),
        (None, Some(found)) if !divides => (found, b, a),
        _ => return Err(Skip::NOT_HERE),
    };
    let factor = number(cx, factor).map_err(|_| Skip::NOT_HERE)?;
    let factor = if divides { factor.recip() } else { factor };
    if !matches!(cx.dtype(value)?, DType::F32 | DType::F16 | DType::BF16) {
        return Err(Skip::at(Reason::Type, value));
    }
    if !RANGE.contains(&factor.abs()) {
        return Err(Skip::because("the factor is 0, very small, very large or no number"));
    }
    cx.read_only_by(value, id)?;
    let mut product = Product::of(cx, product_id)?;
    product.alpha = (f64::from(product.alpha) * factor) as f32;
    let mut change = cx.change(&[product_id, id]);
    let factors = [cx.input(product_id, 0)?.into(), cx.input(product_id, 1)?.into()];
    let fused = change.contrib("FusedMatMul", factors, 1, product.attributes());
    change.replace(cx.output(id)?, fused.output(0));
    Ok(change)
}
