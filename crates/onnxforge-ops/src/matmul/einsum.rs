//! Einsum: sums of products of tensors, by an equation over the names of their axes.

use std::collections::BTreeMap;

use crate::array::{Array, each_number};
use crate::error::{OpError, invalid};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::kernel::fold::Fold;
use crate::kernel::gemm::Matrix;
use crate::kernel::parallel::PARALLEL;
use crate::kernel::parallel::each_piece;
use crate::kernel::product::{Product, batched};
use crate::kernel::shape::strides;
use crate::kernel::strided::{View, transpose};
use crate::value::Value;
use onnxforge_ir::dim::Dim;

/// The name of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    /// One of the axes that the ellipsis stands for.
    Dots(usize),
    /// A letter.
    Letter(u8),
}

/// A term as it is written: letters, and `None` for an ellipsis.
struct Term(Vec<Option<u8>>);

impl Term {
    fn parse(text: &str) -> Result<Self, OpError> {
        let mut symbols = Vec::new();
        let mut rest = text.as_bytes();
        while let [first, tail @ ..] = rest {
            match (first, tail) {
                (b' ', _) => rest = tail,
                (b'.', [b'.', b'.', tail @ ..]) if !symbols.contains(&None) => {
                    symbols.push(None);
                    rest = tail;
                }
                (letter, _) if letter.is_ascii_alphabetic() => {
                    symbols.push(Some(*letter));
                    rest = tail;
                }
                _ => return invalid(format!("the term {text:?} of an Einsum equation")),
            }
        }
        Ok(Self(symbols))
    }

    fn has_dots(&self) -> bool {
        self.0.contains(&None)
    }

    fn letters(&self) -> impl Iterator<Item = u8> {
        self.0.iter().filter_map(|symbol| *symbol)
    }

    /// The labels, where the ellipsis stands for `width` axes.
    fn labels(&self, width: usize) -> Vec<Label> {
        let symbol = |symbol: &Option<u8>| match symbol {
            Some(letter) => vec![Label::Letter(*letter)],
            None => (0..width).map(Label::Dots).collect(),
        };
        self.0.iter().flat_map(symbol).collect()
    }
}

/// An equation as it is written.
struct Written {
    inputs: Vec<Term>,
    output: Option<Term>,
}

/// An equation in which every axis has a label.
struct Equation {
    inputs: Vec<Vec<Label>>,
    output: Vec<Label>,
}

impl Written {
    fn parse(text: &str, operands: usize) -> Result<Self, OpError> {
        let (inputs, output) = match text.split_once("->") {
            Some((inputs, output)) => (inputs, Some(Term::parse(output)?)),
            None => (text, None),
        };
        let inputs = inputs.split(',').map(Term::parse).collect::<Result<Vec<_>, _>>()?;
        if inputs.len() != operands {
            return invalid(format!("an Einsum equation with {} terms for {operands} tensors", inputs.len()));
        }
        Ok(Self { inputs, output })
    }

    /// Labels every axis of operands with these ranks.
    fn label(&self, ranks: &[usize]) -> Result<Equation, OpError> {
        let mut width = None;
        for (term, &rank) in self.inputs.iter().zip(ranks) {
            let letters = term.letters().count();
            let dots = rank.checked_sub(letters).filter(|&dots| dots == 0 || term.has_dots());
            let Some(dots) = dots else {
                return invalid(format!("an Einsum term with {letters} letters for {rank} axes"));
            };
            if term.has_dots() && width.replace(dots).is_some_and(|before| before != dots) {
                return invalid("an Einsum ellipsis that stands for different numbers of axes");
            }
        }
        let width = width.unwrap_or(0);
        let inputs: Vec<Vec<Label>> = self.inputs.iter().map(|term| term.labels(width)).collect();
        let output = match &self.output {
            Some(term) => term.labels(width),
            None => implicit_output(&inputs, width),
        };
        for (index, label) in output.iter().enumerate() {
            if output[..index].contains(label) || !inputs.iter().any(|input| input.contains(label)) {
                return invalid("an Einsum output that repeats an index or has one of its own");
            }
        }
        if !(0..width).all(|dots| output.contains(&Label::Dots(dots))) {
            return invalid("an Einsum output without the ellipsis that the inputs have");
        }
        Ok(Equation { inputs, output })
    }
}

/// The ellipsis, then every letter that occurs once, in the order of their codes.
fn implicit_output(inputs: &[Vec<Label>], width: usize) -> Vec<Label> {
    let mut uses = BTreeMap::<u8, usize>::new();
    for label in inputs.iter().flatten() {
        if let Label::Letter(letter) = label {
            *uses.entry(*letter).or_default() += 1;
        }
    }
    let letters = uses.into_iter().filter(|(_, uses)| *uses == 1);
    (0..width).map(Label::Dots).chain(letters.map(|(letter, _)| Label::Letter(letter))).collect()
}

pub fn infer(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let written = Written::parse(&cx.call.text("equation")?, cx.input_count())?;
    let mut shapes: Vec<Vec<Dim>> = Vec::with_capacity(cx.input_count());
    for (index, term) in written.inputs.iter().enumerate() {
        shapes.push(match cx.shape(index) {
            Some(shape) => shape.to_vec(),
            // Without an ellipsis the term tells how many axes there are.
            None if !term.has_dots() => cx.fresh_shape(term.0.len()),
            None => return Ok(()),
        });
    }
    let ranks: Vec<usize> = shapes.iter().map(Vec::len).collect();
    let equation = written.label(&ranks)?;
    let mut sizes = BTreeMap::<Label, Dim>::new();
    for (label, dim) in equation.inputs.iter().flatten().zip(shapes.iter().flatten()) {
        let size = match sizes.get(label) {
            Some(size) => cx.broadcast_dim(size, dim)?,
            None => dim.clone(),
        };
        sizes.insert(*label, size);
    }
    let shape = equation.output.iter().filter_map(|label| sizes.get(label).cloned()).collect();
    cx.set_shape(0, shape);
    Ok(())
}

pub fn eval(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let arrays = cx.arrays_from(0)?;
    let ranks: Vec<usize> = arrays.iter().map(|array| array.rank()).collect();
    let equation = Written::parse(&cx.call.text("equation")?, arrays.len())?.label(&ranks)?;
    let sizes = sizes(&equation, &arrays)?;
    let Some(first) = arrays.first() else { return invalid("an Einsum without operands") };
    each_number!(first, T => one(contract::<T>(cx, &equation, &arrays, &sizes)?))
}

/// How many values each index takes; axes of size 1 are repeated.
fn sizes(equation: &Equation, arrays: &[&Array]) -> Result<BTreeMap<Label, usize>, OpError> {
    let mut sizes = BTreeMap::new();
    let dims = arrays.iter().flat_map(|array| array.shape());
    for (&label, &dim) in equation.inputs.iter().flatten().zip(dims) {
        let size = sizes.entry(label).or_insert(dim);
        match (*size, dim) {
            (a, b) if a == b => {}
            (1, _) => *size = dim,
            (_, 1) => {}
            (a, b) => return invalid(format!("an Einsum index that is both {a} and {b}")),
        }
    }
    Ok(sizes)
}

/// The sum of products: operands are joined from left to right, and an index is summed as soon as nobody needs it.
fn contract<T: Product>(
    cx: &Eval<'_>,
    equation: &Equation,
    arrays: &[&Array],
    sizes: &BTreeMap<Label, usize>,
) -> Result<Array, OpError> {
    let shape: Vec<usize> = equation.output.iter().filter_map(|label| sizes.get(label).copied()).collect();
    if arrays.iter().any(|array| array.is_empty()) {
        return Array::new(&shape[..], cx.zeros::<T>(&shape)?);
    }
    let mut operands = Vec::with_capacity(arrays.len());
    for (labels, array) in equation.inputs.iter().zip(arrays) {
        operands.push(Operand::new(cx, array, labels, sizes)?);
    }
    let mut joined: Option<Operand> = None;
    for index in 0..operands.len() {
        let right = &operands[index];
        let needed = |label: &Label| {
            equation.output.contains(label)
                || operands[index + 1..].iter().any(|operand| operand.labels.contains(label))
        };
        joined = Some(match joined {
            None => right.sum_unless::<T>(cx, needed)?,
            Some(left) => {
                let right =
                    right.sum_unless::<T>(cx, |label| needed(label) || left.labels.contains(label))?;
                let left = left.sum_unless::<T>(cx, |label| needed(label) || right.labels.contains(label))?;
                left.times::<T>(cx, &right, needed)?
            }
        });
    }
    match joined {
        Some(joined) => joined.ordered(cx, &equation.output)?.reshaped(shape),
        None => invalid("an Einsum without operands"),
    }
}

/// A tensor whose axes have distinct labels.
#[derive(Clone)]
struct Operand {
    array: Array,
    labels: Vec<Label>,
}

impl Operand {
    /// The diagonal along repeated labels, without axes that are repeated for others.
    fn new(
        cx: &Eval<'_>,
        array: &Array,
        labels: &[Label],
        sizes: &BTreeMap<Label, usize>,
    ) -> Result<Self, OpError> {
        let mut view = View { shape: Vec::new(), strides: Vec::new(), offset: 0 };
        let mut distinct: Vec<Label> = Vec::new();
        let steps = strides(array.shape());
        for ((&label, &dim), &step) in labels.iter().zip(array.shape()).zip(&steps) {
            if let Some(at) = distinct.iter().position(|other| *other == label) {
                if view.shape[at] != dim {
                    return invalid(format!("the diagonal of a {}x{dim} matrix", view.shape[at]));
                }
                view.strides[at] += step as isize;
            } else {
                distinct.push(label);
                view.shape.push(dim);
                view.strides.push(step as isize);
            }
        }
        let array =
            if distinct.len() == labels.len() { array.clone() } else { view.copy(array, cx.memory())? };
        let kept = |(label, dim): (&Label, &usize)| *dim != 1 || sizes.get(label) == Some(&1);
        let kept: Vec<(Label, usize)> = distinct
            .iter()
            .zip(&view.shape)
            .filter(|(label, dim)| kept((label, dim)))
            .map(|(label, dim)| (*label, *dim))
            .collect();
        let (labels, shape): (Vec<Label>, Vec<usize>) = kept.into_iter().unzip();
        Ok(Self { array: array.reshaped(shape)?, labels })
    }

    /// The sum over every index that is not `needed`.
    fn sum_unless<T: Product>(
        &self,
        cx: &Eval<'_>,
        needed: impl Fn(&Label) -> bool,
    ) -> Result<Self, OpError> {
        let axes: Vec<usize> = (0..self.labels.len()).filter(|&axis| !needed(&self.labels[axis])).collect();
        if axes.is_empty() {
            return Ok(self.clone());
        }
        let kept = (0..self.labels.len()).filter(|axis| !axes.contains(axis));
        let (labels, shape): (Vec<Label>, Vec<usize>) =
            kept.map(|axis| (self.labels[axis], self.array.shape()[axis])).unzip();
        let sum = Fold::new(T::ZERO, |sum: T, x: T| sum.add(x), T::add);
        let sums = sum.axes(&self.array, &axes, cx.memory(), |sum| sum)?;
        Ok(Self { array: Array::new(shape, sums)?, labels })
    }

    /// The array with its axes in the order of `labels`, which are its own.
    fn ordered(&self, cx: &Eval<'_>, labels: &[Label]) -> Result<Array, OpError> {
        if self.labels == labels {
            return Ok(self.array.clone());
        }
        let axis = |label: &Label| self.labels.iter().position(|own| own == label);
        match labels.iter().map(axis).collect::<Option<Vec<usize>>>() {
            Some(order) => transpose(&self.array, &order, cx.memory()),
            None => invalid("an Einsum output that repeats an index or has one of its own"),
        }
    }

    /// How many values the indices take together.
    fn size(&self, labels: &[Label]) -> usize {
        let dims = self.labels.iter().zip(self.array.shape());
        dims.filter(|(label, _)| labels.contains(label)).map(|(_, dim)| dim).product()
    }

    /// The product with `other`, summed over every common index that is not `needed`.
    fn times<T: Product>(
        &self,
        cx: &Eval<'_>,
        other: &Self,
        needed: impl Fn(&Label) -> bool,
    ) -> Result<Self, OpError> {
        let (common, rows): (Vec<Label>, Vec<Label>) =
            self.labels.iter().partition(|label| other.labels.contains(label));
        let (batch, inner): (Vec<Label>, Vec<Label>) = common.into_iter().partition(|label| needed(label));
        let columns: Vec<Label> =
            other.labels.iter().copied().filter(|label| !self.labels.contains(label)).collect();
        let [b, m, k, n] = [self.size(&batch), self.size(&rows), self.size(&inner), other.size(&columns)];
        let labels = [&batch[..], &rows, &columns].concat();
        let dims = |operand: &Self, labels: &[Label]| -> Vec<usize> {
            let at = |label| operand.labels.iter().position(|own| own == label);
            labels.iter().filter_map(at).map(|axis| operand.array.shape()[axis]).collect()
        };
        let shape = [dims(self, &batch), dims(self, &rows), dims(other, &columns)].concat();
        // An operand may stand transposed, which saves a copy where it already does.
        let straight = [&batch[..], &inner, &columns].concat();
        let transposed = [&batch[..], &columns, &inner].concat();
        let right_transposed = other.labels == transposed && other.labels != straight;
        let left = self.ordered(cx, &[&batch[..], &rows, &inner].concat())?;
        let right = other.ordered(cx, if right_transposed { &transposed } else { &straight })?;
        let mut out = cx.zeros::<T>(&shape)?;
        let (left, right) = (left.slice::<T>()?, right.slice::<T>()?);
        if k == 1 {
            each_piece(&mut out, PARALLEL, PARALLEL, &|piece, out| {
                for (at, out) in (piece * PARALLEL..).zip(out) {
                    *out = left[at / n].mul(right[at / (m * n) * n + at % n]);
                }
            });
            return Ok(Self { array: Array::new(shape, out)?, labels });
        }
        cx.reserve::<[usize; 2]>(b)?;
        let offsets: Vec<[usize; 2]> = (0..b).map(|i| [i * m * k, i * k * n]).collect();
        let a = Matrix::new(left, m, k);
        let b = Matrix { data: right, rows: k, columns: n, transposed: right_transposed };
        batched(&mut out, a, b, T::ONE, &offsets);
        Ok(Self { array: Array::new(shape, out)?, labels })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labelled(text: &str, ranks: &[usize]) -> Option<(Vec<usize>, String)> {
        let equation = Written::parse(text, ranks.len()).and_then(|written| written.label(ranks)).ok()?;
        let name = |label: &Label| match label {
            Label::Dots(index) => index.to_string(),
            Label::Letter(letter) => char::from(*letter).to_string(),
        };
        Some((equation.inputs.iter().map(Vec::len).collect(), equation.output.iter().map(name).collect()))
    }

    #[test]
    fn equations() {
        assert_eq!(labelled("ij, jk", &[2, 2]).unwrap().1, "ik");
        assert_eq!(labelled("bA", &[2]).unwrap().1, "Ab");
        assert_eq!(labelled("...ii->...i", &[4]).unwrap(), (vec![4], "01i".to_owned()));
        assert_eq!(labelled("a...,b", &[2, 1]).unwrap().1, "0ab");
        assert_eq!(labelled("->", &[0]).unwrap(), (vec![0], String::new()));
        assert_eq!(labelled(",", &[0, 0]).unwrap().1, "");
        for (text, ranks) in [
            ("ij", &[3][..]),
            ("ij,jk", &[2]),
            ("i->ii", &[1]),
            ("i->j", &[1]),
            ("......", &[2]),
            ("i.->i", &[2]),
            ("...i->i", &[2]),
            ("...i,...j", &[2, 3]),
            ("i1", &[2]),
            ("é", &[1]),
        ] {
            assert!(labelled(text, ranks).is_none(), "{text}");
        }
    }
}
