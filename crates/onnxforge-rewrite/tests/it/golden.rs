//! Golden cases: a graph before, and what becomes of it or why nothing does, in one notation and one file.
//!
//! ```text
//! === what the case shows
//! g (float[N] x) => (float[N] y) { y = Identity(x) }
//! --- verdict
//! g (float[N] x) => (float[N] y) { … }
//! ```
//!
//! `ONNXFORGE_BLESS=1` writes what comes out into the files.

#![allow(dead_code)]

use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use onnxforge_ir::io::{LoadError, load_bytes};
use onnxforge_ir::text::{self, PrintOptions};
use onnxforge_ir::{Accuracy, DType, Model, Type};
use onnxforge_ops::eval::sample::{self, sample};
use onnxforge_ops::eval::{Options, Session};
use onnxforge_ops::eval_call::Memory;
use onnxforge_ops::kernel::convert::{Rounding, convert};
use onnxforge_ops::{Array, Value};
use onnxforge_proto::schema::ModelProto;
use onnxforge_proto::wire;

/// What graphs without a heading have.
const HEADER: &str = "<ir_version: 10, opset_import: [\"\" : 21]>\n";

pub struct Case {
    pub title: String,
    pub before: String,
    /// The line that says what happens, and what comes out of it.
    pub verdict: String,
}

pub fn is_blessing() -> bool {
    std::env::var_os("ONNXFORGE_BLESS").is_some()
}

pub fn cases(text: &str) -> Vec<Case> {
    let case = |part: &str| {
        let (title, rest) = part.split_once('\n').unwrap();
        let (before, verdict) = rest.split_once("\n---").unwrap_or_else(|| panic!("{title}: no verdict"));
        Case {
            title: title.trim().to_owned(),
            before: before.trim().to_owned(),
            verdict: verdict.trim().to_owned(),
        }
    };
    text.split("=== ").skip(1).map(case).collect()
}

/// Asks for the verdict on each case of a file. Answers what is wrong, or writes it down.
pub fn judge(path: &Path, verdict: impl Fn(&Case) -> String) -> String {
    let name = path.file_stem().unwrap().to_string_lossy();
    let text = std::fs::read_to_string(path).unwrap_or_else(|_| panic!("{name}: no cases"));
    let (preface, _) = text.split_once("=== ").unwrap();
    let (mut wrong, mut blessed) = (String::new(), preface.to_owned());
    for case in cases(&text) {
        let found = verdict(&case);
        if found != case.verdict {
            let Case { title, verdict, .. } = &case;
            write!(wrong, "\n{name}: {title}\nexpected: {verdict}\nfound: {found}\n").unwrap();
        }
        write!(blessed, "=== {}\n{}\n--- {found}\n\n", case.title, case.before).unwrap();
    }
    if is_blessing() {
        std::fs::write(path, format!("{}\n", blessed.trim_end())).unwrap();
        return String::new();
    }
    wrong
}

pub fn parse(text: &str) -> ModelProto {
    let text = if text.starts_with('<') { text.to_owned() } else { format!("{HEADER}{text}") };
    text::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

pub fn loaded(message: &ModelProto) -> Result<Model, LoadError> {
    let mut bytes = Vec::new();
    wire::encode(message).write_to(&mut bytes).unwrap();
    load_bytes(bytes, None, &Default::default())
}

pub fn load(text: &str) -> Model {
    loaded(&parse(text)).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

pub fn print(model: &Model) -> String {
    let message = onnxforge_ir::io::message::to_inline_message(model).unwrap();
    let printed = text::print(&message, &PrintOptions::default());
    assert_eq!(text::print(&text::parse(&printed).unwrap(), &PrintOptions::default()), printed);
    let notes_off = printed
        .lines()
        .filter(|line| !line.starts_with("#@"))
        .map(|line| line.split_once("  #@").map_or(line, |(line, _)| line));
    let text = notes_off.collect::<Vec<_>>().join("\n");
    let plain = HEADER.replace(['<', '>', '\n'], "");
    let heading = text
        .split_once(">\n")
        .filter(|(heading, _)| heading.replace(['<', '\n', ' '], "") == plain.replace(' ', ""));
    heading.map_or(text.clone(), |(_, rest)| rest.to_owned())
}

pub fn outputs(model: &Model, inputs: &HashMap<String, Value>) -> Vec<Value> {
    let outputs =
        Session::new(model, Options::default()).run(inputs).unwrap_or_else(|error| panic!("{error}"));
    outputs.into_iter().map(|(_, value)| value).collect()
}

/// Made-up inputs; the sizes of named dimensions depend on whether `round` is even.
pub fn inputs(model: &Model, round: u64) -> HashMap<String, Value> {
    let names = ["N", "M", "K", "B", "S", "batch", "seq"];
    let dims = names
        .iter()
        .enumerate()
        .map(|(index, name)| ((*name).to_owned(), [1, 3][round as usize % 2] + index % 3));
    let options = sample::Options { seed: round, dims: dims.collect(), ..Default::default() };
    let inputs = model.scope(model.main()).inputs().iter();
    let given = inputs.filter_map(|port| {
        Some((model.value(port.value).name().to_string(), unranked(&port.declared(), round)?))
    });
    let given: HashMap<String, Value> = given.collect();
    let mut made = sample(model, &options, &given).unwrap();
    made.extend(given);
    made
}

/// Shapes of inputs whose rank is not declared, one after the other.
const SHAPES: [&[usize]; 4] = [&[2, 3], &[4], &[1, 2, 3], &[0, 2]];

/// A value of a type that does not say how many axes there are; `None` where it does.
fn unranked(ty: &Type, round: u64) -> Option<Value> {
    match ty {
        Type::Tensor(dtype, None) => {
            let shape = SHAPES[round as usize % SHAPES.len()];
            let size = shape.iter().product::<usize>();
            let numbers = (0..size).map(|index| (index as f32 - 1.5) * (round as f32 + 1.0));
            Some(match dtype {
                Some(DType::Bool) => {
                    Array::new(shape, numbers.map(|number| number > 0.0).collect()).unwrap().into()
                }
                Some(DType::F32) => Array::new(shape, numbers.collect::<Vec<f32>>()).unwrap().into(),
                Some(half @ (DType::F16 | DType::BF16)) => {
                    let wide = Array::new(shape, numbers.collect::<Vec<f32>>()).unwrap();
                    convert(&wide, *half, Rounding::default(), &Memory::new(u64::MAX)).unwrap().into()
                }
                other => panic!("no values of {other:?} without a rank"),
            })
        }
        Type::Sequence(element) => {
            let items = [round, round + 1].map(|round| unranked(element, round));
            Some(Value::Sequence(Arc::new(items.into_iter().collect::<Option<_>>()?)))
        }
        Type::Optional(element) => Some(Value::Optional(Some(Box::new(unranked(element, round)?)))),
        _ => None,
    }
}

/// The most that the edits of a model may have changed its results.
pub fn promised(model: &Model) -> Accuracy {
    let accuracies = model.journal().iter().map(|entry| entry.accuracy);
    accuracies.fold(Accuracy::BitExact, |worst, accuracy| if accuracy > worst { accuracy } else { worst })
}

pub fn agree(a: &Value, b: &Value, accuracy: Accuracy) -> Result<(), String> {
    let (a, b) = match (a, b) {
        (Value::Tensor(a), Value::Tensor(b)) => (a, b),
        (Value::Sequence(a), Value::Sequence(b)) if a.len() == b.len() => {
            return a.iter().zip(&**b).try_for_each(|(a, b)| agree(a, b, accuracy));
        }
        (Value::Optional(Some(a)), Value::Optional(Some(b))) => return agree(a, b, accuracy),
        (Value::Optional(None), Value::Optional(None)) | (Value::Map(_), Value::Map(_)) => return Ok(()),
        _ => return Err(format!("{a:?} became {b:?}")),
    };
    if a.shape() != b.shape() || a.dtype() != b.dtype() {
        return Err(format!("{} {:?} became {} {:?}", a.dtype(), a.shape(), b.dtype(), b.shape()));
    }
    if a.to_tensor().unwrap().same_bits(&b.to_tensor().unwrap()) {
        return Ok(());
    }
    let (x, y) = (a.to_f64s().unwrap(), b.to_f64s().unwrap());
    let scale = x.iter().copied().filter(|x| x.is_finite()).fold(0.0, |scale: f64, x| scale.max(x.abs()));
    let allowed = match accuracy {
        Accuracy::BitExact => return Err(format!("{x:?} became {y:?}")),
        Accuracy::ValueExact => 0.0,
        Accuracy::Rounding { .. } => return Err("rounding is judged by `bounds`".to_owned()),
        Accuracy::Approximate { rtol, atol } => atol + rtol * scale,
    };
    let same = |(x, y): (&f64, &f64)| x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= allowed;
    if x.iter().zip(&y).all(same) { Ok(()) } else { Err(format!("{x:?} became {y:?}")) }
}
