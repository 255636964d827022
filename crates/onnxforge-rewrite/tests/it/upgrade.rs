//! Golden cases of the conversion to newer operator sets, and what holds for all of them.
//!
//! `tests/upgrade/*.onnxtxt` holds cases, written as `golden` reads them. `--- 23` is followed by the graph as of operator set 23;
//! `--- 23 refused: reason` instead gives the error, and the model must be as it was.
//!
//! Every case is also evaluated before and after, and must agree to the bit; converting it in two steps, with any version in
//! between, must compute the same; every node of the file must have a fate.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::golden::{Case, agree, cases, inputs, judge, load, loaded, outputs, parse, print, promised};
use onnxforge_ir::{Accuracy, Model, Trust};
use onnxforge_ops::signature::AttrKind;
use onnxforge_proto::schema::{AttributeProto, ModelProto, NodeProto};
use onnxforge_rewrite::upgrade::{AUTHOR, NEWEST, OLDEST, UpgradeError, upgrade};

fn verdict(case: &Case) -> String {
    let target = case.verdict.split_whitespace().next().unwrap();
    let to: i64 = target.parse().unwrap_or_else(|_| panic!("{}: no version", case.title));
    let original = load(&case.before);
    let mut model = original.clone();
    if let Err(error) = upgrade(&mut model, to) {
        assert_eq!(print(&model), print(&original), "{}: a refused model changed", case.title);
        assert!(model.journal().is_empty());
        return format!("{to} refused: {error}");
    }
    model.validate().unwrap();
    assert_eq!(model.fates().len(), original.node_count(), "{}: a node has no fate", case.title);
    assert_eq!(promised(&model), Accuracy::BitExact);
    let trusted: BTreeSet<Trust> = model.journal().iter().filter_map(|entry| entry.trusted).collect();
    assert!(trusted.iter().all(|trust| AUTHOR.trusts.contains(trust)), "{}: {trusted:?}", case.title);
    assert_eq!(model.opset(model.main(), ""), Some(to));
    let printed = print(&model);
    upgrade(&mut model, to).unwrap();
    assert_eq!(print(&model), printed, "{}: converting it to what it is changes it", case.title);
    let from = original.opset(original.main(), "").unwrap();
    let between = (from + 1..to).filter_map(|between| {
        let mut halfway = original.clone();
        upgrade(&mut halfway, between).ok()?;
        upgrade(&mut halfway, to).unwrap_or_else(|error| panic!("{}: from {between}: {error}", case.title));
        Some(halfway)
    });
    same_results(&case.title, &original, &std::iter::once(model.clone()).chain(between).collect::<Vec<_>>());
    format!("{to}\n{}", printed.trim())
}

fn same_results(title: &str, original: &Model, converted: &[Model]) {
    for round in 0..2 {
        let inputs = inputs(original, round);
        let expected = outputs(original, &inputs);
        for model in converted {
            for (a, b) in expected.iter().zip(outputs(model, &inputs)) {
                agree(a, &b, Accuracy::BitExact).unwrap_or_else(|why| panic!("{title}: {why}"));
            }
        }
    }
}

fn files() -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/upgrade");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn old_models_become_what_the_cases_say() {
    let wrong: String = files().iter().map(|path| judge(path, verdict)).collect();
    assert!(wrong.is_empty(), "{wrong}");
}

/// The argument that stands in for a proof where inference does not know a shape is needed, and the cases show where.
#[test]
fn what_is_trusted_is_tried() {
    let texts = files().into_iter().map(|path| std::fs::read_to_string(path).unwrap());
    let mut trusted = BTreeSet::new();
    for case in texts.flat_map(|text| cases(&text)) {
        let mut model = load(&case.before);
        if upgrade(&mut model, case.verdict.split_whitespace().next().unwrap().parse().unwrap()).is_ok() {
            trusted.extend(model.journal().iter().filter_map(|entry| entry.trusted));
        }
    }
    assert_eq!(trusted.into_iter().collect::<Vec<_>>(), AUTHOR.trusts);
}

/// A call that lacks an input or an attribute, or has one of another kind, is converted or refused: the model is whole either way.
#[test]
fn broken_calls_do_no_harm() {
    let texts = files().into_iter().map(|path| std::fs::read_to_string(path).unwrap());
    let (mut converted, mut refused) = (0, 0);
    for case in texts.flat_map(|text| cases(&text)) {
        for message in broken(&parse(&case.before)) {
            let Ok(original) = loaded(&message) else { continue };
            for to in [13, NEWEST] {
                let mut model = original.clone();
                match upgrade(&mut model, to) {
                    Ok(_) => converted += 1,
                    Err(_) => refused += 1,
                }
                model.validate().unwrap_or_else(|why| panic!("{}: {why}", case.title));
            }
        }
    }
    assert!(converted > 500 && refused > 500, "{converted} converted, {refused} refused");
}

/// Models that differ in one input or attribute of one node.
fn broken(message: &ModelProto) -> Vec<ModelProto> {
    let changed = |change: &dyn Fn(&mut Vec<NodeProto>)| {
        let mut message = message.clone();
        if let Some(graph) = &mut message.graph {
            change(&mut graph.node);
        }
        message
    };
    let mut found = Vec::new();
    for (index, node) in message.graph.iter().flat_map(|graph| &graph.node).enumerate() {
        for input in 0..node.input.len() {
            found.push(changed(&|nodes| nodes[index].input[input] = "".into()));
        }
        found.push(changed(&|nodes| nodes[index].input.clear()));
        for attribute in 0..node.attribute.len() {
            found.push(changed(&|nodes| {
                nodes[index].attribute.remove(attribute);
            }));
            for i in [i64::MIN, -1, 0, i64::MAX] {
                found.push(changed(&|nodes| {
                    nodes[index].attribute[attribute] = number(&node.attribute[attribute], i);
                }));
            }
        }
    }
    found
}

/// An attribute of the same name that is an integer, or a list of one.
fn number(like: &AttributeProto, i: i64) -> AttributeProto {
    let list = !like.ints.is_empty();
    AttributeProto {
        name: like.name.clone(),
        r#type: Some(if list { AttrKind::Ints } else { AttrKind::Int } as i32),
        i: (!list).then_some(i),
        ints: if list { vec![i] } else { Vec::new() },
        ..AttributeProto::default()
    }
}

const RELU: &str = "g (float[N] x) => (float[N] y) { y = Relu(x) }";

#[test]
fn the_current_version_is_the_identity() {
    let mut model = load(RELU);
    let before = print(&model);
    let report = upgrade(&mut model, 21).unwrap();
    assert_eq!((report.from, report.to, report.ir_from, report.ir_to), (Some(21), 21, 10, 10));
    assert!(report.steps.is_empty() && model.journal().is_empty());
    assert_eq!(print(&model), before);
}

#[test]
fn only_upwards_and_only_as_far_as_known() {
    let mut model = load(RELU);
    assert_eq!(
        upgrade(&mut model, 20),
        Err(UpgradeError::Downwards { place: "the graph".to_owned(), from: 21, to: 20 })
    );
    assert_eq!(upgrade(&mut model, NEWEST + 1), Err(UpgradeError::Unknown { to: NEWEST + 1 }));
    let mut old = load(&format!("<ir_version: 3, opset_import: [\"\" : {}]>\n{RELU}", OLDEST - 1));
    assert!(matches!(upgrade(&mut old, 13), Err(UpgradeError::TooOld { .. })));
}

/// Before IR version 4 constants are inputs too, and stay constants afterwards.
#[test]
fn constants_that_had_to_be_inputs_stay_constants() {
    let mut model = load(
        "<ir_version: 3, opset_import: [\"\" : 8]>
         g (float[2] x, float[2] c) => (float[2] y) <float[2] c = {1, 2}> { y = Add(x, c) }",
    );
    let original = model.clone();
    let report = upgrade(&mut model, 13).unwrap();
    assert_eq!((report.ir_from, report.ir_to), (3, 7));
    model.validate().unwrap();
    assert_eq!(model.scope(model.main()).inputs().len(), 1);
    same_results("constants", &original, &[model]);
}
