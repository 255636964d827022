//! Transposes as what they are: another look at a value.

use std::collections::HashMap;

use crate::Cx;
use crate::passes::recognize::orders::permutation;
use crate::passes::recognize::orders::{Order, inverse, is_identity, swaps_last, then};
use onnxforge_ir::value::Use;
use onnxforge_ir::{NodeId, ScopeId, ValueId};

/// A Transpose, or several in a row.
#[derive(Clone, Debug)]
pub struct View {
    /// The last Transpose.
    pub node: NodeId,
    /// What it computes.
    pub value: ValueId,
    /// The value at the start.
    pub root: ValueId,
    /// The order in which the axes of the root are seen.
    pub order: Order,
}

/// The Transposes of a scope.
pub struct Views {
    scope: ScopeId,
    /// In the order of the graph.
    all: Vec<View>,
    by_value: HashMap<ValueId, usize>,
    by_root: HashMap<ValueId, Vec<usize>>,
}

/// Something that reads a value or a view of it.
#[derive(Clone, Debug)]
pub struct Reader {
    /// Node and number of the input; `None` for what is outside of the scope, or refers to the value by name.
    pub input: Option<(NodeId, usize)>,
    /// The view that it reads.
    pub order: Order,
}

impl Views {
    pub fn new(cx: &Cx<'_>, scope: ScopeId) -> Self {
        let mut views = Self { scope, all: Vec::new(), by_value: HashMap::new(), by_root: HashMap::new() };
        for (node, _) in cx.model.nodes_in(scope).filter(|(_, node)| node.op().is("Transpose")) {
            let (Ok(x), Ok(value), Ok(order)) = (cx.input(node, 0), cx.output(node), permutation(cx, node))
            else {
                continue;
            };
            let is_weight = cx.producer(x, "DequantizeLinear", node).is_some();
            if !is_weight && belongs_to_product(cx, value, &order) {
                continue;
            }
            let (root, order) = match views.of(x) {
                Some(inner) => (inner.root, then(&inner.order, &order)),
                None => (x, order),
            };
            let index = views.all.len();
            views.by_value.insert(value, index);
            views.by_root.entry(root).or_default().push(index);
            views.all.push(View { node, value, root, order });
        }
        views
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &View> {
        self.all.iter()
    }

    /// The view that a value is.
    pub fn of(&self, value: ValueId) -> Option<&View> {
        self.by_value.get(&value).map(|&index| &self.all[index])
    }

    /// The views of a value.
    pub fn at(&self, root: ValueId) -> impl DoubleEndedIterator<Item = &View> {
        self.by_root.get(&root).into_iter().flatten().map(|&index| &self.all[index])
    }

    /// Where a value comes from, and the order in which it is seen.
    pub fn root(&self, cx: &Cx<'_>, value: ValueId) -> Option<(ValueId, Order)> {
        match self.of(value) {
            Some(view) => Some((view.root, view.order.clone())),
            None => Some((value, (0..cx.rank(value).ok()?).collect())),
        }
    }

    /// Everything that reads a value of so many axes, or a view of it, views themselves not counted.
    pub fn readers(&self, cx: &Cx<'_>, root: ValueId, rank: usize) -> Vec<Reader> {
        let mut readers = Vec::new();
        let itself = (root, (0..rank).collect::<Order>());
        for (value, order) in
            std::iter::once(itself).chain(self.at(root).map(|view| (view.value, view.order.clone())))
        {
            let entry = cx.model.value(value);
            let mut read = |input| readers.push(Reader { input, order: order.clone() });
            for used in entry.uses() {
                match *used {
                    Use::Input { node, .. } if self.is_view(cx, node) => {}
                    Use::Input { node, index } if cx.scope(node) == self.scope => {
                        read(Some((node, index as usize)));
                    }
                    Use::Input { .. } | Use::Output { .. } => read(None),
                }
            }
            if entry.is_pinned() {
                read(None);
            }
        }
        readers
    }

    /// Whether a node is one of the Transposes.
    pub fn is_view(&self, cx: &Cx<'_>, node: NodeId) -> bool {
        cx.node(node).output(0).and_then(|value| self.of(value)).is_some_and(|view| view.node == node)
    }
}

impl Reader {
    /// The order that it must have so that it reads the root in `order` with no Transpose; `None` where it has it.
    pub fn wants(&self, order: &[usize]) -> Option<Order> {
        Some(then(&inverse(&self.order), order)).filter(|order| !is_identity(order))
    }
}

/// Whether a Transpose swaps the last two axes for products of computed matrices alone: runtimes compute it along with the product.
pub fn belongs_to_product(cx: &Cx<'_>, value: ValueId, order: &[usize]) -> bool {
    let is_product = |used: &Use| match *used {
        Use::Input { node, .. } => {
            let computed = |&value: &ValueId| cx.model.constant(value).is_none();
            cx.node(node).op().is("MatMul") && cx.node(node).inputs().iter().flatten().all(computed)
        }
        Use::Output { .. } => false,
    };
    swaps_last(order) && cx.model.value(value).uses().iter().all(is_product)
}
