//! Nodes in a row that passes are about: each is likely to be read by nothing else.

use onnxforge_ir::DType;
use onnxforge_ops::Array;

use super::templates::{an_axis, any, some_axes};
use super::{Builder, Known};

/// Tries to add two or more nodes in a row.
pub fn grow(g: &mut Builder) -> Option<Vec<Known>> {
    match g.below(17) {
        0 => bounds(g),
        1 => twice(g),
        2 => choice(g),
        3 => reduce_and_unsqueeze(g),
        4 => reduce_twice(g),
        5 => slice_twice(g),
        6 => parts(g),
        7 => concats(g),
        8 => arithmetic(g),
        9 => einsum(g),
        10 => overwrite(g),
        11 => held_line(g),
        12 => standardized(g),
        13..16 => between_transposes(g),
        _ => filled(g),
    }
}

/// Operators that know axes, with Transposes around them that may cancel, and other readers in between.
fn between_transposes(g: &mut Builder) -> Option<Vec<Known>> {
    let x = g.value(DType::F32).filter(|x| (2..5).contains(&x.array.rank()) && !x.array.is_empty())?;
    let order = shuffled(g, x.array.rank());
    let mut last = transposed(g, &x, &order)?;
    let mut seen = vec![last.clone()];
    for _ in 0..1 + g.below(4) {
        last = step(g, &last, &seen)?;
        seen.push(last.clone());
    }
    let back: Vec<usize> =
        (0..order.len()).filter_map(|axis| order.iter().position(|&from| from == axis)).collect();
    let rank = last.array.rank();
    let order = if rank == back.len() && g.below(4) > 0 { back } else { shuffled(g, rank) };
    transposed(g, &last, &order).map(|last| vec![last])
}

fn shuffled(g: &mut Builder, rank: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rank).collect();
    for index in (1..rank).rev() {
        order.swap(index, g.below(index + 1));
    }
    order
}

fn transposed(g: &mut Builder, x: &Known, order: &[usize]) -> Option<Known> {
    if order.is_empty() {
        return Some(x.clone());
    }
    Some(g.add(&format!("Transpose <perm = {order:?}> ({})", x.name), 1)?.remove(0))
}

/// One operator of `x`, perhaps with something that was before.
fn step(g: &mut Builder, x: &Known, seen: &[Known]) -> Option<Known> {
    let (name, rank) = (&x.name, x.array.rank());
    if rank == 0 {
        return None;
    }
    let axis = an_axis(g, rank);
    let at = usize::try_from(axis.rem_euclid(rank as i64)).ok()?;
    let call = match g.below(16) {
        0 => format!("Relu ({name})"),
        1 => format!("Add ({name}, {})", g.pick(seen).name),
        2 => format!("Mul ({name}, {})", g.value(DType::F32)?.name),
        3 => {
            let size = *x.array.shape().last()?;
            let vector: Vec<f32> = (0..size).map(|index| index as f32 - 1.0).collect();
            format!("Sub ({name}, {})", g.constant(Array::new(vec![size], vector).ok()?))
        }
        4 => format!("Softmax <axis = {axis}> ({name})"),
        5 => {
            let op = *g.pick(&["ReduceMean", "ReduceMax", "ReduceSum"]);
            let (axes, keeps) = (some_axes(g, rank), g.below(2));
            let axes = g.ints(&axes);
            format!("{op} <keepdims = {keeps}> ({name}, {axes})")
        }
        6 => format!("Concat <axis = {axis}> ({name}, {})", g.pick(seen).name),
        7 => {
            let numbers = [g.below(3) as i64 - 1, g.below(5) as i64 + 1, axis];
            let [start, end, axis] = numbers.map(|number| g.ints(&[number]));
            format!("Slice ({name}, {start}, {end}, {axis})")
        }
        8 => {
            let widths: Vec<i64> = (0..2 * rank).map(|_| g.below(2) as i64).collect();
            format!("Pad <mode = \"edge\"> ({name}, {})", g.ints(&widths))
        }
        9 => {
            let index = g.constant(Array::scalar(0i64));
            format!("Gather <axis = {axis}> ({name}, {index})")
        }
        10 => format!("Unsqueeze ({name}, {})", g.ints(&[axis])),
        11 => {
            // Two neighbours become one.
            let mut shape: Vec<i64> = x.array.shape().iter().map(|&size| size as i64).collect();
            if at + 1 < rank {
                let next = shape.remove(at + 1);
                shape[at] *= next;
            }
            format!("Reshape ({name}, {})", g.ints(&shape))
        }
        12 => {
            let size = *x.array.shape().last()?;
            let weight: Vec<f32> = (0..2 * size).map(|index| (index % 5) as f32 - 2.0).collect();
            format!("MatMul ({name}, {})", g.constant(Array::new(vec![size, 2], weight).ok()?))
        }
        13 => {
            let times: Vec<i64> = (0..rank).map(|axis| 1 + i64::from(axis == at)).collect();
            format!("Tile ({name}, {})", g.ints(&times))
        }
        14 => {
            let scales: Vec<f32> = (0..rank).map(|axis| if axis == at { 2.0 } else { 1.0 }).collect();
            let scales = g.constant(Array::new(vec![rank], scales).ok()?);
            format!("Resize <mode = \"nearest\"> ({name}, , {scales})")
        }
        _ => {
            // Axes of size 1 come and go.
            let axis = g.ints(&[axis]);
            let wide = g.add(&format!("ReduceMin ({name}, {axis})"), 1)?.remove(0);
            format!("Squeeze ({}, {axis})", wide.name)
        }
    };
    Some(g.add(&call, 1)?.remove(0))
}

fn number(g: &mut Builder, dtype: DType, number: i64) -> String {
    match dtype {
        DType::F32 => g.constant(Array::scalar(number as f32)),
        _ => g.constant(Array::scalar(number)),
    }
}

fn float_or_int(g: &mut Builder) -> DType {
    *g.pick(&[DType::F32, DType::F32, DType::I64])
}

fn bounds(g: &mut Builder) -> Option<Vec<Known>> {
    let dtype = float_or_int(g);
    let mut last = g.value(dtype)?;
    for _ in 0..2 + g.below(2) {
        let bound = g.below(6) as i64 - 3;
        let call = match g.below(4) {
            0 if dtype == DType::F32 => format!("Relu ({})", last.name),
            1 => format!("Min ({}, {})", last.name, number(g, dtype, bound)),
            2 => format!("Max ({}, {})", number(g, dtype, bound), last.name),
            _ => {
                let high = bound + g.below(4) as i64;
                let (low, high) = (number(g, dtype, bound), number(g, dtype, high));
                match g.below(3) {
                    0 => format!("Clip ({}, {low})", last.name),
                    1 => format!("Clip ({}, , {high})", last.name),
                    _ => format!("Clip ({}, {low}, {high})", last.name),
                }
            }
        };
        last = g.add(&call, 1)?.remove(0);
    }
    Some(vec![last])
}

fn twice(g: &mut Builder) -> Option<Vec<Known>> {
    let x = g.value(DType::F32)?;
    let ops = ["Ceil", "Floor", "Round", "Sign", "Abs", "Relu", "Neg"];
    let first = *g.pick(&ops);
    let second = if g.below(2) == 0 { first } else { *g.pick(&ops) };
    let middle = g.add(&format!("{first} ({})", x.name), 1)?;
    g.add(&format!("{second} ({})", middle[0].name), 1)
}

fn choice(g: &mut Builder) -> Option<Vec<Known>> {
    let (c, a, b) = (g.value(DType::Bool)?, g.value(DType::F32)?, g.value(DType::F32)?);
    let condition = if g.below(2) == 0 { g.add(&format!("Not ({})", c.name), 1)?.remove(0) } else { c };
    let chosen = g.add(&format!("Where ({}, {}, {})", condition.name, a.name, b.name), 1)?;
    let other = if g.below(2) == 0 { &a } else { &b };
    g.add(&format!("Where ({}, {}, {})", condition.name, chosen[0].name, other.name), 1)
}

fn reduce_and_unsqueeze(g: &mut Builder) -> Option<Vec<Known>> {
    let x = g.value(DType::F32).filter(|x| !x.array.is_empty())?;
    let axes = some_axes(g, x.array.rank());
    if axes.is_empty() {
        return None;
    }
    let op = *g.pick(&["ReduceSum", "ReduceMax", "ReduceL1", "ReduceMean"]);
    let other = if g.below(4) == 0 { vec![0] } else { axes.clone() };
    let (axes, other) = (g.ints(&axes), g.ints(&other));
    let keeps = g.below(2);
    let reduced = g.add(&format!("{op} <keepdims = {keeps}> ({}, {axes})", x.name), 1)?;
    let back = if keeps == 1 { "Squeeze" } else { "Unsqueeze" };
    g.add(&format!("{back} ({}, {other})", reduced[0].name), 1)
}

fn reduce_twice(g: &mut Builder) -> Option<Vec<Known>> {
    let dtype = float_or_int(g);
    let x = g.value(dtype).filter(|x| !x.array.is_empty())?;
    let op = *g.pick(&["ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean"]);
    if dtype == DType::I64 && op == "ReduceMean" {
        return None;
    }
    let keeps = g.below(2);
    let mut last = x;
    for _ in 0..2 {
        let axis = an_axis(g, last.array.rank());
        let axis = g.ints(&[axis]);
        last = g.add(&format!("{op} <keepdims = {keeps}> ({}, {axis})", last.name), 1)?.remove(0);
    }
    Some(vec![last])
}

fn slice_twice(g: &mut Builder) -> Option<Vec<Known>> {
    let mut last = any(g)?;
    let rank = last.array.rank();
    let common = an_axis(g, rank);
    for _ in 0..2 {
        let axis = if g.below(2) == 0 { common } else { an_axis(g, rank) };
        let (start, end) = (g.below(5) as i64 - 2, g.below(7) as i64 - 2);
        let step = *g.pick(&[1, 1, 2, -1]);
        let [start, end, axis, step] = [start, end, axis, step].map(|number| g.ints(&[number]));
        last = g.add(&format!("Slice ({}, {start}, {end}, {axis}, {step})", last.name), 1)?.remove(0);
    }
    Some(vec![last])
}

/// Slices that may be all parts of an axis.
fn parts(g: &mut Builder) -> Option<Vec<Known>> {
    let x = any(g)?;
    let axis = g.below(x.array.rank().max(1));
    let size = *x.array.shape().get(axis)? as i64;
    let cut = g.below(size as usize + 1) as i64;
    let second = if g.below(4) == 0 { cut - 1 } else { cut };
    let [zero, cut, second, end, axis] = [0, cut, second, size, axis as i64].map(|number| g.ints(&[number]));
    let mut found = g.add(&format!("Slice ({}, {second}, {end}, {axis})", x.name), 1)?;
    found.extend(g.add(&format!("Slice ({}, {zero}, {cut}, {axis})", x.name), 1)?);
    Some(found)
}

fn concats(g: &mut Builder) -> Option<Vec<Known>> {
    let a = any(g)?;
    let (axis, other) = (an_axis(g, a.array.rank()), an_axis(g, a.array.rank()));
    let inner = g.add(&format!("Concat <axis = {axis}> ({}, {})", a.name, a.name), 1)?;
    let outer = if g.below(2) == 0 { axis } else { other };
    let last = if g.below(2) == 0 { &a.name } else { &inner[0].name };
    g.add(&format!("Concat <axis = {outer}> ({}, {last})", inner[0].name), 1)
}

fn arithmetic(g: &mut Builder) -> Option<Vec<Known>> {
    let dtype = float_or_int(g);
    let mut last = g.value(dtype)?;
    let ops: &[&str] = if g.below(2) == 0 { &["Add", "Sub"] } else { &["Mul", "Div"] };
    for _ in 0..2 + g.below(2) {
        let op = *g.pick(ops);
        let operand = g.below(9) as i64 - 4;
        let operand = number(g, dtype, operand);
        let call = match g.below(4) {
            0 => format!("{op} ({operand}, {})", last.name),
            _ => format!("{op} ({}, {operand})", last.name),
        };
        last = g.add(&call, 1)?.remove(0);
    }
    Some(vec![last])
}

fn einsum(g: &mut Builder) -> Option<Vec<Known>> {
    let x = g.value(DType::F32)?;
    // ONNX Runtime dies of an Einsum over nothing.
    if x.array.is_empty() {
        return None;
    }
    let letters = ["", "i", "ij", "ijk", "ijkl"].get(x.array.rank())?;
    let results: Vec<char> = letters.chars().filter(|_| g.below(3) > 0).collect();
    let result: String =
        if g.below(3) == 0 { results.iter().rev().collect() } else { results.iter().collect() };
    if letters.is_empty() || g.below(2) == 0 {
        return g.add(&format!("Einsum <equation = \"{letters}->{result}\"> ({})", x.name), 1);
    }
    let size = *x.array.shape().last()?;
    let columns = 1 + g.below(3);
    let (shape, right) = if g.below(2) == 0 { ([size, columns], true) } else { ([columns, size], false) };
    let weights = g.array(DType::F32, &shape);
    let weights = g.constant(weights);
    let (rows, last) = letters.split_at(letters.len() - 1);
    let term = if right { format!("{last}z") } else { format!("z{last}") };
    let result = if g.below(4) == 0 { format!("z{rows}") } else { format!("{rows}z") };
    g.add(&format!("Einsum <equation = \"{letters},{term}->{result}\"> ({}, {weights})", x.name), 1)
}

/// A ScatterND over the first axis, which may be whole.
fn overwrite(g: &mut Builder) -> Option<Vec<Known>> {
    let x = g.value(DType::F32)?;
    let size = *x.array.shape().first()? as i64;
    let mut rows: Vec<i64> = (0..size).collect();
    if g.below(3) == 0 {
        rows.reverse();
    }
    let indices = g.constant(Array::new([rows.len(), 1], rows).ok()?);
    let updates = g.add(&format!("Neg ({})", x.name), 1)?;
    g.add(&format!("ScatterND ({}, {indices}, {})", x.name, updates[0].name), 1)
}

fn filled(g: &mut Builder) -> Option<Vec<Known>> {
    let x = any(g)?;
    let shape = g.add(&format!("Shape ({})", x.name), 1)?;
    let value = *g.pick(&["float[1] {1.5}", "int64[1] {3}", "float[1] {-2.0}", "bool[1] {1}"]);
    let filled = g.add(&format!("ConstantOfShape <value = {value}> ({})", shape[0].name), 1)?;
    let to = *g.pick(&[1, 7, 9]);
    g.add(&format!("Cast <to = {to}> ({})", filled[0].name), 1)
}

/// A line that is held between bounds, and scaled: a HardSigmoid where the numbers fit.
fn held_line(g: &mut Builder) -> Option<Vec<Known>> {
    let x = g.value(DType::F32)?;
    let upper = *g.pick(&[1, 4, 6]);
    let offset = g.below(13) as i64 - 6;
    let lower = if g.below(4) == 0 { -1 } else { 0 };
    let [offset, lower, scale] = [offset, lower, upper].map(|value| number(g, DType::F32, value));
    let upper = if g.below(4) == 0 { offset.clone() } else { scale.clone() };
    let mut last = x.clone();
    if g.below(2) == 0 {
        last = g.add(&format!("Mul ({}, {scale})", last.name), 1)?.remove(0);
    }
    last = g.add(&format!("Add ({}, {offset})", last.name), 1)?.remove(0);
    last = g.add(&format!("Clip ({}, {lower}, {upper})", last.name), 1)?.remove(0);
    if g.below(3) == 0 {
        last = g.add(&format!("Mul ({}, {})", x.name, last.name), 1)?.remove(0);
    }
    g.add(&format!("Div ({}, {scale})", last.name), 1)
}

/// Deviations from the mean over their root mean square, times something along an axis.
fn standardized(g: &mut Builder) -> Option<Vec<Known>> {
    let x = g.value(DType::F32).filter(|x| !x.array.is_empty() && x.array.rank() > 2)?;
    let rank = x.array.rank();
    let axes: Vec<i64> = if g.below(3) == 0 { some_axes(g, rank) } else { (2..rank as i64).collect() };
    if axes.is_empty() {
        return None;
    }
    let (axes, one) = (g.ints(&axes), number(g, DType::F32, 1));
    let mean = g.add(&format!("ReduceMean ({}, {axes})", x.name), 1)?.remove(0);
    let deviation = g.add(&format!("Sub ({}, {})", x.name, mean.name), 1)?.remove(0);
    let square = g.add(&format!("Mul ({}, {})", deviation.name, deviation.name), 1)?.remove(0);
    let variance = g.add(&format!("ReduceMean ({}, {axes})", square.name), 1)?.remove(0);
    let sum = g.add(&format!("Add ({}, {one})", variance.name), 1)?.remove(0);
    let root = g.add(&format!("Sqrt ({})", sum.name), 1)?.remove(0);
    let mut last = g.add(&format!("Div ({}, {})", deviation.name, root.name), 1)?.remove(0);
    let along = if g.below(4) == 0 { g.below(rank) } else { 1 };
    let mut shape = vec![1; rank];
    shape[along] = x.array.shape()[along];
    for op in ["Mul", "Add"] {
        let operand = g.array(DType::F32, &shape);
        let operand = g.constant(operand);
        last = g.add(&format!("{op} ({}, {operand})", last.name), 1)?.remove(0);
    }
    Some(vec![last])
}
