//! Losses, and the steps of optimizers that train with them.

use super::array::{Array, each_float};
use super::def::{Category, OpDef};
use super::error::{OpError, invalid};
use super::eval_call::Eval;
use super::infer_call::Infer;
use super::kernel::convert::{Rounding, convert};
use super::kernel::number::{Float, Number};
use super::kernel::shape::around;
use super::value::Value;

const TRAINING: &str = "ai.onnx.preview.training";

/// The operators of this family.
pub static OPS: &[OpDef] = &[
    OpDef::new("NegativeLogLikelihoodLoss", Category::NeuralLayer, infer_loss, likelihood).widening(),
    OpDef::new("SoftmaxCrossEntropyLoss", Category::NeuralLayer, infer_cross_entropy, cross_entropy)
        .widening(),
    OpDef::new("Adagrad", Category::Math, |cx| infer_step(cx, 3), adagrad).of(TRAINING),
    OpDef::new("Adam", Category::Math, |cx| infer_step(cx, 4), adam).of(TRAINING),
    OpDef::new("Momentum", Category::Math, |cx| infer_step(cx, 3), momentum).of(TRAINING),
    OpDef::unevaluated(
        "Gradient",
        Category::Math,
        infer_gradient,
        "a gradient is of the graph around it, not of its inputs",
    )
    .of(TRAINING),
];

/// What becomes of the losses of the samples.
enum Reduction {
    None,
    Sum,
    Mean,
}

impl Reduction {
    fn of(call: &super::call::Call<'_>) -> Result<Self, OpError> {
        match &*call.text("reduction")? {
            "none" => Ok(Self::None),
            "sum" => Ok(Self::Sum),
            "mean" => Ok(Self::Mean),
            other => invalid(format!("the reduction {other}")),
        }
    }
}

/// The loss of each sample has the shape of the targets, which is that of the scores without the classes.
fn infer_loss(cx: &mut Infer<'_>) -> Result<(), OpError> {
    if !matches!(Reduction::of(&cx.call)?, Reduction::None) {
        cx.set_shape(0, Vec::new());
    } else if let Some(shape) = cx.shape(1) {
        cx.set_shape(0, shape.to_vec());
    } else if let Some([batch, _, rest @ ..]) = cx.shape(0) {
        cx.set_shape(0, [std::slice::from_ref(batch), rest].concat());
    }
    Ok(())
}

fn infer_cross_entropy(cx: &mut Infer<'_>) -> Result<(), OpError> {
    infer_loss(cx)?;
    cx.copy_dtype(1, 0);
    if let Some(shape) = cx.shape(0) {
        cx.set_shape(1, shape.to_vec());
    }
    Ok(())
}

fn likelihood(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.take(0)?;
    each_float!(&x, T => Ok(vec![loss::<T>(&x, cx)?.into()]))
}

fn cross_entropy(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.take(0)?;
    each_float!(&x, T => {
        let logarithms = log_softmax::<T>(x)?;
        Ok(vec![loss::<T>(&logarithms, cx)?.into(), logarithms.into()])
    })
}

/// The logarithm of the softmax along axis 1.
fn log_softmax<T: Float>(x: Array) -> Result<Array, OpError> {
    if x.is_empty() {
        return Ok(x);
    }
    let shape = x.shape().to_vec();
    let (_, classes, inner) = around(&shape, 1);
    let mut data = x.into_vec::<T>()?;
    for sample in data.chunks_mut((classes * inner).max(1)) {
        for at in 0..inner {
            let column = || (0..classes).map(|class| class * inner + at);
            let largest = column()
                .fold(T::neg_infinity(), |largest, i| if sample[i] > largest { sample[i] } else { largest });
            let total =
                column().fold(T::ZERO, |total, i| total + num_traits::Float::exp(sample[i] - largest));
            let shift = largest + total.ln();
            column().for_each(|i| sample[i] -= shift);
        }
    }
    Array::new(shape, data)
}

/// The negative of the element of each sample's class, weighted, and reduced. Input 1 has the classes, input 2 the
/// weights of the classes; samples of the class `ignore_index` weigh nothing.
fn loss<T: Float>(x: &Array, cx: &Eval<'_>) -> Result<Array, OpError> {
    let target = cx.array(1)?;
    if x.rank() < 2 {
        return invalid(format!("scores of shape {:?}", x.shape()));
    }
    let expected = [&x.shape()[..1], &x.shape()[2..]].concat();
    if target.shape() != expected {
        return invalid(format!("targets of shape {:?} for scores of shape {:?}", target.shape(), x.shape()));
    }
    let weights = cx.opt_array(2)?.map(Array::slice::<T>).transpose()?;
    let (classes, inner) = (x.shape()[1], cx.count(&x.shape()[2..])?);
    if weights.is_some_and(|weights| weights.len() != classes) {
        return invalid(format!("weights for other than {classes} classes"));
    }
    let ignored = cx.call.opt_int("ignore_index")?;
    let scores = x.slice::<T>()?;
    cx.reserve::<i64>(target.len())?;
    let mut losses = cx.zeros::<T>(target.shape())?;
    let mut weight_sum = 0.0;
    for (sample, (loss, class)) in losses.iter_mut().zip(target.to_i64s()?).enumerate() {
        if Some(class) == ignored {
            continue;
        }
        let Some(class) = usize::try_from(class).ok().filter(|&class| class < classes) else {
            return invalid(format!("the class {class} of {classes}"));
        };
        let score = scores[(sample / inner * classes + class) * inner + sample % inner];
        let weight = weights.map_or(T::ONE, |weights| weights[class]);
        *loss = -score * weight;
        weight_sum += weight.to_f64();
    }
    let sum = || losses.iter().map(|&loss| loss.to_f64()).sum::<f64>();
    match Reduction::of(&cx.call)? {
        Reduction::None => Array::new(target.shape(), losses),
        Reduction::Sum => Ok(Array::scalar(<T as Number>::from_f64(sum()))),
        Reduction::Mean => Ok(Array::scalar(<T as Number>::from_f64(sum() / weight_sum))),
    }
}

/// The inputs are a rate, a count of steps and then `groups` groups of tensors: parameters, gradients and states. The
/// outputs are parameters and states, each like its input.
fn infer_step(cx: &mut Infer<'_>, groups: usize) -> Result<(), OpError> {
    let each = cx.input_count().saturating_sub(2) / groups;
    for group in (0..groups).filter(|&group| group != 1) {
        for index in 0..each {
            let (input, output) = (2 + group * each + index, group.saturating_sub(1) * each + index);
            cx.copy_dtype(output, input);
            if let Some(shape) = cx.shape(input) {
                cx.set_shape(output, shape.to_vec());
            }
        }
    }
    Ok(())
}

/// Applies `update`, which answers parameter and states, to parameter, gradient and states at each place.
fn step<const GROUPS: usize, const RESULTS: usize>(
    cx: &Eval<'_>,
    update: impl Fn([f64; GROUPS]) -> [f64; RESULTS],
) -> Result<Vec<Value>, OpError> {
    let each = cx.input_count().saturating_sub(2) / GROUPS;
    let mut groups: Vec<Vec<Value>> = vec![Vec::new(); RESULTS];
    for index in 0..each {
        let inputs = (0..GROUPS).map(|group| cx.array(2 + group * each + index));
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        let shape = inputs[0].shape();
        if inputs.iter().any(|input| input.shape() != shape) {
            return invalid(format!("a parameter of shape {shape:?} with a gradient or state of another"));
        }
        cx.reserve::<[f64; 8]>(inputs[0].len())?;
        let numbers = inputs.iter().map(|input| input.to_f64s()).collect::<Result<Vec<_>, _>>()?;
        let at = |place: usize| update(std::array::from_fn(|group| numbers[group][place]));
        let mut results: Vec<Vec<f64>> = vec![Vec::new(); RESULTS];
        for updated in (0..inputs[0].len()).map(at) {
            results.iter_mut().zip(updated).for_each(|(result, number)| result.push(number));
        }
        for (group, numbers) in results.into_iter().enumerate() {
            let dtype = inputs[if group == 0 { 0 } else { group + 1 }].dtype();
            let array = Array::new(shape, numbers)?;
            groups[group].push(convert(&array, dtype, Rounding::default(), cx.memory())?.into());
        }
    }
    Ok(groups.concat())
}

/// Rate and count of steps.
fn progress(cx: &Eval<'_>) -> Result<(f64, f64), OpError> {
    Ok((cx.array(0)?.to_f64()?, cx.array(1)?.to_f64()?))
}

fn attribute(cx: &Eval<'_>, name: &str) -> Result<f64, OpError> {
    Ok(cx.call.float(name)?.into())
}

fn adagrad(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (rate, steps) = progress(cx)?;
    let [decay, epsilon, norm] =
        [attribute(cx, "decay_factor")?, attribute(cx, "epsilon")?, attribute(cx, "norm_coefficient")?];
    let rate = rate / (1.0 + steps * decay);
    step(cx, |[x, gradient, squares]| {
        let gradient = norm * x + gradient;
        let squares = squares + gradient * gradient;
        [x - rate * gradient / (squares.sqrt() + epsilon), squares]
    })
}

fn adam(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (rate, steps) = progress(cx)?;
    let [alpha, beta, epsilon] = [attribute(cx, "alpha")?, attribute(cx, "beta")?, attribute(cx, "epsilon")?];
    let [norm, norm_after] = [attribute(cx, "norm_coefficient")?, attribute(cx, "norm_coefficient_post")?];
    let correction =
        if steps > 0.0 { (1.0 - beta.powf(steps)).sqrt() / (1.0 - alpha.powf(steps)) } else { 1.0 };
    let rate = rate * correction;
    step(cx, |[x, gradient, mean, squares]| {
        let gradient = norm * x + gradient;
        let mean = alpha * mean + (1.0 - alpha) * gradient;
        let squares = beta * squares + (1.0 - beta) * gradient * gradient;
        let x = x - rate * (mean / (squares.sqrt() + epsilon));
        [(1.0 - norm_after) * x, mean, squares]
    })
}

fn momentum(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (rate, steps) = progress(cx)?;
    let [alpha, beta, norm] =
        [attribute(cx, "alpha")?, attribute(cx, "beta")?, attribute(cx, "norm_coefficient")?];
    let beta = if steps > 0.0 { beta } else { 1.0 };
    let nesterov = match &*cx.call.text("mode")? {
        "standard" => false,
        "nesterov" => true,
        other => return invalid(format!("the mode {other}")),
    };
    step(cx, |[x, gradient, velocity]| {
        let gradient = norm * x + gradient;
        let velocity = alpha * velocity + beta * gradient;
        let change = if nesterov { gradient + alpha * velocity } else { velocity };
        [x - rate * change, velocity]
    })
}

/// Each output is like the input that the gradient is taken by.
fn infer_gradient(cx: &mut Infer<'_>) -> Result<(), OpError> {
    for index in 0..cx.call.output_count() {
        cx.copy_dtype(index, index);
        if let Some(shape) = cx.shape(index) {
            cx.set_shape(index, shape.to_vec());
        }
    }
    Ok(())
}
