//! What `audit` finds is what the named pass then removes; what stays, stays for a reason.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use onnxforge::analysis::audit::{Audit, Finding, On, audit, catalogue};
use onnxforge::analysis::scene::{Scene, tidied};
use onnxforge::hierarchy::Hierarchy;
use onnxforge::ir::{Model, NodeId};
use onnxforge::passes;
use onnxforge::passes::pipeline::{Options, optimize};

use crate::golden;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The models of the repository, and those in a folder that `ONNXFORGE_MODELS` names.
fn models() -> Vec<(String, Model)> {
    let mut found = Vec::new();
    let more = std::env::var_os("ONNXFORGE_MODELS").map(PathBuf::from);
    for folder in [root().join("examples"), root().join("tests/data")].into_iter().chain(more) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "onnx") {
                found.push((path.display().to_string(), load(&path)));
            }
        }
    }
    assert!(found.len() > 10);
    found
}

fn load(path: &Path) -> Model {
    onnxforge::io::load(path, &Default::default()).unwrap()
}

fn audited(model: &Model) -> Audit {
    audit(model, &Hierarchy::of(model, None))
}

fn finding<'a>(audit: &'a Audit, id: &str) -> &'a Finding {
    audit.findings.iter().find(|finding| finding.id == id).unwrap_or_else(|| panic!("no finding {id}"))
}

/// What the whole command makes of a model with one pass: the nodes that its edits consumed, constants that are gone, and how many nodes went.
struct Done {
    consumed: HashSet<NodeId>,
    model: Model,
    nodes: i64,
}

fn run(model: &Model, pass: &str) -> Done {
    let mut model = model.clone();
    let (first, before) = (model.journal().len(), model.node_count() as i64);
    let pass = passes::find(pass).unwrap();
    optimize(&mut model, &Options { passes: vec![pass], ..Options::default() });
    let edits = model.journal().iter().skip(first);
    let consumed = edits.flat_map(|entry| entry.consumed.iter().copied()).collect();
    Done { consumed, nodes: before - model.node_count() as i64, model }
}

/// Compares every finding with what the passes do; answers how many places there are.
fn agrees(title: &str, model: &Model) -> usize {
    let audit = audited(model);
    let mut plain = tidied(model, false);
    let mut places = 0;
    let mut done: BTreeMap<(bool, &str), Done> = BTreeMap::new();
    for finding in &audit.findings {
        let (on_file, id) = (finding.measured_on == On::File, finding.id);
        let seen = if on_file { model } else { &plain };
        assert_eq!(finding.count, finding.places.len(), "{title}: {id}");
        assert_eq!(finding.no_pass.is_some(), finding.passes.is_empty(), "{title}: {id}");
        places += finding.count;
        for place in &finding.places {
            for &pass in &finding.passes {
                done.entry((on_file, pass)).or_insert_with(|| run(seen, pass));
            }
            let takes = |pass: &str| {
                let done = &done[&(on_file, pass)];
                match place.place.root {
                    Some(root) => done.consumed.contains(&root),
                    None => {
                        let unread = |model: &Model, value| model.value(value).uses().is_empty();
                        let gone = |value| {
                            !done.model.value(value).is_live()
                                || unread(&done.model, value) && !unread(seen, value)
                        };
                        place.place.constants.iter().any(|&value| gone(value))
                    }
                }
            };
            match (place.pass, &place.stays) {
                (Some(pass), None) => assert!(takes(pass), "{title}: {id}: {pass} does not take {place:?}"),
                (None, Some(reason)) => {
                    assert!(!reason.is_empty(), "{title}: {id}: no reason for {place:?}");
                    let taken = finding.passes.iter().find(|pass| takes(pass));
                    assert!(taken.is_none(), "{title}: {id}: {taken:?} takes {place:?}");
                }
                (None, None) => {
                    assert!(finding.passes.is_empty(), "{title}: {id}: nothing is said of {place:?}");
                }
                both => panic!("{title}: {id}: {both:?}"),
            }
            assert!(!place.nodes.is_empty() || !place.constants.is_empty(), "{title}: {id}: {place:?}");
        }
        let stay: usize = finding.stays.values().sum();
        let silent = if finding.passes.is_empty() { finding.count } else { 0 };
        assert_eq!(finding.count, finding.handled + stay + silent, "{title}: {id}");
        // What is found by the edits of a pass is all that it does.
        if matches!(id, "dead_nodes" | "repeated_calls" | "cancelling_transposes") && finding.count > 0 {
            assert_eq!(finding.worth, done[&(on_file, finding.passes[0])].nodes, "{title}: {id}");
        }
    }
    // Nothing that the pass takes for attention is overlooked.
    let fused = done.entry((false, "fuse_attention")).or_insert_with(|| run(&plain, "fuse_attention"));
    let blocks = &audit.findings.iter().find(|finding| finding.id == "attention_blocks").unwrap().places;
    let roots: HashSet<_> = blocks.iter().filter_map(|block| block.place.root).collect();
    for entry in fused.model.journal().iter().filter(|entry| &*entry.rule == "core") {
        assert!(entry.consumed.iter().any(|node| roots.contains(node)), "{title}: {entry:?} is no finding");
    }
    // A pass alone does the same with what is known as it does in the command.
    let mut file = model.clone();
    for (scene, on_file) in [(Scene::of(&mut file), true), (Scene::of(&mut plain), false)] {
        for ((_, pass), done) in done.iter().filter(|((of, _), _)| *of == on_file) {
            let trial = scene.trial(passes::find(pass).unwrap());
            assert_eq!(-trial.outcome.nodes, done.nodes, "{title}: {pass}");
        }
    }
    places
}

#[test]
fn agrees_with_passes_on_models() {
    for (title, model) in models() {
        agrees(&title, &model);
    }
}

/// Every case of every rule, those that fire and those that do not.
#[test]
fn agrees_with_passes_on_every_case_of_every_rule() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../onnxforge-rewrite/tests/rules");
    let (mut cases, mut places) = (0, 0);
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for case in golden::cases(&text) {
            let title = format!("{}: {}", path.display(), case.title);
            places += agrees(&title, &golden::load(&case.before));
            cases += 1;
        }
    }
    assert!(cases > 500 && places > 500, "{places} places in {cases} cases");
}

#[test]
fn names_are_of_the_catalogue() {
    let mut seen = HashSet::new();
    for (id, named) in catalogue() {
        assert!(seen.insert(id), "{id} twice");
        for pass in named {
            assert!(passes::all().any(|listed| listed == *pass), "{id}: {pass:?} is not listed");
        }
    }
}

/// Looks for one finding in a graph of opset 21, or with a heading of its own.
fn count(text: &str, id: &str) -> usize {
    finding(&audited(&golden::load(text)), id).count
}

#[test]
fn sees_what_is_there() {
    for (id, text) in [
        (
            "shape_chains",
            "g (float[N,4] x) => (float[N,2,2] y) { s = Shape(x) i = Constant<value = int64 {0}>() n = Gather(s, i) a = Constant<value = int64[1] {0}>() u = Unsqueeze(n, a) t = Constant<value = int64[2] {2,2}>() c = Concat<axis = 0>(u, t) y = Reshape(x, c) }",
        ),
        (
            "expand_add",
            "g (float[1,4] x, float[3,4] b) => (float[3,4] y) { s = Constant<value = int64[2] {3,4}>() e = Expand(x, s) y = Add(e, b) }",
        ),
        (
            "consecutive_reshapes",
            "g (float[2,6] x) => (float[4,3] y) { s = Constant<value = int64[1] {12}>() r = Reshape(x, s) t = Constant<value = int64[2] {4,3}>() y = Reshape(r, t) }",
        ),
        (
            "consecutive_transposes",
            "g (float[A,B,C] x) => (float[C,A,B] y) { t = Transpose<perm = [1,2,0]>(x) y = Transpose<perm = [1,2,0]>(t) }",
        ),
        ("cast_chains", "g (int32[N] x) => (double[N] y) { l = Cast<to = 7>(x) y = Cast<to = 11>(l) }"),
        ("redundant_casts", "g (float[N] x) => (float[N] y) { c = Cast<to = 1>(x) y = Neg(c) }"),
        (
            "noop_transposes",
            "g (float[1,N] x) => (float[1,N] y) { t = Transpose<perm = [0,1]>(x) y = Neg(t) }",
        ),
        (
            "noop_reshapes",
            "g (float[2,3] x) => (float[2,3] y) { s = Constant<value = int64[2] {2,3}>() r = Reshape(x, s) y = Neg(r) }",
        ),
        (
            "noop_expands",
            "g (float[2,3] x) => (float[2,3] y) { s = Constant<value = int64[2] {2,3}>() r = Expand(x, s) y = Neg(r) }",
        ),
        ("identities", "g (float[N] x) => (float[N] y) { i = Identity(x) y = Neg(i) }"),
        ("repeated_calls", "g (float[N] x) => (float[N] y) { a = Neg(x) b = Neg(x) y = Mul(a, b) }"),
        ("dead_nodes", "g (float[N] x) => (float[N] y) { a = Abs(x) y = Neg(x) }"),
        (
            "constant_subgraphs",
            "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = Neg(w) b = Abs(a) y = Mul(x, b) }",
        ),
        (
            "constant_nodes",
            "g (float[2] x) => (float[2] y) { b = Constant<value = float[2] {1, 2}>() y = Mul(x, b) }",
        ),
        (
            "duplicate_constants",
            "g (float[2] x) => (float[2] y) <float[2] v = {1, 2}, float[2] w = {1, 2}> { a = Mul(x, v) y = Add(a, w) }",
        ),
        ("unused_initializers", "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Neg(x) }"),
        (
            "matmul_3d",
            "g (float[B,S,2] x) => (float[B,S,2] y) <float[2,2] w = {1, 2, 3, 4}> { y = MatMul(x, w) }",
        ),
        (
            "matmul_add_3d",
            "g (float[B,S,2] x) => (float[B,S,2] y) <float[2,2] w = {1, 2, 3, 4}, float[2] b = {1, 2}> { p = MatMul(x, w) y = Add(b, p) }",
        ),
        (
            "matmul_add_2d",
            "g (float[B,2] x) => (float[B,2] y) <float[2,2] w = {1, 2, 3, 4}, float[2] b = {1, 2}> { p = MatMul(x, w) y = Add(b, p) }",
        ),
        ("silu_subgraphs", "g (float[N] x) => (float[N] y) { s = Sigmoid(x) y = Mul(x, s) }"),
        (
            "swiglu",
            "g (float[N,2] x) => (float[N,2] y) <float[2,2] v = {1, 2, 3, 4}, float[2,2] w = {5, 2, 3, 4}> { a = MatMul(x, v) b = MatMul(x, w) s = Sigmoid(a) c = Mul(a, s) y = Mul(c, b) }",
        ),
        (
            "attention_blocks",
            "g (float[B,S,4] q, float[B,T,4] k, float[B,T,4] v) => (float[B,S,4] y) { t = Transpose<perm = [0,2,1]>(k) p = MatMul(q, t) c = Constant<value = float {0.5}>() z = Mul(p, c) s = Softmax(z) y = MatMul(s, v) }",
        ),
        (
            "attention_scales",
            "g (float[B,S,4] q, float[B,T,4] k, float[B,T,4] v) => (float[B,S,4] y) { t = Transpose<perm = [0,2,1]>(k) p = MatMul(q, t) c = Constant<value = float {0.5}>() z = Mul(p, c) s = Softmax(z) y = MatMul(s, v) }",
        ),
    ] {
        assert_eq!(count(text, id), 1, "{id}");
    }
}

#[test]
fn sees_nothing_where_nothing_is() {
    for (id, text) in [
        // Shapes that are not known say nothing.
        ("noop_reshapes", "g (float x, int64[N] s) => (float y) { r = Reshape(x, s) y = Neg(r) }"),
        ("noop_expands", "g (float[N] x, int64[K] s) => (float y) { r = Expand(x, s) y = Neg(r) }"),
        ("noop_transposes", "g (float[A,B] x) => (float[B,A] y) { t = Transpose(x) y = Neg(t) }"),
        ("noop_transposes", "g (float[1,N] x) => (float[N,1] y) { t = Transpose(x) y = Neg(t) }"),
        ("redundant_casts", "g (float[N] x) => (double[N] y) { c = Cast<to = 11>(x) y = Neg(c) }"),
        ("matmul_3d", "g (float[B,S,2] x, float[2,2] w) => (float[B,S,2] y) { y = MatMul(x, w) }"),
        // Scores of classes are no attention.
        (
            "attention_blocks",
            "g (float[B,2] x) => (float[B,2] y) <float[2,2] v = {1, 2, 3, 4}> { p = MatMul(x, v) s = Softmax(p) y = MatMul(s, v) }",
        ),
        (
            "swiglu",
            "g (float[N] x, float[N] b) => (float[N] y) { s = Sigmoid(x) c = Mul(x, s) y = Mul(c, b) }",
        ),
        (
            "repeated_calls",
            "g (float[N] x) => (float[N] y) { a = RandomUniformLike(x) b = RandomUniformLike(x) y = Mul(a, b) }",
        ),
    ] {
        assert_eq!(count(text, id), 0, "{id}");
    }
}

#[test]
fn looks_into_bodies_and_functions() {
    let body = "g (bool c, float[1,N] x) => (float[1,N] y) {
        y = If(c) <then_branch = t () => (float[1,N] a) { u = Transpose<perm = [0,1]>(x) a = Neg(u) },
                   else_branch = e () => (float[1,N] b) { b = Abs(x) }> }";
    assert_eq!(count(body, "noop_transposes"), 1);
    let function = "<ir_version: 10, opset_import: [\"\" : 21, \"f\" : 1]>
        g (float[N] x) => (float[N] y) { y = f.twice(x) }
        <domain: \"f\", opset_import: [\"\" : 21]> twice (a) => (b) { i = Identity(a) b = Neg(i) }";
    assert_eq!(count(function, "identities"), 1);
}

#[test]
fn tells_modules_and_what_a_newer_opset_brings() {
    let model = load(&root().join("examples/tiny_bert.onnx"));
    let audit = audited(&model);
    let attention = finding(&audit, "attention_blocks");
    assert_eq!(attention.count, 2);
    let modules: Vec<_> =
        attention.places.iter().flat_map(|place| &place.nodes).map(|node| &node.module).collect();
    assert!(modules.iter().all(|module| module.is_some()), "{modules:?}");
    let newer = attention.newer.as_ref().expect("opset 23 has Attention");
    assert_eq!((newer.count, newer.handled), (2, 2));
    assert!(newer.worth > 0);
}
