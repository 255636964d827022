//! The test cases of the onnx package: each is evaluated and inferred, and both answers are compared with the expected
//! outputs.
//!
//! `ONNXFORGE_CASES` names the folder that `tests/python/backend_cases.py` writes (`cargo xtask test` does both);
//! `ONNXFORGE_FILTER` keeps only cases whose name contains it and prints every failure.
//! `backend.txt` lists the cases that are not evaluated, with the reason.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use onnxforge_ir::io::{LoadOptions, load};
use onnxforge_ir::value::Def;
use onnxforge_ir::{Accuracy, DType, Entry, Model};
use onnxforge_ops::eval::{Options, RunError, Session, stored};
use onnxforge_ops::infer::{self, Given, Inference};
use onnxforge_ops::{Array, Fact, OpError, Value};
use onnxforge_proto::Str;
use onnxforge_rewrite::passes;
use onnxforge_rewrite::passes::pipeline::{self, optimize_watched};
use onnxforge_rewrite::upgrade::{NEWEST, OLDEST, UpgradeError, upgrade};
use onnxforge_testing::required;
use onnxforge_verify::local::Local;
use rayon::prelude::*;

/// What came of a case.
enum Outcome {
    Pass { known: bool },
    Unsupported(String),
    Wrong(String),
}

struct Case {
    name: String,
    folder: PathBuf,
}

fn cases(root: &Path, filter: &str) -> Vec<Case> {
    let folders = |path: &Path| -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> =
            fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        found.sort();
        found
    };
    let suites = folders(root).into_iter().flat_map(|suite| folders(&suite));
    let named = suites.map(|folder| Case { name: case_name(&folder), folder });
    named.filter(|case| case.name.contains(filter)).collect()
}

/// `suite/case`.
fn case_name(folder: &Path) -> String {
    let mut parts: Vec<_> = folder.iter().rev().take(2).map(|part| part.to_string_lossy()).collect();
    parts.reverse();
    parts.join("/")
}

fn run(case: &Case) -> Outcome {
    let answer = catch_unwind(AssertUnwindSafe(|| checked(case)));
    answer.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("?");
        Outcome::Wrong(format!("panic: {text}"))
    })
}

fn checked(case: &Case) -> Outcome {
    let model = match load(&case.folder.join("model.onnx"), &LoadOptions::default()) {
        Ok(model) => model,
        Err(error) => return Outcome::Wrong(format!("load: {error}")),
    };
    let tolerance = fs::read_to_string(case.folder.join("tolerance.txt")).unwrap();
    let tolerance: Vec<f64> = tolerance.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let mut known = true;
    for set in 0.. {
        let data = case.folder.join(format!("test_data_set_{set}"));
        if !data.exists() {
            break;
        }
        match data_set(&model, &data, [tolerance[0], tolerance[1]]) {
            Outcome::Pass { known: fully } => known &= fully,
            other => return other,
        }
    }
    Outcome::Pass { known }
}

/// The inputs by name and the expected outputs.
fn read(model: &Model, data: &Path) -> (HashMap<String, Value>, Vec<Value>) {
    let main = model.scope(model.main());
    let mut inputs = HashMap::new();
    let free = main
        .inputs()
        .iter()
        .filter(|port| !matches!(model.value(port.value).def(), Def::Input { default: Some(_), .. }));
    for (index, port) in free.enumerate() {
        let Ok(bytes) = fs::read(data.join(format!("input_{index}.pb"))) else { continue };
        let value = stored::read(bytes, &port.declared()).unwrap();
        inputs.insert(model.value(port.value).name().to_string(), value);
    }
    let mut expected = Vec::new();
    for (index, port) in main.outputs().iter().enumerate() {
        let bytes = fs::read(data.join(format!("output_{index}.pb"))).unwrap();
        expected.push(stored::read(bytes, &port.declared()).unwrap());
    }
    (inputs, expected)
}

fn data_set(model: &Model, data: &Path, tolerance: [f64; 2]) -> Outcome {
    let main = model.scope(model.main());
    let (inputs, expected) = read(model, data);
    let found = match Session::new(model, Options::default()).run(&inputs) {
        Ok(found) => found,
        Err(error @ (RunError::Node { error: OpError::Unsupported(_), .. } | RunError::Constant { .. })) => {
            return Outcome::Unsupported(error.to_string());
        }
        Err(error) => return Outcome::Wrong(format!("run: {error}")),
    };
    for ((name, found), expected) in found.iter().zip(&expected) {
        if let Err(why) = close(found, expected, tolerance) {
            return Outcome::Wrong(format!("{name}: {why}"));
        }
    }
    if let Err(why) = optimized(model, &inputs, &found, tolerance) {
        return Outcome::Wrong(why);
    }
    // Inference, with nothing but the declarations, and with the inputs' own types and the elements of parameters.
    let first = main.inputs().first().map(|port| model.value(port.value).name().clone());
    let given = inputs.iter().map(|(name, value)| {
        let small = matches!(value, Value::Tensor(array) if array.len() <= 16);
        let is_data = Some(name.as_str()) == first.as_deref() && !takes_sizes(model);
        let given =
            if small && !is_data { Given::Value(value.clone()) } else { Given::TypeOf(value.clone()) };
        (name.as_str().into(), given)
    });
    let given = given.collect();
    let mut known = true;
    for given in [HashMap::new(), given] {
        let inference = Inference::with(
            model,
            &infer::Options { given, may_be_empty: true, ..infer::Options::default() },
        );
        if let Some(conflict) = inference.conflicts().first() {
            return Outcome::Wrong(format!("infer: {}", conflict.kind));
        }
        known = true;
        for (port, expected) in main.outputs().iter().zip(&expected) {
            let fact = inference.fact(port.value);
            if let Err(why) = admits(fact, expected) {
                return Outcome::Wrong(format!("infer: {fact:?}, but {why}"));
            }
            known &= is_known(fact);
        }
    }
    Outcome::Pass { known }
}

/// The whole pipeline and each pass alone keep what the model computes, as well as their edits promise.
fn optimized(
    model: &Model,
    inputs: &HashMap<String, Value>,
    expected: &[(Str, Value)],
    tolerance: [f64; 2],
) -> Result<(), String> {
    let alone = passes::all().map(|pass| vec![pass]);
    for passes in std::iter::once(passes::defaults().collect()).chain(alone) {
        let mut changed = model.clone();
        let name = passes.first().filter(|_| passes.len() == 1).map_or("all passes", |pass| pass.name);
        let mut local = Local::new(Duration::from_secs(60));
        let options = pipeline::Options { passes, ..pipeline::Options::default() };
        optimize_watched(&mut changed, &options, Some(&mut local));
        if let Some(wrong) = local.wrong {
            return Err(format!("{name}: a check says that an edit is wrong: {wrong:?}"));
        }
        changed.validate().map_err(|error| format!("{name}: {error:?}"))?;
        if changed.journal().is_empty() {
            continue;
        }
        let rounds = |entry: &Entry| {
            matches!(entry.accuracy, Accuracy::Rounding { .. } | Accuracy::Approximate { .. })
        };
        let exact = !changed.journal().iter().any(rounds);
        let found = Session::new(&changed, Options::default())
            .run(inputs)
            .map_err(|error| format!("{name}: {error}"))?;
        for ((output, found), (_, expected)) in found.iter().zip(expected) {
            let tolerance = if exact { [0.0, 0.0] } else { tolerance };
            close(found, expected, tolerance).map_err(|why| format!("{name}: {output}: {why}"))?;
        }
    }
    Ok(())
}

/// What came of the conversion of a case to a newer operator set.
enum Converted {
    /// It has that version or a later one or too old a one, or nobody can run it.
    Not,
    /// Other nodes were needed, or not.
    Same {
        changed: bool,
    },
    Refused(UpgradeError),
    Wrong(String),
}

/// A converted model computes the same bits.
fn converted(case: &Case, to: i64) -> Converted {
    let Ok(original) = load(&case.folder.join("model.onnx"), &LoadOptions::default()) else {
        return Converted::Not;
    };
    if original.opset(original.main(), "").is_none_or(|from| !(OLDEST..to).contains(&from)) {
        return Converted::Not;
    }
    let mut model = original.clone();
    if let Err(error) = upgrade(&mut model, to) {
        return Converted::Refused(error);
    }
    if let Err(error) = model.validate() {
        return Converted::Wrong(error);
    }
    let sets =
        (0..).map(|set| case.folder.join(format!("test_data_set_{set}"))).take_while(|set| set.exists());
    for data in sets {
        let (inputs, _) = read(&original, &data);
        let run = |model: &Model| Session::new(model, Options::default()).run(&inputs);
        let Ok(expected) = run(&original) else { return Converted::Not };
        let found = match run(&model) {
            Ok(found) => found,
            Err(error) => return Converted::Wrong(error.to_string()),
        };
        for ((name, found), (_, expected)) in found.iter().zip(&expected) {
            if let Err(why) = close(found, expected, [0.0, 0.0]) {
                return Converted::Wrong(format!("{name}: {why}"));
            }
        }
    }
    Converted::Same { changed: !model.journal().is_empty() }
}

/// Whether the first input says how large the result is, as the first input of a Range does.
fn takes_sizes(model: &Model) -> bool {
    let sizes = [
        "ConstantOfShape",
        "Range",
        "HannWindow",
        "HammingWindow",
        "BlackmanWindow",
        "MelWeightMatrix",
        "Loop",
    ];
    let name = model.scope(model.main()).name().map(|name| name.to_lowercase()).unwrap_or_default();
    let named = |op: &&str| name.contains(&op.to_lowercase());
    sizes.iter().any(|op| named(op) || model.nodes().any(|(_, node)| node.op().is(op)))
}

/// As [`Fact::admits`], but a value that inference knows may differ by rounding.
fn admits(fact: &Fact, value: &Value) -> Result<(), String> {
    match fact {
        Fact::Tensor(tensor)
            if tensor.dtype.is_some_and(|dtype| dtype.kind() == onnxforge_ir::dtype::Kind::Float) =>
        {
            let mut tensor = tensor.clone();
            tensor.value = None;
            Fact::Tensor(tensor).admits(value)
        }
        _ => fact.admits(value),
    }
}

fn is_known(fact: &Fact) -> bool {
    match fact {
        Fact::Tensor(tensor) => tensor.dtype.is_some() && tensor.static_shape().is_some(),
        Fact::Sequence { element, items } => {
            items.as_ref().map_or_else(|| is_known(element), |items| items.iter().all(is_known))
        }
        Fact::Optional { element, present } => *present == Some(false) || is_known(element),
        Fact::Map => true,
        Fact::Unknown => false,
    }
}

fn close(found: &Value, expected: &Value, tolerance: [f64; 2]) -> Result<(), String> {
    match (found, expected) {
        (Value::Tensor(found), Value::Tensor(expected)) => close_arrays(found, expected, tolerance),
        (Value::Sequence(found), Value::Sequence(expected)) if found.len() == expected.len() => {
            found.iter().zip(expected.iter()).try_for_each(|(a, b)| close(a, b, tolerance))
        }
        (Value::Optional(None), Value::Optional(None)) => Ok(()),
        (Value::Optional(Some(found)), Value::Optional(Some(expected))) => close(found, expected, tolerance),
        (Value::Map(found), Value::Map(expected)) if found.len() == expected.len() => {
            found.iter().zip(expected.iter()).try_for_each(|((key, a), (other, b))| {
                if key == other { close(a, b, tolerance) } else { Err(format!("key {key:?}, not {other:?}")) }
            })
        }
        _ => Err(format!("{found:?}, not {expected:?}")),
    }
}

fn close_arrays(found: &Array, expected: &Array, [rtol, atol]: [f64; 2]) -> Result<(), String> {
    if found.dtype() != expected.dtype() || found.shape() != expected.shape() {
        return Err(format!("{found:?}, not {expected:?}"));
    }
    // Two units in the last place of the 8-bit mantissa, as in onnx's own runner.
    let rtol = if found.dtype() == DType::BF16 { rtol.max(1.0 / 64.0) } else { rtol };
    let (Ok(a), Ok(b)) = (numbers(found), numbers(expected)) else {
        let same = found.to_tensor().unwrap().same_bits(&expected.to_tensor().unwrap());
        return if same { Ok(()) } else { Err(format!("{found:?}, not {expected:?}")) };
    };
    for (index, (&a, &b)) in a.iter().zip(&b).enumerate() {
        let same = a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= atol + rtol * b.abs();
        if !same {
            return Err(format!("{a} at {index} of {:?} {}, not {b}", found.shape(), found.dtype()));
        }
    }
    Ok(())
}

/// The real numbers of an array, complex ones as pairs.
fn numbers(array: &Array) -> Result<Vec<f64>, OpError> {
    use onnxforge_ops::array::Buffer;
    match array.buffer() {
        Buffer::C64(data) => Ok(data.iter().flat_map(|z| [z.re.into(), z.im.into()]).collect()),
        Buffer::C128(data) => Ok(data.iter().flat_map(|z| [z.re, z.im]).collect()),
        _ => array.to_f64s(),
    }
}

/// The cases that are not evaluated, with the reason.
fn manifest() -> BTreeMap<&'static str, &'static str> {
    let lines = include_str!("backend.txt").lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| line.split_once(": ").expect("a line is `suite/case: reason`")).collect()
}

#[test]
#[ignore = "needs the test cases of the onnx package in ONNXFORGE_CASES; cargo xtask test provides them"]
fn backend_cases() {
    let root = required("ONNXFORGE_CASES");
    let filter = std::env::var("ONNXFORGE_FILTER").unwrap_or_default();
    let cases = cases(Path::new(&root), &filter);
    let manifest = manifest();
    let outcomes: Vec<Outcome> = cases.par_iter().map(run).collect();
    let (mut passed, mut known, mut ignored, mut problems) = (0, 0, 0, Vec::new());
    let mut unknown = Vec::new();
    for (case, outcome) in cases.iter().zip(outcomes) {
        match (outcome, manifest.get(&*case.name)) {
            (Outcome::Pass { .. }, Some(_)) => {
                problems.push(format!("{} passes: take it out of backend.txt", case.name));
            }
            (Outcome::Pass { known: fully }, None) => {
                passed += 1;
                known += usize::from(fully);
                if !fully {
                    unknown.push(case.name.as_str());
                }
            }
            (_, Some(_)) => ignored += 1,
            (Outcome::Unsupported(why), None) => problems.push(format!("{}: unsupported: {why}", case.name)),
            (Outcome::Wrong(why), None) => problems.push(format!("{}: {why}", case.name)),
        }
    }
    println!("{passed} of {} cases pass, {ignored} are listed in backend.txt", cases.len());
    println!("{known} of {passed} are fully known by inference");
    if !filter.is_empty() || std::env::var_os("ONNXFORGE_VERBOSE").is_some() {
        unknown.iter().for_each(|name| println!("not fully known: {name}"));
    }
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
    if filter.is_empty() {
        assert!(cases.len() >= 2000, "only {} cases were found", cases.len());
        assert!(known * 100 >= passed * 98, "{known} of {passed} are fully known");
        assert!(passed * 100 >= cases.len() * 98, "{passed} of {} pass", cases.len());
    }
}

/// Every case that can be run computes the same after conversion to a newer operator set. The expected outputs need not be looked
/// at again: `backend_cases` compares them with the original.
#[test]
#[ignore = "needs the test cases of the onnx package in ONNXFORGE_CASES; cargo xtask test provides them"]
fn converted_cases() {
    let root = required("ONNXFORGE_CASES");
    let filter = std::env::var("ONNXFORGE_FILTER").unwrap_or_default();
    let cases = cases(Path::new(&root), &filter);
    for to in [23, NEWEST] {
        let outcomes: Vec<Converted> = cases.par_iter().map(|case| converted(case, to)).collect();
        let (mut same, mut changed) = (0, 0);
        let (mut refused, mut wrong) = (Vec::new(), Vec::new());
        for (case, outcome) in cases.iter().zip(outcomes) {
            match outcome {
                Converted::Not => {}
                Converted::Same { changed: other } => {
                    same += 1;
                    changed += usize::from(other);
                }
                Converted::Refused(error) => refused.push(format!("{}: {error}", case.name)),
                Converted::Wrong(why) => wrong.push(format!("{}: {why}", case.name)),
            }
        }
        println!("to opset {to}: {same} cases compute the same, {changed} of them by other nodes");
        assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
        assert!(refused.is_empty(), "{} are refused:\n{}", refused.len(), refused.join("\n"));
        assert!(!filter.is_empty() || same >= 1600 && changed >= 50, "only {same} cases, {changed} changed");
    }
}
