//! What an operator's inference sees: facts about the inputs, and the place for facts about the outputs.

use super::array::Array;
use super::call::{self, Call};
use super::error::{OpError, invalid};
use super::fact::{Fact, Known, MAX_SYMBOLIC_ELEMENTS, TensorFact};
use super::signature::{Form, Presence, Signature};
use onnxforge_ir::dim::{Dim, Requirement, Symbols};
use onnxforge_ir::{DType, ScopeId};

/// Infers the bodies of nodes: what an operator with bodies asks of whoever infers the model.
pub trait InferScope {
    /// Facts about the outputs of a body, given facts about its inputs. May be asked several times; the facts about
    /// values inside are those of the last time.
    fn scope(
        &mut self,
        scope: ScopeId,
        inputs: Vec<Fact>,
        symbols: &mut Symbols,
    ) -> Result<Vec<Fact>, OpError>;
}

/// The inference of one call.
///
/// The driver has already set what the signature tells: outputs whose type variable an input has get that input's
/// element type, with unknown shape. An inference function adds the rest.
pub struct Infer<'a> {
    /// The call: version and attributes.
    pub call: Call<'a>,
    /// The table of the model's symbols.
    pub symbols: &'a mut Symbols,
    inputs: &'a [Option<Fact>],
    outputs: Vec<Fact>,
    scopes: &'a mut dyn InferScope,
}

static UNKNOWN: Fact = Fact::Unknown;
static UNKNOWN_TENSOR: TensorFact = TensorFact { dtype: None, shape: None, value: None };

impl<'a> Infer<'a> {
    /// The inference of `call` on these inputs; `outputs` is what the signature tells.
    pub(crate) fn new(
        call: Call<'a>,
        inputs: &'a [Option<Fact>],
        outputs: Vec<Fact>,
        symbols: &'a mut Symbols,
        scopes: &'a mut dyn InferScope,
    ) -> Self {
        Self { call, symbols, inputs, outputs, scopes }
    }

    pub(crate) fn into_outputs(self) -> Vec<Fact> {
        self.outputs
    }

    /// How many inputs the node lists, absent ones included.
    pub fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// Whether input `index` is given.
    pub fn has(&self, index: usize) -> bool {
        matches!(self.inputs.get(index), Some(Some(_)))
    }

    /// What is known of input `index`; nothing when it is not given.
    pub fn fact(&self, index: usize) -> &'a Fact {
        self.inputs.get(index).and_then(Option::as_ref).unwrap_or(&UNKNOWN)
    }

    /// What is known of the tensor at input `index`; nothing when it is not given or no tensor.
    pub fn tensor(&self, index: usize) -> &'a TensorFact {
        self.fact(index).tensor().unwrap_or(&UNKNOWN_TENSOR)
    }

    /// The element type of input `index`, if it is known.
    pub fn dtype(&self, index: usize) -> Option<DType> {
        self.tensor(index).dtype
    }

    /// The shape of input `index`, if its rank is known.
    pub fn shape(&self, index: usize) -> Option<&'a [Dim]> {
        self.tensor(index).shape.as_deref()
    }

    /// The number of axes of input `index`, if it is known.
    pub fn rank(&self, index: usize) -> Option<usize> {
        self.shape(index).map(<[Dim]>::len)
    }

    /// The constant at input `index`, if every element is known as a number.
    pub fn constant(&self, index: usize) -> Option<&'a Array> {
        self.tensor(index).array()
    }

    /// The integers at input `index`, if all are known as numbers.
    pub fn ints(&self, index: usize) -> Option<Vec<i64>> {
        self.tensor(index).ints()
    }

    /// The integers at input `index` as expressions, if they are known: one `Dim` per element.
    pub fn dims(&self, index: usize) -> Option<Vec<Dim>> {
        self.tensor(index).dims()
    }

    /// A new unknown dimension.
    pub fn fresh(&mut self) -> Dim {
        self.symbols.fresh().into()
    }

    /// A new unknown integer of either sign.
    pub fn fresh_value(&mut self) -> Dim {
        self.symbols.fresh_value().into()
    }

    /// The expression, or a new unknown dimension where an operation on expressions gave up.
    pub fn or_fresh(&mut self, dim: Option<Dim>) -> Dim {
        dim.unwrap_or_else(|| self.fresh())
    }

    /// `rank` new unknown dimensions.
    pub fn fresh_shape(&mut self, rank: usize) -> Vec<Dim> {
        (0..rank).map(|_| self.fresh()).collect()
    }

    /// The integer attribute `name` as an axis of `rank` axes.
    pub fn axis_attr(&self, name: &str, rank: usize) -> Result<usize, OpError> {
        call::axis(self.call.int(name)?, rank)
    }

    /// The shape that results when tensors of these shapes are broadcast together.
    pub fn broadcast(&mut self, shapes: &[&[Dim]]) -> Result<Vec<Dim>, OpError> {
        let rank = shapes.iter().map(|shape| shape.len()).max().unwrap_or(0);
        let mut result = vec![Dim::ONE; rank];
        for shape in shapes {
            for (dim, out) in shape.iter().rev().zip(result.iter_mut().rev()) {
                *out = self.broadcast_dim(out, dim)?;
            }
        }
        Ok(result)
    }

    /// The dimension that results when two axes are broadcast together.
    pub fn broadcast_dim(&mut self, a: &Dim, b: &Dim) -> Result<Dim, OpError> {
        if a == b {
            return Ok(a.clone());
        }
        let [a_fits, b_fits] = [a, b].map(|dim| !dim.provably_different(&Dim::ONE, self.symbols));
        // Two of which neither is 1 are the same.
        let requirement = if a_fits || b_fits { Requirement::Broadcast } else { Requirement::Equal };
        self.symbols.require(requirement(a.clone(), b.clone()));
        Ok(match (a.as_const(), b.as_const()) {
            (Some(1), _) => b.clone(),
            (_, Some(1)) => a.clone(),
            (Some(x), Some(y)) => return invalid(format!("dimensions {x} and {y} do not broadcast")),
            // One that is a number other than 1 stays: the other is the same or 1.
            (Some(_), None) => a.clone(),
            (None, Some(_)) => b.clone(),
            // One that cannot be 1 stays, for the same reason.
            (None, None) if !a_fits => a.clone(),
            (None, None) if !b_fits => b.clone(),
            // One that is the other cut short, such as min(n, 512) beside n, is the same or 1.
            (None, None) if self.is_cut_short(a, b) => b.clone(),
            (None, None) if self.is_cut_short(b, a) => a.clone(),
            (None, None) => self.symbols.join(a, b),
        })
    }

    /// Whether `part` is at most `whole`, and 0 only where `whole` is.
    fn is_cut_short(&self, part: &Dim, whole: &Dim) -> bool {
        let least = whole.minimum(&Dim::ONE, self.symbols);
        part.provably_le(whole, self.symbols)
            && least.is_some_and(|least| least.provably_le(part, self.symbols))
    }

    /// The common value of two dimensions that must be equal: the one that says more. Numbers that differ are an error.
    pub fn unify(&mut self, a: &Dim, b: &Dim) -> Result<Dim, OpError> {
        self.symbols.require(Requirement::Equal(a.clone(), b.clone()));
        match (a.as_const(), b.as_const()) {
            (Some(x), Some(y)) if x != y => invalid(format!("dimensions {x} and {y} differ")),
            (None, Some(_)) => Ok(b.clone()),
            _ => Ok(a.clone()),
        }
    }

    /// The shape of output `index` is this.
    pub fn set_shape(&mut self, index: usize, shape: Vec<Dim>) {
        self.tensor_output(index).shape = Some(shape);
    }

    /// The element type of output `index` is this.
    pub fn set_dtype(&mut self, index: usize, dtype: DType) {
        self.tensor_output(index).dtype = Some(dtype);
    }

    /// The element type of output `index` is that of input `input`.
    pub fn copy_dtype(&mut self, index: usize, input: usize) {
        if let Some(dtype) = self.dtype(input) {
            self.set_dtype(index, dtype);
        }
    }

    /// Output `index` holds these integers (or booleans as 0 and 1), row-major; its shape must be set. Too many are
    /// passed over.
    pub fn set_dims(&mut self, index: usize, dims: Vec<Dim>) {
        if dims.len() <= MAX_SYMBOLIC_ELEMENTS {
            self.tensor_output(index).value = Some(Known::Dims(dims.into()));
        }
    }

    /// Everything about output `index`.
    pub fn set(&mut self, index: usize, fact: impl Into<Fact>) {
        if let Some(output) = self.outputs.get_mut(index) {
            *output = fact.into();
        }
    }

    /// What is known of output `index` so far.
    pub fn output(&self, index: usize) -> &Fact {
        self.outputs.get(index).unwrap_or(&UNKNOWN)
    }

    /// Facts about the outputs of a body, given facts about its inputs.
    pub fn body(&mut self, scope: ScopeId, inputs: Vec<Fact>) -> Result<Vec<Fact>, OpError> {
        self.scopes.scope(scope, inputs, self.symbols)
    }

    /// Facts about the outputs of a standard operator on these inputs, with the attributes of this node; none where the
    /// table does not know it.
    pub fn standard(
        &mut self,
        name: &str,
        opset: i64,
        inputs: &[Option<Fact>],
    ) -> Result<Vec<Fact>, OpError> {
        let Ok(call) = self.call.standard(name, opset) else { return Ok(Vec::new()) };
        let typed = outputs_by_signature(&call, inputs);
        let mut cx = Infer::new(call, inputs, typed, self.symbols, self.scopes);
        (call.def.infer)(&mut cx)?;
        Ok(cx.into_outputs())
    }

    /// The tensor fact of output `index`; an index past the outputs leads nowhere.
    fn tensor_output(&mut self, index: usize) -> &mut TensorFact {
        while self.outputs.len() <= index {
            self.outputs.push(Fact::Unknown);
        }
        let output = &mut self.outputs[index];
        if !matches!(output, Fact::Tensor(_)) {
            *output = TensorFact::default().into();
        }
        match output {
            Fact::Tensor(fact) => fact,
            _ => unreachable!("it was just made a tensor"),
        }
    }
}

/// Nothing beyond what the signature tells.
pub fn types_only(_: &mut Infer<'_>) -> Result<(), OpError> {
    Ok(())
}

/// Output 0 has type and shape of input 0.
pub fn same_as_input(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.copy_dtype(0, 0);
    if let Some(shape) = cx.shape(0) {
        cx.set_shape(0, shape.to_vec());
    }
    Ok(())
}

/// Output 0 has the shape to which all inputs broadcast.
pub fn broadcast(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let shapes: Option<Vec<&[Dim]>> = (0..cx.input_count()).map(|index| cx.shape(index)).collect();
    if let Some(shapes) = shapes {
        let shape = cx.broadcast(&shapes)?;
        cx.set_shape(0, shape);
    }
    Ok(())
}

/// What the signature alone tells about the outputs: forms and element types.
pub(crate) fn outputs_by_signature(call: &Call<'_>, inputs: &[Option<Fact>]) -> Vec<Fact> {
    let Some(signature) = call.signature else {
        return vec![Fact::Unknown; call.output_count()];
    };
    let output = |index: usize| {
        let Some(param) = signature.output(index) else { return Fact::Unknown };
        let dtype = bound_dtype(signature, param.ty, inputs).or_else(|| param.types.only_tensor());
        let is_tensor = param.types.only_form() == Some(Form::Tensor);
        match dtype {
            Some(dtype) => TensorFact { dtype: Some(dtype), ..TensorFact::default() }.into(),
            None if is_tensor => TensorFact::default().into(),
            None => Fact::Unknown,
        }
    };
    (0..call.output_count()).map(output).collect()
}

/// The element type that the inputs give to a type variable.
fn bound_dtype(signature: &Signature, variable: &str, inputs: &[Option<Fact>]) -> Option<DType> {
    inputs.iter().enumerate().find_map(|(index, fact)| {
        let param = signature.input(index).filter(|param| param.ty == variable)?;
        // Inputs of mixed types bind nothing.
        if matches!(param.presence, Presence::Variadic { homogeneous: false, .. }) {
            return None;
        }
        fact.as_ref()?.tensor()?.dtype
    })
}
