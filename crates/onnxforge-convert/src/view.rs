//! A model as writers look at it: what is known of its values, and why a node has no place.

use onnxforge_ir::dim::Dim;
use onnxforge_ir::{AttrValue, DType, Model, Node, NodeId, ValueId};
use onnxforge_ops::call::{Call, axes};
use onnxforge_ops::callee::{Callee, Functions};
use onnxforge_ops::error::OpError;
use onnxforge_ops::infer::Inference;
use onnxforge_ops::{Array, TensorFact};

/// Why a node has no place in a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// The reason.
    pub reason: String,
    /// What may help.
    pub hint: Option<&'static str>,
}

impl Why {
    /// Something that helps.
    pub fn hinting(self, hint: &'static str) -> Self {
        Self { hint: Some(hint), ..self }
    }
}

impl From<String> for Why {
    fn from(reason: String) -> Self {
        Self { reason, hint: None }
    }
}

impl From<&str> for Why {
    fn from(reason: &str) -> Self {
        reason.to_owned().into()
    }
}

impl From<OpError> for Why {
    fn from(error: OpError) -> Self {
        error.to_string().into()
    }
}

/// A model and what is known of it.
pub struct View<'m> {
    /// The model.
    pub model: &'m Model,
    /// What is known of its values.
    pub facts: Inference,
    /// Its functions.
    pub functions: Functions,
}

impl<'m> View<'m> {
    /// A model, once everything is known of it that inference knows.
    pub fn of(model: &'m Model) -> Self {
        Self { model, facts: Inference::of(model), functions: Functions::of(model) }
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> &'m Node {
        self.model.node(id)
    }

    /// The call that a node makes.
    pub fn call(&self, id: NodeId) -> Result<Call<'m>, Why> {
        match self.functions.callee(self.model, id, None) {
            Callee::Operator(call) => Ok(call),
            _ => Err("the operator is not known".into()),
        }
    }

    /// An input that has to be there.
    pub fn arg(&self, id: NodeId, index: usize) -> Result<ValueId, Why> {
        self.node(id).input(index).ok_or_else(|| format!("input {index} is missing").into())
    }

    /// An output that has to be there.
    pub fn out(&self, id: NodeId, index: usize) -> Result<ValueId, Why> {
        self.node(id).output(index).ok_or_else(|| format!("nothing reads its result {index}").into())
    }

    /// The shape of a value.
    pub fn shape(&self, value: ValueId) -> Result<Vec<Dim>, Why> {
        let name = self.model.value(value).name();
        let shape = self.facts.shape(value).map(<[Dim]>::to_vec);
        shape.ok_or_else(|| {
            Why::from(format!("the number of axes of {name} is not known")).hinting("--set-shape may help")
        })
    }

    /// Its sizes, which must all be known.
    pub fn sizes(&self, value: ValueId) -> Result<Vec<i64>, Why> {
        let sizes: Option<Vec<i64>> = self.shape(value)?.iter().map(Dim::as_const).collect();
        let name = self.model.value(value).name();
        sizes.ok_or_else(|| Why::from(format!("the sizes of {name} are not known")).hinting("--set-dim"))
    }

    /// The number of its axes.
    pub fn rank(&self, value: ValueId) -> Result<usize, Why> {
        self.shape(value).map(|shape| shape.len())
    }

    /// Its element type.
    pub fn dtype(&self, value: ValueId) -> Result<DType, Why> {
        let fact = self.facts.tensor(value).and_then(|fact| fact.dtype);
        fact.ok_or_else(|| {
            format!("the element type of {} is not known", self.model.value(value).name()).into()
        })
    }

    /// The integers that a value always holds.
    pub fn ints(&self, value: ValueId) -> Option<Vec<i64>> {
        let known = self.facts.tensor(value).and_then(TensorFact::ints);
        known.or_else(|| self.model.constant(value)?.to_i64s().ok())
    }

    /// The integers that an input always holds, which the format wants to know.
    pub fn fixed_ints(&self, id: NodeId, index: usize) -> Result<Vec<i64>, Why> {
        let value = self.arg(id, index)?;
        self.ints(value).ok_or_else(|| format!("input {index} is computed").into())
    }

    /// The number that a constant is.
    pub fn number(&self, value: ValueId) -> Option<f64> {
        let constant = self.model.constant(value)?;
        (constant.len() == 1).then(|| Array::from_tensor(constant).ok()?.to_f64s().ok()?.first().copied())?
    }

    /// Whether a value is a constant, or one of quantized numbers.
    pub fn is_fixed(&self, value: ValueId) -> bool {
        let dequantized = |node: NodeId| {
            let node = self.node(node);
            node.op().is("DequantizeLinear")
                && node.inputs().iter().flatten().all(|&input| self.model.constant(input).is_some())
        };
        self.model.constant(value).is_some() || self.model.value(value).node().is_some_and(dequantized)
    }

    /// What a Pad puts before and after each axis of a tensor.
    pub fn padding(&self, id: NodeId, rank: usize) -> Result<Vec<[i64; 2]>, Why> {
        let pads = self.fixed_ints(id, 1)?;
        let named = match self.node(id).input(3) {
            Some(_) => axes(&self.fixed_ints(id, 3)?, rank)?,
            None => (0..rank).collect(),
        };
        let mut all = vec![[0; 2]; rank];
        for (place, &axis) in named.iter().enumerate() {
            let ends = (pads.get(place), pads.get(place + named.len()));
            let (Some(&before), Some(&after)) = ends else { return Err("padding is missing".into()) };
            if before < 0 || after < 0 {
                return Err("it cuts off instead of padding".into());
            }
            all[axis] = [before, after];
        }
        Ok(all)
    }

    /// The axes that a Slice cuts, and its step along each.
    pub fn cut_axes(&self, id: NodeId, rank: usize) -> Result<(Vec<usize>, Vec<i64>), Why> {
        let count = self.shape(self.arg(id, 1)?)?.first().and_then(Dim::as_const);
        let count = usize::try_from(count.ok_or("its axes are not known")?).unwrap_or(0);
        let named = match self.node(id).input(3) {
            Some(_) => axes(&self.fixed_ints(id, 3)?, rank)?,
            None => (0..count.min(rank)).collect(),
        };
        let steps = match self.node(id).input(4) {
            Some(_) => self.fixed_ints(id, 4)?,
            None => vec![1; named.len()],
        };
        Ok((named, steps))
    }

    /// Whether two sizes are provably equal.
    pub fn same(&self, a: &Dim, b: &Dim) -> bool {
        a.provably_equal(b, self.facts.symbols())
    }

    /// Whether two shapes are.
    pub fn same_shape(&self, a: &[Dim], b: &[Dim]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| self.same(a, b))
    }

    /// Fails unless a value has one of these element types.
    pub fn takes(&self, value: ValueId, types: &[DType]) -> Result<DType, Why> {
        let dtype = self.dtype(value)?;
        match types.contains(&dtype) {
            true => Ok(dtype),
            false => Err(format!("the operator does not take {}", dtype.name()).into()),
        }
    }

    /// Fails where an attribute is not what it has to be.
    pub fn demand(&self, id: NodeId, name: &'static str, holds: bool) -> Result<(), Why> {
        if holds {
            return Ok(());
        }
        let value = match self.node(id).attr(name) {
            Some(AttrValue::Int(value)) => format!(" {value}"),
            Some(AttrValue::String(value)) => format!(" {}", String::from_utf8_lossy(value)),
            _ => String::new(),
        };
        Err(format!("the operator has no {name}{value}").into())
    }
}
