//! The table of changes: which operator changed with which version, and who knows what to do.

use super::adapter::{Adapted, Old, Refusal};
use super::{attention, index, norm, parameters, resize, scan, softmax, values};
use crate::Workbench;
use onnxforge_ir::NodeId;
use onnxforge_ops::signature::{Lookup, Param, Presence, Signature, signature};

/// The oldest version that can be converted.
pub const OLDEST: i64 = 7;

/// The newest version to which can be converted: the text of every change up to here was read. A version that the table of
/// signatures gets later is reached only when somebody reads what it changes.
pub const NEWEST: i64 = 28;

/// The newest version that ONNX Runtime loads (1.31).
pub const NEWEST_OF_RUNTIMES: i64 = 26;

/// A version that changes what an operator means or takes.
pub struct Step {
    /// The operator.
    pub op: &'static str,
    /// The version.
    pub version: i64,
    /// How the journal calls what is done about it.
    pub rule: &'static str,
    /// What a call of the version before becomes.
    pub adapt: fn(&Old<'_>) -> Adapted,
}

const fn step(op: &'static str, version: i64, rule: &'static str, adapt: fn(&Old<'_>) -> Adapted) -> Step {
    Step { op, version, rule, adapt }
}

/// The changes that need more than a new version number. Every other change of the table of signatures is one that
/// [`follows`] proves to be none for old calls, or whose new text says more clearly what runtimes always did:
///
/// - ConvTranspose 11 splits an odd padding the other way round than the text of version 1 does;
/// - MaxPool, AveragePool and LpPool 22 ignore windows that start in the padding at the end;
/// - Cast 24 casts infinity to the largest number of the `fnuz` types; the table of version 19 says NaN;
/// - Mod 13 restricts `fmod` to floats, Clip 13 says what happens when the bounds are swapped.
///
/// ONNX Runtime and our evaluator treat all versions of these alike; `test_upgrade.py` tries it.
pub static STEPS: &[Step] = &[
    // Attributes that became inputs.
    step("Upsample", 9, "scales", parameters::scales),
    step("Slice", 10, "parameters", parameters::slice),
    step("TopK", 10, "k", parameters::k),
    step("Clip", 11, "bounds", parameters::bounds),
    step("Pad", 11, "pads", parameters::pads),
    step("Dropout", 12, "ratio", parameters::ratio),
    step("ReduceSum", 13, "axes", parameters::axes),
    step("Split", 13, "split", parameters::split),
    step("Squeeze", 13, "axes", parameters::axes),
    step("Unsqueeze", 13, "axes", parameters::axes),
    step("ReduceL1", 18, "axes", parameters::axes),
    step("ReduceL2", 18, "axes", parameters::axes),
    step("ReduceLogSum", 18, "axes", parameters::axes),
    step("ReduceLogSumExp", 18, "axes", parameters::axes),
    step("ReduceMax", 18, "axes", parameters::axes),
    step("ReduceMean", 18, "axes", parameters::axes),
    step("ReduceMin", 18, "axes", parameters::axes),
    step("ReduceProd", 18, "axes", parameters::axes),
    step("ReduceSumSquare", 18, "axes", parameters::axes),
    step("DFT", 20, "axis", parameters::axis),
    // Values that attributes have, and types of results.
    step("Dropout", 10, "mask", values::mask),
    step("RoiAlign", 16, "mode", values::no_shift),
    step("Split", 18, "num_outputs", values::num_outputs),
    step("QuantizeLinear", 19, "same_type", values::same_type),
    step("GridSample", 20, "mode", values::mode_names),
    step("QuantizeLinear", 23, "precision", values::precision),
    // Scattering and gathering.
    step("OneHot", 11, "negative", index::negative),
    step("Scatter", 11, "name", index::scatter),
    // One axis instead of all from there on.
    step("Hardmax", 13, "axis", softmax::one_axis),
    step("LogSoftmax", 13, "axis", softmax::one_axis),
    step("Softmax", 13, "axis", softmax::one_axis),
    // Interpolation.
    step("Upsample", 10, "name", resize::upsample),
    step("Resize", 11, "coordinates", resize::coordinates),
    step("Resize", 13, "coordinates", resize::choice),
    // Normalization.
    step("BatchNormalization", 9, "spatial", norm::spatial),
    step("BatchNormalization", 14, "training", norm::training),
    step("GroupNormalization", 21, "channels", norm::channels),
    // Bodies and attention.
    step("Scan", 9, "batch", scan::batch),
    step("Attention", 24, "mask", attention::mask),
];

/// The adapter for a change.
pub fn find(op: &str, version: i64) -> Option<&'static Step> {
    STEPS.iter().find(|step| step.op == op && step.version == version)
}

/// The versions of an operator before and from `version` on, if that changes it.
pub fn versions(op: &str, version: i64) -> Option<(&'static Signature, &'static Signature)> {
    let at = |opset: i64| match signature("", op, opset) {
        Lookup::Found(found) | Lookup::Deprecated(found) => Some(found),
        _ => None,
    };
    let (old, new) = (at(version - 1)?, at(version)?);
    (i64::from(new.since) == version).then_some((old, new))
}

/// Whether a call means the same in `version`, which changes its operator, as it is. It does when the signatures say so and
/// nothing is known to have a type that the new one does not take.
pub fn stays(bench: &Workbench<'_>, id: NodeId, version: i64) -> Result<(), Refusal> {
    let node = bench.model.node(id);
    let Some((old, new)) = versions(&node.op().name, version) else { return Ok(()) };
    follows(old, new).map_err(Refusal)?;
    for (index, input) in node.inputs().iter().enumerate() {
        let Some(value) = *input else { continue };
        let dtype = bench.facts.tensor(value).and_then(|fact| fact.dtype);
        let taken = |dtype: onnxforge_ir::DType| {
            new.input(index).is_some_and(|param| param.types.allows_tensor(dtype.code()))
        };
        if let Some(dtype) = dtype.filter(|&dtype| !taken(dtype)) {
            let why =
                format!("it no longer takes {dtype}; choose an opset before {version}, or cast the input");
            return Err(Refusal(why));
        }
    }
    Ok(())
}

/// Whether every call of the old version is one of the new version with the same attributes. Types are no matter here: fewer
/// types make a call invalid, never wrong, and [`stays`] looks at the call itself.
pub fn follows(old: &Signature, new: &Signature) -> Result<(), String> {
    if new.deprecated {
        return Err("it may no longer be used".to_owned());
    }
    params_follow("input", &old.inputs, &new.inputs)?;
    params_follow("output", &old.outputs, &new.outputs)?;
    for attribute in &old.attributes {
        let name = attribute.name;
        let Some(now) = new.attribute(name) else {
            return Err(format!("it has no attribute {name} any more"));
        };
        if (now.kind, &now.default) != (attribute.kind, &attribute.default)
            || now.required && !attribute.required
        {
            return Err(format!("its attribute {name} has another default or kind"));
        }
    }
    match new.attributes.iter().find(|now| now.required && old.attribute(now.name).is_none()) {
        Some(now) => Err(format!("it needs the attribute {}", now.name)),
        None => Ok(()),
    }
}

/// Whether what fits the old parameters fits the new ones, each in its place.
fn params_follow(what: &str, old: &[Param], new: &[Param]) -> Result<(), String> {
    for (index, param) in old.iter().enumerate() {
        let Some(now) = new.get(index) else { return Err(format!("it has no {what} {index} any more")) };
        let follows = match (param.presence, now.presence) {
            (Presence::Required, Presence::Required | Presence::Optional)
            | (Presence::Optional, Presence::Optional) => true,
            (
                Presence::Variadic { min: old, homogeneous: was },
                Presence::Variadic { min: new, homogeneous: is },
            ) => new <= old && (was || !is),
            _ => false,
        };
        if !follows {
            return Err(format!("it needs the {what} {}", now.name));
        }
        // Two parameters that could be of different types, and now share one.
        let tied = old[..index].iter().zip(new).find(|(before, now_before)| {
            now_before.ty == now.ty
                && before.ty != param.ty
                && !(before.types == now.types && param.types == now.types)
        });
        if let Some((before, _)) = tied {
            return Err(format!("its {what}s {} and {} have one type", before.name, param.name));
        }
    }
    let needed = |now: &&Param| {
        matches!(now.presence, Presence::Required)
            || matches!(now.presence, Presence::Variadic { min: 1.., .. })
    };
    match new[old.len()..].iter().find(needed) {
        Some(now) => Err(format!("it needs the {what} {}", now.name)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onnxforge_ops::signature::{latest_opset, signatures};

    /// Every change of a standard operator between the oldest and the newest version.
    fn changes() -> impl Iterator<Item = (&'static Signature, &'static Signature)> {
        let all = signatures().iter().filter(|it| it.domain.is_empty());
        all.filter_map(|it| versions(it.name, it.since.into()))
            .filter(|(_, new)| i64::from(new.since) > OLDEST)
    }

    #[test]
    fn every_change_has_an_adapter_or_is_none() {
        assert_eq!(latest_opset(""), Some(NEWEST), "read what the new versions change, then raise NEWEST");
        let lost: Vec<String> = changes()
            .filter(|(old, new)| find(new.name, new.since.into()).is_none() && follows(old, new).is_err())
            .map(|(old, new)| format!("{} {}: {:?}", new.name, new.since, follows(old, new)))
            .collect();
        assert!(lost.is_empty(), "{lost:#?}");
        assert!(changes().count() > 300);
    }

    #[test]
    fn adapters_are_for_changes() {
        for step in STEPS {
            assert!(versions(step.op, step.version).is_some(), "{} {} is no change", step.op, step.version);
            let same = |other: &&Step| (other.op, other.version) == (step.op, step.version);
            assert_eq!(STEPS.iter().filter(same).count(), 1, "{} {}", step.op, step.version);
        }
    }

    /// The changes that the signatures do not show: this list is the outcome of reading the texts of all of them.
    #[test]
    fn changes_of_meaning_are_listed() {
        let silent = changes()
            .filter(|(old, new)| find(new.name, new.since.into()).is_some() && follows(old, new).is_ok());
        let silent: Vec<String> = silent.map(|(_, new)| format!("{} {}", new.name, new.since)).collect();
        assert_eq!(
            silent,
            [
                "Attention 24",
                "Dropout 10",
                "GroupNormalization 21",
                "OneHot 11",
                "QuantizeLinear 23",
                "Resize 13",
                "RoiAlign 16",
                "Split 18",
            ]
        );
    }

    /// The changes after which an operator takes fewer types; [`stays`] refuses calls with them.
    #[test]
    fn types_are_rarely_lost() {
        let includes =
            |old: &[Param], new: &[Param]| old.iter().zip(new).all(|(a, b)| b.types.includes(&a.types));
        let lost = changes().filter(|(old, new)| {
            let includes = includes(&old.inputs, &new.inputs) && includes(&old.outputs, &new.outputs);
            find(new.name, new.since.into()).is_none() && !includes
        });
        let lost: Vec<String> = lost.map(|(_, new)| format!("{} {}", new.name, new.since)).collect();
        assert_eq!(lost, ["Erf 13", "ReduceLogSum 28", "ReduceLogSumExp 28"]);
    }
}
