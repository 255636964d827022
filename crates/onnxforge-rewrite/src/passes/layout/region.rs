//! Parts of a graph that take fewer Transposes when their axes are in another order.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use super::min_cut::MinCut;
use super::moved::{Moved, moved};
use super::spelling::{Orders, Side};
use super::views::{Reader, Views};
use crate::Cx;
use crate::passes::recognize::orders::{Order, inverse, is_identity, then};
use onnxforge_ir::{NodeId, ScopeId, ValueId};

/// Nodes, with what they become.
pub type Region = BTreeMap<NodeId, Moved>;

/// A graph in which nodes may move.
pub struct Layouts<'a> {
    pub cx: Cx<'a>,
    pub scope: ScopeId,
    pub views: Views,
}

impl<'a> Layouts<'a> {
    pub fn new(cx: Cx<'a>, scope: ScopeId) -> Self {
        Self { cx, scope, views: Views::new(&cx, scope) }
    }

    /// The first region that takes fewer Transposes than now, with the Transpose from which it was found. What was looked at is added to
    /// `tried`, and not looked at again.
    pub fn better(&self, tried: &mut HashSet<(NodeId, Orders)>) -> Option<(NodeId, Region)> {
        for view in self.views.iter() {
            let above = self.producer(view.root).map(|node| (node, Side::Output, view.order.clone()));
            let below = self.readers_of(view.root).into_iter().filter(|reader| reader.order == view.order);
            let below = below.filter_map(|reader| {
                let (node, index) = reader.input?;
                Some((node, Side::Input(index), inverse(&view.order)))
            });
            for seed in above.into_iter().chain(below) {
                let Some(first) = moved(&self.cx, seed.0, seed.1, &seed.2) else { continue };
                if tried.contains(&(seed.0, first.orders)) {
                    continue;
                }
                let mut region = self.reach(seed);
                tried.extend(region.iter().map(|(&node, moved)| (node, moved.orders.clone())));
                let worth = self.worth(&region);
                region.retain(|node, _| worth.contains(node));
                if !region.is_empty() {
                    return Some((view.node, region));
                }
            }
        }
        None
    }

    /// The node of this scope that computes a value.
    fn producer(&self, value: ValueId) -> Option<NodeId> {
        self.cx.model.value(value).node().filter(|&node| self.cx.scope(node) == self.scope)
    }

    fn readers_of(&self, root: ValueId) -> Vec<Reader> {
        self.cx.rank(root).map_or_else(|_| Vec::new(), |rank| self.views.readers(&self.cx, root, rank))
    }

    /// Every node that would read or give another order if all neighbours do that can, from the seed on.
    fn reach(&self, seed: (NodeId, Side, Order)) -> Region {
        let mut region = Region::new();
        let mut queue = VecDeque::from([seed]);
        while let Some((node, side, order)) = queue.pop_front() {
            if region.contains_key(&node) || self.views.is_view(&self.cx, node) {
                continue;
            }
            let Some(moved) = moved(&self.cx, node, side, &order) else { continue };
            let outputs = self.cx.node(node).outputs().iter().flatten();
            let given = outputs.map(|&output| (output, moved.orders.output.clone()));
            let read = self.inputs(node).filter_map(|(index, value)| {
                let (root, seen) = self.views.root(&self.cx, value)?;
                Some((root, then(&seen, moved.orders.inputs[index].as_ref()?)))
            });
            for (root, order) in given.chain(read).filter(|(_, order)| !is_identity(order)) {
                for reader in self.readers_of(root) {
                    if let (Some((node, index)), Some(order)) = (reader.input, reader.wants(&order)) {
                        queue.push_back((node, Side::Input(index), order));
                    }
                }
                queue.extend(self.producer(root).map(|node| (node, Side::Output, order)));
            }
            region.insert(node, moved);
        }
        region
    }

    /// The inputs of a node that are computed.
    pub fn inputs(&self, node: NodeId) -> impl Iterator<Item = (usize, ValueId)> {
        let inputs = self.cx.node(node).inputs().iter().enumerate();
        inputs.filter_map(|(index, input)| Some((index, (*input)?))).filter(|&(_, value)| {
            let root = self.views.of(value).map_or(value, |view| view.root);
            self.cx.model.constant(root).is_none()
        })
    }

    /// The values that the nodes of a region read or give, views of them not counted.
    pub fn roots(&self, region: &Region) -> BTreeSet<ValueId> {
        let read = |node: NodeId| {
            self.inputs(node).filter_map(|(_, value)| Some(self.views.root(&self.cx, value)?.0))
        };
        let given = |node: NodeId| self.cx.node(node).outputs().iter().flatten().copied();
        region.keys().flat_map(|&node| read(node).chain(given(node))).collect()
    }

    /// The nodes of a region that should move, so that the fewest Transposes are left; of such sets the smallest one.
    ///
    /// A value costs a Transpose for each order in which it is read and not given. Nodes that move are on the first side of the cut.
    fn worth(&self, region: &Region) -> BTreeSet<NodeId> {
        let mut cut = MinCut::new();
        let things: BTreeMap<NodeId, usize> = region.keys().map(|&node| (node, cut.thing())).collect();
        for root in self.roots(region) {
            let readers = self.readers_of(root);
            let Some(stays) = readers.first().map(|reader| (0..reader.order.len()).collect::<Order>()) else {
                continue;
            };
            let giver = self
                .producer(root)
                .and_then(|node| Some((*things.get(&node)?, &region[&node].orders.output)));
            // Who reads what: the thing, the order if it stays, the order if it moves.
            let mut needs: Vec<(usize, Order, Order)> = Vec::new();
            for reader in readers {
                let moving = reader.input.and_then(|(node, index)| {
                    let order = region.get(&node)?.orders.inputs[index].as_ref()?;
                    Some((things[&node], then(&reader.order, order)))
                });
                let (thing, moves) = moving.unwrap_or((MinCut::SECOND, reader.order.clone()));
                needs.push((thing, reader.order, moves));
            }
            let orders: BTreeSet<&Order> =
                needs.iter().flat_map(|(_, stays, moves)| [stays, moves]).collect();
            for order in orders {
                charge(&mut cut, giver, &stays, order, &needs);
            }
        }
        let first = cut.first_side();
        things.into_iter().filter(|&(_, thing)| first[thing]).map(|(node, _)| node).collect()
    }
}

/// Adds what it costs that a value is read in `order`: a Transpose if it is given in another one.
///
/// Where that is no sum of costs between two things, the cost is taken as if it were always read so, which is never too little, and right for
/// the graph as it is.
fn charge(
    cut: &mut MinCut,
    giver: Option<(usize, &Order)>,
    stays: &Order,
    order: &Order,
    needs: &[(usize, Order, Order)],
) {
    let readers = |when: fn(bool, bool) -> bool| -> Vec<usize> {
        let wanted = |need: &&(usize, Order, Order)| when(need.1 == *order, need.2 == *order);
        needs.iter().filter(wanted).map(|need| need.0).collect()
    };
    let always = !readers(|stays, moves| stays && moves).is_empty();
    let moving = readers(|stays, moves| !stays && moves);
    let staying = readers(|stays, moves| stays && !moves);
    // It costs when the first of these is on the first side, the second on the second, and somebody reads it so.
    let (from, to) = match giver.filter(|(_, moves)| *moves != stays) {
        Some((thing, _)) if order == stays => (thing, MinCut::SECOND),
        Some((thing, moves)) if order == moves => (MinCut::FIRST, thing),
        _ if order == stays => return,
        _ => (MinCut::FIRST, MinCut::SECOND),
    };
    if from == MinCut::FIRST && staying.is_empty() && !always {
        let somebody = cut.thing();
        moving.iter().for_each(|&reader| cut.forbids(reader, somebody));
        cut.costs(somebody, to);
    } else if to == MinCut::SECOND && moving.is_empty() && !always {
        let somebody = cut.thing();
        cut.costs(from, somebody);
        staying.iter().for_each(|&reader| cut.forbids(somebody, reader));
    } else {
        cut.costs(from, to);
    }
}
