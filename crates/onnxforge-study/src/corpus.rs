//! What is known of the models of a study: the answers that were kept.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::step::{Answer, Kept, Stamp};

/// The folder of a model for what commands make on the way.
pub const MADE: &str = "made";
/// Characters of a word of a command that are shown.
const LONGEST: usize = 60;

/// All models.
pub struct Corpus {
    pub models: Vec<Studied>,
    /// The class that each model should have, where that is known, by its name.
    pub labels: BTreeMap<String, String>,
}

/// A model, and what commands answered about it.
pub struct Studied {
    /// Its name in tables.
    pub name: String,
    steps: BTreeMap<String, Kept>,
}

impl Corpus {
    /// What commands could not answer.
    pub fn failures(&self) -> BTreeMap<String, Vec<String>> {
        let failed = self.models.iter().map(|model| (model.name.clone(), model.failures()));
        failed.filter(|(_, reasons)| !reasons.is_empty()).collect()
    }
}

/// How many times as fast a model is as another one: the median, its interval, and what that means.
pub struct Speed<'s> {
    pub median: f64,
    pub low: f64,
    pub high: f64,
    pub verdict: &'s str,
}

impl Studied {
    /// The answers in a folder that this version gave about one state of the model: about `stamp`, or where that is not told about what was inspected.
    pub fn read(name: &str, folder: &Path, stamp: Option<Stamp>) -> Self {
        let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
        let steps = entries.filter_map(|entry| {
            let path = entry.path();
            let step = path.file_stem()?.to_str()?.to_owned();
            let kept = serde_json::from_slice(&std::fs::read(&path).ok()?).ok()?;
            Some((step, kept))
        });
        let mut steps: BTreeMap<String, Kept> = steps.collect();
        let stamp = stamp.or_else(|| Some(steps.get("inspect")?.model));
        steps.retain(|_, kept| kept.is_about(stamp));
        Self { name: name.to_owned(), steps }
    }

    /// What a command answered.
    pub fn report(&self, step: &str) -> Option<&Value> {
        match &self.steps.get(step)?.answer {
            Answer::Report(report) => Some(report),
            Answer::Failure(_) => None,
        }
    }

    /// Why a command has no answer.
    pub fn failure(&self, step: &str) -> Option<&str> {
        match &self.steps.get(step)?.answer {
            Answer::Report(_) => None,
            Answer::Failure(reason) => Some(reason),
        }
    }

    /// The command that answered, as one would type it for any model.
    pub fn command(&self, step: &str) -> Option<String> {
        let shown = |word: &String| {
            let file = word.rsplit(['/', '\\']).next().filter(|file| file.ends_with(".onnx"));
            match file {
                Some(file) if word.contains(MADE) => file.to_owned(),
                Some(_) => "MODEL".to_owned(),
                None if word.len() > LONGEST => word.split('=').next().unwrap_or_default().to_owned() + "=…",
                None => word.clone(),
            }
        };
        Some(self.steps.get(step)?.command.iter().map(shown).collect::<Vec<_>>().join(" "))
    }

    /// Part of an answer, such as `/after/nodes`.
    pub fn at(&self, step: &str, place: &str) -> Option<&Value> {
        self.report(step)?.pointer(place).filter(|value| !value.is_null())
    }

    /// A number in an answer.
    pub fn number(&self, step: &str, place: &str) -> Option<f64> {
        self.at(step, place)?.as_f64()
    }

    /// Words in an answer.
    pub fn text(&self, step: &str, place: &str) -> Option<&str> {
        self.at(step, place)?.as_str()
    }

    /// The median time of a model of a comparison, in milliseconds: 0 is the original.
    pub fn latency(&self, step: &str, which: usize) -> Option<f64> {
        self.number(step, &format!("/models/{which}/latency_ms/median"))
    }

    /// How fast a model of a comparison is beside the original.
    pub fn speed(&self, step: &str, which: usize) -> Option<Speed<'_>> {
        let place = format!("/models/{which}/against_first");
        let bound = |name: &str| self.number(step, &format!("{place}/speed/{name}"));
        let verdict = self.text(step, &format!("{place}/verdict")).unwrap_or("–");
        Some(Speed { median: bound("median")?, low: bound("low")?, high: bound("high")?, verdict })
    }

    /// Nodes of an operator before and after optimization.
    pub fn operator(&self, name: &str) -> [f64; 2] {
        let counts = self.at("optimize", &format!("/operators/{name}"));
        [0, 1].map(|which| counts.and_then(|counts| counts.get(which)?.as_f64()).unwrap_or(0.0))
    }

    /// Nodes of the whole model before and after optimization.
    pub fn nodes(&self) -> Option<[f64; 2]> {
        Some([self.number("optimize", "/before/all_nodes")?, self.number("optimize", "/after/all_nodes")?])
    }

    /// The largest relative difference between the outputs before and after.
    pub fn difference(&self, step: &str) -> Option<f64> {
        let outputs = self.at(step, "/verification/global/outputs")?.as_array()?;
        let found = outputs.iter().filter_map(|output| output.pointer("/difference/max_rel")?.as_f64());
        found.reduce(f64::max)
    }

    /// How a comparison ended, and how far apart results are.
    pub fn verdict(&self, step: &str) -> String {
        let global = "/verification/global/verdict";
        match (self.text(step, global), self.text(step, "/verification/unverified")) {
            (Some(verdict), _) => verdict.to_owned(),
            (None, Some(reason)) => format!("not compared: {reason}"),
            (None, None) if self.report(step).is_some() => "identical: nothing was changed".to_owned(),
            (None, None) => self.failure(step).unwrap_or("not asked").to_owned(),
        }
    }

    /// Whether an input of this kind comes in.
    pub fn takes(&self, kind: &str) -> bool {
        let inputs = self.at("fingerprint", "/models/0/features/inputs").and_then(Value::as_array);
        inputs.into_iter().flatten().any(|input| input["kind"] == kind)
    }

    /// The class of architecture.
    pub fn class(&self) -> &str {
        self.text("fingerprint", "/models/0/class").unwrap_or("unknown")
    }

    /// Passes that changed something, with how many nodes each added.
    pub fn passes(&self, step: &str) -> Vec<(&str, f64)> {
        let passes = self.at(step, "/passes").and_then(Value::as_array).into_iter().flatten();
        let fired = passes.filter(|pass| pass["edits"].as_u64() > Some(0));
        fired.filter_map(|pass| Some((pass["name"].as_str()?, pass["nodes"].as_f64()?))).collect()
    }

    /// Sizes of named dimensions to measure time with: one for the first of an input, `length` for others.
    pub fn sizes(&self, length: usize) -> Vec<String> {
        let inputs = self.at("inspect", "/models/0/inputs").and_then(Value::as_array).into_iter().flatten();
        let mut sizes: BTreeMap<String, usize> = BTreeMap::new();
        for input in inputs {
            let declared = input["type"].as_str().unwrap_or_default();
            let shape = declared.split_once('[').map_or("", |(_, shape)| shape.trim_end_matches(']'));
            for (axis, dim) in shape.split(',').map(str::trim).enumerate() {
                if dim.starts_with(char::is_alphabetic)
                    && dim.chars().all(|c| c.is_alphanumeric() || c == '_')
                {
                    let size = if axis == 0 { 1 } else { length };
                    sizes.entry(dim.to_owned()).and_modify(|known| *known = size.min(*known)).or_insert(size);
                }
            }
        }
        sizes.into_iter().map(|(name, size)| format!("--set-dim={name}={size}")).collect()
    }

    fn failures(&self) -> Vec<String> {
        let failed = self.steps.iter().filter_map(|(step, kept)| match &kept.answer {
            Answer::Failure(reason) => Some(format!("{step}: {reason}")),
            Answer::Report(_) => None,
        });
        failed.collect()
    }
}
