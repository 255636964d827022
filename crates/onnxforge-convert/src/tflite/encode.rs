//! Graphs to bytes.

use std::collections::BTreeMap;

use onnxforge_proto::blob::{Blob, Payload};

use super::flatbuffer::build::{Builder, Field, Ref};
use super::graph::{Graph, Named, Operator, Setting, Tensor};
use super::schema::{Builtin, IDENTIFIER};

/// The version of the format.
const VERSION: i32 = 3;
/// From this size on, data lies behind the FlatBuffer, whose offsets reach no further.
const LARGEST: u64 = (1 << 31) - (1 << 20);
/// What data behind the FlatBuffer is aligned to.
const PAGE: u64 = 64;
/// Operators up to this number are listed in the field that old runtimes read.
const LAST_OLD_CODE: i32 = 127;
/// Under this name users call the graph.
const SIGNATURE: &str = "serving_default";

/// The file, piece by piece.
pub fn encode(graph: &Graph) -> Vec<Payload> {
    encode_within(graph, LARGEST)
}

/// The same, with data behind the FlatBuffer from this size of the whole on.
pub fn encode_within(graph: &Graph, largest: u64) -> Vec<Payload> {
    let data: Vec<&Payload> = graph.tensors.iter().filter_map(|tensor| tensor.data.as_ref()).collect();
    let size: u64 = data.iter().map(|payload| payload.byte_len() + 64).sum();
    if size < largest {
        return flatbuffer(graph, &|_, payload| Place::Inside(payload.clone()));
    }
    // How long the FlatBuffer is does not depend on the offsets in it.
    let pieces = flatbuffer(graph, &|_, payload| Place::Behind { offset: PAGE, size: payload.byte_len() });
    let mut end: u64 = pieces.iter().map(Payload::byte_len).sum();
    let mut offsets = Vec::with_capacity(data.len());
    for payload in &data {
        end = end.next_multiple_of(PAGE);
        offsets.push(end);
        end += payload.byte_len();
    }
    let mut pieces = flatbuffer(graph, &|index, payload| Place::Behind {
        offset: offsets.get(index).copied().unwrap_or_default(),
        size: payload.byte_len(),
    });
    let mut at: u64 = pieces.iter().map(Payload::byte_len).sum();
    for (payload, offset) in data.into_iter().zip(offsets) {
        pieces.push(Blob::from(vec![0; (offset - at) as usize]).into());
        at = offset + payload.byte_len();
        pieces.push(payload.clone());
    }
    pieces
}

/// Where the elements of a constant are.
enum Place {
    Inside(Payload),
    Behind { offset: u64, size: u64 },
}

/// The FlatBuffer; `place` says where constants go, which are counted.
fn flatbuffer(graph: &Graph, place: &dyn Fn(usize, &Payload) -> Place) -> Vec<Payload> {
    let mut out = Builder::default();
    // The first buffer is the empty one of all tensors that are computed.
    let mut buffers = vec![out.table(&[])];
    let mut metadata = Vec::new();
    for (name, text) in &graph.metadata {
        let data = out.payload(Blob::from(text.as_str()).into());
        let buffer = out.table(&[(0, Field::Offset(data))]);
        let name = out.text(name);
        let index = Field::Int(buffers.len() as i32);
        metadata.push(out.table(&[(0, Field::Offset(name)), (1, index)]));
        buffers.push(buffer);
    }
    let mut tensors = Vec::with_capacity(graph.tensors.len());
    let mut constants = 0;
    for tensor in &graph.tensors {
        let buffer = match &tensor.data {
            None => 0,
            Some(payload) => {
                let fields = match place(constants, payload) {
                    Place::Inside(payload) => vec![(0, Field::Offset(out.payload(payload)))],
                    Place::Behind { offset, size } => vec![(1, Field::Long(offset)), (2, Field::Long(size))],
                };
                constants += 1;
                buffers.push(out.table(&fields));
                buffers.len() as i32 - 1
            }
        };
        tensors.push(self::tensor(&mut out, tensor, buffer));
    }
    let mut codes: BTreeMap<(i32, i32), Builtin> = BTreeMap::new();
    for operator in &graph.operators {
        codes.insert((operator.builtin.code, operator.version), operator.builtin);
    }
    let index_of = |operator: &Operator| {
        codes.keys().position(|key| *key == (operator.builtin.code, operator.version)).unwrap_or(0)
    };
    let operators: Vec<Ref> = graph
        .operators
        .iter()
        .map(|operator| self::operator(&mut out, operator, index_of(operator) as i32))
        .collect();
    let codes: Vec<Ref> = codes
        .keys()
        .map(|&(code, version)| {
            let old = Field::Byte(code.min(LAST_OLD_CODE) as u8);
            out.table(&[(0, old), (2, Field::Int(version)), (3, Field::Int(code))])
        })
        .collect();
    let main = subgraph(&mut out, graph, &tensors, &operators);
    let signature = signature(&mut out, graph);
    let list = |out: &mut Builder, tables: &[Ref]| Field::Offset(out.tables(tables));
    let fields = [
        (0, Field::Int(VERSION)),
        (1, list(&mut out, &codes)),
        (2, list(&mut out, &[main])),
        (3, Field::Offset(out.text("onnxforge"))),
        (4, list(&mut out, &buffers)),
        (6, list(&mut out, &metadata)),
        (7, list(&mut out, &[signature])),
    ];
    let root = out.table(&fields);
    out.finish(root, IDENTIFIER)
}

fn tensor(out: &mut Builder, tensor: &Tensor, buffer: i32) -> Ref {
    let now: Vec<i32> = tensor.shape.iter().map(|size| size.unwrap_or(1)).collect();
    let mut fields = vec![
        (0, Field::Offset(out.ints(&now))),
        (1, Field::Byte(tensor.dtype)),
        (2, Field::Int(buffer)),
        (3, Field::Offset(out.text(&tensor.name))),
        (8, Field::Byte(1)),
    ];
    if tensor.shape.contains(&None) {
        let open: Vec<i32> = tensor.shape.iter().map(|size| size.unwrap_or(-1)).collect();
        fields.push((7, Field::Offset(out.ints(&open))));
    }
    if let Some(quantization) = &tensor.quantization {
        let scales = (2, Field::Offset(out.floats(&quantization.scales)));
        let zeros = (3, Field::Offset(out.longs(&quantization.zeros)));
        let quantization = out.table(&[scales, zeros, (6, Field::Int(quantization.axis))]);
        fields.push((4, Field::Offset(quantization)));
    }
    out.table(&fields)
}

fn operator(out: &mut Builder, operator: &Operator, code: i32) -> Ref {
    let mut fields = vec![
        (0, Field::Int(code)),
        (1, Field::Offset(out.ints(&operator.inputs))),
        (2, Field::Offset(out.ints(&operator.outputs))),
    ];
    if operator.builtin.options != 0 {
        let settings: Vec<(u16, Field)> = operator
            .settings
            .iter()
            .map(|(number, setting)| {
                let field = match setting {
                    Setting::Byte(value) => Field::Byte(*value),
                    Setting::Int(value) => Field::Int(*value),
                    Setting::Float(value) => Field::Float(*value),
                    Setting::Ints(values) => Field::Offset(out.ints(values)),
                };
                (*number, field)
            })
            .collect();
        fields.push((3, Field::Byte(operator.builtin.options)));
        fields.push((4, Field::Offset(out.table(&settings))));
    }
    out.table(&fields)
}

fn subgraph(out: &mut Builder, graph: &Graph, tensors: &[Ref], operators: &[Ref]) -> Ref {
    let indices = |named: &[Named]| named.iter().map(|named| named.tensor).collect::<Vec<_>>();
    let fields = [
        (0, Field::Offset(out.tables(tensors))),
        (1, Field::Offset(out.ints(&indices(&graph.inputs)))),
        (2, Field::Offset(out.ints(&indices(&graph.outputs)))),
        (3, Field::Offset(out.tables(operators))),
        (4, Field::Offset(out.text("main"))),
    ];
    out.table(&fields)
}

fn signature(out: &mut Builder, graph: &Graph) -> Ref {
    let maps = |out: &mut Builder, named: &[Named]| {
        let map = |named: &Named| {
            let name = out.text(&named.name);
            out.table(&[(0, Field::Offset(name)), (1, Field::Int(named.tensor))])
        };
        let maps: Vec<Ref> = named.iter().map(map).collect();
        Field::Offset(out.tables(&maps))
    };
    let fields = [
        (0, maps(out, &graph.inputs)),
        (1, maps(out, &graph.outputs)),
        (2, Field::Offset(out.text(SIGNATURE))),
        (4, Field::Int(0)),
    ];
    out.table(&fields)
}
