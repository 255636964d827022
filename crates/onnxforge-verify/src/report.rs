//! What comparisons say.

use std::fmt;

use serde::Serialize;

use crate::compare::{Columns, Difference, Mismatch, says_something, tensors};
use crate::engine::{Engine, EngineError};
use onnxforge_ops::Value;
use onnxforge_ops::eval::sample::SampleError;

/// What a comparison says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The same bits.
    Identical,
    /// Equal up to rounding.
    Rounding,
    /// It cannot be said: the reference is unreliable, or nothing could be compared.
    Undetermined,
    /// Not the same.
    Different,
}

/// What was found at one output, over all samples.
#[derive(Clone, Debug, Serialize)]
pub struct OutputReport {
    /// Its name in the first model.
    pub name: String,
    /// What is said of it.
    pub verdict: Verdict,
    /// How far apart results are; nothing where they cannot be compared.
    pub difference: Option<Difference>,
    /// Why they cannot be compared.
    pub mismatch: Option<String>,
    /// How far the results of both models are from the float64 run of the first, as shares of the scale, where that was needed.
    pub from_oracle: Option<[f64; 2]>,
    /// Why nothing can be said of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undetermined: Option<String>,
    /// Whether some sample had a finite element, or it has none at all.
    #[serde(skip)]
    pub(crate) says_something: bool,
    /// Whether some sample had an element.
    #[serde(skip)]
    pub(crate) has_elements: bool,
    /// Columns that no sample had a number in.
    #[serde(skip)]
    pub(crate) columns: Columns,
}

/// What inputs are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// They are one of the samples that were asked for.
    Sample,
    /// Dimensions of one name have several sizes.
    Unequal {
        /// One of them is 1 where others are not.
        breaks_a_name: bool,
    },
    /// They show more at little cost.
    Further,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What computed.
    pub engine: Engine,
    /// What is said of all outputs together.
    pub verdict: Verdict,
    /// How many inputs were tried.
    pub samples: usize,
    /// The sizes of dimensions that are not fixed, in each of them.
    pub sizes: Vec<String>,
    /// The outputs, in the order of the first model.
    pub outputs: Vec<OutputReport>,
    /// Whether they were compared block by block, each block of both on the same values.
    pub by_blocks: bool,
    /// At how many values inside of the models they were compared, too.
    pub inside: usize,
    /// The first value, in the order of computing, at which they differ.
    pub first_difference: Option<OutputReport>,
    /// The largest difference of each sample, as a share of the scale.
    pub by_sample: Vec<f64>,
    /// Sizes at which dimensions of one name differ and so do the models: the first broadcasts a dimension of size 1 and the second takes the name at
    /// its word, or the second does not run at all. The verdict does not count them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unequal: Vec<String>,
    /// Branches of either graph that no input led into: nothing is known of what they compute.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub untaken: Vec<String>,
}

impl Report {
    /// Nothing could be compared.
    pub fn of_nothing(engine: Engine, why: String) -> Self {
        let mut nothing = OutputReport::new("");
        (nothing.verdict, nothing.undetermined) = (Verdict::Undetermined, Some(why));
        Self::without_runs(engine, nothing)
    }

    /// The models differ in this value; no results are needed to tell.
    pub fn of_difference(engine: Engine, value: &str, how: &str) -> Self {
        let mut wrong = OutputReport::new(value);
        (wrong.verdict, wrong.mismatch) = (Verdict::Different, Some(how.to_owned()));
        Self { first_difference: Some(wrong.clone()), ..Self::without_runs(engine, wrong) }
    }

    fn without_runs(engine: Engine, output: OutputReport) -> Self {
        Self {
            engine,
            verdict: output.verdict,
            samples: 0,
            sizes: Vec::new(),
            outputs: vec![output],
            by_blocks: false,
            inside: 0,
            first_difference: None,
            by_sample: Vec::new(),
            unequal: Vec::new(),
            untaken: Vec::new(),
        }
    }

    /// Why nothing can be said, where that is the verdict.
    pub fn undetermined(&self) -> Option<&str> {
        let first = self.outputs.iter().find_map(|output| output.undetermined.as_deref());
        first.filter(|_| self.verdict == Verdict::Undetermined)
    }
}

/// Why two models cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// No inputs.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// A model does not run.
    #[error("the {which} model does not run ({when}): {error}")]
    Run {
        /// Which.
        which: Which,
        /// When it failed.
        when: Moment,
        /// Why.
        error: EngineError,
    },
    /// The models take or give different things.
    #[error("{0}")]
    Interface(String),
    /// Nothing can be compared.
    #[error("it cannot be determined: {0}")]
    Undetermined(String),
}

impl VerifyError {
    /// Whether inputs of other sizes may do.
    pub(crate) fn may_be_about_sizes(&self) -> bool {
        matches!(self, Self::Run { when: Moment::Running(_), error, .. } if error.may_be_about_sizes())
    }
}

/// One of the models that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The reference.
    First,
    /// The one that is judged.
    Second,
    /// The model that parts were cut out of.
    Whole,
    /// A part of it.
    Extracted,
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "first",
            Self::Second => "second",
            Self::Whole => "whole",
            Self::Extracted => "extracted",
        })
    }
}

/// When a model failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The engine does not take it.
    Loading,
    /// On inputs with these sizes of named dimensions.
    Running(String),
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loading => f.write_str("when it is loaded"),
            Self::Running(sizes) => f.write_str(sizes),
        }
    }
}

impl OutputReport {
    pub(crate) fn new(name: &str) -> Self {
        let name = name.to_owned();
        Self {
            name,
            verdict: Verdict::Identical,
            difference: None,
            mismatch: None,
            from_oracle: None,
            undetermined: None,
            says_something: false,
            has_elements: false,
            columns: Columns::default(),
        }
    }

    /// Looks at a result of the first model.
    pub(crate) fn see(&mut self, value: &Value) {
        self.says_something |= says_something(value);
        self.columns.see(value);
        let no_optional = |value: &Value| matches!(value, Value::Optional(None));
        self.has_elements |= no_optional(value) || tensors(value).iter().any(|array| !array.is_empty());
    }

    /// The verdict over all samples: results of which no element is a finite number say nothing, nor do those without elements, unless they never have any.
    pub(crate) fn settle(&mut self, is_always_empty: bool) {
        if !self.has_elements && !is_always_empty && self.verdict != Verdict::Different {
            self.verdict = Verdict::Undetermined;
            self.undetermined = Some(format!("{} has no elements on any of the inputs", self.name));
        }
        if let Some([silent, all]) = self.columns.silent()
            && self.verdict != Verdict::Different
        {
            self.verdict = Verdict::Undetermined;
            self.undetermined =
                Some(format!("{silent} of {all} columns of {} are NaN on all of the inputs", self.name));
        }
        if !self.says_something && self.verdict != Verdict::Different {
            self.verdict = Verdict::Undetermined;
            self.undetermined = Some(format!("all elements of {} are NaN or infinite", self.name));
        }
    }

    /// Adds what was found on other samples.
    pub(crate) fn join(&mut self, other: Self) {
        if let Some(difference) = other.difference {
            self.add(difference, other.verdict, other.from_oracle);
        }
        self.verdict = self.verdict.max(other.verdict);
        self.mismatch = self.mismatch.take().or(other.mismatch);
        self.undetermined = self.undetermined.take().or(other.undetermined);
        self.says_something |= other.says_something;
        self.columns.join(other.columns);
        self.has_elements |= other.has_elements;
    }

    pub(crate) fn fails(&mut self, mismatch: &Mismatch) {
        self.verdict = Verdict::Different;
        self.mismatch.get_or_insert_with(|| mismatch.to_string());
    }

    pub(crate) fn add(&mut self, difference: Difference, verdict: Verdict, from_oracle: Option<[f64; 2]>) {
        self.verdict = self.verdict.max(verdict);
        self.difference = Some(match self.difference.take() {
            Some(worst) => worst.worse(difference),
            None => difference,
        });
        if let Some([first, second]) = from_oracle {
            let [a, b] = self.from_oracle.unwrap_or([0.0, 0.0]);
            self.from_oracle = Some([a.max(first), b.max(second)]);
        }
    }
}
