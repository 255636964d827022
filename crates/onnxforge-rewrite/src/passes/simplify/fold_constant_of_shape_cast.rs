//! fold_constant_of_shape_cast: a ConstantOfShape whose elements are cast fills with the cast value.
//!
//! **Matches** a Cast of a ConstantOfShape that nothing else reads, where the new type can hold the value up to a fraction, or
//! rounds it to a float in one step.
//! **Accuracy** `BitExact`.
//! **Proof** Every element is the same number, and Cast converts each by itself.
//! **Trust** The shape is what the same operand holds, and a Cast keeps it.
//! **Never** a float that an integer type cannot hold, or an integer that wraps: runtimes differ; strings and 8-bit floats; a type that
//! ConstantOfShape does not have at the model's operator set.

use crate::passes::pass;
use crate::{At, Reason, Skip};
use onnxforge_ir::dtype::Kind;
use onnxforge_ir::{Accuracy, Attr, AttrValue, DType, Tensor, Trust};
use onnxforge_ops::eval_call::Memory;
use onnxforge_ops::kernel::convert::{Rounding, convert};
use onnxforge_ops::{Array, OpError};

pass!(fold_constant_of_shape_cast { stage: Canonicalize, trusts: [SameShapeRule], rules: [CAST] });

static CAST: At = At {
    name: "cast",
    accuracy: Accuracy::BitExact,
    ops: &["Cast"],
    apply: |cx, cast| {
        let middle = cx.input(cast, 0)?;
        let filled = cx.producer(middle, "ConstantOfShape", cast).ok_or(Skip::NOT_HERE)?;
        let to = cx.call(cast)?.dtype("to")?.ok_or(Skip::NOT_HERE)?;
        let value = cx.call(filled)?.opt_tensor("value")?;
        let value = match &value {
            Some(value) => Array::from_tensor(value)?,
            None => Array::vector(vec![0f32]),
        };
        let converted = converted(&value, to, cx.opset(cast))?;
        cx.read_only_by(middle, cast)?;
        let mut change = cx.change(&[filled, cast]);
        let value = Attr::new("value", AttrValue::Tensor(converted));
        let direct = change.op("ConstantOfShape", [cx.input(filled, 0)?.into()], [value]);
        change.replace(cx.output(cast)?, direct);
        change.trust(Trust::SameShapeRule);
        Ok(change)
    },
};

fn converted(value: &Array, to: DType, opset: i64) -> Result<Tensor, Skip> {
    use DType::{BF16, Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    let is_known =
        |dtype| matches!(dtype, Bool | F16 | F32 | F64 | I8 | I16 | I32 | I64 | U8 | U16 | U32 | U64);
    let fills = |dtype| is_known(dtype) || dtype == BF16 && opset >= 20;
    if !fills(value.dtype()) || !fills(to) {
        return Err(Reason::Type.into());
    }
    let result = convert(value, to, Rounding::default(), &Memory::new(u64::MAX))?;
    let is_whole = matches!(to.kind(), Kind::Signed | Kind::Unsigned);
    let numbers = |array: &Array| array.to_f64s();
    // Towards integers only the fraction may go; some go over 32 bits to 16, and round twice.
    let may_round = to.kind() == Kind::Float && (to.bits() > 16 || value.dtype() == F32) || to == Bool;
    let wanted = numbers(value)?.into_iter().map(|number| if is_whole { number.trunc() } else { number });
    if !may_round && wanted.ne(numbers(&result)?) {
        return Err(Skip::because("runtimes differ about the result"));
    }
    Ok(result.to_tensor().map_err(OpError::from)?)
}
