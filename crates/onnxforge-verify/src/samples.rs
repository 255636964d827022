//! The inputs on which models are compared.

use std::collections::HashMap;

use super::{Options, VerifyError};
use onnxforge_ir::{Model, ValueId};
use onnxforge_ops::Value;
use onnxforge_ops::eval::sample::{self, Manner, SampleError};
use onnxforge_ops::eval::shapes::{Names, Search, Shapes, Wanted};

/// How often other sizes take the place of some at which a model does not run.
const MOST_REPLACED: usize = 8;
/// How many sizes are tried at which dimensions of one name differ.
const MOST_UNEQUAL: usize = 12;

/// Bytes that a run may take in any case when sizes are replaced.
const LITTLE: u64 = 32 << 20;
/// Most bytes of weights and values together with which a run costs so little that there are further ones.
const CHEAP: u64 = 8 << 20;
/// How many further runs there are.
const FURTHER: usize = 5;

/// Inputs of one run, and the sizes of their dimensions in words.
#[derive(Debug)]
pub struct Inputs {
    /// By name.
    pub values: HashMap<String, Value>,
    /// `batch=2, seq=3`.
    pub sizes: String,
}

/// Inputs for runs of a model, each at other sizes as far as there are any.
pub struct Samples<'m> {
    model: &'m Model,
    options: &'m Options,
    search: Search<'m>,
    found: Vec<Shapes>,
    replaced: usize,
    /// How far values go.
    manner: Manner,
}

impl<'m> Samples<'m> {
    /// Inputs for the model's graph.
    pub fn new(model: &'m Model, options: &'m Options) -> Self {
        let search = Search::new(model, Self::wanted(options));
        Self { model, options, search, found: Vec::new(), replaced: 0, manner: Manner::Varied }
    }

    fn wanted(options: &Options) -> Wanted {
        let wanted = Wanted { dims: options.dims.clone(), memory: options.memory, ..Wanted::default() };
        wanted.with_given(&options.given)
    }

    /// Shapes at which dimensions of one name differ, since nothing is known to keep the model from running there; and whether one of
    /// these dimensions is 1 where others are not.
    pub fn unequal(&self) -> impl Iterator<Item = (Shapes, bool)> + use<> {
        let Names { apart, broadcast } = Names::of(self.model, Self::wanted(self.options));
        let apart = apart.into_iter().map(|(_, shapes)| (shapes, false));
        let broadcast = broadcast.into_iter().map(|(_, shapes)| (shapes, true));
        apart.chain(broadcast).take(MOST_UNEQUAL)
    }

    /// Shapes of further runs, where those cost little: larger ones first. Who asks for one sample gets one.
    pub fn further(&mut self) -> Vec<Shapes> {
        let Some(first) = self.cheap() else { return Vec::new() };
        if self.search.is_fixed() {
            // Values differ.
            return vec![first; FURTHER];
        }
        let model = self.model;
        self.search.larger().filter(|shapes| shapes.traffic(model) <= CHEAP).take(FURTHER).collect()
    }

    /// The shapes of the first sample, where further runs with other values cost little and were not ruled out.
    pub fn cheap(&self) -> Option<Shapes> {
        let is_given = |value| self.options.given.contains_key(&**self.model.value(value).name());
        let inputs = self.model.scope(self.model.main()).inputs();
        let all_given = inputs.iter().all(|port| is_given(port.value));
        let wanted = self.options.samples > 1 && !all_given;
        let first = self.found.first().filter(|_| wanted)?;
        (first.traffic(self.model) <= CHEAP).then(|| first.clone())
    }

    /// How far values go.
    pub fn manner(&self) -> Manner {
        self.manner
    }

    /// How many samples there are to be: as many as are asked for, but at least three where several are and a cache may be empty. A prompt, several
    /// steps at once and a single step are three cases.
    pub fn count(&self) -> usize {
        match self.options.samples {
            asked @ ..=1 => asked,
            asked if self.search.has_cache() => asked.max(3),
            asked => asked,
        }
    }

    /// Whether all sizes are fixed.
    pub fn is_fixed(&self) -> bool {
        self.search.is_fixed()
    }

    /// Bytes of the values of the model in the first sample, as far as they are known.
    pub fn sizes_of_values(&mut self) -> impl Fn(ValueId) -> Option<u64> + use<> {
        if self.found.is_empty() {
            self.found.extend(self.search.next());
        }
        let first = self.found.first().cloned();
        move |value| first.as_ref()?.bytes_of(value)
    }

    /// The inputs of a sample: those that are given, and synthetic ones.
    pub fn at(&mut self, index: usize) -> Result<Inputs, VerifyError> {
        while self.found.len() <= index {
            match self.search.next() {
                Some(shapes) => self.found.push(shapes),
                None => break,
            }
        }
        let Some(shapes) = self.found.get(index % self.found.len().max(1)) else {
            let why = self.search.refusal().map_or_else(|| "there are none".to_owned(), ToString::to_string);
            return Err(SampleError::Sizes(why).into());
        };
        self.with(shapes, index, self.manner)
    }

    /// The inputs of a sample at these shapes.
    pub fn with(&self, shapes: &Shapes, index: usize, manner: Manner) -> Result<Inputs, VerifyError> {
        let seed = self.options.seed.wrapping_add(index as u64);
        let settings =
            sample::Options { seed, manner, memory: self.options.memory, ..sample::Options::default() };
        let mut values = sample::sample_at(self.model, shapes, &settings, &self.options.given)?;
        values.extend(self.options.given.clone());
        Ok(Inputs { values, sizes: shapes.describe() })
    }

    /// Values go less far from now on. Answers whether they went further before.
    pub fn calm(&mut self) -> bool {
        std::mem::replace(&mut self.manner, Manner::Plain) == Manner::Varied
    }

    /// The model does not run on a sample: plainer values take its place, then other sizes. Answers whether there are any; there are none where a node
    /// fails at any size.
    pub fn replace(&mut self, index: usize) -> bool {
        if self.found.get(index).is_none() || self.search.is_hopeless() {
            return false;
        }
        if self.calm() {
            return true;
        }
        if self.replaced >= MOST_REPLACED {
            return false;
        }
        // It was not the values.
        self.manner = Manner::Varied;
        let failed = self.found.remove(index);
        self.replaced += 1;
        // What fails at small sizes will hardly run at very large ones.
        let most = failed.bytes.saturating_mul(8).max(LITTLE);
        match self.search.find(|shapes| shapes.bytes <= most) {
            Some(shapes) => self.found.push(shapes),
            None => return false,
        }
        true
    }
}
