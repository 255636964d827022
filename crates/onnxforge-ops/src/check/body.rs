//! The operators with bodies: what they hand to a body and take back from it.

use std::collections::HashSet;

use super::Checker;
use super::problem::{Here, Rule, Step};
use crate::signature::Signature;
use onnxforge_proto::schema::{GraphProto, NodeProto};

/// How many inputs and outputs a body must have.
struct Shape {
    attribute: &'static str,
    inputs: usize,
    outputs: usize,
}

/// The bodies of a node of the standard domain, as far as the standard fixes their shape.
fn shapes(node: &NodeProto, signature: &Signature) -> Vec<Shape> {
    let (inputs, outputs) = (node.input.len(), node.output.len());
    let body = |inputs, outputs| vec![Shape { attribute: "body", inputs, outputs }];
    match (signature.domain, signature.name) {
        ("", "If") => {
            ["then_branch", "else_branch"].map(|attribute| Shape { attribute, inputs: 0, outputs }).into()
        }
        // Iteration number and condition go in before the carried values, the condition comes out before them.
        ("", "Loop") => body(inputs.max(2), outputs + 1),
        // The first version had the lengths of sequences as its first input.
        ("", "Scan") if signature.since == 8 => body(inputs.saturating_sub(1), outputs),
        ("", "Scan" | "SequenceMap") => body(inputs, outputs),
        _ => Vec::new(),
    }
}

impl<'m> Checker<'m> {
    /// Whether the bodies of a node fit the node.
    pub(super) fn body_arity(&mut self, node: &'m NodeProto, signature: &'static Signature, here: &Here<'_>) {
        for shape in shapes(node, signature) {
            let named = |attribute: &&onnxforge_proto::schema::AttributeProto| {
                attribute.name.as_deref() == Some(shape.attribute)
            };
            let Some(attribute) = node.attribute.iter().find(named) else {
                continue;
            };
            let Some(graph) = attribute.g.as_deref() else {
                continue;
            };
            let at = here.at(Step::named("attribute", attribute.name.as_ref()));
            let inputs = self.formal_inputs(graph);
            if inputs != shape.inputs {
                let message =
                    format!("the body has {inputs} inputs; {} hands it {}", signature.name, shape.inputs);
                self.error(Rule::BodyArity, &at, message);
            }
            if graph.output.len() != shape.outputs {
                let message = format!(
                    "the body has {} outputs; with {} outputs of the node it needs {}",
                    graph.output.len(),
                    node.output.len(),
                    shape.outputs
                );
                self.error(Rule::BodyArity, &at, message);
            }
        }
        if signature.domain.is_empty() && signature.name == "Scan" {
            self.scan(node, signature, here);
        }
    }

    /// The inputs of a body that its node fills. Up to IR version 3 its constants stand among them.
    fn formal_inputs(&self, graph: &GraphProto) -> usize {
        if self.ir > 3 {
            return graph.input.len();
        }
        let constants: HashSet<_> =
            graph.initializer.iter().filter_map(|tensor| tensor.name.as_deref()).collect();
        let filled =
            graph.input.iter().filter(|input| !input.name.as_deref().is_some_and(|n| constants.contains(n)));
        filled.count()
    }

    /// The inputs of a Scan are states, then what is scanned; its outputs are the states, then what was scanned.
    fn scan(&mut self, node: &'m NodeProto, signature: &'static Signature, here: &Here<'_>) {
        let attribute =
            node.attribute.iter().find(|attribute| attribute.name.as_deref() == Some("num_scan_inputs"));
        let Some(scanned) = attribute.and_then(|attribute| attribute.i) else {
            return;
        };
        let inputs = node.input.len().saturating_sub(usize::from(signature.since == 8));
        let states =
            usize::try_from(scanned).ok().filter(|&scanned| scanned > 0).and_then(|n| inputs.checked_sub(n));
        match states {
            None => {
                let message =
                    format!("num_scan_inputs is {scanned}; the node has {inputs} inputs to scan or carry");
                self.error(Rule::BodyArity, here, message);
            }
            Some(states) if states > node.output.len() => {
                let message =
                    format!("the node carries {states} states and has {} outputs", node.output.len());
                self.error(Rule::BodyArity, here, message);
            }
            Some(_) => {}
        }
    }
}
