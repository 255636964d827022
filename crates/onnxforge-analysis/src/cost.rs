//! How many floating point operations nodes take, as expressions of the model's dimensions.
//!
//! What is counted is the arithmetic of the definition, not what a kernel does: nothing is taken off for zeros, masks or faster
//! algorithms. Integer and quantized operators count like those that they stand for.
//!
//! | operators | operations |
//! |---|---|
//! | MatMul, Gemm, Conv, ConvTranspose, recurrent layers and their variants | 2 for each multiplication with addition; 1 for each element that a bias is added to |
//! | Einsum | for each combination of all indices, the multiplications, and 1 where it sums |
//! | Attention and its variants | the two products, 5 for each score (softmax), and projections where they are part of it; the mask counts for nothing |
//! | RNN, GRU, LSTM | the products, the sum of both, biases, and 1, 8 or 9 for each element of the state (gates) |
//! | Softmax, LogSoftmax | 5 for each element: maximum, difference, exponential, sum, quotient |
//! | normalizations | 5 for each element (mean, difference, square, sum, quotient), 3 without a mean; scale, bias and what is added before 1 each; BatchNormalization 2 |
//! | reductions, ArgMax, CumSum | 1 for each element that is read; 2 with a square, exponential or absolute value |
//! | pooling | 1 for each element of each window |
//! | element by element | 1 for each element of the result, whatever the function; with n operands n - 1 |
//! | RotaryEmbedding | 3 for each element |
//! | QuantizeLinear, DequantizeLinear | 2 for each element; DynamicQuantizeLinear 4 |
//! | Resize, by interpolation | 2 for each neighbour of each element |
//! | moving, selecting, sorting, converting and making elements; strings, sequences | 0 |
//!
//! `None` is "not known": a shape is not known, or how often something happens. Control flow is not known, because nothing tells
//! which branch is taken and how often a loop turns; calls of local functions are not, because what is known inside of a function
//! holds in all of its calls; neither are operators that the table does not know, or whose work depends on the data or the algorithm
//! (NonMaxSuppression, DFT, Det, trees).

use std::collections::HashMap;

use onnxforge_ir::dim::{Dim, Symbol};
use onnxforge_ir::{Model, NodeId};
use onnxforge_ops::call::Call;
use onnxforge_ops::callee::{Callee, Functions};
use onnxforge_ops::def::Category;
use onnxforge_ops::infer::Inference;

/// Floating point operations of a node; `None`: not known, or the expression would be too large.
pub fn flops(model: &Model, inference: &Inference, node: NodeId) -> Option<Dim> {
    count(model, inference, &Functions::of(model), node)?.to_dim()
}

/// The same for every node of the model. For nodes in bodies and functions it is what one turn or call takes.
pub fn of_nodes(model: &Model, inference: &Inference) -> Vec<(NodeId, Option<Dim>)> {
    let functions = Functions::of(model);
    let flops = |id| count(model, inference, &functions, id).and_then(|count| count.to_dim());
    model.nodes().map(|(id, _)| (id, flops(id))).collect()
}

/// The operations of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Their number, as far as it is known; `u64::MAX` where it would be larger.
    pub flops: u64,
    /// Nodes of the graph of which nothing is known, or whose shapes make no sense at these sizes.
    pub unknown: Vec<NodeId>,
}

/// Operations of every node at the given sizes of dimensions; those that are not given are 1. Nodes of which nothing is known, or whose shapes
/// make no sense at these sizes, are not there.
pub fn at_sizes(model: &Model, inference: &Inference, sizes: &HashMap<String, u64>) -> HashMap<NodeId, u64> {
    let functions = Functions::of(model);
    let size = |symbol: Symbol| {
        let given = sizes.get(&*inference.symbols().name(symbol)).copied().unwrap_or(1);
        Some(i64::try_from(given).unwrap_or(i64::MAX))
    };
    let flops = |id| count(model, inference, &functions, id).and_then(|count| count.evaluate(&size));
    model.nodes().filter_map(|(id, _)| Some((id, flops(id)?))).collect()
}

/// Operations of all nodes of the graph at the given sizes. Bodies of control flow and functions are not counted: their holders and callers
/// are among the unknown.
pub fn total(model: &Model, inference: &Inference, sizes: &HashMap<String, u64>) -> Total {
    let known = at_sizes(model, inference, sizes);
    let mut total = Total::default();
    for (id, _) in model.nodes_in(model.main()) {
        match known.get(&id) {
            Some(&flops) => total.flops = total.flops.saturating_add(flops),
            None => total.unknown.push(id),
        }
    }
    total
}

/// A sum of products, kept apart so that it can be evaluated where its expression does not fit. The first ones, `paired` of them, are
/// multiplications each with its addition.
#[derive(Default)]
pub(super) struct Count {
    terms: Vec<Vec<Dim>>,
    paired: usize,
}

impl Count {
    fn nothing() -> Self {
        Self::default()
    }

    /// `factor` for each element of a tensor of this shape.
    fn each(factor: usize, shape: &[Dim]) -> Self {
        Self::nothing().and(factor, shape)
    }

    /// The same and `factor` times the product of `dims`.
    fn and(mut self, factor: usize, dims: &[Dim]) -> Self {
        if factor > 0 {
            let factor = Dim::from(i64::try_from(factor).unwrap_or(i64::MAX));
            self.terms.push(std::iter::once(factor).chain(dims.iter().cloned()).collect());
        }
        self
    }

    /// The same, where everything so far are multiplications with additions.
    fn paired(self) -> Self {
        Self { paired: self.terms.len(), ..self }
    }

    /// The multiplications with additions alone, each counted as two.
    pub(super) fn products(&self) -> Self {
        Self { terms: self.terms[..self.paired].to_vec(), paired: self.paired }
    }

    pub(super) fn to_dim(&self) -> Option<Dim> {
        let products: Option<Vec<Dim>> = self.terms.iter().map(Dim::product).collect();
        Dim::sum(&products?)
    }

    pub(super) fn evaluate(&self, size: &dyn Fn(Symbol) -> Option<i64>) -> Option<u64> {
        self.terms.iter().try_fold(0u64, |sum, product| {
            let mut value = 1u64;
            for factor in product {
                let factor = u64::try_from(factor.evaluate(size)?).unwrap_or(0);
                value = value.saturating_mul(factor);
            }
            Some(sum.saturating_add(value))
        })
    }
}

pub(super) fn count(
    model: &Model,
    inference: &Inference,
    functions: &Functions,
    id: NodeId,
) -> Option<Count> {
    let Callee::Operator(call) = functions.callee(model, id, None) else { return None };
    if call.node.bodies().next().is_some() {
        return None;
    }
    Cost { inference, call }.count()
}

/// A call whose operations are counted.
struct Cost<'a> {
    inference: &'a Inference,
    call: Call<'a>,
}

impl<'a> Cost<'a> {
    fn input(&self, index: usize) -> Option<&'a [Dim]> {
        self.inference.shape(self.call.node.input(index)?)
    }

    fn output(&self) -> Option<&'a [Dim]> {
        self.inference.shape(self.call.node.output(0)?)
    }

    /// 1 if the input is given.
    fn has(&self, index: usize) -> usize {
        self.call.node.input(index).is_some().into()
    }

    fn count(&self) -> Option<Count> {
        let contrib = !self.call.def.domain.is_empty();
        match self.call.def.name {
            "MatMul" | "MatMulInteger" => self.product(0, false),
            "MatMulIntegerToFloat" => Some(self.product(0, false)?.and(self.has(6), self.output()?)),
            "DynamicQuantizeMatMul" => Some(self.product(0, false)?.and(self.has(4), self.output()?)),
            "QLinearMatMul" => self.product(0, false),
            "FusedMatMul" | "TransposeMatMul" => {
                let moved = |name| self.call.flag(name).unwrap_or(true);
                if moved("transBatchA") || moved("transBatchB") {
                    return None;
                }
                self.product(0, self.call.flag("transA").ok()?)
            }
            "MatMulNBits" => {
                let depth = Dim::from(self.call.int("K").ok()?);
                Some(self.sums(depth)?.and(self.has(5), self.output()?))
            }
            "Gemm" | "FusedGemm" => self.gemm(2),
            "QGemm" => self.gemm(6),
            "Conv" | "FusedConv" | "NhwcConv" | "NhwcFusedConv" | "ConvInteger" | "DeformConv" => {
                let bias = match self.call.def.name {
                    "ConvInteger" => 0,
                    "DeformConv" => self.has(3),
                    _ => self.has(2),
                };
                self.conv(1, bias)
            }
            "QLinearConv" => self.conv(3, self.has(8)),
            "ConvTranspose" => {
                let weights = self.input(1)?.get(1..)?;
                let dims = [self.input(0)?, weights].concat();
                Some(Count::each(2, &dims).paired().and(self.has(2), self.output()?))
            }
            "Einsum" => self.einsum(),
            "Attention" if !contrib => self.attention(4),
            "Attention" => self.packed_attention(4),
            "QAttention" => self.packed_attention(8),
            "MultiHeadAttention" => self.attention(6),
            "GroupQueryAttention" => self.attention(3),
            "RNN" => self.recurrent(1, 1),
            "GRU" => self.recurrent(3, 8),
            "LSTM" => self.recurrent(4, 9),
            "Softmax" | "LogSoftmax" | "QLinearSoftmax" => Some(Count::each(5, self.output()?)),
            "BiasSoftmax" => Some(Count::each(6, self.output()?)),
            "BatchNormalization" => Some(Count::each(2, self.output()?)),
            "LayerNormalization" => Some(Count::each(6 + self.has(2), self.output()?)),
            "InstanceNormalization" | "GroupNormalization" | "GroupNorm" => {
                Some(Count::each(7, self.output()?))
            }
            "RMSNormalization" | "SimplifiedLayerNormalization" => Some(Count::each(4, self.output()?)),
            "SkipLayerNormalization" => Some(Count::each(7 + self.has(3) + self.has(4), self.output()?)),
            "SkipSimplifiedLayerNormalization" => Some(Count::each(5 + self.has(3), self.output()?)),
            "SkipGroupNorm" => Some(Count::each(8 + self.has(4), self.output()?)),
            "EmbedLayerNormalization" => Some(Count::each(8 + self.has(1), self.output()?)),
            "MeanVarianceNormalization" => Some(Count::each(5, self.output()?)),
            "LpNormalization" | "Normalizer" => Some(Count::each(3, self.output()?)),
            "LRN" => {
                // Squares, their sum over neighbours, a product, a sum, a power and a quotient.
                let size = usize::try_from(self.call.int("size").ok()?).ok()?;
                Some(Count::each(size.checked_add(5)?, self.output()?))
            }
            "Scaler" => Some(Count::each(2, self.output()?)),
            "ReduceL1" | "ReduceL2" | "ReduceSumSquare" | "ReduceLogSumExp" => {
                Some(Count::each(2, self.input(0)?))
            }
            "CumSum" | "CumProd" | "QLinearReduceMean" | "QLinearGlobalAveragePool" | "Hardmax" => {
                Some(Count::each(1, self.input(0)?))
            }
            "GlobalMaxPool" | "GlobalAveragePool" => Some(Count::each(1, self.input(0)?)),
            "GlobalLpPool" => Some(Count::each(2, self.input(0)?)),
            "MaxPool" | "AveragePool" | "QLinearAveragePool" | "NhwcMaxPool" => self.pool(1),
            "LpPool" => self.pool(2),
            "MaxUnpool" | "Dropout" => Some(Count::nothing()),
            "RotaryEmbedding" => Some(Count::each(3, self.output()?)),
            "QuantizeLinear" | "DequantizeLinear" => Some(Count::each(2, self.output()?)),
            "DynamicQuantizeLinear" => Some(Count::each(4, self.output()?)),
            "Resize" | "Upsample" => self.resize(),
            "BiasGelu" => Some(Count::each(2, self.output()?)),
            "FastGelu" => Some(Count::each(1 + self.has(1), self.output()?)),
            // Bias, gate and product for each element that is left.
            "BiasSplitGelu" => Some(Count::each(4, self.output()?)),
            "BiasAdd" => Some(Count::each(1 + self.has(2), self.output()?)),
            "Max" | "Min" | "Sum" | "Mean" => {
                let operands = self.call.node.inputs().iter().flatten().count();
                let mean = usize::from(self.call.def.name == "Mean");
                Some(Count::each((operands + mean).saturating_sub(1), self.output()?))
            }
            "QLinearConcat" | "QLinearWhere" => Some(Count::nothing()),
            "GridSample" | "AffineGrid" | "Col2Im" | "NonMaxSuppression" | "ImageDecoder"
            | "CropAndResize" | "Multinomial" => None,
            _ => self.by_kind(),
        }
    }

    /// The rest, by what is known of operators.
    fn by_kind(&self) -> Option<Count> {
        let def = self.call.def;
        match def.category {
            _ if def.layout_only || def.shape_only => Some(Count::nothing()),
            Category::Constant
            | Category::Shape
            | Category::Indexing
            | Category::Manipulation
            | Category::Conversion => Some(Count::nothing()),
            Category::Reduction => Some(Count::each(1, self.input(0)?)),
            Category::ControlFlow => None,
            _ if def.elementwise => Some(Count::each(1, self.output()?)),
            _ => None,
        }
    }

    /// `depth` multiplications with addition for each element of the result.
    fn sums(&self, depth: Dim) -> Option<Count> {
        Some(Count::each(2, &[self.output()?, &[depth]].concat()).paired())
    }

    /// A product of matrices whose first operand is input `index`.
    fn product(&self, index: usize, transposed: bool) -> Option<Count> {
        let depth = match self.input(index)? {
            [.., depth, _] if transposed => depth,
            [.., depth] => depth,
            [] => return None,
        };
        self.sums(depth.clone())
    }

    fn gemm(&self, bias: usize) -> Option<Count> {
        let product = self.product(0, self.call.flag("transA").ok()?)?;
        Some(product.and(self.has(bias), self.output()?))
    }

    /// A convolution with weights of shape `[channels, …]` at input `index`.
    fn conv(&self, index: usize, bias: usize) -> Option<Count> {
        let window = self.input(index)?.get(1..)?;
        let dims = [self.output()?, window].concat();
        Some(Count::each(2, &dims).paired().and(bias, self.output()?))
    }

    fn pool(&self, each: usize) -> Option<Count> {
        let window = self.call.ints("kernel_shape").ok()?;
        let window: Vec<Dim> = window.into_iter().map(Dim::from).collect();
        Some(Count::each(each, &[self.output()?, &window].concat()))
    }

    /// The products and the softmax of queries, keys and values that stand at inputs 0 to 2 and a cache at input `past`.
    fn attention(&self, past: usize) -> Option<Count> {
        let (query, result) = (self.input(0)?, self.output()?);
        let heads = || {
            let name = if self.call.def.domain.is_empty() { "q_num_heads" } else { "num_heads" };
            Some(Dim::from(self.call.int(name).ok()?))
        };
        let (batch, queries) = match query {
            [batch, _, queries, _] => (batch, queries),
            [batch, queries, ..] => (batch, queries),
            _ => return None,
        };
        // Heads times what each of them adds up.
        let (scored, mixed, heads) = match (query, result) {
            ([_, heads, _, size], [.., mixed]) => (heads.mul(size)?, heads.mul(mixed)?, heads.clone()),
            ([_, _, width], [_, _, mixed]) if self.has(1) == 1 => (width.clone(), mixed.clone(), heads()?),
            // Queries, keys and values in one.
            (_, [_, _, mixed]) => (mixed.clone(), mixed.clone(), heads()?),
            _ => return None,
        };
        let keys = match self.call.node.input(1) {
            None => queries.clone(),
            Some(_) => match self.input(1)? {
                [_, _, keys, _] => keys.clone(),
                [_, keys, ..] => keys.clone(),
                _ => return None,
            },
        };
        let keys = match self.call.node.input(past) {
            None => keys,
            Some(_) => keys.add(self.input(past)?.get(2)?)?,
        };
        let dims = |width: &Dim| [batch, queries, &keys, width].map(Clone::clone);
        Some(Count::each(2, &dims(&scored)).and(2, &dims(&mixed)).paired().and(5, &dims(&heads)))
    }

    /// The same of one input that is projected to queries, keys and values.
    fn packed_attention(&self, past: usize) -> Option<Count> {
        let ([batch, queries, width], [_, projected]) = (self.input(0)?, self.input(1)?) else { return None };
        let mixed = self.output()?.last()?;
        let scored = match self.call.opt_ints("qkv_hidden_sizes").ok()? {
            Some(sizes) => Dim::from(*sizes.first()?),
            None => mixed.clone(),
        };
        let keys = match self.call.node.input(past) {
            None => queries.clone(),
            Some(_) => queries.add(self.input(past)?.get(3)?)?,
        };
        let heads = Dim::from(self.call.int("num_heads").ok()?);
        let dims = |width: &Dim| [batch, queries, &keys, width].map(Clone::clone);
        let products = Count::each(2, &[batch, queries, width, projected].map(Clone::clone))
            .and(2, &dims(&scored))
            .and(2, &dims(mixed))
            .paired();
        let bias = [batch, queries, projected].map(Clone::clone);
        Some(products.and(self.has(2), &bias).and(5, &dims(&heads)))
    }

    /// A recurrent layer with so many gates, and operations for each element of its state.
    fn recurrent(&self, gates: usize, each: usize) -> Option<Count> {
        let ([steps, batch, width], [directions, _, hidden]) = (self.input(0)?, self.input(2)?) else {
            return None;
        };
        let state = [steps, batch, directions, hidden].map(Clone::clone);
        let with = |last: &Dim| [&state[..], std::slice::from_ref(last)].concat();
        let products = Count::each(2 * gates, &with(width)).and(2 * gates, &with(hidden)).paired();
        Some(products.and(gates + 2 * gates * self.has(3) + each, &state))
    }

    fn resize(&self) -> Option<Count> {
        let neighbours: usize = match self.call.text_or("mode", "nearest").ok()?.as_str() {
            "nearest" => return Some(Count::nothing()),
            "cubic" => 4,
            _ => 2,
        };
        let (from, to) = (self.input(0)?, self.output()?);
        let axes = from.iter().zip(to).filter(|(from, to)| from != to).count();
        Some(Count::each(2 * neighbours.checked_pow(u32::try_from(axes).ok()?)?, to))
    }

    fn einsum(&self) -> Option<Count> {
        let equation: String = self.call.text("equation").ok()?.split_whitespace().collect();
        let (left, right) = match equation.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (equation.as_str(), None),
        };
        let terms: Vec<&str> = left.split(',').collect();
        let mut sizes: Vec<(char, Dim)> = Vec::new();
        for (index, term) in terms.iter().enumerate() {
            let shape = self.input(index)?;
            // An ellipsis has no indices to count.
            if term.contains('.') || term.chars().count() != shape.len() {
                return None;
            }
            for (label, dim) in term.chars().zip(shape) {
                match sizes.iter_mut().find(|(known, _)| *known == label) {
                    // An axis of size 1 is broadcast.
                    Some((_, known)) if *known == Dim::ONE => *known = dim.clone(),
                    Some(_) => {}
                    None => sizes.push((label, dim.clone())),
                }
            }
        }
        let summed = match right {
            Some(right) => sizes.iter().any(|(label, _)| !right.contains(*label)),
            None => sizes.iter().any(|(label, _)| left.matches(*label).count() > 1),
        };
        let dims: Vec<Dim> = sizes.into_iter().map(|(_, dim)| dim).collect();
        let count = Count::each(terms.len() - 1 + usize::from(summed), &dims);
        Some(if terms.len() == 2 && summed { count.paired() } else { count })
    }
}
