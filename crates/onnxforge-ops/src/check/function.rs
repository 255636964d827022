//! Local functions: who they are, what they take, whether they call each other in circles.

use std::collections::HashSet;

use super::Checker;
use super::attribute::kind_of;
use super::node::normal;
use super::order::Edges;
use super::problem::{Here, Quoted, Rule, Step};
use super::scope::{Def, op_name};
use crate::signature::{Lookup, signature};
use onnxforge_proto::schema::FunctionProto;

/// onnx's own checker refuses more.
const MOST: usize = 10_000;

/// Domain, name and overload.
pub(super) type FunctionId<'m> = (&'m str, &'m str, &'m str);

fn id(function: &FunctionProto) -> FunctionId<'_> {
    (
        normal(function.domain.as_ref()),
        function.name.as_deref().unwrap_or_default(),
        function.overload.as_deref().unwrap_or_default(),
    )
}

fn step(index: usize, function: &FunctionProto) -> Step {
    let (domain, name, overload) = id(function);
    let mut shown = if domain.is_empty() { name.to_owned() } else { format!("{domain}.{name}") };
    if !overload.is_empty() {
        shown = format!("{shown}:{overload}");
    }
    Step::listed("function", index, Some(&shown.into()))
}

impl<'m> Checker<'m> {
    /// Learns which functions there are, before anything calls them.
    pub(super) fn index_functions(&mut self, here: &Here<'_>) {
        if self.model.functions.len() > MOST {
            let message =
                format!("{} local functions are more than other tools accept", self.model.functions.len());
            self.warning(Rule::FunctionIdentity, here, message);
        }
        for (index, function) in self.model.functions.iter().enumerate() {
            let at = here.at(step(index, function));
            self.needs_ir_error(8, "local functions", &at);
            if function.name.as_deref().unwrap_or_default().is_empty() {
                self.error(Rule::FunctionIdentity, &at, "the function has no name");
                continue;
            }
            if function.domain.is_none() {
                self.error(Rule::FunctionIdentity, &at, "the function has no domain");
            }
            if function.overload.as_deref().is_some_and(|overload| !overload.is_empty()) {
                self.needs_ir_error(10, "overloads of functions", &at);
            }
            let known = *self.functions.entry(id(function)).or_insert(index);
            if known != index {
                let message = "another function has the same domain, name and overload; rename one of them";
                self.error(Rule::FunctionIdentity, &at, message);
            }
        }
    }

    /// Checks all functions. `self.context` is the model's when this is called and when it returns.
    pub(super) fn all_functions(&mut self, here: &Here<'_>) {
        self.model_imports = self.context.imports.clone();
        let mut contexts = Vec::new();
        for (index, function) in self.model.functions.iter().enumerate() {
            let at = here.at(step(index, function));
            self.function_domain(function, &at);
            let context = self.imports(&function.opset_import, &at);
            // Where the model imports nothing, the first function decides what the others must agree with.
            for domain in &context.domains {
                let version = context.imports.get(domain).copied().flatten();
                self.model_imports.entry(domain).or_insert(version);
            }
            contexts.push(context);
        }
        let mut calls = Vec::new();
        for ((index, function), context) in self.model.functions.iter().enumerate().zip(contexts) {
            let model = std::mem::replace(&mut self.context, context);
            self.calls.clear();
            self.function(function, &here.at(step(index, function)));
            self.finish_context();
            self.context = model;
            calls.extend(self.calls.drain(..).map(|callee| (index, callee)));
        }
        self.recursion(&calls, here);
    }

    fn function_domain(&mut self, function: &'m FunctionProto, here: &Here<'_>) {
        let (domain, name, _) = id(function);
        match self.context.imports.get(domain) {
            None if function.domain.is_some() => {
                let message = "the model does not import the function's domain; add it to the opset imports";
                self.warning(Rule::DomainImport, here, message);
            }
            Some(Some(version)) if matches!(signature(domain, name, *version), Lookup::Found(_)) => {
                let message = format!(
                    "{} is an operator too; tools differ in which of the two they take",
                    op_name(domain, name)
                );
                self.warning(Rule::FunctionIdentity, here, message);
            }
            _ => {}
        }
    }

    fn function(&mut self, function: &'m FunctionProto, here: &Here<'_>) {
        self.context.function = Some(function);
        self.parameters(function, here);
        self.metadata(&function.metadata_props, here);
        if !function.value_info.is_empty() {
            self.needs_ir(10, "types of values in functions", here);
        }
        self.enter(&function.node);
        for (index, name) in function.input.iter().enumerate() {
            let at = here.at(Step::listed("input", index, Some(name)));
            if name.is_empty() {
                self.error(Rule::MissingName, &at, "the input has no name");
            } else {
                self.define(name, Def::Input, &at);
            }
        }
        self.define_outputs(here);
        self.value_infos(&function.value_info, here);
        let mut seen = HashSet::new();
        for (index, name) in function.output.iter().enumerate() {
            let at = here.at(Step::listed("output", index, Some(name)));
            if !seen.insert(&**name) {
                let message = format!("the output {} is listed twice; remove one", Quoted(name));
                self.error(Rule::FunctionParameter, &at, message);
            }
            if name.is_empty() {
                self.error(Rule::MissingName, &at, "the output has no name");
            } else if !self.defined_here(name) {
                self.dangling(Rule::FunctionParameter, name, "the output", &at);
            }
        }
        self.walk(here);
        self.leave();
    }

    fn parameters(&mut self, function: &'m FunctionProto, here: &Here<'_>) {
        if !function.attribute_proto.is_empty() {
            self.needs_ir(9, "default values of function attributes", here);
        }
        let required = function.attribute.iter().map(|name| (&**name, None));
        let optional = function.attribute_proto.iter();
        let optional =
            optional.map(|attribute| (attribute.name.as_deref().unwrap_or_default(), kind_of(attribute)));
        for (name, kind) in required.chain(optional) {
            if self.context.parameters.insert(name, kind).is_some() {
                let message = format!("the attribute {} is declared twice; remove one", Quoted(name));
                self.error(Rule::FunctionParameter, here, message);
            } else {
                self.context.parameter_names.push(name);
            }
        }
        for (index, attribute) in function.attribute_proto.iter().enumerate() {
            self.attribute(attribute, &here.at(Step::listed("attribute", index, attribute.name.as_ref())));
        }
    }

    fn recursion(&mut self, calls: &[(usize, usize)], here: &Here<'_>) {
        let functions = &self.model.functions;
        let edges = Edges::new(functions.len(), calls);
        for cycle in edges.cycles(&edges.components()) {
            let Some((&start, function)) =
                cycle.first().and_then(|start| Some((start, functions.get(*start)?)))
            else {
                continue;
            };
            let message = if cycle.len() == 1 {
                "the function calls itself".to_owned()
            } else {
                let others = cycle.iter().skip(1).take(8).filter_map(|&index| functions.get(index));
                let mut path: Vec<String> =
                    others.map(|function| op_name(id(function).0, id(function).1)).collect();
                if cycle.len() - 1 > path.len() {
                    path.push(format!("{} more", cycle.len() - 1 - path.len()));
                }
                format!("the function calls itself through {}", path.join(", "))
            };
            self.error(Rule::FunctionRecursion, &here.at(step(start, function)), message);
        }
    }
}
