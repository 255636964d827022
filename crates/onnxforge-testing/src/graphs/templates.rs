//! What nodes of random graphs look like.

use onnxforge_ir::DType;
use onnxforge_ops::Array;

use super::{Builder, Known, chains};

const UNARY: &[&str] = &[
    "Relu",
    "Abs",
    "Neg",
    "Tanh",
    "Sigmoid",
    "Erf",
    "Floor",
    "Ceil",
    "Round",
    "Sign",
    "Softplus",
    "Softsign",
    "LeakyRelu",
    "Elu",
    "Selu",
    "Celu",
    "HardSigmoid",
    "HardSwish",
    "Mish",
    "Gelu",
    "Identity",
    "Sin",
    "Cos",
    "Atan",
    "ThresholdedRelu",
    "Shrink",
    "Exp",
    "Sqrt",
    "Log",
    "Reciprocal",
    "Asinh",
    "Sinh",
];
const BINARY: &[&str] = &["Add", "Sub", "Mul", "Div", "Min", "Max", "PRelu"];
const COMPARE: &[&str] = &["Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"];
const REDUCE: &[&str] = &[
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSumExp",
];

/// Tries to add a node, with the constants that it needs.
pub fn grow(g: &mut Builder) -> Option<Vec<Known>> {
    let kind = g.below(53);
    let dtype = if g.below(4) == 0 { DType::I64 } else { DType::F32 };
    match kind {
        0..4 => {
            let (op, x) = (*g.pick(UNARY), g.value(DType::F32)?);
            g.add(&format!("{op} ({})", x.name), 1)
        }
        4..8 => {
            let op = *g.pick(BINARY);
            let (a, b) = broadcastable(g, dtype)?;
            g.add(&format!("{op} ({a}, {b})"), 1)
        }
        8 => {
            let op = *g.pick(COMPARE);
            let (a, b) = broadcastable(g, dtype)?;
            g.add(&format!("{op} ({a}, {b})"), 1)
        }
        9 => {
            let op = *g.pick(&["And", "Or", "Xor"]);
            let (a, b) = broadcastable(g, DType::Bool)?;
            g.add(&format!("{op} ({a}, {b})"), 1)
        }
        10 => {
            let c = g.value(DType::Bool)?;
            let (a, b) = broadcastable(g, dtype)?;
            g.add(&format!("Where ({}, {a}, {b})", c.name), 1)
        }
        11..14 => {
            // ONNX Runtime gives these of an empty tensor another shape.
            let (op, x) = (*g.pick(REDUCE), g.value(DType::F32).filter(|x| !x.array.is_empty())?);
            let keep = g.below(2);
            let axes = some_axes(g, x.array.rank());
            let axes = g.ints(&axes);
            // Before opset 18 the axes of all but ReduceSum are attributes; 21 has them as inputs.
            g.add(&format!("{op} <keepdims = {keep}> ({}, {axes})", x.name), 1)
        }
        14 => {
            // ONNX Runtime gives these of an empty tensor another shape.
            let (op, x) =
                (*g.pick(&["ArgMax", "ArgMin"]), g.value(DType::F32).filter(|x| !x.array.is_empty())?);
            let axis = an_axis(g, x.array.rank());
            let keep = g.below(2);
            g.add(&format!("{op} <axis = {axis}, keepdims = {keep}> ({})", x.name), 1)
        }
        15 => {
            let x = any(g)?;
            let mut perm: Vec<usize> = (0..x.array.rank()).collect();
            for i in (1..perm.len()).rev() {
                perm.swap(i, g.below(i + 1));
            }
            if perm.is_empty() {
                None
            } else {
                g.add(&format!("Transpose <perm = {perm:?}> ({})", x.name), 1)
            }
        }
        16..19 => reshape(g),
        19..22 => shape_arithmetic(g),
        22 => {
            let (x, like) = (any(g)?, any(g)?);
            let shape = g.add(&format!("Shape ({})", like.name), 1)?;
            g.add(&format!("Expand ({}, {})", x.name, shape[0].name), 1)
        }
        23 => {
            let x = any(g)?;
            let repeats: Vec<i64> = (0..x.array.rank()).map(|_| g.below(3) as i64).collect();
            let repeats = g.ints(&repeats);
            g.add(&format!("Tile ({}, {repeats})", x.name), 1)
        }
        24 => {
            let a = any(g)?;
            let axis = an_axis(g, a.array.rank());
            let b =
                (0..4).find_map(|_| g.value(a.array.dtype()).filter(|b| b.array.rank() == a.array.rank()))?;
            g.add(&format!("Concat <axis = {axis}> ({}, {})", a.name, b.name), 1)
        }
        25 => {
            let x = any(g)?;
            let axis = an_axis(g, x.array.rank());
            let parts = 1 + g.below(3);
            g.add(&format!("Split <axis = {axis}, num_outputs = {parts}> ({})", x.name), parts)
        }
        26..29 => slice(g),
        29 => {
            let x = any(g)?;
            let axis = an_axis(g, x.array.rank());
            let index = g.value(DType::I64)?;
            g.add(&format!("Gather <axis = {axis}> ({}, {})", x.name, index.name), 1)
        }
        30 => {
            let x = g.value(dtype)?;
            let pads: Vec<i64> = (0..2 * x.array.rank()).map(|_| g.below(3) as i64).collect();
            let pads = g.ints(&pads);
            let mode = *g.pick(&["constant", "edge", "reflect", "wrap"]);
            g.add(&format!("Pad <mode = \"{mode}\"> ({}, {pads})", x.name), 1)
        }
        31..33 => {
            let (a, b) = (g.value(DType::F32)?, g.value(DType::F32)?);
            // ONNX Runtime leaves products along an axis of size 0 as the memory was.
            if a.array.is_empty() || b.array.is_empty() {
                return None;
            }
            if let Some(found) = g.add(&format!("MatMul ({}, {})", a.name, b.name), 1) {
                return Some(found);
            }
            let inner = *a.array.shape().last()?;
            let columns = 1 + g.below(3);
            let weights = g.array(DType::F32, &[inner, columns]);
            let weights = g.constant(weights);
            g.add(&format!("MatMul ({}, {weights})", a.name), 1)
        }
        33 => {
            let (op, x) = (*g.pick(&["Softmax", "LogSoftmax"]), g.value(DType::F32)?);
            let axis = an_axis(g, x.array.rank());
            g.add(&format!("{op} <axis = {axis}> ({})", x.name), 1)
        }
        34 => {
            let x = g.value(DType::F32)?;
            let size = *x.array.shape().last()?;
            let (scale, bias) = (g.array(DType::F32, &[size]), g.array(DType::F32, &[size]));
            let (scale, bias) = (g.constant(scale), g.constant(bias));
            g.add(&format!("LayerNormalization <epsilon = 0.01> ({}, {scale}, {bias})", x.name), 1)
        }
        35 => {
            let x = any(g)?;
            let to = *g.pick(&[1, 7, 9, 6, 11]);
            let cast = g.add(&format!("Cast <to = {to}> ({})", x.name), 1)?;
            // Back into the types that the other nodes read.
            match to {
                6 => g.add(&format!("Cast <to = 7> ({})", cast[0].name), 1),
                11 => g.add(&format!("Cast <to = 1> ({})", cast[0].name), 1),
                _ => Some(cast),
            }
        }
        36 => {
            let x = g.value(dtype)?;
            let axis = Array::scalar(an_axis(g, x.array.rank()));
            let axis = g.constant(axis);
            let (exclusive, reverse) = (g.below(2), g.below(2));
            g.add(&format!("CumSum <exclusive = {exclusive}, reverse = {reverse}> ({}, {axis})", x.name), 1)
        }
        37 => {
            let x = any(g)?;
            let op = *g.pick(&["Squeeze", "Unsqueeze", "Flatten", "NonZero", "Size", "Trilu"]);
            match op {
                "Flatten" => {
                    let axis = g.below(x.array.rank() + 1);
                    g.add(&format!("Flatten <axis = {axis}> ({})", x.name), 1)
                }
                "Unsqueeze" => {
                    let axis = an_axis(g, x.array.rank() + 1);
                    let axis = g.ints(&[axis]);
                    g.add(&format!("Unsqueeze ({}, {axis})", x.name), 1)
                }
                // The standard and ONNX Runtime disagree about the places in a scalar.
                "NonZero" if x.array.rank() == 0 => None,
                _ => g.add(&format!("{op} ({})", x.name), 1),
            }
        }
        38 => {
            let x = (0..8).find_map(|_| g.value(DType::F32).filter(|x| matches!(x.array.rank(), 3 | 4)))?;
            window(g, &x)
        }
        39 => {
            let x = g.value(DType::F32)?;
            let k = 1 + g.below(3) as i64;
            let (axis, k) = (an_axis(g, x.array.rank()), g.ints(&[k]));
            let largest = g.below(2);
            g.add(&format!("TopK <axis = {axis}, largest = {largest}> ({}, {k})", x.name), 2)
        }
        40 => {
            let x = g.value(dtype)?;
            let (low, high) = (g.below(3) as i64 - 2, g.below(3) as i64 + 1);
            let (low, high) = if dtype == DType::F32 {
                (g.constant(Array::scalar(low as f32)), g.constant(Array::scalar(high as f32)))
            } else {
                (g.constant(Array::scalar(low)), g.constant(Array::scalar(high)))
            };
            g.add(&format!("Clip ({}, {low}, {high})", x.name), 1)
        }
        41 => {
            let x = g.value(dtype)?;
            let axis = an_axis(g, x.array.rank());
            let index = g.value(DType::I64)?;
            g.add(&format!("GatherElements <axis = {axis}> ({}, {})", x.name, index.name), 1)
        }
        42 => {
            let x = (0..8).find_map(|_| g.value(DType::F32).filter(|x| x.array.rank() == 4))?;
            let mode = *g.pick(&["nearest", "linear"]);
            // With align_corners ONNX Runtime rounds the size first, against the cases of the onnx package.
            let transform = *g.pick(&["half_pixel", "asymmetric"]);
            let scales = vec![1.0, 1.0, *g.pick(&[1.0, 2.0, 0.5, 1.5]), *g.pick(&[2.0, 3.0, 0.5])];
            let scales = g.constant(Array::vector::<f32>(scales));
            g.add(
                &format!(
                    "Resize <mode = \"{mode}\", coordinate_transformation_mode = \"{transform}\", nearest_mode = \"floor\"> ({}, , {scales})",
                    x.name
                ),
                1,
            )
        }
        44..50 => chains::grow(g),
        50 => branch(g),
        51 => repeat(g),
        52 => quantize(g),
        _ => {
            let (a, b, c) = (g.value(dtype)?, g.value(dtype)?, g.value(dtype)?);
            let op = *g.pick(&["Max", "Min", "Sum", "Mean"]);
            g.add(&format!("{op} ({}, {}, {})", a.name, b.name, c.name), 1)
        }
    }
}

/// An If, more often than not with a condition that is known. Both branches could run and give the same shapes.
fn branch(g: &mut Builder) -> Option<Vec<Known>> {
    let x = g.value(DType::F32)?.name;
    let truth = g.below(2) == 0;
    let condition = match g.value(DType::Bool).filter(|c| c.array.len() == 1 && g.below(3) == 0) {
        Some(condition) => condition.name,
        None => g.constant(Array::scalar(truth)),
    };
    let (n, op) = (g.pool.len(), *g.pick(&["Add", "Mul"]));
    let body = format!("p{n} = Neg ({x})  q{n} = {op} (p{n}, {x})");
    let then = match g.below(3) {
        // ONNX Runtime wants results that are computed in the branch, each once.
        0 => format!("(float[] q{n}, float[] h{n}) {{ {body} h{n} = Identity ({x}) }}"),
        1 => format!("(float[] q{n}, float[] h{n}) {{ {body} h{n} = Identity (q{n}) }}"),
        _ => {
            let inner = |k: &str| format!("{k}{n} () => (float[] {k}r{n}) {{ {k}r{n} = {op} (q{n}, {x}) }}");
            let nested = format!(
                "r{n} = If <then_branch = {}, else_branch = {}> ({condition})",
                inner("t"),
                inner("u")
            );
            format!("(float[] r{n}, float[] p{n}) {{ {body} {nested} }}")
        }
    };
    let other = format!("(float[] s{n}, float[] j{n}) {{ s{n} = Relu ({x}) j{n} = Identity ({x}) }}");
    g.add(&format!("If <then_branch = a{n} () => {then}, else_branch = b{n} () => {other}> ({condition})"), 2)
}

/// A Loop of a few turns.
fn repeat(g: &mut Builder) -> Option<Vec<Known>> {
    let (x, n) = (g.value(DType::F32)?.name, g.pool.len());
    let turns = Array::scalar(g.below(4) as i64);
    let (turns, truth) = (g.constant(turns), Array::scalar(g.below(4) > 0));
    let condition = if g.below(2) == 0 { String::new() } else { g.constant(truth) };
    let goes_on = *g.pick(&["Identity", "Identity", "Not"]);
    let scans = g.below(2);
    let scan = if scans == 1 { format!(", float[] s{n}") } else { String::new() };
    let body = format!(
        "b{n} (int64 i{n}, bool k{n}, float[] a{n}) => (bool g{n}, float[] r{n}{scan}) {{
            g{n} = {goes_on} (k{n})  f{n} = Cast <to = 1> (i{n})  s{n} = Mul ({x}, f{n})  r{n} = Add (a{n}, s{n})
        }}"
    );
    g.add(&format!("Loop <body = {body}> ({turns}, {condition}, {x})"), 1 + scans)
}

/// Quantizes and dequantizes twice. Scales are powers of two, so that nobody rounds.
fn quantize(g: &mut Builder) -> Option<Vec<Known>> {
    let mut x = g.value(DType::F32)?;
    let zero = g.below(5) as i8 - 2;
    let zero = g.constant(Array::scalar(zero));
    for _ in 0..2 {
        let scale = Array::scalar(*g.pick(&[0.5f32, 0.5, 0.25]));
        let scale = g.constant(scale);
        let q = g.add(&format!("QuantizeLinear ({}, {scale}, {zero})", x.name), 1)?.remove(0);
        x = g.add(&format!("DequantizeLinear ({}, {scale}, {zero})", q.name), 1)?.remove(0);
    }
    Some(vec![x])
}

pub fn any(g: &mut Builder) -> Option<Known> {
    let dtype = *g.pick(&[DType::F32, DType::F32, DType::I64, DType::Bool]);
    g.value(dtype)
}

pub fn an_axis(g: &mut Builder, rank: usize) -> i64 {
    let rank = rank.max(1);
    g.below(2 * rank) as i64 - rank as i64
}

pub fn some_axes(g: &mut Builder, rank: usize) -> Vec<i64> {
    let chosen: Vec<usize> = (0..rank).filter(|_| g.below(2) == 0).collect();
    chosen
        .into_iter()
        .map(|axis| if g.below(2) == 0 { axis as i64 } else { axis as i64 - rank as i64 })
        .collect()
}

/// Two values that broadcast: of the pool, or one of the pool and a constant.
fn broadcastable(g: &mut Builder, dtype: DType) -> Option<(String, String)> {
    let a = g.value(dtype)?;
    for _ in 0..4 {
        let b = g.value(dtype)?;
        let fits = |(x, y): (&usize, &usize)| x == y || *x == 1 || *y == 1;
        if a.array.shape().iter().rev().zip(b.array.shape().iter().rev()).all(fits) {
            return Some((a.name, b.name));
        }
    }
    let shape: Vec<usize> =
        a.array.shape().iter().map(|&dim| if g.below(2) == 0 { 1 } else { dim }).collect();
    let constant = g.array(dtype, &shape);
    let b = g.constant(constant);
    Some(if g.below(2) == 0 { (a.name, b) } else { (b, a.name) })
}

/// A Reshape to a constant shape, or to one that is computed from the input's own.
fn reshape(g: &mut Builder) -> Option<Vec<Known>> {
    let x = any(g)?;
    let shape = x.array.shape().to_vec();
    if shape.is_empty() {
        let target = g.ints(&[1, -1]);
        return g.add(&format!("Reshape ({}, {target})", x.name), 1);
    }
    let split = g.below(shape.len());
    match g.below(3) {
        0 => {
            // Zeros copy, one axis is free.
            let free = g.below(shape.len());
            let target: Vec<i64> = (0..shape.len()).map(|axis| if axis == free { -1 } else { 0 }).collect();
            let target = g.ints(&target);
            g.add(&format!("Reshape ({}, {target})", x.name), 1)
        }
        1 => {
            // Leading axes by their computed sizes, the rest as one.
            let sizes = g.add(&format!("Shape <end = {}> ({})", split + 1, x.name), 1)?;
            let rest = g.ints(&[-1]);
            let target = g.add(&format!("Concat <axis = 0> ({}, {rest})", sizes[0].name), 1)?;
            g.add(&format!("Reshape ({}, {})", x.name, target[0].name), 1)
        }
        _ => {
            // Two neighbours merged by a computed product.
            let sizes = g.add(&format!("Shape ({})", x.name), 1)?;
            let part = |g: &mut Builder, from: usize, to: usize| {
                let (from, to) = (g.ints(&[from as i64]), g.ints(&[to as i64]));
                g.add(&format!("Slice ({}, {from}, {to})", sizes[0].name), 1)
            };
            let head = part(g, 0, split)?;
            let tail = part(g, split, shape.len())?;
            let merged = g.add(&format!("ReduceProd <keepdims = 1> ({})", tail[0].name), 1)?;
            let target = g.add(&format!("Concat <axis = 0> ({}, {})", head[0].name, merged[0].name), 1)?;
            g.add(&format!("Reshape ({}, {})", x.name, target[0].name), 1)
        }
    }
}

/// Integers computed from shapes: what inference follows symbolically.
fn shape_arithmetic(g: &mut Builder) -> Option<Vec<Known>> {
    let x = any(g)?;
    let rank = x.array.rank();
    if rank == 0 {
        return g.add(&format!("Shape ({})", x.name), 1);
    }
    let sizes = g.add(&format!("Shape ({})", x.name), 1)?;
    let index = an_axis(g, rank);
    let index = if g.below(2) == 0 { g.constant(Array::scalar(index)) } else { g.ints(&[index]) };
    let size = g.add(&format!("Gather <axis = 0> ({}, {index})", sizes[0].name), 1)?;
    let number = g.below(4) as i64 + 1;
    let number = g.constant(Array::scalar(number));
    let op = *g.pick(&["Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Equal", "Less"]);
    let pair = if g.below(3) == 0 { (&number, &size[0].name) } else { (&size[0].name, &number) };
    let result = g.add(&format!("{op} ({}, {})", pair.0, pair.1), 1)?;
    if result[0].array.dtype() != DType::I64 {
        let other = g.constant(Array::scalar(1i64));
        return g.add(&format!("Where ({}, {}, {other})", result[0].name, size[0].name), 1);
    }
    match g.below(3) {
        0 if result[0].array.rank() == 0 => {
            let (start, step) = (g.constant(Array::scalar(0i64)), g.constant(Array::scalar(1i64)));
            g.add(&format!("Range ({start}, {}, {step})", result[0].name), 1)
        }
        1 if result[0].array.rank() == 1 => {
            g.add(&format!("ConstantOfShape <value = float[1] {{1.5}}> ({})", result[0].name), 1)
        }
        _ => Some(result),
    }
}

fn slice(g: &mut Builder) -> Option<Vec<Known>> {
    let x = any(g)?;
    let rank = x.array.rank();
    if rank == 0 {
        return None;
    }
    let axis = an_axis(g, rank);
    let bound = |g: &mut Builder| -> i64 {
        match g.below(5) {
            0 => i64::MAX,
            1 => i64::MIN,
            _ => g.below(9) as i64 - 4,
        }
    };
    let (start, step) = (g.below(7) as i64 - 3, *g.pick(&[1, 1, 1, 2, -1, -2]));
    let (start, axes, steps) = (g.ints(&[start]), g.ints(&[axis]), g.ints(&[step]));
    // The end is a number, or computed from a shape.
    let end = if g.below(2) == 0 {
        let end = bound(g);
        g.ints(&[end])
    } else {
        let sizes = g.add(&format!("Shape <start = -1> ({})", x.name), 1)?;
        let less = g.below(4) as i64 - 1;
        let less = g.ints(&[less]);
        g.add(&format!("Sub ({}, {less})", sizes[0].name), 1)?[0].name.clone()
    };
    g.add(&format!("Slice ({}, {start}, {end}, {axes}, {steps})", x.name), 1)
}

/// Convolutions and pools over the trailing axes.
fn window(g: &mut Builder, x: &Known) -> Option<Vec<Known>> {
    let spatial = x.array.rank() - 2;
    let list = |g: &mut Builder, choices: &[i64], times: usize| -> String {
        let values: Vec<i64> = (0..times).map(|_| *g.pick(choices)).collect();
        format!("{values:?}")
    };
    let (kernel, strides) = (list(g, &[1, 2, 3], spatial), list(g, &[1, 2], spatial));
    let pads = list(g, &[0, 1], 2 * spatial);
    match g.below(4) {
        0 => g.add(
            &format!(
                "MaxPool <kernel_shape = {kernel}, strides = {strides}, pads = {}> ({})",
                zeros(2 * spatial),
                x.name
            ),
            1,
        ),
        1 => {
            let include = g.below(2);
            g.add(
                &format!(
                    "AveragePool <kernel_shape = {kernel}, strides = {strides}, pads = {}, count_include_pad = {include}> ({})",
                    zeros(2 * spatial), x.name
                ),
                1,
            )
        }
        2 => {
            let op = *g.pick(&["GlobalAveragePool", "GlobalMaxPool"]);
            g.add(&format!("{op} ({})", x.name), 1)
        }
        _ => {
            // ONNX Runtime does not return from a Conv of no channels.
            let channels = Some(x.array.shape()[1]).filter(|&channels| channels > 0)?;
            let depthwise = g.below(3) == 0;
            let (group, inner) = if depthwise { (channels.max(1), 1) } else { (1, channels) };
            let outputs = if depthwise { channels } else { 1 + g.below(3) };
            let mut shape = vec![outputs, inner];
            shape.extend((0..spatial).map(|_| 1 + g.below(3)));
            let weights = g.array(DType::F32, &shape);
            let bias = g.array(DType::F32, &[outputs]);
            let (weights, bias) = (g.constant(weights), g.constant(bias));
            g.add(
                &format!(
                    "Conv <group = {group}, strides = {strides}, pads = {pads}> ({}, {weights}, {bias})",
                    x.name
                ),
                1,
            )
        }
    }
}

fn zeros(count: usize) -> String {
    format!("{:?}", vec![0; count])
}
