//! Products of the rows of a tensor with a matrix, for which a Reshape makes a matrix of the tensor.

use super::orders::permutation;
use crate::{Change, Cx, Reason, Skip};
use onnxforge_ir::dim::Dim;
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{DType, NodeId, ValueId};

/// Operators that keep the elements in order.
pub const RESHAPES: &[&str] = &["Reshape", "Flatten", "Squeeze", "Unsqueeze"];

/// The node of [`RESHAPES`] beside `reader` that computes a value.
pub fn reshape_of(cx: &Cx<'_>, value: ValueId, reader: NodeId) -> Option<NodeId> {
    RESHAPES.iter().find_map(|op| cx.producer(value, op, reader))
}

/// MatMul or Gemm, with what is added behind it, of a tensor of three axes or more whose rows a Reshape lists.
pub struct RowProduct {
    /// The tensor.
    pub x: ValueId,
    /// The nodes but for the Reshape, of which only the next one reads each.
    pub nodes: Vec<NodeId>,
    /// The Reshape, which others may read.
    pub reshape: NodeId,
    weights: ValueId,
    /// The weights stand transposed.
    transposed: bool,
    bias: Option<ValueId>,
}

impl RowProduct {
    /// What computes the matrix `value`, which `reader` alone reads.
    pub fn of(cx: &Cx<'_>, value: ValueId, reader: NodeId) -> Result<Self, Skip> {
        let sum = cx.producer(value, "Add", reader);
        let summed = sum.and_then(|sum| {
            let (a, b) = (cx.input(sum, 0).ok()?, cx.input(sum, 1).ok()?);
            let product = |value| cx.producer(value, "MatMul", sum);
            product(a).map(|node| (a, node, b)).or_else(|| product(b).map(|node| (b, node, a)))
        });
        let (product, mut bias) = match summed {
            Some((_, product, bias)) => (product, Some(bias)),
            None => {
                let product =
                    cx.producer(value, "Gemm", reader).or_else(|| cx.producer(value, "MatMul", reader));
                (product.ok_or(Skip::NOT_HERE)?, None)
            }
        };
        let (flat, weights) = (cx.input(product, 0)?, cx.input(product, 1)?);
        let reshape = reshape_of(cx, flat, product).ok_or(Skip::NOT_HERE)?;
        let mut x = cx.input(reshape, 0)?;
        let rows = cx.shape(flat)?;
        let has_rows = |x: ValueId| {
            let last = |shape: &[Dim]| shape.last().zip(rows.last()).is_some_and(|(a, b)| cx.same_dim(a, b));
            cx.shape(x).map(last)
        };
        // A Reshape in front may only make axes of size 1, or take them away.
        if let Some(before) = reshape_of(cx, x, reshape).filter(|_| matches!(has_rows(x), Ok(false))) {
            x = cx.input(before, 0)?;
        }
        if rows.len() != 2 || cx.rank(x)? < 3 || cx.rank(weights)? != 2 {
            return Err(Skip::NOT_HERE);
        }
        if !has_rows(x)? {
            return Err(Skip::because("the rows are not those of the tensor"));
        }
        cx.read_only_by(value, reader)?;
        if let (Some(sum), Some((matrix, ..))) = (sum, summed) {
            cx.read_only_by(matrix, sum)?;
        }
        let mut transposed = false;
        if cx.node(product).op().is("Gemm") {
            let call = cx.call(product)?;
            if call.flag("transA")? || call.float("alpha")? != 1.0 {
                return Err(Skip::because("the Gemm does more than multiply rows"));
            }
            transposed = call.flag("transB")?;
            bias = cx.node(product).input(2).filter(|_| call.float("beta").is_ok_and(|beta| beta != 0.0));
            if bias.is_some() && call.float("beta")? != 1.0 {
                return Err(Skip::because("the Gemm does more than multiply rows"));
            }
        }
        if transposed {
            cx.constant(weights)?;
        }
        if let Some(bias) = bias {
            // The same for all rows.
            let shape = cx.shape(bias)?;
            if shape.len() > 2 || shape.len() == 2 && shape[0].as_const() != Some(1) {
                return Err(Skip::at(Reason::Broadcast, bias));
            }
        }
        if !matches!(cx.dtype(x)?, DType::F32 | DType::F64 | DType::F16 | DType::BF16) {
            return Err(Skip::at(Reason::Type, x));
        }
        let nodes = summed.and(sum).into_iter().chain([product]).collect();
        Ok(Self { x, nodes, reshape, weights, transposed, bias })
    }

    /// The shape that the product has with all axes of the tensor, where it has so many columns.
    pub fn shape(&self, cx: &Cx<'_>, columns: &Dim) -> Result<Vec<Dim>, Skip> {
        let (_, rows) = cx.shape(self.x)?.split_last().ok_or(Skip::NOT_HERE)?;
        Ok(rows.iter().chain([columns]).cloned().collect())
    }

    /// The product with all axes of the tensor.
    pub fn build(&self, cx: &Cx<'_>, change: &mut Change) -> Result<Operand, Skip> {
        change.absorb(self.reshape);
        let mut weights: Operand = self.weights.into();
        if self.transposed {
            let turned = cx.constant(self.weights)?.transposed(&[1, 0]);
            let turned = turned.map_err(|_| Skip::at(Reason::Type, self.weights))?;
            weights = change.constant(cx.model.value(self.weights).name().clone(), turned);
        }
        let product = change.op("MatMul", [self.x.into(), weights], []);
        Ok(match self.bias {
            Some(bias) => change.op("Add", [product, bias.into()], []),
            None => product,
        })
    }
}

/// One operand of a product of lists of matrices, for which a Reshape makes one axis of several.
pub struct Listed {
    /// The operand with all axes.
    pub x: ValueId,
    /// The Reshape, and the Transpose of the matrices behind it.
    pub nodes: Vec<NodeId>,
    /// The sizes of the axes that became one, but for those of size 1.
    pub list: Vec<Dim>,
    /// The sizes of a matrix of `x`.
    pub matrix: [Dim; 2],
    /// The matrices are transposed.
    pub transposed: bool,
}

impl Listed {
    /// Operand `index` of the product, which alone reads it.
    pub fn of(cx: &Cx<'_>, product: NodeId, index: usize) -> Result<Self, Skip> {
        let mut value = cx.input(product, index)?;
        let mut nodes = Vec::new();
        let mut reader = product;
        if let Some(transpose) = cx.producer(value, "Transpose", product) {
            if permutation(cx, transpose)? != [0, 2, 1] {
                return Err(Skip::NOT_HERE);
            }
            cx.read_only_by(value, reader)?;
            nodes.push(transpose);
            (value, reader) = (cx.input(transpose, 0)?, transpose);
        }
        let reshape = reshape_of(cx, value, reader).ok_or(Skip::NOT_HERE)?;
        cx.read_only_by(value, reader)?;
        let transposed = !nodes.is_empty();
        nodes.push(reshape);
        let x = cx.input(reshape, 0)?;
        let [whole, rows, columns] = cx.shape(value)? else { return Err(Skip::NOT_HERE) };
        let list = list(cx, cx.shape(x)?, [rows, columns])
            .filter(|list| Dim::product(list).is_some_and(|product| cx.same_dim(&product, whole)));
        let list = list.ok_or_else(|| Skip::at(Reason::UnknownShape, x))?;
        Ok(Self { x, nodes, list, matrix: [rows.clone(), columns.clone()], transposed })
    }
}

/// The sizes in front of those of a matrix, all but those that are 1.
pub fn list(cx: &Cx<'_>, shape: &[Dim], matrix: [&Dim; 2]) -> Option<Vec<Dim>> {
    let is_one = |dim: &Dim| dim.as_const() == Some(1);
    let mut sizes: Vec<Dim> = shape.iter().filter(|dim| !is_one(dim)).cloned().collect();
    for size in matrix.into_iter().rev().filter(|dim| !is_one(dim)) {
        sizes.pop().filter(|last| cx.same_dim(last, size))?;
    }
    Some(sizes)
}
