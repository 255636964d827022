//! Finds patterns.

use std::collections::BTreeMap;

use super::cx::Cx;
use super::pattern::{Arg, Line, Literal, Pattern};
use super::skip::{Reason, Skip};
use super::trail::closed;
use crate::ir::{AttrValue, NodeId, ValueId};
use crate::ops::call::Call;
use crate::ops::signature::DefaultValue;

/// Where a pattern was found.
#[derive(Debug)]
pub struct Found {
    /// Its nodes in the order of the pattern, the root last.
    pub nodes: Vec<NodeId>,
    values: BTreeMap<&'static str, ValueId>,
}

impl Found {
    /// The value of this name.
    pub fn value(&self, name: &str) -> Option<ValueId> {
        self.values.get(name).copied()
    }
}

/// More commutative operators than this are tried in the written order only.
const MAX_SWAPS: u32 = 8;

/// The pattern with its root at `node`.
pub fn find(pattern: &Pattern, cx: &Cx<'_>, node: NodeId) -> Result<Found, Skip> {
    let lines = pattern.lines();
    let Some(root) = lines.len().checked_sub(1) else { return Err(Skip::NOT_HERE) };
    let commutative = |line: &&Line| {
        line.inputs.len() >= 2
            && line.ops.iter().any(|op| crate::ops::find("", op).is_some_and(|def| def.commutative))
    };
    let swaps = (lines.iter().filter(commutative).count() as u32).min(MAX_SWAPS);
    let mut nearest = Skip::NOT_HERE;
    for order in 0..1u32 << swaps {
        let mut attempt = Attempt {
            lines,
            cx,
            order,
            next_swap: 0,
            nodes: vec![None; lines.len()],
            values: BTreeMap::new(),
        };
        match attempt.line(root, node).and_then(|()| attempt.finish()) {
            Ok(found) => return Ok(found),
            Err(skip) if skip.reason.is_some() => nearest = skip,
            Err(_) => {}
        }
    }
    Err(nearest)
}

/// One way to order the inputs of commutative operators.
struct Attempt<'p, 'c> {
    lines: &'p [Line],
    cx: &'p Cx<'c>,
    /// Which commutative operators have their inputs swapped, a bit for each.
    order: u32,
    next_swap: u32,
    nodes: Vec<Option<NodeId>>,
    values: BTreeMap<&'static str, ValueId>,
}

impl Attempt<'_, '_> {
    fn line(&mut self, index: usize, id: NodeId) -> Result<(), Skip> {
        let line = &self.lines[index];
        let node = self.cx.node(id);
        if !node.op().domain.is_empty() || !line.ops.contains(&&*node.op().name) {
            return Err(Skip::NOT_HERE);
        }
        match self.nodes[index] {
            Some(known) if known == id => return Ok(()),
            Some(_) => return Err(Skip::NOT_HERE),
            None => self.nodes[index] = Some(id),
        }
        let call = self.cx.call(id)?;
        attributes(line, &call)?;
        for (position, &name) in line.outputs.iter().enumerate() {
            match node.output(position) {
                Some(value) => self.bind(name, value)?,
                None if name == "_" => {}
                None => return Err(Skip::NOT_HERE),
            }
        }
        let unnamed = node.outputs().iter().skip(line.outputs.len()).flatten().next();
        if unnamed.is_some() || node.inputs().len() > line.inputs.len() {
            return Err(Skip::NOT_HERE);
        }
        let swapped = call.def.commutative && line.inputs.len() >= 2 && self.next_swap < MAX_SWAPS && {
            let bit = self.next_swap;
            self.next_swap += 1;
            self.order >> bit & 1 == 1
        };
        for (position, arg) in line.inputs.iter().enumerate() {
            let position = match position {
                0 if swapped => 1,
                1 if swapped => 0,
                other => other,
            };
            self.arg(arg, node.input(position), id)?;
        }
        Ok(())
    }

    fn arg(&mut self, arg: &Arg, input: Option<ValueId>, reader: NodeId) -> Result<(), Skip> {
        let (name, constant, optional) = match *arg {
            Arg::Value { name, constant, optional } => (name, constant, optional),
            Arg::Number(number) => {
                let value = input.ok_or(Skip::NOT_HERE)?;
                let same = self.cx.uniform(value).is_some_and(|found| close(found, number));
                return if same { Ok(()) } else { Err(Skip::NOT_HERE) };
            }
        };
        let Some(value) = input else {
            return if optional { Ok(()) } else { Err(Skip::NOT_HERE) };
        };
        self.bind(name, value)?;
        if constant && self.cx.model.constant(value).is_none() {
            return Err(Skip::at(Reason::NotConstant, value));
        }
        let Some(line) = self.lines.iter().position(|line| name != "_" && line.outputs.contains(&name))
        else {
            return Ok(());
        };
        let producer = self.cx.model.value(value).node().ok_or(Skip::NOT_HERE)?;
        if self.cx.scope(producer) != self.cx.scope(reader) {
            return Err(Skip::NOT_HERE);
        }
        self.line(line, producer)
    }

    fn bind(&mut self, name: &'static str, value: ValueId) -> Result<(), Skip> {
        if name == "_" {
            return Ok(());
        }
        match self.values.insert(name, value) {
            Some(other) if other != value => Err(Skip::NOT_HERE),
            _ => Ok(()),
        }
    }

    /// All nodes are there, and nobody else reads what is between them.
    fn finish(&mut self) -> Result<Found, Skip> {
        let nodes: Vec<NodeId> = self.nodes.iter().copied().collect::<Option<_>>().ok_or(Skip::NOT_HERE)?;
        let &root = nodes.last().ok_or(Skip::NOT_HERE)?;
        closed(self.cx, &nodes, root)?;
        Ok(Found { nodes, values: std::mem::take(&mut self.values) })
    }
}

/// The written attributes have their values, the others their defaults.
fn attributes(line: &Line, call: &Call<'_>) -> Result<(), Skip> {
    for (name, wanted) in &line.attrs {
        let same = match (call.attr(name), wanted) {
            (Some(AttrValue::Int(found)), Literal::Int(wanted)) => found == wanted,
            (Some(AttrValue::Float(found)), Literal::Float(wanted)) => close(f64::from(*found), *wanted),
            (Some(AttrValue::Ints(found)), Literal::Ints(wanted)) => found == wanted,
            (Some(AttrValue::String(found)), Literal::Text(wanted)) => &**found == wanted.as_bytes(),
            (None, wanted) => match (call.default(name), wanted) {
                (Some(DefaultValue::Int(found)), Literal::Int(wanted)) => found == wanted,
                (Some(DefaultValue::Float(found)), Literal::Float(wanted)) => {
                    close(f64::from(*found), *wanted)
                }
                (Some(DefaultValue::Ints(found)), Literal::Ints(wanted)) => found == wanted,
                (Some(DefaultValue::String(found)), Literal::Text(wanted)) => {
                    found.as_bytes() == wanted.as_bytes()
                }
                _ => false,
            },
            _ => false,
        };
        if !same {
            return Err(Reason::Attribute(name).into());
        }
    }
    if line.open {
        return Ok(());
    }
    let listed = |name: &str| line.attrs.iter().any(|(listed, _)| *listed == name);
    let other = call.node.attrs().iter().find(|attr| !listed(&attr.name) && !call.is_default(attr));
    match other {
        Some(_) => Err(Reason::Attribute("that the pattern does not name").into()),
        None => Ok(()),
    }
}

/// Equal up to the rounding of a 32-bit float.
fn close(found: f64, wanted: f64) -> bool {
    found == wanted || found == f64::from(wanted as f32)
}
