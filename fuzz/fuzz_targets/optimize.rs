//! Any model: what the default passes leave of it is sound, can be saved and loaded, and computes what it did before, as
//! exactly as the journal promises.

#![no_main]

use std::collections::HashMap;
use std::time::{Duration, Instant};

use libfuzzer_sys::{Corpus, fuzz_mutator, fuzz_target};
use onnxforge::eval::{self, RunError, Session, sample};
use onnxforge::infer::Inference;
use onnxforge::io::{LoadOptions, load_bytes, to_bytes};
use onnxforge::ir::{Accuracy, Model};
use onnxforge::ops::{OpError, Value};
use onnxforge::passes::pipeline::{self, Stop, optimize};
use onnxforge::progress::Silent;
use onnxforge::proto::Str;
use onnxforge::rewrite::Budget;
use onnxforge::verify::compare::compare;
use onnxforge::verify::engine::Engine;
use onnxforge::verify::{self, Verdict};
use onnxforge_fuzz::{Counting, mutated};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Larger models take too long to be tried often.
const NODES: usize = 200;
/// Bytes that a run may take.
const MEMORY: u64 = 16 << 20;
/// How long a run may take.
const TIME: Duration = Duration::from_millis(200);
/// What the passes may cost.
const GROWTH: u64 = 1 << 16;
const RESULT: u64 = 1 << 20;
const FOLDING: Duration = Duration::from_millis(20);

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutated(data, size, max_size, seed)
});

fuzz_target!(|bytes: &[u8]| -> Corpus {
    let load = |bytes: Vec<u8>| load_bytes(bytes, None, &LoadOptions::default());
    let Ok(model) = load(bytes.to_vec()) else { return Corpus::Reject };
    if model.node_count() > NODES {
        return Corpus::Reject;
    }
    let mut optimized = model.clone();
    let budget = Budget { growth: GROWTH, result: RESULT, time: FOLDING, ..Budget::default() };
    let options = pipeline::Options { budget: Some(budget), ..pipeline::Options::default() };
    let outcome = optimize(&mut optimized, &options);
    assert_ne!(outcome.stop, Stop::Rounds, "passes undo each other");
    if let Err(broken) = optimized.validate() {
        panic!("an invariant does not hold: {broken}");
    }
    // Without a folder, external data is missing, and the model cannot be written.
    if to_bytes(&model).is_err() {
        return Corpus::Keep;
    }
    let saved = to_bytes(&optimized).expect("what could be saved before can be saved after");
    let again = load(saved).expect("what was saved can be loaded");
    if let Err(broken) = again.validate() {
        panic!("an invariant does not hold after saving: {broken}");
    }
    let journal = optimized.journal().iter();
    let promised = journal
        .map(|entry| entry.accuracy)
        .fold(Accuracy::BitExact, |worst, accuracy| if accuracy > worst { accuracy } else { worst });
    agree(&model, &again, promised);
    Corpus::Keep
});

type Outputs = Vec<(Str, Value)>;

fn run(model: &Model, inputs: &HashMap<String, Value>, seed: u64) -> Result<Outputs, RunError> {
    let deadline = Some(Instant::now() + TIME);
    let options = eval::Options { memory: MEMORY, deadline, seed, ..eval::Options::default() };
    Session::new(model, options).run(inputs)
}

/// Panics where both models run on synthetic inputs and differ by more than was promised.
fn agree(before: &Model, after: &Model, promised: Accuracy) {
    let facts = Inference::of(before);
    // Nothing is promised of a model that contradicts itself.
    if !facts.conflicts().is_empty() {
        return;
    }
    let deadline = Some(Instant::now() + TIME);
    let settings = sample::Options { memory: MEMORY, deadline, ..Default::default() };
    let Ok(inputs) = sample::sample(before, &settings, &HashMap::new()) else { return };
    let (Ok(expected), Ok(other)) = (run(before, &inputs, 0), run(before, &inputs, 1)) else { return };
    let same_bits = |a: &Outputs, b: &Outputs| {
        a.iter().zip(b).all(|((_, a), (_, b))| compare(a, b).is_ok_and(|difference| difference.identical))
    };
    if !same_bits(&expected, &other) {
        return; // Random numbers.
    }
    let found = match run(after, &inputs, 0) {
        Ok(found) => found,
        Err(error) => match error.cause() {
            Some(OpError::TooLarge { .. } | OpError::TimeOut) => return,
            _ => panic!("it does not run any more: {error}"),
        },
    };
    if same_bits(&expected, &found) {
        return;
    }
    for ((name, expected), (_, found)) in expected.iter().zip(&found) {
        match (compare(expected, found), promised) {
            (Err(mismatch), Accuracy::BitExact | Accuracy::ValueExact) => panic!("{name}: {mismatch}"),
            (Ok(difference), Accuracy::BitExact) if !difference.identical => {
                panic!("{name}: other bits: {difference:?}");
            }
            (Ok(difference), Accuracy::ValueExact) if difference.max_abs > 0.0 => {
                panic!("{name}: other numbers: {difference:?}");
            }
            _ => {}
        }
    }
    if promised > Accuracy::ValueExact {
        let options = verify::Options { samples: 1, given: inputs, ..verify::Options::new(Engine::Native) };
        let report = verify::verify(before, after, &options, &Silent).expect("both ran");
        assert_ne!(report.verdict, Verdict::Different, "{promised:?} was promised: {report:?}");
    }
}
