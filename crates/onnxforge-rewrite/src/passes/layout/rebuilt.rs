//! The change that lets the nodes of a region compute with their axes in other orders.

use std::collections::{HashMap, HashSet};

use super::region::{Layouts, Region};
use super::views::View;
use crate::passes::recognize::orders::{Order, as_ints, inverse, is_identity, then};
use crate::{Change, Reason, Skip};
use onnxforge_ir::edit::Operand;
use onnxforge_ir::value::Use;
use onnxforge_ir::{Accuracy, NodeId, Op, ValueId};

/// The new nodes of a region.
struct Rebuilt<'a> {
    layouts: &'a Layouts<'a>,
    change: Change,
    /// What values of the region became, and in which order.
    given: HashMap<ValueId, (Operand, Order)>,
    /// Transposes that stay.
    kept: Vec<&'a View>,
    /// Transposes that are new, by what they transpose and how.
    made: HashMap<(ValueId, Order), Operand>,
}

/// The change; `Err` where it would not save a Transpose.
pub fn rebuilt(layouts: &Layouts<'_>, region: &Region) -> Result<Change, Skip> {
    let cx = &layouts.cx;
    let moves = |used: &Use| matches!(used, Use::Input { node, .. } if region.contains_key(node));
    let is_given = |root: ValueId| cx.model.value(root).node().is_some_and(|node| region.contains_key(&node));
    let mut wanted: HashSet<(ValueId, Order)> = HashSet::new();
    for (&node, moved) in region {
        for (index, value) in layouts.inputs(node) {
            let (root, seen) = layouts.views.root(cx, value).ok_or(Skip::NOT_HERE)?;
            wanted.insert((
                root,
                match &moved.orders.inputs[index] {
                    Some(order) => then(&seen, order),
                    None => seen,
                },
            ));
        }
    }
    let (mut kept, mut gone, mut stay): (Vec<&View>, Vec<&View>, HashSet<NodeId>) = Default::default();
    for root in layouts.roots(region) {
        // What reads a view of a view comes before it.
        for view in layouts.views.at(root).rev() {
            let entry = cx.model.value(view.value);
            let leaves = |used: &Use| match *used {
                Use::Input { node, .. } if layouts.views.is_view(cx, node) => !stay.contains(&node),
                _ => moves(used),
            };
            let unread = !entry.is_pinned() && entry.uses().iter().all(leaves);
            let is_wanted = !is_given(root) && wanted.remove(&(root, view.order.clone()));
            if is_given(root) || unread && !is_wanted {
                gone.push(view);
            } else {
                stay.insert(view.node);
                kept.push(view);
            }
        }
    }
    let nodes: Vec<NodeId> = cx
        .model
        .nodes_in(layouts.scope)
        .map(|(node, _)| node)
        .filter(|node| region.contains_key(node))
        .collect();
    let consumed: Vec<NodeId> = nodes.iter().copied().chain(gone.iter().map(|view| view.node)).collect();
    let mut change = cx.change(&consumed);
    gone.iter().for_each(|view| change.leave_no_trace(view.node));
    let mut rebuilt = Rebuilt { layouts, change, given: HashMap::new(), kept, made: HashMap::new() };
    for &node in &nodes {
        rebuilt.remake(region, node)?;
    }
    let leaving: HashSet<NodeId> = consumed.into_iter().collect();
    let is_read = |value: ValueId| {
        let outlives = |used: &Use| match *used {
            Use::Input { node, .. } => !leaving.contains(&node),
            Use::Output { .. } => true,
        };
        cx.model.value(value).is_pinned() || cx.model.value(value).uses().iter().any(outlives)
    };
    let outputs = nodes
        .iter()
        .flat_map(|&node| cx.node(node).outputs().iter().flatten().map(move |&value| (node, value)));
    for (node, value) in outputs.filter(|&(_, value)| is_read(value)) {
        let order = (0..cx.rank(value)?).collect();
        let by = rebuilt.seen(value, order, node)?;
        rebuilt.change.replace(value, by);
    }
    for view in gone.iter().filter(|view| is_read(view.value)) {
        let by = rebuilt.seen(view.root, view.order.clone(), view.node)?;
        rebuilt.change.replace(view.value, by);
    }
    if rebuilt.made.len() >= gone.len() {
        return Err(Reason::MoreNodes.into());
    }
    let accuracies = region.values().map(|moved| moved.accuracy);
    rebuilt
        .change
        .promise(accuracies.fold(Accuracy::BitExact, |worst, next| if next > worst { next } else { worst }));
    Ok(rebuilt.change)
}

impl Rebuilt<'_> {
    /// Makes the node anew.
    fn remake(&mut self, region: &Region, id: NodeId) -> Result<(), Skip> {
        let (cx, moved) = (self.layouts.cx, &region[&id]);
        let node = cx.node(id);
        let mut inputs = Vec::new();
        for (&input, order) in node.inputs().iter().zip(&moved.orders.inputs) {
            inputs.push(match (input, order) {
                (None, _) => Operand::Absent,
                (Some(value), Some(order)) if cx.model.constant(value).is_some() => {
                    self.constant(value, order)?
                }
                (Some(value), order) => {
                    let (root, seen) = self.layouts.views.root(&cx, value).ok_or(Skip::NOT_HERE)?;
                    let order = order.as_ref().map_or(seen.clone(), |order| then(&seen, order));
                    self.seen(root, order, id)?
                }
            });
        }
        for (index, tensor) in &moved.constants {
            let default = if moved.op.is("Reshape") { "shape" } else { "axes" };
            let hint = node
                .input(*index)
                .map_or_else(|| default.into(), |value| cx.model.value(value).name().clone());
            inputs.resize(inputs.len().max(index + 1), Operand::Absent);
            inputs[*index] = self.change.constant(hint, tensor.clone());
        }
        let new = self.change.call(moved.op.clone(), inputs, node.outputs().len(), moved.attrs.clone());
        self.change.inherit(new, id);
        for (index, output) in node.outputs().iter().enumerate() {
            if let Some(output) = *output {
                self.given.insert(output, (new.output(index), moved.orders.output.clone()));
            }
        }
        Ok(())
    }

    /// A value with its axes in another order, for the sake of `whom`.
    fn seen(&mut self, root: ValueId, order: Order, whom: NodeId) -> Result<Operand, Skip> {
        if self.layouts.cx.model.constant(root).is_some() {
            return self.constant(root, &order);
        }
        let (from, missing) = match self.given.get(&root) {
            Some((operand, given)) => (*operand, then(&inverse(given), &order)),
            None => match self.kept.iter().find(|view| view.root == root && view.order == order) {
                Some(view) => return Ok(view.value.into()),
                None => (root.into(), order.clone()),
            },
        };
        if is_identity(&missing) {
            return Ok(from);
        }
        if let Some(&made) = self.made.get(&(root, order.clone())) {
            return Ok(made);
        }
        let perm = ("perm", as_ints(&missing)).into();
        let new = self.change.call(Op::standard("Transpose"), [from], 1, [perm]);
        self.change.serve(new, whom);
        self.made.insert((root, order), new.output(0));
        Ok(new.output(0))
    }

    /// A constant with its axes in another order; missing ones stand first and are 1 long.
    fn constant(&mut self, value: ValueId, order: &[usize]) -> Result<Operand, Skip> {
        let cx = &self.layouts.cx;
        let constant = cx.constant(value)?;
        let missing = order.len().checked_sub(constant.shape().len()).ok_or(Skip::NOT_HERE)?;
        if order[missing..].iter().copied().eq(missing..order.len()) {
            return Ok(value.into());
        }
        let shape: Vec<usize> =
            std::iter::repeat_n(1, missing).chain(constant.shape().iter().copied()).collect();
        let whole = constant.reshaped(shape).and_then(|constant| constant.transposed(order));
        let whole = whole.map_err(|_| Skip::at(Reason::Type, value))?;
        Ok(self.change.constant(cx.model.value(value).name().clone(), whole))
    }
}
