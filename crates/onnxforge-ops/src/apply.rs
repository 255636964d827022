//! Calls operators: what is the same for all of them, before and after their own functions.

use super::call::{Bindings, Call};
use super::error::{OpError, invalid, unsupported};
use super::eval_call::{Eval, Memory, RunScope};
use super::fact::Fact;
use super::infer_call::{Infer, InferScope, outputs_by_signature};
use super::kernel::widen::{each_array, narrow, widen, widest};
use super::signature::{Lookup, Presence, signature};
use super::value::Value;
use onnxforge_ir::dim::Symbols;
use onnxforge_ir::{DType, Node, ScopeId};

/// Operators that ONNX Runtime had in the standard domain before the standard did, with the meaning that they have now.
const EARLY: &[&str] = &["LayerNormalization"];

/// The call that a node makes, when the table knows its operator. `opset` is the version of the operator's domain that
/// holds where the node stands.
pub fn call<'a>(node: &'a Node, opset: Option<i64>, bindings: Option<&'a Bindings>) -> Option<Call<'a>> {
    let op = node.op();
    let def = super::find(&op.domain, &op.name)?;
    let opset = opset.unwrap_or(1);
    let signature = match signature(&op.domain, &op.name, opset) {
        Lookup::Found(signature) | Lookup::Deprecated(signature) => Some(signature),
        Lookup::TooNew { first } if EARLY.contains(&&*op.name) => {
            match signature(&op.domain, &op.name, first.into()) {
                Lookup::Found(signature) => Some(signature),
                _ => return None,
            }
        }
        Lookup::TooNew { .. } => return None,
        Lookup::UnknownOp | Lookup::UnknownDomain => None,
    };
    Some(Call { def, opset, signature, node, bindings })
}

/// Whether the signature allows so many inputs, their element types as far as they are known, and the attributes that the
/// node has, each once.
pub fn fits(call: &Call<'_>, facts: &[Option<Fact>]) -> bool {
    let Some(signature) = call.signature else { return true };
    let inputs = facts.len();
    let allowed = |(index, fact): (usize, &Option<Fact>)| {
        let dtype = fact.as_ref().and_then(|fact| fact.tensor()?.dtype);
        dtype.is_none_or(|dtype| {
            signature.input(index).is_some_and(|param| param.types.allows_tensor(dtype.code()))
        })
    };
    if !facts.iter().enumerate().all(allowed) {
        return false;
    }
    if signature.deprecated {
        return false;
    }
    let required = signature.inputs.iter().rposition(|param| match param.presence {
        Presence::Required => true,
        Presence::Variadic { min, .. } => min > 0,
        Presence::Optional => false,
    });
    let attrs = call.node.attrs();
    let attribute = |(index, attr): (usize, &onnxforge_ir::Attr)| {
        signature.attribute(&attr.name).is_some()
            && attrs[..index].iter().all(|before| before.name != attr.name)
    };
    let given = |name: &str| call.node.attr(name).is_some();
    required.is_none_or(|last| inputs > last)
        && (inputs == 0 || signature.input(inputs - 1).is_some())
        && attrs.iter().enumerate().all(attribute)
        && signature.attributes.iter().all(|attribute| !attribute.required || given(attribute.name))
}

/// Facts about the outputs of a call, one for each that the node lists. With the error, if the call contradicts the
/// operator's definition; the facts then hold no more than the element types.
pub fn infer(
    call: Call<'_>,
    inputs: &[Option<Fact>],
    symbols: &mut Symbols,
    scopes: &mut dyn InferScope,
) -> (Vec<Fact>, Option<OpError>) {
    let typed = outputs_by_signature(&call, inputs);
    let mut cx = Infer::new(call, inputs, typed.clone(), symbols, scopes);
    let (mut facts, error) = match (call.def.infer)(&mut cx) {
        Ok(()) => (cx.into_outputs(), None),
        Err(error) => (typed, Some(error)),
    };
    facts.resize(call.output_count(), Fact::Unknown);
    (facts, error)
}

/// How a call is evaluated.
#[derive(Clone, Copy)]
pub struct Settings<'a> {
    /// Memory that may be used.
    pub memory: &'a Memory,
    /// Who runs bodies.
    pub scopes: &'a dyn RunScope,
    /// Every float is computed in 64 bits.
    pub wide: bool,
    /// What random operators start from.
    pub seed: u64,
}

/// The outputs of a call.
pub fn evaluate(
    call: Call<'_>,
    mut inputs: Vec<Option<Value>>,
    settings: Settings<'_>,
) -> Result<Vec<Value>, OpError> {
    let function = match call.def.eval {
        Ok(function) => function,
        Err(reason) => return unsupported(format!("evaluating {:?} ({reason})", call.def)),
    };
    let narrowed = if call.def.widens { widen_halves(&call, &mut inputs)? } else { Vec::new() };
    let mut cx = Eval::new(call, inputs, settings.memory, settings.scopes);
    cx.wide = settings.wide;
    cx.seed = settings.seed;
    let mut outputs = function(&mut cx)?;
    for (output, dtype) in outputs.iter_mut().zip(narrowed) {
        if let Some(dtype) = dtype {
            *output = each_array(output, &|array| narrow(array, dtype))?;
        }
    }
    if settings.wide {
        for output in &mut outputs {
            *output = each_array(output, &widest)?;
        }
    }
    Ok(outputs)
}

/// Widens 16-bit floats among the inputs; answers which type each output is to be rounded to.
fn widen_halves(call: &Call<'_>, inputs: &mut [Option<Value>]) -> Result<Vec<Option<DType>>, OpError> {
    let half = |value: &Option<Value>| match value {
        Some(Value::Tensor(array)) => {
            Some(array.dtype()).filter(|dtype| matches!(dtype, DType::F16 | DType::BF16))
        }
        _ => None,
    };
    let types: Vec<Option<DType>> = inputs.iter().map(half).collect();
    if types.iter().all(Option::is_none) {
        return Ok(Vec::new());
    }
    for (input, _) in inputs.iter_mut().zip(&types).filter(|(_, dtype)| dtype.is_some()) {
        if let Some(Value::Tensor(array)) = input {
            *input = Some(widen(array)?.into());
        }
    }
    let first = types.iter().find_map(|dtype| *dtype);
    let of = |index: usize| match call.signature {
        // A contrib operator computes in the type of its first 16-bit input.
        None => first,
        Some(signature) => {
            let variable = signature.output(index)?.ty;
            let same = |(input, dtype): (usize, &Option<DType>)| {
                dtype.filter(|_| signature.input(input).is_some_and(|param| param.ty == variable))
            };
            types.iter().enumerate().find_map(same)
        }
    };
    Ok((0..call.output_count()).map(of).collect())
}

/// For calls without bodies.
pub struct NoBodies;

impl RunScope for NoBodies {
    fn scope(&self, _: ScopeId, _: Vec<Value>) -> Result<Vec<Value>, OpError> {
        invalid("a call without bodies asked for one")
    }

    fn check_time(&self) -> Result<(), OpError> {
        Ok(())
    }
}

impl InferScope for NoBodies {
    fn scope(&mut self, _: ScopeId, _: Vec<Fact>, _: &mut Symbols) -> Result<Vec<Fact>, OpError> {
        invalid("a call without bodies asked for one")
    }
}
