//! Random numbers. The standard leaves the generator open; this one gives the same numbers for the same seed.

use super::array::Array;
use super::def::{Category, OpDef};
use super::error::{OpError, invalid};
use super::eval::{Eval, one};
use super::infer::Infer;
use super::kernel::convert::{Rounding, convert};
use super::value::Value;
use crate::ir::DType;
use crate::ir::dim::Dim;

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

/// The generator SplitMix64.
struct Generator(u64);

impl Generator {
    /// Begins with the node's attribute `seed`, or with what the run gives the node.
    fn new(cx: &Eval<'_>) -> Result<Self, OpError> {
        Ok(Self(cx.call.opt_float("seed")?.map_or(cx.seed, |seed| u64::from(seed.to_bits()))))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Evenly between 0 and 1, which is left out.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// With mean 0 and deviation 1, by Box and Muller.
    fn normal(&mut self) -> f64 {
        let (radius, angle) = ((-2.0 * (1.0 - self.unit()).ln()).sqrt(), std::f64::consts::TAU * self.unit());
        radius * angle.cos()
    }
}

/// Draws one number, given two attributes.
type Distribution = (fn(&mut Generator, [f64; 2]) -> f64, [&'static str; 2]);

fn normal() -> Distribution {
    (|random, [mean, scale]| mean + scale * random.normal(), ["mean", "scale"])
}

fn uniform() -> Distribution {
    (|random, [low, high]| low + (high - low) * random.unit(), ["low", "high"])
}

fn drawn(
    cx: &Eval<'_>,
    shape: &[usize],
    dtype: DType,
    (draw, attributes): Distribution,
) -> Result<Vec<Value>, OpError> {
    let parameters = [cx.call.float(attributes[0])?.into(), cx.call.float(attributes[1])?.into()];
    let mut random = Generator::new(cx)?;
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
    let mut random = Generator::new(cx)?;
    let drawn = x.to_f64s()?.into_iter().map(|probability| u8::from(random.unit() < probability)).collect();
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
    let mut random = Generator::new(cx)?;
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
            let at = random.unit() * total;
            *class = below.partition_point(|&end| end <= at).min(classes - 1) as i64;
        }
    }
    one(convert(&Array::new([batch, samples], drawn)?, dtype, Rounding::default(), cx.memory())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_distribution() {
        let mut random = Generator(1);
        let count = 100_000;
        let mean = |numbers: &[f64]| numbers.iter().sum::<f64>() / f64::from(count);
        let uniform: Vec<f64> = (0..count).map(|_| random.unit()).collect();
        assert!(uniform.iter().all(|x| (0.0..1.0).contains(x)));
        assert!((mean(&uniform) - 0.5).abs() < 0.01);
        let normal: Vec<f64> = (0..count).map(|_| random.normal()).collect();
        let squares: Vec<f64> = normal.iter().map(|x| x * x).collect();
        assert!(mean(&normal).abs() < 0.02 && (mean(&squares) - 1.0).abs() < 0.02);
    }
}
