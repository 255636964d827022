//! Which values of a graph are alive at the same time, and how much memory that takes.

use std::collections::HashMap;

use onnxforge_ir::value::Use;
use onnxforge_ir::{Def, Model, NodeId, ValueId};

/// The point of a run at which the values of the graph take the most memory.
#[derive(Clone, Debug)]
pub struct Peak {
    /// Bytes of the values that are alive there.
    pub bytes: u64,
    /// The node that runs there.
    pub at: Option<NodeId>,
    /// The values that are alive there.
    pub alive: Vec<ValueId>,
    /// Values of the graph whose size is not known; they do not count.
    pub unknown: usize,
}

/// The peak of a run that computes the nodes of the graph in their order and nothing in place. Each value lives from the node that computes it to the
/// last one that uses it, inputs of the graph throughout; constants do not count. `bytes` is the size of a value.
pub fn peak(model: &Model, bytes: &dyn Fn(ValueId) -> Option<u64>) -> Peak {
    let main = model.main();
    let order: Vec<NodeId> = model.nodes_in(main).map(|(id, _)| id).collect();
    let places: HashMap<NodeId, usize> = order.iter().enumerate().map(|(place, &id)| (id, place)).collect();
    // Where in the graph a node runs: there, or where the body around it does.
    let place = |mut node: NodeId| loop {
        match places.get(&node) {
            Some(&place) => return Some(place),
            None => node = model.scope(model.node(node).scope()).holder()?,
        }
    };
    let last = |value: ValueId| {
        let uses = model.value(value).uses().iter();
        uses.map(|used| match *used {
            Use::Input { node, .. } => place(node).unwrap_or(order.len()),
            Use::Output { scope, .. } if scope == main => order.len(),
            Use::Output { scope, .. } => model.scope(scope).holder().and_then(place).unwrap_or(order.len()),
        })
        .max()
    };
    let inputs = model.scope(main).inputs().iter().map(|port| port.value);
    let given = inputs.filter(|&value| matches!(model.value(value).def(), Def::Input { default: None, .. }));
    let mut lives: Vec<(ValueId, usize, usize)> = given.map(|value| (value, 0, order.len())).collect();
    for (from, &id) in order.iter().enumerate().filter(|(_, id)| !model.node(**id).op().is("Constant")) {
        let outputs = model.node(id).outputs().iter().flatten();
        lives.extend(outputs.map(|&value| (value, from, last(value).unwrap_or(from))));
    }
    // What comes and what goes at each node; a value that is used last at a node is still there while that runs.
    let mut comes = vec![0u64; order.len() + 1];
    let mut goes = vec![0u64; order.len() + 1];
    let mut unknown = 0;
    lives.retain(|&(value, from, to)| {
        let Some(bytes) = bytes(value) else {
            unknown += 1;
            return false;
        };
        comes[from] = comes[from].saturating_add(bytes);
        if let Some(goes) = goes.get_mut(to + 1) {
            *goes = goes.saturating_add(bytes);
        }
        true
    });
    let (mut now, mut most, mut at) = (0u64, 0u64, 0);
    for place in 0..order.len() {
        now = now.saturating_sub(goes[place]).saturating_add(comes[place]);
        if now > most {
            (most, at) = (now, place);
        }
    }
    let alive = lives.iter().filter(|(_, from, to)| (*from..=*to).contains(&at)).map(|(value, ..)| *value);
    Peak { bytes: most, at: order.get(at).copied(), alive: alive.collect(), unknown }
}
