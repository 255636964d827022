//! The structural checker: a model that breaks no rule, and for each rule models that break it.

use std::path::PathBuf;

use onnxforge_ir::io::external::{ExternalFiles, LinkPolicy};
use onnxforge_ops::check::{Problem, Rule, Severity, check};
use onnxforge_proto::blob::Blob;
use onnxforge_proto::schema::*;
use onnxforge_proto::wire::decode;
use onnxforge_testing::repository;

mod build;
mod cases;

use build::*;

fn data(name: &str) -> PathBuf {
    repository("tests/data").join(name)
}

fn problems(model: &ModelProto) -> Vec<Problem> {
    check(model, &mut ExternalFiles::new(Some(data("")), LinkPolicy::default()))
}

fn list(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}

/// Asserts that the case is reported, and that nothing else is an error.
#[track_caller]
fn assert_reported(case: &cases::Case) {
    let mut model = sound();
    (case.edit)(&mut model);
    let found = problems(&model);
    let report = list(&found);
    let wanted = format!("{}[{}] {}: …{}", case.severity, case.rule, case.place, case.message);
    let reported = found.iter().any(|problem| {
        problem.rule == case.rule
            && problem.severity == case.severity
            && problem.place.to_string() == case.place
            && problem.message.contains(case.message)
    });
    assert!(reported, "expected\n{wanted}\nin\n{report}");
    let only = found.iter().all(|problem| problem.severity == Severity::Warning || problem.rule == case.rule);
    assert!(only, "expected only\n{wanted}\nin\n{report}");
}

/// Asserts that a change of the sound model leaves nothing to report.
#[track_caller]
fn assert_sound(edit: impl Fn(&mut ModelProto)) {
    let mut model = sound();
    edit(&mut model);
    assert_eq!(list(&problems(&model)), "");
}

#[test]
fn a_sound_model_has_no_problems() {
    assert_sound(|_| {});
}

#[test]
fn broken_models_are_reported_with_their_place() {
    for case in cases::all() {
        assert_reported(&case);
    }
}

#[test]
fn every_rule_is_broken_by_some_test() {
    let cases = cases::all();
    for &rule in Rule::ALL {
        // Nesting and calls have tests of their own.
        assert!(
            matches!(rule, Rule::Nesting | Rule::Call) || cases.iter().any(|case| case.rule == rule),
            "{rule}"
        );
    }
}

/// What inference finds wrong, as problems; the model breaks no other rule.
fn found(nodes: &[&str]) -> Vec<String> {
    let mut message = sound();
    let graph = main_graph(&mut message);
    graph.node.extend(nodes.iter().map(|text| node(text)));
    assert_eq!(list(&problems(&message)), "");
    let mut files = ExternalFiles::new(Some(data("")), LinkPolicy::default());
    let model = onnxforge_ir::io::load::from_message(message, &mut files).unwrap();
    onnxforge_ops::check::conflicts(&model).iter().map(ToString::to_string).collect()
}

#[test]
fn calls_that_cannot_work_are_found() {
    assert_eq!(found(&[]), [""; 0]);
    assert_eq!(found(&["s = Shape(x)", "z = Reshape(x, s)"]), [""; 0]);
    let problems = found(&["z = Gemm(x, x)"]);
    assert!(
        matches!(&problems[..], [one] if one.starts_with("error[call] graph \"main\" / node 3 (Gemm): ")),
        "{problems:?}"
    );
}

#[test]
fn ids_are_distinct_and_kebab_case() {
    let mut ids: Vec<_> = Rule::ALL.iter().map(|rule| rule.id()).collect();
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    assert!(ids.iter().all(|id| id.chars().all(fits)));
    assert!(Rule::ALL.iter().all(|rule| rule.about().ends_with('.')));
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), Rule::ALL.len());
}

#[test]
fn a_problem_serializes_under_stable_names() {
    let mut model = sound();
    model.graph = None;
    let json = serde_json::to_value(&problems(&model)[0]).unwrap();
    let expected = serde_json::json!({
        "rule": "missing-graph", "severity": "error", "place": "model", "message": "the model has no graph"
    });
    assert_eq!(json, expected);
}

#[test]
fn an_initializer_may_be_the_default_of_an_input() {
    assert_sound(|m| main_graph(m).input.push(value("w", FLOAT, &[2])));
    // Up to IR version 3 it has to be.
    assert_sound(|m| {
        m.ir_version = Some(3);
        m.opset_import = vec![import("", 8)];
        m.functions.clear();
        let main = main_graph(m);
        main.input.push(value("w", FLOAT, &[2]));
        main.node.truncate(1);
        main.output = vec![value("sum", FLOAT, &[2])];
    });
}

#[test]
fn a_body_may_use_names_that_are_defined_later_outside() {
    assert_sound(|m| plus(m, node("yes = Relu(x)")));
    assert_sound(|m| {
        then_branch(m).node[0].output[0] = "either".into();
        then_branch(m).output[0].name = Some("either".into());
    });
}

#[test]
fn values_and_outputs_that_are_left_out_are_fine() {
    assert_sound(|m| plus(m, NodeProto { input: vec!["x".into(), "".into()], ..node("z = Clip()") }));
    assert_sound(|m| plus(m, NodeProto { output: vec!["".into(), "k".into()], ..node("= local:Op(x)") }));
    assert_sound(|m| main_graph(m).value_info.clear());
}

#[test]
fn operators_of_unknown_domains_are_opaque() {
    assert_sound(|m| {
        m.opset_import.push(import("com.example", 3));
        let call = with(node("p, q = com.example:Anything(x, c, w)"), [int("a", 1), float("b", 2.0)]);
        plus(m, call);
    });
}

#[test]
fn attributes_of_implementations_are_ignored() {
    assert_sound(|m| plus(m, with(node("z = Relu(x)"), [int("__internal", 1)])));
}

#[test]
fn names_are_found_through_all_levels_of_bodies() {
    assert_sound(|m| {
        let inner = graph("inner", vec![node("deep = Add(x, sum)")], vec![untyped("deep")]);
        let other = graph("other", vec![node("deep2 = Add(sum, w)")], vec![untyped("deep2")]);
        let nested = with(node("yes = If(c)"), [body("then_branch", inner), body("else_branch", other)]);
        then_branch(m).node = vec![nested];
    });
}

#[test]
fn a_cycle_through_a_body_is_found() {
    let mut model = sound();
    then_branch(&mut model).node[0].input[0] = "y".into();
    let found = problems(&model);
    assert_eq!(found.len(), 1, "{}", list(&found));
    assert_eq!(found[0].rule, Rule::Cycle);
    assert!(found[0].message.contains("node 1 (If), node 2 (local.Leak)"), "{}", found[0]);
}

#[test]
fn all_problems_are_listed() {
    let mut model = sound();
    for i in 0..1000 {
        plus(&mut model, node(&format!("z{i} = Relu(missing{i})")));
    }
    let dangling = problems(&model).into_iter().filter(|problem| problem.rule == Rule::DanglingName);
    assert_eq!(dangling.count(), 1000);
}

#[test]
fn places_of_nested_problems_can_be_followed() {
    let mut model = sound();
    then_branch(&mut model).node[0].input[0] = "nowhere".into();
    then_branch(&mut model).node[0].name = Some("inner\n".into());
    let found = problems(&model);
    let place = "graph \"main\" / node 1 (If) / attribute \"then_branch\" / graph \"yes\" / node 0 \"inner\\n\" (Relu)";
    assert_eq!(found[0].place.to_string(), place);
}

#[test]
fn long_names_are_cut() {
    let mut model = sound();
    main_graph(&mut model).node[0].input[0] = "n".repeat(1_000_000).into();
    main_graph(&mut model).name = Some("g".repeat(1_000_000).into());
    assert!(problems(&model)[0].to_string().len() < 1000);
}

#[test]
fn nesting_beyond_reason_is_reported() {
    let mut model = sound();
    let mut inner = graph("g", Vec::new(), Vec::new());
    for depth in 0..150 {
        let outer = with(node(&format!("n{depth} = local:Op(x)")), [body("body", inner)]);
        inner = graph("g", vec![outer], Vec::new());
    }
    main_graph(&mut model).node.extend(inner.node);
    let found = problems(&model);
    assert_eq!(found.iter().map(|problem| problem.rule).collect::<Vec<_>>(), [Rule::Nesting]);

    let mut ty = tensor_type(FLOAT, &[1]);
    for _ in 0..150 {
        let element = ElementType { elem_type: Some(ty.into()), ..Default::default() };
        ty = TypeProto { sequence_type: Some(element.into()), ..Default::default() };
    }
    let mut model = sound();
    main_graph(&mut model).input.push(ValueInfoProto { r#type: Some(ty.into()), ..untyped("s") });
    assert!(problems(&model).iter().any(|problem| problem.rule == Rule::Nesting));
}

#[test]
fn the_models_of_the_repository_are_valid() {
    let mut count = 0;
    for folder in [data(""), data("../../examples")] {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "onnx") {
                continue;
            }
            let model: ModelProto = decode(&Blob::from(std::fs::read(&path).unwrap())).unwrap();
            let found = check(&model, &mut ExternalFiles::new(Some(folder.clone()), LinkPolicy::default()));
            let errors: Vec<_> =
                found.into_iter().filter(|problem| problem.severity == Severity::Error).collect();
            assert!(errors.is_empty(), "{}:\n{}", path.display(), list(&errors));
            count += 1;
        }
    }
    assert!(count > 10);
}

/// Bytes changed at random: whatever still decodes can be checked.
#[test]
fn damaged_models_do_not_panic() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let mut checked = 0;
    for name in ["every_field.onnx", "functions.onnx", "loop.torchscript.onnx", "sequence_optional.onnx"] {
        let original = std::fs::read(data(name)).unwrap();
        for _ in 0..1500 {
            let mut bytes = original.clone();
            for _ in 0..=random(3) {
                let at = random(bytes.len());
                bytes[at] = random(256) as u8;
            }
            if let Ok(model) = decode::<ModelProto>(&Blob::from(bytes)) {
                list(&problems(&model));
                checked += 1;
            }
        }
    }
    assert!(checked > 500);
}
