//! Graphs: the main one, the bodies of nodes, and those for training.

use std::collections::HashSet;

use super::Checker;
use super::problem::{Here, Quoted, Rule, Step};
use super::scope::Def;
use super::suggest::{closest, question};
use super::types::{Declared, Kind, Shape, Source};
use onnxforge_ir::dtype::DType;
use onnxforge_proto::schema::{GraphProto, TensorProto, ValueInfoProto};

/// What a graph is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Main,
    /// Of a node; sees what stands before the node.
    Body,
    /// Of training; sees nothing else.
    Initialization,
    /// Of training; continues the main graph.
    Algorithm,
}

impl Role {
    /// Whether the types of inputs and outputs must be given.
    fn is_interface(self) -> bool {
        matches!(self, Self::Main | Self::Algorithm)
    }
}

impl<'m> Checker<'m> {
    /// Checks a graph and stays in its scope, which the caller leaves.
    pub(super) fn graph(&mut self, graph: &'m GraphProto, role: Role, outer: &Here<'_>) {
        let here = outer.at(Step::named("graph", graph.name.as_ref()));
        if graph.name.as_deref().unwrap_or_default().is_empty() {
            self.error(Rule::GraphName, &here, "the graph has no name");
        }
        self.metadata(&graph.metadata_props, &here);
        self.enter(&graph.node);
        self.inputs(graph, role, &here);
        self.initializers(graph, role, &here);
        self.define_outputs(&here);
        self.outputs(graph, role, &here);
        self.value_infos(&graph.value_info, &here);
        self.walk(&here);
        self.annotations(graph, &here);
    }

    fn inputs(&mut self, graph: &'m GraphProto, role: Role, here: &Here<'_>) {
        for (index, input) in graph.input.iter().enumerate() {
            let at = here.at(Step::listed("input", index, input.name.as_ref()));
            self.interface(input, role, Rule::TypeForm, &at);
            let Some(name) = input.name.as_deref().filter(|name| !name.is_empty()) else {
                continue;
            };
            self.hides(name, "input", role, &at);
            self.define(name, Def::Input, &at);
            if let Some(declared) = Declared::new(input.r#type.as_deref(), Source::Input) {
                self.declare(name, declared, &at);
            }
        }
    }

    /// The name and type of an input or output; `missing` is the rule that asks for a type.
    fn interface(&mut self, value: &'m ValueInfoProto, role: Role, missing: Rule, here: &Here<'_>) {
        if value.name.as_deref().unwrap_or_default().is_empty() {
            self.error(Rule::MissingName, here, "the value has no name");
        }
        match value.r#type.as_deref() {
            ty if role.is_interface() => self.interface_type(ty, missing, here),
            Some(ty) => self.note_type(ty, here),
            None => {}
        }
        self.metadata(&value.metadata_props, here);
    }

    /// An input or initializer that makes an outer value of the same name unreachable.
    fn hides(&mut self, name: &str, what: &str, role: Role, here: &Here<'_>) {
        let Some(outer) = self.visible_outside(name) else {
            return;
        };
        let message =
            format!("the {what} {} hides a value outside, defined by {outer}; rename it", Quoted(name));
        if role == Role::Algorithm {
            self.error(Rule::Shadowing, here, message);
        } else {
            self.warning(Rule::Shadowing, here, message);
        }
    }

    fn initializers(&mut self, graph: &'m GraphProto, role: Role, here: &Here<'_>) {
        let mut seen = HashSet::new();
        for (index, tensor) in graph.initializer.iter().enumerate() {
            let at = here.at(Step::listed("initializer", index, tensor.name.as_ref()));
            self.tensor(tensor, &at);
            if let Some(name) = self.initializer(tensor, role, &mut seen, &at)
                && let Some(dtype) = tensor.data_type.and_then(DType::from_code)
            {
                let shape = Shape::Stored(&tensor.dims);
                self.declare(
                    name,
                    Declared { kind: Kind::tensor(dtype), shape, source: Source::Initializer },
                    &at,
                );
            }
        }
        for (index, tensor) in graph.sparse_initializer.iter().enumerate() {
            let name = tensor.values.as_ref().and_then(|values| values.name.as_ref());
            let at = here.at(Step::listed("sparse initializer", index, name));
            self.sparse_tensor(tensor, &at);
            if let Some(values) = tensor.values.as_deref() {
                self.initializer(values, role, &mut seen, &at);
            }
        }
    }

    /// The name of an initializer and its place among the other names.
    fn initializer(
        &mut self,
        tensor: &'m TensorProto,
        role: Role,
        seen: &mut HashSet<&'m str>,
        here: &Here<'_>,
    ) -> Option<&'m str> {
        let Some(name) = tensor.name.as_deref().filter(|name| !name.is_empty()) else {
            self.error(Rule::MissingName, here, "the initializer has no name");
            return None;
        };
        if !seen.insert(name) {
            let message =
                format!("there is another initializer {}; remove or rename one of them", Quoted(name));
            self.error(Rule::Ssa, here, message);
            return None;
        }
        let is_input = self.defined_here(name);
        if self.ir < 4 && !is_input {
            let message =
                format!("{} is not an input; up to IR version 3 every initializer is one", Quoted(name));
            self.error(Rule::InitializerInput, here, message);
        } else if self.ir >= 4 && is_input && role == Role::Body {
            let message =
                format!("{} is an input of the body too, which its node fills; rename it", Quoted(name));
            self.error(Rule::InitializerInput, here, message);
        }
        if !is_input {
            self.hides(name, "initializer", role, here);
        }
        self.define(name, Def::Initializer, here);
        Some(name)
    }

    fn outputs(&mut self, graph: &'m GraphProto, role: Role, here: &Here<'_>) {
        let mut seen = HashSet::new();
        for (index, output) in graph.output.iter().enumerate() {
            let at = here.at(Step::listed("output", index, output.name.as_ref()));
            self.interface(output, role, Rule::MissingType, &at);
            let Some(name) = output.name.as_deref().filter(|name| !name.is_empty()) else {
                continue;
            };
            if !seen.insert(name) && role == Role::Main {
                let message =
                    format!("the output {} is listed twice; give the second its own Identity", Quoted(name));
                self.warning(Rule::GraphOutput, &at, message);
            }
            if let Some(declared) = Declared::new(output.r#type.as_deref(), Source::Output) {
                self.declare(name, declared, &at);
            }
            if self.defined_here(name) || (role == Role::Algorithm && self.exists(name)) {
                continue;
            }
            match self.visible_outside(name) {
                Some(outer) => {
                    let message = format!(
                        "{} is defined outside, by {outer}; return it through an Identity node in the body",
                        Quoted(name)
                    );
                    self.error(Rule::GraphOutput, &at, message);
                }
                None => self.dangling(Rule::GraphOutput, name, "the output", &at),
            }
        }
    }

    /// Notes about the types of values. They bind nobody, so that most slips are only odd.
    pub(super) fn value_infos(&mut self, infos: &'m [ValueInfoProto], here: &Here<'_>) {
        let mut seen = HashSet::new();
        for (index, info) in infos.iter().enumerate() {
            let at = here.at(Step::listed("value_info", index, info.name.as_ref()));
            if let Some(ty) = info.r#type.as_deref() {
                self.note_type(ty, &at);
            }
            self.metadata(&info.metadata_props, &at);
            let Some(name) = info.name.as_deref().filter(|name| !name.is_empty()) else {
                self.warning(Rule::ValueInfo, &at, "the entry has no name");
                continue;
            };
            if !seen.insert(name) {
                let message = format!("there is another entry for {}; remove one of them", Quoted(name));
                self.warning(Rule::ValueInfo, &at, message);
            }
            if let Some(declared) = Declared::new(info.r#type.as_deref(), Source::ValueInfo) {
                self.declare(name, declared, &at);
            }
            if !self.exists(name) {
                let message = format!("there is no value {}; remove the entry", Quoted(name));
                self.warning(Rule::ValueInfo, &at, message);
            }
        }
    }

    fn annotations(&mut self, graph: &'m GraphProto, here: &Here<'_>) {
        if !graph.quantization_annotation.is_empty() {
            self.needs_ir(5, "quantization annotations", here);
        }
        for (index, annotation) in graph.quantization_annotation.iter().enumerate() {
            let at = here.at(Step::listed("quantization annotation", index, annotation.tensor_name.as_ref()));
            let subject = annotation.tensor_name.iter().map(|name| ("the annotated tensor", name));
            let parameters = annotation.quant_parameter_tensor_names.iter().filter_map(|entry| {
                entry.value.as_ref().map(|name| (entry.key.as_deref().unwrap_or("a parameter"), name))
            });
            for (what, name) in subject.chain(parameters) {
                if !self.exists(name) {
                    let hint = question(closest(&mut self.budget, name, self.scope.names()));
                    let message = format!(
                        "{} is {}, which nothing defines{hint}",
                        super::problem::Plain(what),
                        Quoted(name)
                    );
                    self.warning(Rule::QuantizationAnnotation, &at, message);
                }
            }
        }
    }
}
