//! Inputs and outputs whose channels are last, in the layout of the model that a file was made of.

use onnxforge_proto::Str;
use onnxforge_proto::schema::{ModelProto, NodeProto, ValueInfoProto};

use crate::artifact::ChannelsLast;
use crate::message::{Attr, node};

const LAST: [usize; 4] = [0, 2, 3, 1];
const FIRST: [usize; 4] = [0, 3, 1, 2];

/// The same model, but for Transposes between these inputs and outputs and the rest.
pub fn channels_first(mut message: ModelProto, turned: &ChannelsLast) -> ModelProto {
    let Some(graph) = message.graph.as_deref_mut() else { return message };
    for (names, ports, order) in
        [(&turned.inputs, &mut graph.input, LAST), (&turned.outputs, &mut graph.output, FIRST)]
    {
        for port in ports
            .iter_mut()
            .filter(|port| port.name.as_deref().is_some_and(|name| names.iter().any(|it| it == name)))
        {
            let Some(name) = port.name.clone() else { continue };
            let inside: Str = format!("{name}/channels_last").as_str().into();
            for node in &mut graph.node {
                for value in node.input.iter_mut().chain(&mut node.output).filter(|value| **value == name) {
                    *value = inside.clone();
                }
            }
            let is_input = order == LAST;
            let (from, to) = if is_input { (name, inside) } else { (inside, name) };
            let turn = transpose(from, to, order);
            graph.node.insert(if is_input { 0 } else { graph.node.len() }, turn);
            turn_declared(port);
        }
    }
    message
}

fn transpose(from: Str, to: Str, order: [usize; 4]) -> NodeProto {
    let order = order.iter().map(|&axis| axis as i64).collect();
    node("", "Transpose", vec![from], vec![to], vec![Attr::Ints("perm", order)])
}

/// Declares the sizes of an image with its channels first.
fn turn_declared(port: &mut ValueInfoProto) {
    let tensor = port.r#type.as_deref_mut().and_then(|declared| declared.tensor_type.as_deref_mut());
    if let Some(shape) = tensor.and_then(|tensor| tensor.shape.as_deref_mut())
        && shape.dim.len() == FIRST.len()
    {
        let sizes = std::mem::take(&mut shape.dim);
        shape.dim = FIRST.iter().filter_map(|&axis| sizes.get(axis).cloned()).collect();
    }
}
