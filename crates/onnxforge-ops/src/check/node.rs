//! Nodes: what they call, and whether they call it the way it wants to be called.

use std::collections::{BTreeMap, HashMap};

use super::Checker;
use super::problem::{Here, Plain, Quoted, Rule};
use super::scope::op_name;
use super::suggest::{closest, question};
use crate::signature::{
    Lookup, Param, Presence, Signature, known_domains, latest_opset, signature, signatures,
};
use onnxforge_proto::Str;
use onnxforge_proto::schema::{FunctionProto, NodeProto};

/// What a node calls, as far as it is known.
#[derive(Clone, Copy)]
pub(super) enum Target<'m> {
    Operator(&'static Signature),
    /// The local function at this position.
    Function(usize, &'m FunctionProto),
    Opaque,
}

/// Operators that ONNX Runtime had in the standard domain before the standard did.
const EARLY: [&str; 1] = ["LayerNormalization"];

/// Operators of the first versions that were experiments and never became part of the standard.
const EXPERIMENTS: [&str; 11] = [
    "ATen",
    "Affine",
    "ConstantFill",
    "Crop",
    "DynamicSlice",
    "GRUUnit",
    "GivenTensorFill",
    "ImageScaler",
    "ParametricSoftplus",
    "Scale",
    "ScaledTanh",
];

/// The standard domain has two spellings.
pub(super) fn normal(domain: Option<&Str>) -> &str {
    match domain.map_or("", |domain| domain) {
        "ai.onnx" => "",
        domain => domain,
    }
}

impl<'m> Checker<'m> {
    /// A node and everything in it.
    pub(super) fn node(&mut self, node: &'m NodeProto, here: &Here<'_>) {
        let kinds: Vec<_> = node
            .input
            .iter()
            .enumerate()
            .map(|(index, name)| if name.is_empty() { None } else { self.read(name, index, here) })
            .collect();
        if node.input.is_empty() && node.output.is_empty() {
            self.error(Rule::NoOutputs, here, "the node has neither inputs nor outputs; remove it");
        }
        let target = self.target(node, here);
        self.attributes(node, target, here);
        match target {
            Target::Operator(signature) => {
                self.arity(node, signature, here);
                self.body_arity(node, signature, here);
                self.node_types(node, signature, &kinds, here);
            }
            Target::Function(index, function) => self.call(node, index, function, here),
            Target::Opaque if !node.input.is_empty() && node.output.iter().all(|name| name.is_empty()) => {
                self.warning(Rule::NoOutputs, here, "the node has no outputs, so nothing can use it");
            }
            Target::Opaque => {}
        }
        self.metadata(&node.metadata_props, here);
        self.node_devices(node, here);
    }

    fn target(&mut self, node: &'m NodeProto, here: &Here<'_>) -> Target<'m> {
        let domain = normal(node.domain.as_ref());
        let version = self.version(node, domain, here);
        let Some(op) = node.op_type.as_deref().filter(|op| !op.is_empty()) else {
            self.error(Rule::OpType, here, "the node names no operator");
            return Target::Opaque;
        };
        let overload = node.overload.as_deref().unwrap_or_default();
        if !overload.is_empty() {
            self.needs_ir_error(10, "overloads of functions", here);
        }
        let function = self.functions.get(&(domain, op, overload)).copied();
        if let Some(function) = function {
            self.calls.push(function);
        } else if !overload.is_empty() {
            let message =
                format!("no local function {} has the overload {}", op_name(domain, op), Quoted(overload));
            self.warning(Rule::UnknownOperator, here, message);
        }
        let local =
            function.and_then(|index| Some(Target::Function(index, self.model.functions.get(index)?)));
        let local = local.unwrap_or(Target::Opaque);
        let Some(version) = version else { return local };
        let found = signature(domain, op, version);
        self.same_operator(domain, op, version, found, here);
        match found {
            Lookup::Found(signature) => Target::Operator(signature),
            Lookup::Deprecated(signature) => {
                let message = format!(
                    "{} was withdrawn in version {} of the domain, the import is {version}",
                    op_name(domain, op),
                    signature.since
                );
                self.error(Rule::DeprecatedOperator, here, message);
                Target::Opaque
            }
            Lookup::UnknownDomain => local,
            Lookup::TooNew { first } if !self.replaced(domain, function) => {
                let early = domain.is_empty() && EARLY.contains(&op);
                let rule = if early { Rule::RuntimeOperator } else { Rule::UnknownOperator };
                let message = format!(
                    "{} comes with version {first} of the domain, the import is {version}; import {first} or later",
                    op_name(domain, op)
                );
                self.error(rule, here, message);
                Target::Opaque
            }
            Lookup::UnknownOp if domain.is_empty() && EXPERIMENTS.contains(&op) => {
                let message = format!("{} was an experiment and is not part of the standard", Plain(op));
                self.warning(Rule::UnknownOperator, here, message);
                local
            }
            Lookup::UnknownOp if crate::find(domain, op).is_some() && !self.replaced(domain, function) => {
                let message = format!("{} is an operator of ONNX Runtime, not of the standard", Plain(op));
                self.error(Rule::RuntimeOperator, here, message);
                Target::Opaque
            }
            Lookup::UnknownOp if !self.replaced(domain, function) => {
                let message = self.unknown(domain, op);
                self.error(Rule::UnknownOperator, here, message);
                Target::Opaque
            }
            Lookup::TooNew { .. } | Lookup::UnknownOp => local,
        }
    }

    /// Whether a local function stands in for an operator that a domain does not have. The domains of the standard
    /// are closed to that; the ones for previews are not.
    fn replaced(&self, domain: &str, function: Option<usize>) -> bool {
        function.is_some() && !matches!(domain, "" | "ai.onnx.ml" | "ai.onnx.training")
    }

    fn unknown(&mut self, domain: &str, op: &str) -> String {
        let names = signatures()
            .iter()
            .filter(|signature| signature.domain == domain)
            .map(|signature| signature.name);
        let near = closest(&mut self.budget, op, names);
        let elsewhere = || {
            known_domains().find(|&other| {
                other != domain
                    && latest_opset(other).is_some_and(|v| signature(other, op, v) != Lookup::UnknownOp)
            })
        };
        let hint = match (near, near.is_none().then(elsewhere).flatten()) {
            (None, Some("")) => "; the standard domain has it: leave the domain empty".to_owned(),
            (None, Some(other)) => format!("; the domain {other:?} has it"),
            (near, _) => question(near),
        };
        let domain = if domain.is_empty() { "the standard domain" } else { domain };
        format!("{domain} has no operator {}{hint}", Quoted(op))
    }

    /// The number of inputs and outputs, and which of them may be empty.
    fn arity(&mut self, node: &'m NodeProto, signature: &'static Signature, here: &Here<'_>) {
        let op = op_name(signature.domain, signature.name);
        let mut side =
            |what: &str, names: &[Str], formals: &[Param], allowed: std::ops::RangeInclusive<usize>| {
                let count = names.len();
                if !allowed.contains(&count) {
                    let range = match (*allowed.start(), *allowed.end()) {
                        (least, usize::MAX) => format!("{least} or more"),
                        (least, most) if least == most => format!("{least}"),
                        (least, most) => format!("{least} to {most}"),
                    };
                    let message = format!("the node has {count} {what}s; {op} takes {range}");
                    self.error(Rule::Arity, here, message);
                }
                for (index, (name, formal)) in names.iter().zip(formals).enumerate() {
                    if name.is_empty() && formal.presence == Presence::Required {
                        let message = format!("{what} {index} ({}) is empty; {op} requires it", formal.name);
                        self.error(Rule::RequiredValue, here, message);
                    }
                }
            };
        side("input", &node.input, &signature.inputs, signature.input_arity());
        side("output", &node.output, &signature.outputs, signature.output_arity());
        // The statistics of training come all or not at all.
        let (count, all) = (node.output.len(), signature.outputs.len());
        if op == "BatchNormalization" && count > 1 && count < all {
            let message = format!("the node has {count} outputs; BatchNormalization takes 1 or {all}");
            self.error(Rule::Arity, here, message);
        }
    }

    /// A call of a local function. Trailing inputs and outputs may be left out.
    fn call(&mut self, node: &'m NodeProto, index: usize, function: &'m FunctionProto, here: &Here<'_>) {
        for (what, given, taken) in [
            ("inputs", node.input.len(), function.input.len()),
            ("outputs", node.output.len(), function.output.len()),
        ] {
            if given > taken {
                let message = format!("the node has {given} {what}; the local function has {taken}");
                self.error(Rule::Arity, here, message);
            }
        }
        let is_given = |place: usize| node.input.get(place).is_some_and(|name| !name.is_empty());
        if (0..function.input.len()).all(is_given) {
            return;
        }
        let required = self.required_inputs.entry(index).or_insert_with(|| required_inputs(function));
        let missing = required.iter().find(|(place, _)| !is_given(**place));
        if let Some((place, op)) = missing {
            let message = format!("input {place} is missing; {op} in the local function requires it");
            self.error(Rule::RequiredValue, here, message);
        }
    }
}

/// The inputs that operators in a function cannot do without, each with the first of those operators.
pub(super) fn required_inputs(function: &FunctionProto) -> BTreeMap<usize, &'static str> {
    let places: HashMap<&str, usize> =
        function.input.iter().enumerate().map(|(place, name)| (&**name, place)).collect();
    let imported = |domain: &str| {
        let import = function.opset_import.iter().find(|import| normal(import.domain.as_ref()) == domain);
        import.and_then(|import| import.version)
    };
    let mut required = BTreeMap::new();
    for node in &function.node {
        let domain = normal(node.domain.as_ref());
        let op = node.op_type.as_deref().unwrap_or_default();
        let Some(Lookup::Found(called)) = imported(domain).map(|version| signature(domain, op, version))
        else {
            continue;
        };
        for (name, formal) in node.input.iter().zip(&called.inputs) {
            if let Some(place) = places.get(&**name)
                && formal.presence == Presence::Required
            {
                required.entry(*place).or_insert(called.name);
            }
        }
    }
    required
}
