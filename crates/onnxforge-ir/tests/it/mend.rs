//! What runtimes accept is mended on load, with a note; what is valid is left alone.

use onnxforge_ir::Model;
use onnxforge_ir::io::to_bytes;
use onnxforge_proto::schema::{GraphProto, ModelProto, OperatorSetIdProto};

use crate::common::{encoded, function, graph, if_node, listing, loaded, message, node};

fn notes(model: &Model) -> Vec<String> {
    model.mended().iter().map(ToString::to_string).collect()
}

fn imports(model: &Model) -> Vec<(String, i64)> {
    let import = |import: &OperatorSetIdProto| {
        (import.domain.as_deref().unwrap_or_default().to_owned(), import.version.unwrap_or(0))
    };
    model.header().opset_import.iter().map(import).collect()
}

/// A model with one thing to mend, and the note about it; saved and loaded again it needs no mending.
#[track_caller]
fn mended(edit: impl FnOnce(&mut ModelProto), note: &str) -> Model {
    let mut sound =
        message(graph(&["x"], &["k: 1 2"], vec![node("t = Abs(x)"), node("y = Add(t, k)")], &["y"]));
    assert_eq!(notes(&loaded(&sound)), [""; 0]);
    assert!(to_bytes(&loaded(&sound)).unwrap() == encoded(&sound));
    edit(&mut sound);
    let model = loaded(&sound);
    assert_eq!(notes(&model), [note]);
    let again = onnxforge_ir::io::load_bytes(to_bytes(&model).unwrap(), None, &Default::default()).unwrap();
    assert_eq!(notes(&again), [""; 0]);
    model
}

fn main_graph(message: &mut ModelProto) -> &mut GraphProto {
    message.graph.as_deref_mut().unwrap()
}

#[test]
fn nodes_out_of_order_are_sorted() {
    let note = "the nodes of graph \"g\" were not in topological order; sorted them";
    let model = mended(|m| main_graph(m).node.reverse(), note);
    assert_eq!(listing(&model, model.main()), ["t = Abs(x)", "y = Add(t, k)"]);
}

#[test]
fn domains_are_imported() {
    let note = "the domain \"com.microsoft\" was not imported; imported version 1";
    let model = mended(|m| main_graph(m).node[0].domain = Some("com.microsoft".into()), note);
    assert_eq!(imports(&model), [("".into(), 21), ("local".into(), 1), ("com.microsoft".into(), 1)]);
    // Operators for another layout have the versions of the standard ones.
    let note = "the domain \"com.ms.internal.nhwc\" was not imported; imported version 21";
    mended(|m| main_graph(m).node[0].domain = Some("com.ms.internal.nhwc".into()), note);
    // In a function its own imports count.
    let note = "the domain \"com.microsoft\" was not imported; imported version 1";
    mended(
        |m| {
            let mut nodes = vec![node("b = Gelu(a)")];
            nodes[0].domain = Some("com.microsoft".into());
            m.functions.push(function("f", &["a"], nodes, &["b"]));
        },
        note,
    );
}

#[test]
fn versions_that_decide_a_meaning_are_not_guessed() {
    let mut m = message(graph(&["x"], &[], vec![node("y = Abs(x)"), node("z = ZipMap(x)")], &["y"]));
    main_graph(&mut m).node[1].domain = Some("ai.onnx.ml".into());
    m.opset_import.remove(0);
    let model = loaded(&m);
    assert_eq!(notes(&model), [""; 0]);
    assert_eq!(imports(&model), [("local".into(), 1)]);
}

#[test]
fn the_last_import_of_a_domain_holds() {
    let note = "the domain \"ai.onnx\" was imported several times; kept version 21, the last one";
    let earlier = |version| OperatorSetIdProto {
        domain: Some("".into()),
        version: Some(version),
        ..OperatorSetIdProto::default()
    };
    let model = mended(|m| m.opset_import.splice(0..0, [earlier(7), earlier(0)]).for_each(drop), note);
    assert_eq!(imports(&model), [("".into(), 21), ("local".into(), 1)]);
}

#[test]
fn initializers_need_not_be_inputs() {
    let note =
        "initializers are not among the inputs, which IR version 3 does not allow; declared IR version 4";
    let model = mended(|m| m.ir_version = Some(3), note);
    assert_eq!(model.header().ir_version, Some(4));
    // Those that are inputs are no reason.
    let mut m = message(graph(&["x", "k"], &["k: 1 2"], vec![node("y = Add(x, k)")], &["y"]));
    m.ir_version = Some(3);
    assert_eq!(loaded(&m).header().ir_version, Some(3));
}

#[test]
fn graphs_and_nodes_have_names() {
    let model = mended(|m| main_graph(m).name = None, "a graph had no name; named it");
    assert_eq!(model.scope(model.main()).name().map(|name| &**name), Some("graph"));
    let note = "two nodes had the name \"node_t\"; renamed the second";
    let model = mended(|m| main_graph(m).node[1].name = Some("node_t".into()), note);
    let names: Vec<_> = model.nodes().map(|(_, node)| node.name().unwrap().to_string()).collect();
    assert_eq!(names, ["node_t", "node_t_1"]);
    // A body is a graph of its own, and nobody minds the names of constants.
    let mut same = node("u = Constant()");
    same.name = Some("node_t".into());
    let branch = || graph(&[], &[], vec![node("t = Abs(x)")], &["t"]);
    let nodes = vec![node("t = Abs(x)"), same, if_node("y = If(p)", branch(), branch())];
    assert_eq!(notes(&loaded(&message(graph(&["x", "p"], &[], nodes, &["y"])))), [""; 0]);
}
