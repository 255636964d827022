//! How the axes of a node's operands and results belong together, as the letters of an Einsum do.

use crate::passes::recognize::orders::{Order, is_identity};

/// What runs along an axis.
pub type Letter = usize;

/// The axes of a tensor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Axes {
    /// The letters of each axis: several where it is several axes of another tensor in one.
    pub letters: Vec<Vec<Letter>>,
    /// So many more axes at the end, which stay where they are.
    pub tail: usize,
}

impl Axes {
    /// An axis for each of the letters.
    pub fn of(letters: impl IntoIterator<Item = Letter>) -> Self {
        Self { letters: letters.into_iter().map(|letter| vec![letter]).collect(), tail: 0 }
    }

    /// The same with axes that stay at the end.
    pub fn and(self, tail: usize) -> Self {
        Self { tail, ..self }
    }
}

/// The axes of all tensors of a node.
#[derive(Clone, Debug)]
pub struct Spelling {
    /// The axes of each input; `None` is for one that stays as it is whatever happens to the others.
    pub inputs: Vec<Option<Axes>>,
    /// The axes of every output.
    pub output: Axes,
    /// Inputs with fewer axes than the output have its last ones.
    pub broadcasts: bool,
}

/// One of the tensors of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Any output.
    Output,
    /// An input.
    Input(usize),
}

/// The orders of all tensors of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Orders {
    /// The order of each input; `None` where it stays as it is.
    pub inputs: Vec<Option<Order>>,
    /// The order of every output.
    pub output: Order,
}

impl Spelling {
    /// The orders of all tensors when the one at `side` is in `order`; `None` where the operator cannot have that, or nothing changes.
    pub fn orders(&self, side: Side, order: &[usize]) -> Option<Orders> {
        let known = match side {
            Side::Output => &self.output,
            Side::Input(index) => self.inputs.get(index)?.as_ref()?,
        };
        let count = known.letters.len();
        if order.len() != count + known.tail || order[count..].iter().copied().ne(count..order.len()) {
            return None;
        }
        let mut all: Vec<Letter> =
            order[..count].iter().flat_map(|&axis| known.letters[axis].iter().copied()).collect();
        for axes in self.inputs.iter().flatten().chain([&self.output]) {
            // What is not known yet follows what it followed before.
            let mut next = 0;
            for &letter in axes.letters.iter().flatten() {
                next = 1 + all.iter().position(|&known| known == letter).unwrap_or_else(|| {
                    all.insert(next, letter);
                    next
                });
            }
        }
        let output = arranged(&self.output, &all)?;
        let mut inputs = Vec::new();
        for axes in &self.inputs {
            let order = match axes {
                Some(axes) => Some(arranged(axes, &all)?),
                None => None,
            };
            if let (Some(axes), Some(order), true) = (axes, &order, self.broadcasts) {
                self.lines_up(axes, order, &output)?;
            }
            inputs.push(order);
        }
        let found = Orders { inputs, output };
        let same =
            is_identity(&found.output) && found.inputs.iter().flatten().all(|order| is_identity(order));
        (!same).then_some(found)
    }

    /// An input that is broadcast still has the last axes of the output.
    fn lines_up(&self, axes: &Axes, order: &[usize], output: &[usize]) -> Option<()> {
        let letters = |axes: &Axes, order: &[usize]| -> Vec<Letter> {
            order[..axes.letters.len()].iter().flat_map(|&axis| axes.letters[axis].iter().copied()).collect()
        };
        letters(&self.output, output).ends_with(&letters(axes, order)).then_some(())
    }
}

/// The axes in the order of their letters; letters of one axis must still follow each other.
fn arranged(axes: &Axes, all: &[Letter]) -> Option<Order> {
    let place = |letter: Letter| all.iter().position(|&known| known == letter);
    let mut order: Order = (0..axes.letters.len()).collect();
    order.sort_by_key(|&axis| axes.letters[axis].first().map(|&letter| place(letter)));
    let places = order.iter().flat_map(|&axis| &axes.letters[axis]).map(|&letter| place(letter));
    if !places.is_sorted() {
        return None;
    }
    order.extend((0..axes.tail).map(|axis| axes.letters.len() + axis));
    Some(order)
}

/// What names axes in a call.
pub enum Told {
    /// Nothing does.
    Nothing,
    /// The attribute `axis`, an axis of the first input.
    Axis(usize),
    /// The attribute `axes`, or the input of this number, axes of the tensor.
    Axes(Vec<usize>, usize, Side),
    /// The input of this number has integers for each axis of the output, one list after the other.
    Each(usize, Vec<i64>),
    /// The same for floats.
    EachFloat(usize, Vec<f64>),
    /// The same as an attribute.
    EachAttr(&'static str, Vec<i64>),
    /// The target of a Reshape.
    Target,
    /// A pool of all axes but the first two, which is this reduction where they are others.
    Pooled(&'static str),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelling(inputs: Vec<Axes>, output: Axes, broadcasts: bool) -> Spelling {
        Spelling { inputs: inputs.into_iter().map(Some).collect(), output, broadcasts }
    }

    #[test]
    fn a_reduction_loses_letters() {
        let mean = spelling(vec![Axes::of(0..4)], Axes::of([0, 3]), false);
        let orders = mean.orders(Side::Input(0), &[0, 3, 1, 2]).unwrap();
        assert_eq!((&orders.inputs[0], &orders.output), (&Some(vec![0, 3, 1, 2]), &vec![0, 1]));
        let orders = mean.orders(Side::Output, &[1, 0]).unwrap();
        assert_eq!(orders.inputs[0], Some(vec![3, 0, 1, 2]));
        assert_eq!(mean.orders(Side::Output, &[0, 1]), None);
    }

    #[test]
    fn axes_in_one_stay_together() {
        let merge =
            spelling(vec![Axes::of(0..3)], Axes { letters: vec![vec![0], vec![1, 2]], tail: 0 }, false);
        let orders = merge.orders(Side::Output, &[1, 0]).unwrap();
        assert_eq!(orders.inputs[0], Some(vec![1, 2, 0]));
        assert_eq!(merge.orders(Side::Input(0), &[0, 2, 1]), None);
        assert_eq!(merge.orders(Side::Input(0), &[1, 0, 2]), None);
    }

    #[test]
    fn what_is_broadcast_keeps_the_last_axes() {
        let add = spelling(vec![Axes::of(0..3), Axes::of(2..3)], Axes::of(0..3), true);
        assert!(add.orders(Side::Output, &[1, 0, 2]).is_some());
        assert_eq!(add.orders(Side::Output, &[2, 0, 1]), None);
    }

    #[test]
    fn a_tail_stays() {
        let product =
            spelling(vec![Axes::of(0..2).and(1), Axes::default().and(2)], Axes::of(0..2).and(1), false);
        let orders = product.orders(Side::Output, &[1, 0, 2]).unwrap();
        assert_eq!(orders.inputs, [Some(vec![1, 0, 2]), Some(vec![0, 1])]);
        assert_eq!(product.orders(Side::Output, &[0, 2, 1]), None);
    }
}
