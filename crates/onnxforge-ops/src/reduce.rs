//! Reductions: many elements along some axes become one.

mod arg;
mod cumulative;
mod softmax;

use super::array::each_wide;
use super::array::{Array, Buffer, Elem, Typed, each_number};
use super::call::{self, Call};
use super::def::{Category, EvalFn, InferFn, OpDef};
use super::error::{OpError, invalid};
use super::eval_call::{Eval, one};
use super::fact::MAX_SYMBOLIC_ELEMENTS;
use super::infer_call::{Infer, same_as_input};
use super::kernel::fold::Fold;
use super::kernel::map::map_to;
use super::kernel::number::Number;
use super::kernel::shape::{for_each_offset, strides};
use super::value::Value;
use onnxforge_ir::DType;
use onnxforge_ir::dim::{Dim, Symbols};
use onnxforge_ir::tensor::element_count;

/// The operators of this family.
pub static OPS: &[OpDef] = &[
    reduction("ReduceSum", |cx| infer_values(cx, |a, b, _| a.add(b), Dim::ZERO), sum),
    reduction("ReduceProd", |cx| infer_values(cx, |a, b, _| a.mul(b), Dim::ONE), product),
    reduction("ReduceMax", |cx| infer_values(cx, Dim::maximum, Dim::from(i64::MIN)), maximum),
    reduction("ReduceMin", |cx| infer_values(cx, Dim::minimum, Dim::from(i64::MAX)), minimum),
    reduction("ReduceMean", infer_shape, mean),
    reduction("ReduceL1", infer_shape, l1),
    reduction("ReduceL2", infer_shape, l2),
    reduction("ReduceSumSquare", infer_shape, sum_square),
    reduction("ReduceLogSum", infer_shape, log_sum),
    reduction("ReduceLogSumExp", infer_shape, log_sum_exp),
    reduction("ArgMax", arg::infer, arg::max),
    reduction("ArgMin", arg::infer, arg::min),
    OpDef::new("Softmax", Category::Activation, softmax::infer, softmax::softmax).widening(),
    OpDef::new("LogSoftmax", Category::Activation, softmax::infer, softmax::log_softmax).widening(),
    OpDef::new("Hardmax", Category::Activation, softmax::infer, softmax::hardmax).widening(),
    OpDef::new("CumSum", Category::Math, same_as_input, cumulative::sum).widening(),
    OpDef::new("CumProd", Category::Math, same_as_input, cumulative::product).widening(),
];

const fn reduction(name: &'static str, infer: InferFn, eval: EvalFn) -> OpDef {
    OpDef::new(name, Category::Reduction, infer, eval).widening()
}

/// Whether the axes are an input of this version.
fn axes_are_input(call: &Call<'_>) -> bool {
    call.signature.is_none_or(|signature| signature.attribute("axes").is_none())
}

/// Whether no listed axis means no axis, and not every one.
fn reduces_nothing(call: &Call<'_>) -> Result<bool, OpError> {
    Ok(axes_are_input(call) && call.flag("noop_with_empty_axes")?)
}

/// The axes to reduce, ascending, of a tensor with `rank` axes; `listed` is what the node lists.
fn axes(call: &Call<'_>, listed: &[i64], rank: usize) -> Result<Vec<usize>, OpError> {
    if listed.is_empty() {
        return Ok(if reduces_nothing(call)? { Vec::new() } else { (0..rank).collect() });
    }
    // A tensor without axes is reduced along one that it might have.
    if rank == 0 && listed.iter().all(|axis| matches!(axis, 0 | -1)) {
        return Ok(Vec::new());
    }
    let mut axes = call::axes(listed, rank)?;
    axes.sort_unstable();
    Ok(axes)
}

/// The dimensions that remain, where reduced ones are 1 or left out.
fn remaining<D: Clone>(shape: &[D], axes: &[usize], keep: bool, one: D) -> Vec<D> {
    let dim = |(axis, dim): (usize, &D)| match (axes.contains(&axis), keep) {
        (false, _) => Some(dim.clone()),
        (true, true) => Some(one.clone()),
        (true, false) => None,
    };
    shape.iter().enumerate().filter_map(dim).collect()
}

/// The axes that the node lists, if inference knows them; empty when it lists none.
fn listed_axes(cx: &Infer<'_>) -> Result<Option<Vec<i64>>, OpError> {
    Ok(match (axes_are_input(&cx.call), cx.has(1)) {
        (true, true) if listed_count(cx) == Some(0) => Some(Vec::new()),
        (true, true) => cx.ints(1),
        (true, false) => Some(Vec::new()),
        (false, _) => Some(cx.call.opt_ints("axes")?.unwrap_or_default()),
    })
}

/// How many axes the input for them lists.
fn listed_count(cx: &Infer<'_>) -> Option<usize> {
    cx.shape(1)?.first()?.as_const().and_then(|count| usize::try_from(count).ok())
}

fn infer_shape(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let keep = cx.call.flag("keepdims")?;
    let listed = listed_axes(cx)?;
    match (cx.shape(0), listed) {
        (Some(shape), Some(listed)) => {
            let axes = axes(&cx.call, &listed, shape.len())?;
            cx.set_shape(0, remaining(shape, &axes, keep, Dim::ONE));
        }
        (Some(shape), None) => {
            // Each listed axis goes, whichever it is.
            let gone = if keep { Some(0) } else { listed_count(cx) };
            if let Some(gone) = gone {
                let shape = cx.fresh_shape(shape.len().saturating_sub(gone));
                cx.set_shape(0, shape);
            }
        }
        (None, Some(listed)) if listed.is_empty() && !keep && !reduces_nothing(&cx.call)? => {
            cx.set_shape(0, Vec::new());
        }
        _ => {}
    }
    Ok(())
}

/// The shape, and the results of a small tensor of integers: `join` of its elements one by one, `empty` for none.
fn infer_values(
    cx: &mut Infer<'_>,
    join: impl Fn(&Dim, &Dim, &Symbols) -> Option<Dim>,
    empty: Dim,
) -> Result<(), OpError> {
    infer_shape(cx)?;
    let (Some(DType::I64), Some(listed), Some(shape)) =
        (cx.dtype(0), listed_axes(cx)?, cx.tensor(0).static_shape())
    else {
        return Ok(());
    };
    let Some(values) = cx.dims(0) else { return Ok(()) };
    let axes = axes(&cx.call, &listed, shape.len())?;
    let kept = remaining(&shape, &axes, true, 1);
    let Some(count) = element_count(&kept).filter(|&count| count <= MAX_SYMBOLIC_ELEMENTS) else {
        return Ok(());
    };
    // What an operation gave up on is unknown.
    let mut results: Vec<Option<Option<Dim>>> = vec![None; count];
    let mut to = strides(&kept);
    axes.iter().for_each(|&axis| to[axis] = 0);
    for_each_offset(&shape, [&strides(&shape), &to], |[from, to]| {
        let (Some(value), Some(result)) = (values.get(from), results.get_mut(to)) else { return };
        *result = Some(match result.take() {
            None => Some(value.clone()),
            Some(before) => before.and_then(|before| join(&before, value, cx.symbols)),
        });
    });
    let results = results.into_iter().map(|result| match result {
        None => empty.clone(),
        Some(result) => result.unwrap_or_else(|| cx.fresh_value()),
    });
    let results = results.collect();
    cx.set_dims(0, results);
    Ok(())
}

/// A reduction that is about to be computed.
struct Reduction<'a> {
    x: &'a Array,
    axes: Vec<usize>,
    /// The shape of the result.
    shape: Vec<usize>,
}

impl<'a> Reduction<'a> {
    fn of(cx: &'a Eval<'_>) -> Result<Self, OpError> {
        let x = cx.array(0)?;
        let listed = if axes_are_input(&cx.call) { cx.ints(1)? } else { cx.call.opt_ints("axes")? }
            .unwrap_or_default();
        let axes = axes(&cx.call, &listed, x.rank())?;
        let shape = remaining(x.shape(), &axes, cx.call.flag("keepdims")?, 1);
        Ok(Self { x, axes, shape })
    }

    /// How many elements become one, as far as a float can tell.
    fn count(&self) -> f64 {
        self.axes.iter().map(|&axis| self.x.shape()[axis] as f64).product()
    }

    fn by<T, A, S, M, U>(
        &self,
        cx: &Eval<'_>,
        fold: Fold<T, A, S, M>,
        finish: impl Fn(A) -> U + Sync,
    ) -> Result<Array, OpError>
    where
        T: Elem + Copy,
        A: Copy + Send + Sync,
        S: Fn(A, T) -> A + Sync,
        M: Fn(A, A) -> A + Sync,
        U: Typed,
    {
        Array::new(&self.shape[..], fold.axes(self.x, &self.axes, cx.memory(), finish)?)
    }
}

fn sum(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let reduction = Reduction::of(cx)?;
    if reduction.axes.is_empty() {
        return one(reduction.x.reshaped(reduction.shape)?);
    }
    each_wide!(reduction.x, T => {
        one(reduction.by(cx, Fold::new(T::ZERO, |sum, x: T| Number::add(sum, x), Number::add), |sum| sum)?)
    })
}

fn product(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let reduction = Reduction::of(cx)?;
    each_wide!(reduction.x, T => {
        one(reduction.by(cx, Fold::new(T::ONE, |product, x: T| Number::mul(product, x), Number::mul), |x| x)?)
    })
}

fn mean(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let reduction = Reduction::of(cx)?;
    let count = reduction.count();
    each_wide!(reduction.x, T => {
        let divisor = T::from_f64(count);
        if Number::div(T::ONE, divisor).is_none() {
            return invalid("the mean of no integers");
        }
        let fold = Fold::new(T::ZERO, |sum, x: T| Number::add(sum, x), Number::add);
        one(reduction.by(cx, fold, |sum| Number::div(sum, divisor).unwrap_or(T::ZERO))?)
    })
}

fn l1(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let reduction = Reduction::of(cx)?;
    each_wide!(reduction.x, T => {
        let fold = Fold::new(T::ZERO, |sum, x: T| Number::add(sum, Number::abs(x)), Number::add);
        one(reduction.by(cx, fold, |sum| sum)?)
    })
}

fn sum_square(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let reduction = Reduction::of(cx)?;
    each_wide!(reduction.x, T => {
        let fold = Fold::new(T::ZERO, |sum, x: T| Number::add(sum, Number::mul(x, x)), Number::add);
        one(reduction.by(cx, fold, |sum| sum)?)
    })
}

fn l2(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let reduction = Reduction::of(cx)?;
    each_wide!(reduction.x, T => {
        let fold = Fold::new(T::ZERO, |sum, x: T| Number::add(sum, Number::mul(x, x)), Number::add);
        one(reduction.by(cx, fold, |sum| T::from_f64(sum.to_f64().sqrt()))?)
    })
}

fn log_sum(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let reduction = Reduction::of(cx)?;
    each_wide!(reduction.x, T => {
        let fold = Fold::new(T::ZERO, |sum, x: T| Number::add(sum, x), Number::add);
        one(reduction.by(cx, fold, |sum| T::from_f64(sum.to_f64().ln()))?)
    })
}

fn log_sum_exp(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let reduction = Reduction::of(cx)?;
    each_wide!(reduction.x, T => {
        let fold = Fold::new(
            LogSumExp::NOTHING,
            |sum: LogSumExp, x: T| sum.merge(LogSumExp { max: x.to_f64(), sum: 1.0 }),
            LogSumExp::merge,
        );
        one(reduction.by(cx, fold, |sum| T::from_f64(sum.max + sum.sum.ln()))?)
    })
}

/// A sum of exponentials, divided by the largest of them so that it stays finite.
#[derive(Clone, Copy)]
struct LogSumExp {
    max: f64,
    sum: f64,
}

impl LogSumExp {
    const NOTHING: Self = Self { max: f64::NEG_INFINITY, sum: 0.0 };

    fn merge(self, other: Self) -> Self {
        let (high, low) =
            if self.max < other.max || other.max.is_nan() { (other, self) } else { (self, other) };
        // Equal infinities have no difference.
        let rest = if low.max == high.max { low.sum } else { low.sum * (low.max - high.max).exp() };
        Self { max: high.max, sum: high.sum + rest }
    }
}

fn maximum(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    extreme::<true>(cx)
}

fn minimum(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    extreme::<false>(cx)
}

/// The largest or the smallest element, or one that is not a number.
fn extreme<const LARGEST: bool>(cx: &Eval<'_>) -> Result<Vec<Value>, OpError> {
    let reduction = Reduction::of(cx)?;
    if matches!(reduction.x.buffer(), Buffer::Bool(_)) {
        let bytes = map_to(reduction.x, |&x: &bool| u8::from(x))?;
        let reduction = Reduction { x: &bytes, ..reduction };
        return one(map_to(&extreme_of::<u8, LARGEST>(cx, &reduction)?, |&x: &u8| x != 0)?);
    }
    each_number!(reduction.x, T => one(extreme_of::<T, LARGEST>(cx, &reduction)?))
}

fn extreme_of<T: Number, const LARGEST: bool>(
    cx: &Eval<'_>,
    reduction: &Reduction<'_>,
) -> Result<Array, OpError> {
    let start = T::from_f64(if LARGEST { f64::NEG_INFINITY } else { f64::INFINITY });
    let choose = |best: T, x: T| {
        let better = if LARGEST { x > best } else { x < best };
        if better || x.is_nan() { x } else { best }
    };
    reduction.by(cx, Fold::new(start, choose, choose), |best| best)
}
