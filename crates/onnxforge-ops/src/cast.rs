//! Conversions between element types.

use super::array::Array;
use super::call::Call;
use super::def::{Category, OpDef};
use super::elementwise::values::{is_followed, unknown};
use super::error::{OpError, invalid, unsupported};
use super::eval_call::{Eval, Memory, one};
use super::fact::TensorFact;
use super::infer_call::Infer;
use super::kernel::convert::{Rounding, convert};
use super::kernel::small_float::PowerRounding;
use super::value::Value;
use onnxforge_ir::dim::Dim;
use onnxforge_ir::{DType, Tensor};

/// The operators of this family.
pub static OPS: &[OpDef] = &[
    OpDef::new("Cast", Category::Conversion, infer_cast, cast).elementwise(),
    OpDef::new("CastLike", Category::Conversion, infer_cast_like, cast_like).elementwise(),
    OpDef::new("BitCast", Category::Conversion, infer_bit_cast, bit_cast).elementwise(),
];

/// The type that the attribute `to` names: by a number, or in opset 1 by the name of the number.
fn target(call: &Call<'_>) -> Result<DType, OpError> {
    let found = if call.signature.is_some_and(|signature| signature.since < 6) {
        let name = call.text("to")?;
        DType::from_name(&name.to_lowercase())
    } else {
        call.dtype("to")?
    };
    found.map_or_else(|| invalid("the attribute to names no element type"), Ok)
}

fn rounding(call: &Call<'_>) -> Result<Rounding, OpError> {
    Ok(Rounding {
        saturate: call.int_or("saturate", 1)? != 0,
        powers: PowerRounding::named(&call.text_or("round_mode", "up")?)?,
    })
}

fn infer_cast(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let to = target(&cx.call)?;
    infer_conversion(cx, to);
    Ok(())
}

fn infer_cast_like(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let Some(to) = cx.dtype(1) else {
        same_shape(cx);
        return Ok(());
    };
    // Only the type of the second input counts: a constant stays one.
    if let Some(array) = cx.constant(0) {
        let memory = Memory::new((array.len() as u64).saturating_mul(16));
        cx.set(0, TensorFact::constant(convert(array, to, rounding(&cx.call)?, &memory)?));
    } else {
        infer_conversion(cx, to);
    }
    Ok(())
}

fn same_shape(cx: &mut Infer<'_>) {
    if let Some(shape) = cx.shape(0) {
        cx.set_shape(0, shape.to_vec());
    }
}

/// Output 0 is input 0 as `to`, with the elements that shapes are computed with.
fn infer_conversion(cx: &mut Infer<'_>, to: DType) {
    cx.set_dtype(0, to);
    same_shape(cx);
    let from = cx.dtype(0);
    let (Some(from), Some(dims)) = (from.filter(|from| is_followed(*from) && is_followed(to)), cx.dims(0))
    else {
        return;
    };
    let elements = dims.into_iter().map(|dim| {
        let known = if from == to { Some(dim) } else { converted(&dim, from, to, cx) };
        known.unwrap_or_else(|| unknown(cx, to))
    });
    let elements = elements.collect();
    cx.set_dims(0, elements);
}

/// The element after the conversion, if it has an expression.
///
/// From 64 to 32 bits an element is kept when it provably fits or is a symbol that is never negative. Such a symbol is
/// taken for a dimension of a tensor, and dimensions that a model counts in 32 bits are taken to fit.
fn converted(dim: &Dim, from: DType, to: DType, cx: &Infer<'_>) -> Option<Dim> {
    match to {
        DType::Bool if *dim == Dim::ZERO => Some(Dim::ZERO),
        DType::Bool => dim.provably_different(&Dim::ZERO, cx.symbols).then_some(Dim::ONE),
        DType::I32 if from == DType::I64 => {
            if let Some(value) = dim.as_const() {
                return Some(Dim::from(i64::from(value as i32)));
            }
            let is_dimension = dim.as_symbol().is_some() && dim.provably_nonneg(cx.symbols);
            let fits = || {
                dim.lower_bound(cx.symbols) >= Some(i32::MIN.into())
                    && dim.upper_bound(cx.symbols).is_some_and(|bound| bound <= i32::MAX.into())
            };
            (is_dimension || fits()).then(|| dim.clone())
        }
        _ => Some(dim.clone()),
    }
}

fn cast(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let to = cx.computed(target(&cx.call)?);
    one(convert(cx.array(0)?, to, rounding(&cx.call)?, cx.memory())?)
}

fn cast_like(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let to = cx.computed(cx.array(1)?.dtype());
    one(convert(cx.array(0)?, to, rounding(&cx.call)?, cx.memory())?)
}

fn infer_bit_cast(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let to = target(&cx.call)?;
    if let Some(from) = cx.dtype(0)
        && from.bits() != to.bits()
    {
        return invalid(format!("the bits of {from} as {to}"));
    }
    cx.set_dtype(0, to);
    same_shape(cx);
    Ok(())
}

/// The same bits as another type of the same width. In an oracle run, floats of 64 bits may stand for narrower ones;
/// they are rounded to 32 bits where those are asked for.
fn bit_cast(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let to = target(&cx.call)?;
    let mut x = cx.array(0)?.clone();
    if cx.wide && x.dtype() == DType::F64 && to.bits() < 64 {
        if to.bits() != 32 {
            return unsupported("the bits of a 16-bit float in an oracle run");
        }
        x = convert(&x, DType::F32, Rounding::default(), cx.memory())?;
    }
    if x.dtype().bits() != to.bits() || to == DType::String {
        return invalid(format!("the bits of {} as {to}", x.dtype()));
    }
    cx.reserve::<u8>(x.len().saturating_mul(32))?;
    let bits = x.to_tensor()?;
    let same = Tensor::from_bytes(to, x.shape(), bits.bytes()?.into_owned())?;
    one(Array::from_tensor(&same)?)
}
