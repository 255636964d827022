//! Which version of the standard operators a model gets, and whether ONNX Runtime takes it.
//!
//! That a runtime knows an operator set does not mean that it has every operator of it. So it is asked: the converted model is opened, without its
//! weights, which takes milliseconds for any size. One session answers for the IR version, the operator sets and every node at once, bodies and
//! functions included, which models of single nodes would not.

use std::fmt;
use std::sync::OnceLock;

use onnxforge_ir::Model;
use onnxforge_ir::io::external::ExternalFiles;
use onnxforge_ir::io::load::from_message;
use onnxforge_ir::text;
use onnxforge_ops::signature::ir_for_opset;
use onnxforge_rewrite::upgrade::{self, NEWEST, NEWEST_OF_RUNTIMES, OLDEST, upgrade};
use onnxforge_verify::runtime::{Runtime, RuntimeError};
use serde::Serialize;

use crate::Error;

/// Which version of the standard operators a model gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Opset {
    /// Its own.
    #[default]
    Keep,
    /// The newest one in which the ONNX Runtime that is found takes the model.
    Latest,
    /// This one; only upwards.
    Version(i64),
}

/// Whether ONNX Runtime takes a model, and what follows from that for its operator set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tried {
    /// The version of the ONNX Runtime that was found.
    pub runtime: Option<String>,
    /// The operator set that was asked for; nothing where it was to be the latest, or to stay.
    pub asked: Option<i64>,
    /// The one that the model has; nothing where it uses no standard operators.
    pub opset: Option<i64>,
    /// Why ONNX Runtime does not take a newer one.
    pub refused: Option<String>,
    /// Why ONNX Runtime could not be asked.
    pub untried: Option<String>,
}

/// Why there is no version of the standard operators for a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpsetError {
    /// ONNX Runtime takes the original, and none of the conversions that were asked for.
    #[error(
        "no opset from {from} to {to} is one that ONNX Runtime takes: {why}; keep the opset of the model, or choose another target"
    )]
    None {
        /// The lowest that was tried.
        from: i64,
        /// The highest.
        to: i64,
        /// What ONNX Runtime said last.
        why: String,
    },
    /// ONNX Runtime took the model before the passes, and does not take the result.
    #[error("the result does not load: {0}; please report this, and choose another target until then")]
    Result(String),
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = named(self.runtime.as_deref());
        let it =
            |why: &str| why.strip_prefix(&name).map_or_else(|| why.to_owned(), |rest| format!("it{rest}"));
        match (&self.untried, &self.refused, self.asked, self.opset) {
            (Some(why), ..) => write!(f, "not tried in ONNX Runtime: {why}"),
            (None, Some(why), Some(asked), Some(opset)) if opset < asked => {
                write!(f, "opset {opset} instead of {asked}: {why}")
            }
            (None, Some(why), Some(asked), _) => {
                write!(f, "{name} does not load opset {asked} of this model: {}", it(why))
            }
            (None, Some(why), None, Some(opset)) => {
                write!(f, "opset {opset} is the newest of this model that {name} loads: {}", it(why))
            }
            (None, ..) => write!(f, "{name} loads it"),
        }
    }
}

impl Tried {
    /// Whether there is something to say about it: it did not go as it was asked for.
    pub fn is_notable(&self) -> bool {
        self.refused.is_some() || self.untried.is_some()
    }

    /// Whether ONNX Runtime takes the model.
    pub fn loads(&self) -> bool {
        let as_asked = self.asked.is_none_or(|asked| self.opset.is_none_or(|opset| opset < asked));
        self.untried.is_none() && (self.refused.is_none() || as_asked)
    }
}

/// Converts a model. Where it is made for ONNX Runtime (`strict`), or the latest version is asked for, it gets the newest one up to what was asked for
/// that ONNX Runtime takes.
pub fn convert(
    model: &mut Model,
    opset: Opset,
    strict: bool,
) -> Result<(Option<upgrade::Report>, Option<Tried>), Error> {
    let asked = match opset {
        Opset::Keep if !strict => return Ok((None, None)),
        Opset::Keep => return Ok((None, Some(as_it_is(model)))),
        Opset::Latest => None,
        Opset::Version(version) => Some(version),
    };
    let own = own(model);
    if let (Some(asked), Some(own)) = (asked, own)
        && asked < own
    {
        // Which says why not.
        upgrade(model, asked)?;
    }
    let tried = Tried { asked, ..Tried::default() };
    let runtime = match Runtime::get() {
        Ok(runtime) => runtime,
        Err(missing) => {
            let to = asked.unwrap_or_else(|| NEWEST_OF_RUNTIMES.max(own.unwrap_or(0)));
            let report = upgrade(model, to)?;
            let untried = (strict || asked.is_none()).then(|| missing.to_string());
            let tried = Tried { opset: own.map(|_| to), untried, ..tried };
            return Ok((Some(report), Some(tried).filter(Tried::is_notable)));
        }
    };
    let tried = Tried { runtime: runtime.version(), ..tried };
    let name = named(tried.runtime.as_deref());
    let bound = strict || asked.is_none();
    let (top, newest) = (asked.unwrap_or(NEWEST), newest(runtime));
    let lowest = own.unwrap_or(top.min(newest));
    let highest = if bound { top.min(newest).max(lowest) } else { top };
    let beyond = (highest < top && asked.is_some()).then(|| format!("{name} loads opsets up to {newest}"));
    let (mut to, mut refused) = (highest, beyond);
    while to >= lowest {
        let mut candidate = model.clone();
        let report = match upgrade(&mut candidate, to) {
            Ok(report) => report,
            Err(error) if to == highest => return Err(error.into()),
            Err(error) => {
                refused = Some(error.to_string());
                to -= 1;
                continue;
            }
        };
        let answer = match to > newest {
            true => Err(Refusal::Other(format!("it loads opsets up to {newest}"))),
            false => runtime.takes(&candidate).map_err(|error| Refusal::of(&error)),
        };
        if answer.is_ok() || !bound {
            let refused = answer.err().map(|refusal| refusal.told(&name)).or(refused);
            *model = candidate;
            return Ok((Some(report), Some(Tried { opset: own.map(|_| to), refused, ..tried })));
        }
        if let Err(refusal) = answer {
            refused = Some(refusal.told(&name));
            // Every version from that of the missing operator on has it.
            to = refusal.version().filter(|version| *version <= to).unwrap_or(to) - 1;
        }
    }
    let why = refused.unwrap_or_default();
    match runtime.takes(model) {
        Ok(()) => Err(OpsetError::None { from: lowest, to: highest, why }.into()),
        Err(error) => {
            let report = upgrade(model, highest)?;
            let untried =
                format!("it does not take the original either ({})", Refusal::of(&error).told(&name));
            Ok((Some(report), Some(Tried { opset: own.map(|_| highest), untried: Some(untried), ..tried })))
        }
    }
}

/// Fails where ONNX Runtime does not take a model.
pub fn demand(model: &Model) -> Result<(), Error> {
    let Ok(runtime) = Runtime::get() else { return Ok(()) };
    let name = named(runtime.version().as_deref());
    runtime.takes(model).map_err(|error| OpsetError::Result(Refusal::of(&error).told(&name)).into())
}

/// Whether ONNX Runtime takes a model that stays at its operator set.
fn as_it_is(model: &Model) -> Tried {
    let tried = Tried { opset: model.opset(model.main(), ""), ..Tried::default() };
    match Runtime::get() {
        Err(missing) => Tried { untried: Some(missing.to_string()), ..tried },
        Ok(runtime) => {
            let tried = Tried { runtime: runtime.version(), ..tried };
            let name = named(tried.runtime.as_deref());
            let why = runtime.takes(model).err().map(|error| Refusal::of(&error).told(&name));
            Tried { untried: why.map(|why| format!("it does not take the original ({why})")), ..tried }
        }
    }
}

/// The newest version of the standard operators that a model and its functions import.
fn own(model: &Model) -> Option<i64> {
    let scopes = std::iter::once(model.main()).chain(model.functions().iter().copied());
    scopes.filter_map(|scope| model.opset(scope, "")).max()
}

/// The newest version of the standard operators that ONNX Runtime loads at all, with the IR version that came with it.
fn newest(runtime: &Runtime) -> i64 {
    static NEWEST_LOADED: OnceLock<i64> = OnceLock::new();
    let loads = |&version: &i64| {
        let ir = ir_for_opset("", version).unwrap_or(0);
        let text = format!(
            "<ir_version: {ir}, opset_import: [\"\" : {version}]> g (float[1] x) => (float[1] y) {{ y = Identity(x) }}"
        );
        let model =
            text::parse(&text).ok().and_then(|it| from_message(it, &mut ExternalFiles::default()).ok());
        model.is_some_and(|model| runtime.takes(&model).is_ok())
    };
    *NEWEST_LOADED.get_or_init(|| (OLDEST..=NEWEST).rev().find(loads).unwrap_or(OLDEST))
}

/// ONNX Runtime with the part of its version that tells what it can do.
fn named(version: Option<&str>) -> String {
    let version = version.map(|version| version.split('.').take(2).collect::<Vec<_>>().join("."));
    version.map_or_else(|| "ONNX Runtime".to_owned(), |version| format!("ONNX Runtime {version}"))
}

/// Why ONNX Runtime does not take a model.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Refusal {
    /// It has no such version of an operator.
    Missing { op: String, version: i64 },
    /// What it says.
    Other(String),
}

impl Refusal {
    fn of(error: &RuntimeError) -> Self {
        Self::said(&error.to_string())
    }

    /// What a message of ONNX Runtime means: `Could not find an implementation for RoiAlign(22) node with name ''`.
    fn said(message: &str) -> Self {
        let missing = || {
            let call = message.split("implementation for ").nth(1)?.split(')').next()?;
            let (op, version) = call.split_once('(')?;
            Some(Self::Missing { op: op.to_owned(), version: version.parse().ok()? })
        };
        missing().unwrap_or_else(|| Self::Other(message.to_owned()))
    }

    fn version(&self) -> Option<i64> {
        match self {
            Self::Missing { version, .. } => Some(*version),
            Self::Other(_) => None,
        }
    }

    fn told(&self, name: &str) -> String {
        match self {
            Self::Missing { op, version } => format!("{name} has no {op} of opset {version}"),
            Self::Other(message) => message.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_operator_is_understood() {
        let found = Refusal::said(
            "NOT_IMPLEMENTED : Could not find an implementation for RoiAlign(22) node with name ''",
        );
        assert_eq!(found, Refusal::Missing { op: "RoiAlign".to_owned(), version: 22 });
        assert_eq!(found.told("ONNX Runtime 1.31"), "ONNX Runtime 1.31 has no RoiAlign of opset 22");
        let other = "something else(3)";
        assert_eq!(Refusal::said(other), Refusal::Other(other.to_owned()));
    }

    #[test]
    fn what_was_tried_is_said_in_one_line() {
        let why = || Some("ONNX Runtime 1.31 has no RoiAlign of opset 22".to_owned());
        let runtime = || Some("1.31.1".to_owned());
        let lower =
            Tried { runtime: runtime(), asked: Some(23), opset: Some(21), refused: why(), untried: None };
        assert_eq!(
            lower.to_string(),
            "opset 21 instead of 23: ONNX Runtime 1.31 has no RoiAlign of opset 22"
        );
        assert!(lower.loads());
        let kept = Tried { opset: Some(23), ..lower.clone() };
        assert!(kept.to_string().starts_with("ONNX Runtime 1.31 does not load opset 23 of this model: "));
        assert!(!kept.loads());
        let latest = Tried { asked: None, ..lower };
        assert!(
            latest
                .to_string()
                .starts_with("opset 21 is the newest of this model that ONNX Runtime 1.31 loads")
        );
        assert!(latest.loads());
    }
}
