//! Random numbers. The standard leaves the generator open; this one gives the same numbers for the same seed.

use super::array::Array;
use super::def::{Category, OpDef};
use super::error::{OpError, invalid};
use super::eval_call::{Eval, one};
use super::infer_call::Infer;
use super::kernel::convert::{Rounding, convert};
use super::value::Value;
use onnxforge_ir::DType;
use onnxforge_ir::dim::Dim;
use onnxforge_proto::random::Random;

/// The operators of this family.
pub static OPS: &[OpDef] = &[
    OpDef::new("RandomNormal", Category::Constant, infer_given, |cx| given(cx, normal)).random(),
    OpDef::new("RandomNormalLike", Category::Constant, infer_like, |cx| like(cx, normal))
        .random()
        .shape_only(),
    OpDef::new("RandomUniform", Category::Constant, infer_given, |cx| given(cx, uniform)).random(),
    OpDef::new("RandomUniformLike", Category::Constant, infer_like, |cx| like(cx, uniform))
        .random()
        .shape_only(),
    OpDef::new("Multinomial", Category::Math, infer_multinomial, multinomial).random(),
    OpDef::new("Bernoulli", Category::Math, infer_like, bernoulli).random().elementwise(),
];

/// A generator that begins with the node's attribute `seed`, or with what the run gives the node.
fn generator(cx: &Eval<'_>) -> Result<Random, OpError> {
    Ok(Random::new(cx.call.opt_float("seed")?.map_or(cx.seed, |seed| u64::from(seed.to_bits()))))
}

/// Draws one number, given two attributes.
type Distribution = (fn(&mut Random, [f64; 2]) -> f64, [&'static str; 2]);

fn normal() -> Distribution {
    (|random, [mean, scale]| mean + scale * random.normal(), ["mean", "scale"])
}

fn uniform() -> Distribution {
    (|random, [low, high]| low + (high - low) * random.uniform(), ["low", "high"])
}

fn drawn(
    cx: &Eval<'_>,
    shape: &[usize],
    dtype: DType,
    (draw, attributes): Distribution,
) -> Result<Vec<Value>, OpError> {
    let parameters = [cx.call.float(attributes[0])?.into(), cx.call.float(attributes[1])?.into()];
    let mut random = generator(cx)?;
    let mut numbers = cx.zeros::<f64>(shape)?;
    numbers.iter_mut().for_each(|number| *number = draw(&mut random, parameters));
    one(convert(&Array::new(shape, numbers)?, dtype, Rounding::default(), cx.memory())?)
}

fn given(cx: &mut Eval<'_>, distribution: fn() -> Distribution) -> Result<Vec<Value>, OpError> {
    let dims = cx.call.ints("shape")?;
    let shape = dims.iter().map(|&dim| usize::try_from(dim)).collect::<Result<Vec<_>, _>>();
    let Ok(shape) = shape else { return invalid(format!("the shape {dims:?}")) };
    let dtype = cx.call.dtype("dtype")?.unwrap_or(DType::F32);
    drawn(cx, &shape, dtype, distribution())
}

fn like(cx: &mut Eval<'_>, distribution: fn() -> Distribution) -> Result<Vec<Value>, OpError> {
    let x = cx.array(0)?;
    let dtype = cx.call.dtype("dtype")?.unwrap_or(x.dtype());
    drawn(cx, x.shape(), dtype, distribution())
}

fn infer_given(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.set_dtype(0, cx.call.dtype("dtype")?.unwrap_or(DType::F32));
    let shape = cx.call.ints("shape")?;
    if shape.iter().any(|&dim| dim < 0) {
        return invalid(format!("the shape {shape:?}"));
    }
    cx.set_shape(0, shape.into_iter().map(Dim::from).collect());
    Ok(())
}

fn infer_like(cx: &mut Infer<'_>) -> Result<(), OpError> {
    match cx.call.dtype("dtype")? {
        Some(dtype) => cx.set_dtype(0, dtype),
        None => cx.copy_dtype(0, 0),
    }
    if let Some(shape) = cx.shape(0) {
        cx.set_shape(0, shape.to_vec());
    }
    Ok(())
}

/// 1 with the probability that the element is, else 0.
fn bernoulli(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.array(0)?;
    let dtype = cx.call.dtype("dtype")?.unwrap_or(x.dtype());
    cx.reserve::<f64>(x.len())?;
    let mut random = generator(cx)?;
    let drawn =
        x.to_f64s()?.into_iter().map(|probability| u8::from(random.uniform() < probability)).collect();
    one(convert(&Array::new::<u8>(x.shape(), drawn)?, dtype, Rounding::default(), cx.memory())?)
}

fn infer_multinomial(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.set_dtype(0, cx.call.dtype("dtype")?.unwrap_or(DType::I32));
    let samples = Dim::from(cx.call.int("sample_size")?);
    let batch = match cx.shape(0) {
        Some([batch, _]) => batch.clone(),
        Some(shape) => return invalid(format!("probabilities with {} axes", shape.len())),
        None => cx.fresh(),
    };
    cx.set_shape(0, vec![batch, samples]);
    Ok(())
}

/// For each row of logarithms of probabilities, classes drawn with those probabilities.
fn multinomial(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.array(0)?;
    let (&[batch, classes], Ok(samples)) = (x.shape(), usize::try_from(cx.call.int("sample_size")?)) else {
        return invalid(format!("probabilities of shape {:?}", x.shape()));
    };
    if classes == 0 {
        return invalid("a choice among no classes");
    }
    let dtype = cx.call.dtype("dtype")?.unwrap_or(DType::I32);
    cx.reserve::<f64>(x.len())?;
    let logarithms = x.to_f64s()?;
    let mut random = generator(cx)?;
    let mut drawn = cx.zeros::<i64>(&[batch, samples])?;
    for (row, drawn) in logarithms.chunks_exact(classes).zip(drawn.chunks_exact_mut(samples.max(1))) {
        let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut total = 0.0;
        let below: Vec<f64> = row
            .iter()
            .map(|x| {
                total += (x - largest).exp();
                total
            })
            .collect();
        for class in drawn {
            let at = random.uniform() * total;
            *class = below.partition_point(|&end| end <= at).min(classes - 1) as i64;
        }
    }
    one(convert(&Array::new([batch, samples], drawn)?, dtype, Rounding::default(), cx.memory())?)
}
