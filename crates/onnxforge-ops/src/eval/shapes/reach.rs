//! How large dimensions have to be for the indices that a graph computes from sizes.
//!
//! Masks are often read at the positions 0, 1, … of old and new tokens together. No shape says so, only the numbers that a Range gives: what is selected
//! from has to be that long.

use crate::infer::Inference;
use onnxforge_ir::dim::{Dim, Requirement, Symbol, Symbols};
use onnxforge_ir::{Model, Node, ValueId};

/// A dimension that indices select from, and how long it has to be for the largest of them.
#[derive(Clone, Debug)]
pub struct Reach {
    /// The dimension.
    pub size: Dim,
    /// The least size.
    pub least: Dim,
}

impl Reach {
    /// What that demands of sizes.
    pub fn requirement(&self) -> Option<Requirement> {
        Some(Requirement::Positive(self.size.sub(&self.least)?.add(&Dim::ONE)?))
    }
}

impl Reach {
    /// A place in two axes that were made one, as row × length + position, taken apart: rows and positions. Where both are reached, so is the place.
    fn by_axes(&self, symbols: &Symbols) -> Option<[Self; 2]> {
        let both: Vec<Symbol> = self.size.symbols().into_iter().collect();
        let &[a, b] = both.as_slice() else { return None };
        let [rows, length] = [[a, b], [b, a]].into_iter().find(|[rows, length]| {
            let is_product = Dim::from(*rows).mul(&Dim::from(*length)).is_some_and(|size| size == self.size);
            is_product && self.least.symbols().contains(length) && !self.least.symbols().contains(rows)
        })?;
        let at =
            |size: Dim| self.least.substitute(&|symbol| (symbol == length).then(|| size.clone()), symbols);
        let position = at(Dim::ZERO)?;
        let last = at(Dim::ONE)?.sub(&position)?;
        let is_linear = last.mul(&Dim::from(length))?.add(&position)? == self.least;
        let row = last.add(&Dim::ONE)?;
        let axis = |size: Symbol, least: Dim| Self { size: size.into(), least };
        is_linear.then(|| [axis(length, position), axis(rows, row)])
    }
}

/// How far the nodes of the graph reach, as far as that follows from sizes. Bodies need not run: what they select is not looked at.
pub fn reaches(model: &Model, inference: &Inference) -> Vec<Reach> {
    let mut found = Vec::new();
    for (_, node) in model.nodes_in(model.main()) {
        let Some(data) = node.input(0).and_then(|data| inference.shape(data)) else { continue };
        let indices = Indices { model, inference };
        let mut reach = |axis: usize, largest: Option<Dim>| {
            let least = largest.and_then(|largest| largest.add(&Dim::ONE));
            if let (Some(size), Some(least)) = (data.get(axis), least)
                && !(size.is_const() && least.is_const())
            {
                let reach = Reach { size: size.clone(), least };
                match reach.by_axes(inference.symbols()) {
                    Some(axes) => found.extend(axes),
                    None => found.push(reach),
                }
            }
        };
        if node.op().is("Gather") || node.op().is("GatherElements") {
            let axis = crate::call::axis(node.attr_int("axis").unwrap_or(0), data.len());
            if let (Ok(axis), Some(value)) = (axis, node.input(1)) {
                reach(axis, indices.largest(value, DEPTH));
            }
        } else if node.op().is("GatherND") {
            let first = usize::try_from(node.attr_int("batch_dims").unwrap_or(0)).unwrap_or(usize::MAX);
            for (place, largest) in indices.parts(node).into_iter().enumerate() {
                reach(first.saturating_add(place), largest);
            }
        }
    }
    found
}

/// How many nodes are followed back.
const DEPTH: usize = 16;

/// Operators that hand on all elements of their first input, and make no others.
const SAME: [&str; 9] =
    ["Identity", "Cast", "Unsqueeze", "Squeeze", "Reshape", "Flatten", "Transpose", "Expand", "Tile"];

struct Indices<'a> {
    model: &'a Model,
    inference: &'a Inference,
}

impl Indices<'_> {
    /// The largest element of an integer tensor that has any, where that follows from sizes.
    fn largest(&self, value: ValueId, depth: usize) -> Option<Dim> {
        if let Some(single) = self.single(value) {
            return Some(single);
        }
        let node = self.model.node(self.model.value(value).node()?);
        let depth = depth.checked_sub(1)?;
        let input = |index: usize| node.input(index);
        if SAME.iter().any(|op| node.op().is(op)) {
            return self.largest(input(0)?, depth);
        }
        if node.op().is("Range") {
            let is_by_one = self.single(input(2)?)? == Dim::ONE;
            return self.single(input(1)?)?.sub(&Dim::ONE).filter(|_| is_by_one);
        }
        if node.op().is("Add") {
            let [a, b] = [input(0)?, input(1)?];
            return self.largest(a, depth)?.add(&self.largest(b, depth)?).filter(|_| self.meet_all(a, b));
        }
        if node.op().is("Mul") {
            let [a, b] = [input(0)?, input(1)?];
            let (all, one) = if self.single(b).is_some() { (a, b) } else { (b, a) };
            let factor = self.single(one)?;
            let rises = factor.provably_nonneg(self.inference.symbols());
            return self.largest(all, depth)?.mul(&factor).filter(|_| rises);
        }
        if node.op().is("Sub") {
            return self.largest(input(0)?, depth)?.sub(&self.single(input(1)?)?);
        }
        None
    }

    /// Whether every element of one tensor meets every element of the other: they are broadcast, and no axis is longer than 1 in both.
    fn meet_all(&self, a: ValueId, b: ValueId) -> bool {
        let (Some(a), Some(b)) = (self.inference.shape(a), self.inference.shape(b)) else { return false };
        a.iter().rev().zip(b.iter().rev()).all(|(a, b)| *a == Dim::ONE || *b == Dim::ONE)
    }

    /// The element of a tensor that has one.
    fn single(&self, value: ValueId) -> Option<Dim> {
        let dims = self.inference.tensor(value)?.dims()?;
        <[Dim; 1]>::try_from(dims).ok().map(|[dim]| dim)
    }

    /// The largest index for each axis that the tuples of a GatherND select along.
    fn parts(&self, node: &Node) -> Vec<Option<Dim>> {
        let Some(tuples) = node.input(1) else { return Vec::new() };
        let width = |value: ValueId| self.inference.shape(value).and_then(<[Dim]>::last).cloned();
        if width(tuples) == Some(Dim::ONE) {
            return vec![self.largest(tuples, DEPTH)];
        }
        let Some(joined) = self.model.value(tuples).node().map(|id| self.model.node(id)) else {
            return Vec::new();
        };
        let rank = self.inference.shape(tuples).map_or(0, <[Dim]>::len);
        let is_last = joined
            .attr_int("axis")
            .and_then(|axis| crate::call::axis(axis, rank).ok())
            .is_some_and(|axis| axis + 1 == rank);
        if !joined.op().is("Concat") || !is_last {
            return Vec::new();
        }
        // Parts of another width end what is known of places.
        let parts =
            joined.inputs().iter().map_while(|part| part.filter(|part| width(*part) == Some(Dim::ONE)));
        parts.map(|part| self.largest(part, DEPTH)).collect()
    }
}
