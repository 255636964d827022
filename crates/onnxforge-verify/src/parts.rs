//! Whether parts of a model compute what the whole computes there, bit for bit.

use std::collections::{HashMap, HashSet};

use super::compare::compare;
use super::engine::EngineError;
use super::samples::Samples;
use super::{Moment, Options, VerifyError, Which};
use onnxforge_ir::cut::Cut;
use onnxforge_ir::{Model, ValueId};
use onnxforge_ops::Value;
use onnxforge_ops::infer::Inference;
use onnxforge_proto::schema::ValueInfoProto;

/// Values of a whole model in one run.
pub struct Observed {
    values: HashMap<ValueId, Value>,
    /// Those that are wanted but stand in bodies of nodes, where there is not one value.
    in_bodies: HashSet<ValueId>,
}

/// How a part compares with the whole.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Compared {
    /// All outputs have the same bits.
    Identical,
    /// This output differs: its name, and by how much.
    Different(String),
    /// It stands in the body of a node, whose values are not those of one moment.
    InBody,
    /// The engine does not run it, for this reason.
    NotRun(String),
}

/// Runs the whole model on synthetic or given inputs, and keeps what these values were.
pub fn observe(
    whole: &Model,
    wanted: &[ValueId],
    facts: &Inference,
    options: &Options,
) -> Result<Observed, VerifyError> {
    let main = whole.scope(whole.main());
    let ports = main.inputs().iter().chain(main.outputs()).map(|port| port.value);
    let exposed: HashSet<ValueId> = ports.collect();
    let (wanted, in_bodies): (Vec<ValueId>, Vec<ValueId>) =
        wanted.iter().partition(|&&value| whole.scope_of(value) == Some(whole.main()));
    let inside: Vec<ValueId> = wanted.iter().copied().filter(|value| !exposed.contains(value)).collect();
    let declare = |value: ValueId| {
        let declared = || whole.value(value).info().and_then(|info| info.r#type.clone());
        let r#type = facts.declaration(value).map(Box::new).or_else(declared);
        ValueInfoProto { r#type, ..ValueInfoProto::default() }
    };
    let wider = whole.with_outputs(&inside, &declare);
    let loading = |error| VerifyError::Run { which: Which::Whole, when: Moment::Loading, error };
    let mut ready = options.engine.open(&wider).map_err(loading)?;
    let mut samples = Samples::new(whole, options);
    let (given, results) = loop {
        let given = samples.at(0)?;
        let failed = |error: EngineError| VerifyError::Run {
            which: Which::Whole,
            when: Moment::Running(given.sizes.clone()),
            error,
        };
        match ready.run(&given.values).map_err(failed) {
            Ok(results) => break (given, results),
            Err(_) if samples.replace(0) => {}
            Err(error) => return Err(error),
        }
    };
    let mut values = HashMap::new();
    for value in wanted {
        let name = &**whole.value(value).name();
        if let Some(found) = results.get(name).or_else(|| given.values.get(name)) {
            values.insert(value, found.clone());
        }
    }
    Ok(Observed { values, in_bodies: in_bodies.into_iter().collect() })
}

/// Runs a part on what the whole model computed at its ends.
pub fn compare_part(part: &Cut, observed: &Observed, options: &Options) -> Result<Compared, VerifyError> {
    let name = |value: ValueId, cut: &Model, port: usize, outputs: bool| {
        let main = cut.scope(cut.main());
        let ports = if outputs { main.outputs() } else { main.inputs() };
        let name = ports.get(port).map(|port| cut.value(port.value).name().to_string());
        (name.unwrap_or_default(), observed.values.get(&value).cloned())
    };
    if part.inputs.iter().chain(&part.outputs).any(|value| observed.in_bodies.contains(value)) {
        return Ok(Compared::InBody);
    }
    let mut given = HashMap::new();
    for (port, &value) in part.inputs.iter().enumerate() {
        let (name, value) = name(value, &part.model, port, false);
        given.extend(value.map(|value| (name, value)));
    }
    let when = Moment::Running("on values of the whole".to_owned());
    let failed = |error: EngineError| VerifyError::Run { which: Which::Extracted, when, error };
    let results = options.engine.open(&part.model).and_then(|mut ready| ready.run(&given)).map_err(failed)?;
    for (port, &value) in part.outputs.iter().enumerate() {
        let (name, expected) = name(value, &part.model, port, true);
        let (Some(expected), Some(found)) = (expected, results.get(&name)) else {
            return Ok(Compared::Different(format!("{name} is not there")));
        };
        match compare(&expected, found) {
            Ok(difference) if difference.identical => {}
            Ok(difference) => {
                return Ok(Compared::Different(format!("{name} by up to {:.1e}", difference.max_abs)));
            }
            Err(mismatch) => return Ok(Compared::Different(format!("{name}: {mismatch}"))),
        }
    }
    Ok(Compared::Identical)
}
