//! Attributes: their form, and whether the operator has them.

use std::collections::HashSet;

use super::Checker;
use super::graph::Role;
use super::node::Target;
use super::problem::{Here, Quoted, Rule, Step};
use super::scope::op_name;
use super::suggest::{closest, question};
use crate::signature::{AttrKind, Signature};
use onnxforge_ir::io::load::filled_kinds;
use onnxforge_proto::schema::{AttributeProto, FunctionProto, NodeProto};

/// Bodies nested deeper than this are not followed. What was read from a file never is.
const DEEPEST: usize = 100;

/// The kinds of values that an attribute holds.
fn filled(attribute: &AttributeProto) -> impl Iterator<Item = AttrKind> {
    filled_kinds(attribute).into_iter().filter_map(AttrKind::from_code)
}

/// The kind that an attribute says it has, or shows by the field it fills.
pub(super) fn kind_of(attribute: &AttributeProto) -> Option<AttrKind> {
    match attribute.r#type {
        Some(code) => AttrKind::from_code(code),
        None => filled(attribute).next(),
    }
}

impl<'m> Checker<'m> {
    /// All attributes of a node.
    pub(super) fn attributes(&mut self, node: &'m NodeProto, target: Target<'m>, here: &Here<'_>) {
        let mut seen = HashSet::new();
        for (index, attribute) in node.attribute.iter().enumerate() {
            let at = here.at(Step::listed("attribute", index, attribute.name.as_ref()));
            let name = attribute.name.as_deref().unwrap_or_default();
            if !name.is_empty() && !seen.insert(name) {
                let message = format!("the node has two attributes {}; remove one", Quoted(name));
                self.error(Rule::AttributeDuplicate, &at, message);
            }
            self.attribute(attribute, &at);
            self.bodies(attribute, &at);
            if !name.is_empty() {
                match target {
                    Target::Operator(signature) => self.formal(signature, attribute, name, &at),
                    Target::Function(index, function) => self.parameter(index, function, name, &at),
                    Target::Opaque => {}
                }
            }
        }
        if let Target::Operator(signature) = target {
            let required = signature.attributes.iter().filter(|formal| formal.required);
            for formal in required.filter(|formal| !seen.contains(formal.name)) {
                let message = format!(
                    "{} needs the attribute {:?} ({})",
                    signature.name,
                    formal.name,
                    formal.kind.name()
                );
                self.error(Rule::AttributeMissing, here, message);
            }
            // The standard says so in words only: a Constant is given in one of several ways.
            let constant = signature.domain.is_empty() && signature.name == "Constant" && signature.since > 9;
            let given = || signature.attributes.iter().filter(|formal| seen.contains(formal.name)).count();
            if constant && given() != 1 {
                let message =
                    format!("{} of the value attributes are given; Constant needs exactly one", given());
                self.error(Rule::AttributeMissing, here, message);
            }
        }
    }

    /// An attribute by itself: a name, a type, one value of that type.
    pub(super) fn attribute(&mut self, attribute: &'m AttributeProto, here: &Here<'_>) {
        if attribute.name.as_deref().unwrap_or_default().is_empty() {
            self.error(Rule::MissingName, here, "the attribute has no name");
        }
        let reference = attribute.ref_attr_name.as_ref().filter(|name| !name.is_empty());
        let declared = match (attribute.r#type, attribute.r#type.and_then(AttrKind::from_code)) {
            (_, Some(kind)) => Some(kind),
            (None | Some(0), None) => {
                if self.ir >= 2 {
                    let hint = filled(attribute).next();
                    let hint = hint
                        .map_or_else(String::new, |kind| format!("; its value is of type {}", kind.name()));
                    self.error(Rule::AttributeForm, here, format!("the attribute has no type{hint}"));
                }
                None
            }
            (Some(code), None) => {
                self.error(Rule::AttributeForm, here, format!("attribute type {code} does not exist"));
                None
            }
        };
        let mut fields = filled(attribute);
        let first = fields.next();
        if let (Some(first), Some(second)) = (first, fields.next()) {
            let message = format!("the attribute has two values, {} and {}", first.name(), second.name());
            self.error(Rule::AttributeForm, here, message);
        } else if let (Some(declared), Some(first)) = (declared, first)
            && declared != first
        {
            let message = format!("the attribute says {} and holds {}", declared.name(), first.name());
            self.error(Rule::AttributeForm, here, message);
        }
        // In bodies onnx's checker takes an empty reference for one.
        if attribute.ref_attr_name.is_some() && reference.is_none() && first.is_some() && self.outer.len() > 1
        {
            let message = "the attribute has a value and an empty reference; leave the reference out";
            self.error(Rule::AttributeReference, here, message);
        }
        if let Some(reference) = reference {
            self.reference(reference, declared, first.is_some(), here);
        } else if first.is_none() {
            // A number or a text that is not stored is its type's zero, and a list may be empty.
            use AttrKind::{Graph, SparseTensor, Tensor, TypeProto};
            if let Some(kind) =
                declared.filter(|kind| matches!(kind, Tensor | Graph | SparseTensor | TypeProto))
            {
                self.error(
                    Rule::AttributeForm,
                    here,
                    format!("the attribute says {} and holds none", kind.name()),
                );
            }
        }
        self.values(attribute, here);
    }

    fn reference(&mut self, name: &str, kind: Option<AttrKind>, has_value: bool, here: &Here<'_>) {
        if has_value {
            let message =
                format!("the attribute has a value and refers to {}; it can only do one", Quoted(name));
            self.error(Rule::AttributeReference, here, message);
        }
        if self.context.function.is_none() {
            let message =
                format!("the attribute refers to {} outside a function; give it a value", Quoted(name));
            return self.error(Rule::AttributeReference, here, message);
        }
        match self.context.parameters.get(name) {
            None => {
                let names = self.context.parameter_names.iter().copied();
                let hint = question(closest(&mut self.budget, name, names));
                let message = format!("the function has no attribute {}{hint}", Quoted(name));
                // It stands for what callers give, whether or not the function lists it.
                let is_needed = matches!(here.op(), Some("Constant"));
                if is_needed {
                    return self.error(Rule::AttributeReference, here, message);
                }
                self.warning(Rule::AttributeReference, here, message);
            }
            Some(Some(default)) if kind.is_some_and(|kind| kind != *default) => {
                let message =
                    format!("the function's attribute {} is of type {}", Quoted(name), default.name());
                self.error(Rule::AttributeReference, here, message);
            }
            Some(_) => {}
        }
    }

    fn values(&mut self, attribute: &'m AttributeProto, here: &Here<'_>) {
        let texts = attribute.s.iter().chain(&attribute.strings);
        if texts.clone().any(|text| std::str::from_utf8(text).is_err()) {
            self.warning(Rule::Utf8, here, "the text is not valid UTF-8");
        }
        if let Some(tensor) = &attribute.t {
            self.tensor(tensor, here);
        }
        for (index, tensor) in attribute.tensors.iter().enumerate() {
            self.tensor(tensor, &here.at(Step::listed("tensor", index, tensor.name.as_ref())));
        }
        if let Some(tensor) = &attribute.sparse_tensor {
            self.sparse_tensor(tensor, here);
        }
        for (index, tensor) in attribute.sparse_tensors.iter().enumerate() {
            self.sparse_tensor(tensor, &here.at(Step::listed("sparse tensor", index, None)));
        }
        if let Some(ty) = &attribute.tp {
            self.note_type(ty, here);
        }
        for (index, ty) in attribute.type_protos.iter().enumerate() {
            self.note_type(ty, &here.at(Step::listed("type", index, None)));
        }
    }

    fn bodies(&mut self, attribute: &'m AttributeProto, here: &Here<'_>) {
        for graph in attribute.g.as_deref().into_iter().chain(&attribute.graphs) {
            if self.outer.len() >= DEEPEST {
                let message = format!("bodies are nested more than {DEEPEST} deep; this one was not checked");
                return self.error(Rule::Nesting, here, message);
            }
            self.graph(graph, Role::Body, here);
            self.leave();
        }
    }

    /// An attribute of a node against the operator's signature.
    fn formal(
        &mut self,
        signature: &'static Signature,
        attribute: &AttributeProto,
        name: &str,
        here: &Here<'_>,
    ) {
        let Some(formal) = signature.attribute(name) else {
            // Names with two underscores belong to implementations, and this operator is declared to take any.
            let any = signature.domain.is_empty() && signature.name == "LayerNormalization";
            if !any && !name.starts_with("__") {
                let names = signature.attributes.iter().map(|formal| formal.name);
                let hint = question(closest(&mut self.budget, name, names));
                let op = op_name(signature.domain, signature.name);
                let message =
                    format!("{op} has no attribute {} in version {}{hint}", Quoted(name), signature.since);
                self.error(Rule::AttributeUnknown, here, message);
            }
            return;
        };
        if let Some(kind) = kind_of(attribute).filter(|&kind| kind != formal.kind) {
            let message =
                format!("the attribute is {}; {} takes {}", kind.name(), signature.name, formal.kind.name());
            self.error(Rule::AttributeType, here, message);
        }
    }

    /// An attribute of a node against the local function that it calls.
    fn parameter(&mut self, index: usize, function: &'m FunctionProto, name: &str, here: &Here<'_>) {
        let required = function.attribute.iter().map(|name| &**name);
        let optional = function.attribute_proto.iter().filter_map(|attribute| attribute.name.as_deref());
        let names = required.chain(optional);
        let known = self.function_attributes.entry(index).or_insert_with(|| names.clone().collect());
        if !known.contains(name) && !name.starts_with("__") {
            let hint = question(closest(&mut self.budget, name, names));
            let message = format!("the local function has no attribute {}{hint}", Quoted(name));
            self.warning(Rule::AttributeUnknown, here, message);
        }
    }
}
