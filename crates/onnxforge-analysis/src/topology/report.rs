//! What keeps two models from being equal: interface, operator sets, operators, and the nodes at which differences begin.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::Hash;

use serde::Serialize;

use super::content::{Contents, hash, same_attr};
use super::hashes::{Hashes, sorted, trimmed};
use super::pair::{Conflict, Unlike, pair};
use super::{Label, Side};
use onnxforge_ir::node::normal_domain;
use onnxforge_ir::scope::ScopeKind;
use onnxforge_ir::value::Port;
use onnxforge_ir::{AttrValue, Constant, Def, Model, NodeId, Use, ValueId};

/// How many differences of a kind are told.
const MOST: usize = 100;
/// Characters of an attribute that are shown.
const SHOWN: usize = 60;

/// The first few of many.
#[derive(Clone, Debug, Serialize)]
pub struct Few<T> {
    /// How many there are.
    pub total: usize,
    /// The first of them.
    pub first: Vec<T>,
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self { total: 0, first: Vec::new() }
    }
}

impl<T> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Self {
        let mut few = Self::default();
        for one in all {
            few.total += 1;
            if few.first.len() < MOST {
                few.first.push(one);
            }
        }
        few
    }
}

/// What differs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Differences {
    /// Inputs of the models.
    pub inputs: Few<PortDifference>,
    /// Outputs of the models.
    pub outputs: Few<PortDifference>,
    /// Operator sets, of those that are used.
    pub opsets: Few<OpsetDifference>,
    /// Operators that one model calls more often.
    pub operators: Few<OperatorDifference>,
    /// Nodes of the first model without a partner, and those of the second.
    pub nodes_without_partner: [usize; 2],
    /// Of those in the first model, in topological order, where differences begin: what they read has a partner.
    pub first: Few<NodeDifference>,
    /// The same of the second model.
    pub second: Few<NodeDifference>,
    /// Constants that have to be the same and are not.
    pub constants: Few<ConstantDifference>,
    /// Why there is no pairing, where all of the above does not tell.
    pub conflict: Option<String>,
}

/// An input or output; `None` where a model has none.
#[derive(Clone, Debug, Serialize)]
pub struct PortDifference {
    /// Its place.
    pub index: usize,
    /// Name and type in the first model.
    pub first: Option<String>,
    /// Name and type in the second model.
    pub second: Option<String>,
}

/// The version of an operator set; `None` where it is not imported.
#[derive(Clone, Debug, Serialize)]
pub struct OpsetDifference {
    /// The function that imports it, or nothing for the model.
    pub function: Option<String>,
    /// The domain; `ai.onnx` for the standard one.
    pub domain: String,
    /// Version in the first model.
    pub first: Option<i64>,
    /// Version in the second model.
    pub second: Option<i64>,
}

/// How often an operator is called.
#[derive(Clone, Debug, Serialize)]
pub struct OperatorDifference {
    /// Operator.
    pub op: String,
    /// Calls in the first model.
    pub first: usize,
    /// Calls in the second model.
    pub second: usize,
}

/// A node without a partner.
#[derive(Clone, Debug, Serialize)]
pub struct NodeDifference {
    /// Operator and name.
    pub node: String,
    /// Operator.
    pub op: String,
    /// The body or function that it stands in.
    pub within: Option<String>,
    /// The module that it belongs to.
    pub module: Option<String>,
    /// The node of the other model that it is closest to.
    pub close_to: Option<String>,
    /// How that differs.
    pub differs: Vec<String>,
}

/// A constant that is not the same in both models.
#[derive(Clone, Debug, Serialize)]
pub struct ConstantDifference {
    /// Its name in the first model.
    pub first: String,
    /// Its name in the second model.
    pub second: String,
    /// A node of the first model that reads it.
    pub read_by: Option<String>,
    /// How they differ.
    pub differs: String,
}

/// What keeps the models from being equal; `None` when they are.
pub fn differences(a: &Model, b: &Model, label: &Label<'_>, contents: &mut Contents) -> Option<Differences> {
    let ports = |of: fn(&Model) -> &[Port]| port_differences(a, of(a), b, of(b));
    let mut found = Differences {
        inputs: ports(|model| model.scope(model.main()).inputs()),
        outputs: ports(|model| model.scope(model.main()).outputs()),
        opsets: opsets(a, b),
        ..Differences::default()
    };
    let interface = found.inputs.total + found.outputs.total + found.opsets.total;
    match pair(a, b, contents) {
        Ok(unlike) if unlike.is_empty() && interface == 0 => return None,
        Ok(unlike) => found.constants = constants(a, b, unlike),
        Err(conflict) => {
            found.operators = operators(a, b);
            Report::new(a, b, label).tell(&mut found);
            let told = interface + found.operators.total + found.first.total + found.second.total;
            found.conflict = (told == 0).then(|| told_conflict(a, b, conflict));
        }
    }
    Some(found)
}

fn told_conflict(a: &Model, b: &Model, conflict: Conflict) -> String {
    match conflict.nodes {
        Some((x, y)) => format!("{} and {}: {}", a.node_label(x), b.node_label(y), conflict.what),
        None => conflict.what,
    }
}

fn port_differences(a: &Model, left: &[Port], b: &Model, right: &[Port]) -> Few<PortDifference> {
    let shown = |model: &Model, port: Option<&Port>| {
        port.map(|port| format!("{}: {}", model.value(port.value).name(), port.declared()))
    };
    let all = (0..left.len().max(right.len())).map(|index| PortDifference {
        index,
        first: shown(a, left.get(index)),
        second: shown(b, right.get(index)),
    });
    all.filter(|port| port.first != port.second).collect()
}

/// Versions that differ, of the domains that the graph or a function calls.
fn opsets(a: &Model, b: &Model) -> Few<OpsetDifference> {
    type Versions = BTreeMap<(Option<String>, String), Option<i64>>;
    let versions = |model: &Model| {
        let local: HashSet<_> = model.functions().iter().filter_map(|&id| model.called_as(id)).collect();
        let mut found = Versions::new();
        for (id, node) in model.nodes() {
            if local.contains(node.op()) {
                continue;
            }
            let root = model.root_of(model.node(id).scope());
            let function = model.called_as(root).map(|op| op.to_string());
            let domain = normal_domain(&node.op().domain);
            let key = (function, if domain.is_empty() { "ai.onnx".to_owned() } else { domain.to_owned() });
            found.entry(key).or_insert_with(|| model.opset(root, domain));
        }
        found
    };
    let (left, right) = (versions(a), versions(b));
    // What only one of them calls shows as operators.
    let both = left.iter().filter_map(|(key, &first)| Some((key, first, *right.get(key)?)));
    both.filter(|(_, first, second)| first != second)
        .map(|((function, domain), first, second)| OpsetDifference {
            function: function.clone(),
            domain: domain.clone(),
            first,
            second,
        })
        .collect()
}

fn operators(a: &Model, b: &Model) -> Few<OperatorDifference> {
    let (left, right) = (a.operator_counts(), b.operator_counts());
    let all: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    let count = |counts: &BTreeMap<String, usize>, op: &str| counts.get(op).copied().unwrap_or(0);
    all.into_iter()
        .map(|op| OperatorDifference { op: op.clone(), first: count(&left, op), second: count(&right, op) })
        .filter(|op| op.first != op.second)
        .collect()
}

fn constants(a: &Model, b: &Model, unlike: Unlike) -> Few<ConstantDifference> {
    let reader = |id: ValueId| {
        a.value(id).uses().iter().find_map(|used| match used {
            Use::Input { node, .. } => Some(a.node_label(*node)),
            Use::Output { .. } => None,
        })
    };
    unlike
        .into_iter()
        .map(|(x, y)| ConstantDifference {
            first: a.value(x).name().to_string(),
            second: b.value(y).name().to_string(),
            read_by: reader(x),
            differs: stored(a, x)
                .zip(stored(b, y))
                .map_or_else(String::new, |(first, second)| first_element(first, second)),
        })
        .collect()
}

/// The constant or default that a value holds.
fn stored(model: &Model, id: ValueId) -> Option<&Constant> {
    match model.value(id).def() {
        Def::Constant { constant, .. } | Def::Input { default: Some(constant), .. } => Some(constant),
        _ => None,
    }
}

/// How two constants differ, of which the first difference is told.
fn first_element(a: &Constant, b: &Constant) -> String {
    let (Constant::Dense(a), Constant::Dense(b)) = (a, b) else { return "elements differ".to_owned() };
    let form = |tensor: &onnxforge_ir::Tensor| {
        let dims: Vec<String> = tensor.shape().iter().map(ToString::to_string).collect();
        format!("{}[{}]", tensor.dtype(), dims.join(","))
    };
    if form(a) != form(b) {
        return format!("{} and {}", form(a), form(b));
    }
    let (Ok(x), Ok(y)) = (a.bytes(), b.bytes()) else {
        return "elements differ, or cannot be read".to_owned();
    };
    let Some(byte) = x.iter().zip(y.iter()).position(|(x, y)| x != y) else {
        return "elements differ".to_owned();
    };
    let bits = u64::from(a.dtype().bits()).max(1);
    format!("elements differ, the first one at {}", (byte as u64).saturating_mul(8) / bits)
}

/// The nodes of a model that have no partner.
struct Lonely<'a> {
    model: &'a Model,
    hashes: Hashes,
    /// In topological order.
    all: Vec<NodeId>,
    /// Those that differ themselves, and not only in what they read or hold.
    roots: Vec<NodeId>,
}

impl<'a> Lonely<'a> {
    fn new(model: &'a Model, hashes: Hashes, other: &Hashes) -> Self {
        let mut there: HashMap<u64, usize> = HashMap::new();
        for &id in &other.order {
            *there.entry(other.node(id)).or_default() += 1;
        }
        let without = |id: &NodeId| match there.get_mut(&hashes.node(*id)) {
            Some(left) if *left > 0 => {
                *left -= 1;
                false
            }
            _ => true,
        };
        let all: Vec<NodeId> = hashes.order.iter().copied().filter(without).collect();
        let set: HashSet<NodeId> = all.iter().copied().collect();
        let mut held: HashSet<NodeId> = HashSet::new();
        let mut roots = Vec::new();
        for &id in &all {
            let node = model.node(id);
            // What is inside comes before what holds it.
            held.extend(model.scope(node.scope()).holder());
            let reads_lonely = node
                .inputs()
                .iter()
                .flatten()
                .any(|&input| model.value(input).node().is_some_and(|producer| set.contains(&producer)));
            if !reads_lonely && !held.contains(&id) {
                roots.push(id);
            }
        }
        Self { model, hashes, all, roots }
    }

    fn within(&self, id: NodeId) -> Option<String> {
        let scope = self.model.scope(self.model.node(id).scope());
        match scope.kind() {
            ScopeKind::Main(_) => None,
            ScopeKind::Body { node, .. } => Some(self.model.node_label(*node)),
            ScopeKind::Function(_) => Some(format!("function {}", scope.name().map_or("", |name| name))),
        }
    }

    /// What a value is, for people.
    fn shown(&self, id: ValueId) -> String {
        let value = self.model.value(id);
        match value.def() {
            Def::Node { node, .. } => format!("{} ({})", value.name(), self.model.node(*node).op()),
            Def::Constant { .. } => format!("{} (a constant)", value.name()),
            _ => format!("{} (an input)", value.name()),
        }
    }
}

struct Report<'a> {
    first: Lonely<'a>,
    second: Lonely<'a>,
    label: &'a Label<'a>,
}

impl<'a> Report<'a> {
    fn new(a: &'a Model, b: &'a Model, label: &'a Label<'a>) -> Self {
        let (first, second) = inputs(a, b);
        let (left, right) = (Hashes::of(a, first), Hashes::of(b, second));
        let first = Lonely::new(a, left, &right);
        let second = Lonely::new(b, right, &first.hashes);
        Self { first, second, label }
    }

    fn tell(&self, found: &mut Differences) {
        found.nodes_without_partner = [self.first.all.len(), self.second.all.len()];
        found.first = self.side(Side::First, &self.first, &self.second);
        found.second = self.side(Side::Second, &self.second, &self.first);
    }

    fn side(&self, side: Side, mine: &Lonely<'_>, other: &Lonely<'_>) -> Few<NodeDifference> {
        let close = Close::new(other);
        let mut taken = HashSet::new();
        let told = mine.roots.iter().take(MOST).map(|&id| {
            let partner = close.to(mine, id, &taken);
            taken.extend(partner);
            let node = mine.model.node(id);
            NodeDifference {
                node: mine.model.node_label(id),
                op: node.op().to_string(),
                within: mine.within(id),
                module: (self.label)(side, id),
                close_to: partner.map(|partner| other.model.node_label(partner)),
                differs: partner.map_or_else(Vec::new, |partner| match side {
                    Side::First => differs(mine, id, other, partner),
                    Side::Second => differs(other, partner, mine, id),
                }),
            }
        });
        Few { first: told.collect(), total: mine.roots.len() }
    }
}

/// Hashes of the inputs of both graphs: the same for the same name, and for the rest by their order.
fn inputs(a: &Model, b: &Model) -> (HashMap<ValueId, u64>, HashMap<ValueId, u64>) {
    let ports = |model: &'_ Model| -> Vec<(String, ValueId)> {
        let ports = model.scope(model.main()).inputs().iter();
        ports.map(|port| (model.value(port.value).name().to_string(), port.value)).collect()
    };
    let (left, right) = (ports(a), ports(b));
    let tokens = |mine: &[(String, ValueId)], other: &[(String, ValueId)]| {
        let names: HashSet<&String> = other.iter().map(|(name, _)| name).collect();
        let mut rest = 0usize;
        let mut token = |name: &String| {
            if names.contains(name) {
                hash(|h| ("named", name).hash(h))
            } else {
                rest += 1;
                hash(|h| ("placed", rest).hash(h))
            }
        };
        mine.iter().map(|(name, id)| (*id, token(name))).collect()
    };
    (tokens(&left, &right), tokens(&right, &left))
}

/// Finds nodes without a partner that are close to one of the other model.
struct Close<'a> {
    by_name: HashMap<&'a str, NodeId>,
    by_output: HashMap<&'a str, NodeId>,
    by_call: HashMap<(u64, &'a onnxforge_ir::Op), Vec<NodeId>>,
}

impl<'a> Close<'a> {
    fn new(other: &'a Lonely<'a>) -> Self {
        let mut close = Self { by_name: HashMap::new(), by_output: HashMap::new(), by_call: HashMap::new() };
        for &id in &other.all {
            let node = other.model.node(id);
            if let Some(name) = node.name().filter(|name| !name.is_empty()) {
                close.by_name.entry(name).or_insert(id);
            }
            for output in node.outputs().iter().flatten() {
                close.by_output.entry(other.model.value(*output).name()).or_insert(id);
            }
        }
        for &id in other.roots.iter().take(MOST) {
            let node = other.model.node(id);
            let call = (other.hashes.place(node.scope()), node.op());
            close.by_call.entry(call).or_default().push(id);
        }
        close
    }

    fn to(&self, mine: &Lonely<'_>, id: NodeId, taken: &HashSet<NodeId>) -> Option<NodeId> {
        let node = mine.model.node(id);
        let named = node.name().and_then(|name| self.by_name.get(&**name));
        let output = || {
            let mut names = node.outputs().iter().flatten().map(|&id| mine.model.value(id).name());
            names.find_map(|name| self.by_output.get(&**name))
        };
        let call = || {
            let alike = self.by_call.get(&(mine.hashes.place(node.scope()), node.op()))?;
            alike.iter().find(|id| !taken.contains(id))
        };
        named.or_else(output).or_else(call).copied()
    }
}

/// How two nodes differ.
fn differs(first: &Lonely<'_>, a: NodeId, second: &Lonely<'_>, b: NodeId) -> Vec<String> {
    let (x, y) = (first.model.node(a), second.model.node(b));
    let mut found = Vec::new();
    if x.op() != y.op() {
        found.push(format!("operator: {} and {}", x.op(), y.op()));
    }
    let names: BTreeSet<_> = sorted(x).into_iter().chain(sorted(y)).map(|attr| &attr.name).collect();
    for name in names {
        match (x.attr(name), y.attr(name)) {
            (Some(v), Some(w)) if same_attr(v, w) => {}
            (v, w) => {
                let shown =
                    |value: Option<&AttrValue>| value.map_or_else(|| "nothing".to_owned(), shown_attr);
                found.push(format!("attribute {name}: {} and {}", shown(v), shown(w)));
            }
        }
    }
    let (mine, yours) = (trimmed(x.inputs()), trimmed(y.inputs()));
    for index in 0..mine.len().max(yours.len()) {
        let (v, w) = (x.input(index), y.input(index));
        match (v, w) {
            (Some(v), Some(w)) if first.hashes.value(v) == second.hashes.value(w) => {}
            (None, None) => {}
            (Some(v), Some(w)) => {
                if let (Some(c), Some(d)) = (stored(first.model, v), stored(second.model, w)) {
                    let name = first.model.value(v).name();
                    found.push(format!("input {index}, {name}: {}", first_element(c, d)));
                } else {
                    found.push(format!("input {index}: {} and {}", first.shown(v), second.shown(w)));
                }
            }
            (v, w) => {
                let v = v.map_or_else(|| "nothing".to_owned(), |v| first.shown(v));
                let w = w.map_or_else(|| "nothing".to_owned(), |w| second.shown(w));
                found.push(format!("input {index}: {v} and {w}"));
            }
        }
    }
    let (mine, yours) = (trimmed(x.outputs()).len(), trimmed(y.outputs()).len());
    if mine != yours {
        found.push(format!("outputs: {mine} and {yours}"));
    }
    if found.is_empty() && first.hashes.place(x.scope()) != second.hashes.place(y.scope()) {
        found.push("they stand in different bodies or functions".to_owned());
    }
    if found.is_empty() && x.bodies().next().is_some() {
        found.push("what their bodies hold, or hand on".to_owned());
    }
    found
}

fn shown_attr(value: &AttrValue) -> String {
    let text = match value {
        AttrValue::Float(value) => value.to_string(),
        AttrValue::Int(value) => value.to_string(),
        AttrValue::String(value) => {
            format!("{:?}", String::from_utf8_lossy(value.get(..SHOWN).unwrap_or(value)))
        }
        AttrValue::Floats(values) => format!("{:?}", values.get(..SHOWN).unwrap_or(values)),
        AttrValue::Ints(values) => format!("{:?}", values.get(..SHOWN).unwrap_or(values)),
        AttrValue::Tensor(tensor) => match tensor.elements() {
            Ok(elements) if tensor.len() <= 8 => {
                format!("{}{:?} {:?}", tensor.dtype(), tensor.shape(), elements.collect::<Vec<_>>())
            }
            _ => format!("{}{:?}", tensor.dtype(), tensor.shape()),
        },
        AttrValue::Type(ty) => onnxforge_ir::text::print_type(ty),
        AttrValue::Reference { name, .. } => format!("@{name}"),
        AttrValue::Graph(_) | AttrValue::Graphs(_) => "a body".to_owned(),
        AttrValue::Strings(values) => format!("{} strings", values.len()),
        AttrValue::Tensors(values) => format!("{} tensors", values.len()),
        AttrValue::Sparse(_) => "a sparse tensor".to_owned(),
        AttrValue::Sparses(values) => format!("{} sparse tensors", values.len()),
        AttrValue::Types(values) => format!("{} types", values.len()),
    };
    let mut shown: String = text.chars().take(SHOWN).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}
