//! Every change checked where it happens: what was there against what is there now, on synthetic values.
//!
//! A change that computes the same from whatever it is given is right anywhere. One that does not may still be right where it stands,
//! because of what computes its inputs: then more and more of that comes along. Only what differs with all of it is wrong.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use serde::Serialize;

use super::Verdict;
use super::compare::{Mismatch, compare};
use super::draws::is_random;
use super::judge::{FEW, Judged};
use super::region::{self, Given, Sizes, Wanted};
use onnxforge_ir::cut::Cut;
use onnxforge_ir::{Accuracy, Entry, Model, NodeId, Operand, Rewrite, ScopeId, ValueId};
use onnxforge_ops::Value;
use onnxforge_ops::eval::sample::Flavour;
use onnxforge_ops::infer::Inference;
use onnxforge_proto::Str;
use onnxforge_proto::clock::Instant;
use onnxforge_rewrite::Witness;

/// How much of what computes its inputs is looked at, in steps, where a change does not hold without.
const STEPS: [usize; 7] = [1, 2, 4, 8, 16, 48, 144];
/// The longest that one change is tried, where nothing speaks against it.
const LONGEST: Duration = Duration::from_millis(300);
/// The longest that one change is tried, where something does.
const LONGEST_DOUBT: Duration = Duration::from_secs(20);

/// So many changes of a rule are tried on all kinds of values, later ones on [`FEW_KINDS`].
const THOROUGH: usize = 4;
/// Kinds of values that every change is tried on.
const FEW_KINDS: usize = 2;

/// Values of up to so many elements are quickly tried.
const LIGHT: usize = 1 << 15;

/// What local checks have found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LocalReport {
    /// Changes that hold on synthetic values.
    pub checked: usize,
    /// How many of them look like another one that was checked, and were not tried again.
    pub repeated: usize,
    /// Changes that could not be tried, by reason.
    pub unchecked: BTreeMap<String, usize>,
    /// Time.
    pub milliseconds: f64,
}

/// A change that is wrong.
#[derive(Clone, Debug, Serialize)]
pub struct Wrong {
    /// The pass.
    pub pass: Str,
    /// The rule.
    pub rule: Str,
    /// Its number in the journal, from 1.
    pub edit: usize,
    /// The nodes that it consumed.
    pub nodes: Vec<String>,
    /// The value that differs.
    pub value: Str,
    /// In what.
    pub difference: String,
    /// A small model on which the pass does the same again.
    #[serde(skip)]
    pub reproducer: Option<Box<Model>>,
}

/// Checks every change, and calls a halt at the first that is wrong.
#[derive(Debug)]
pub struct Local {
    /// What was found so far.
    pub report: LocalReport,
    /// The change that is wrong.
    pub wrong: Option<Wrong>,
    /// Time that checks of changes to large values, and of others, may still take; the first change of each rule is tried in any case.
    left: [Duration; 2],
    /// How many changes of each rule were tried.
    tried: HashMap<(Str, Str), usize>,
    held: HashSet<Vec<u8>>,
    pending: Option<Pending>,
}

/// A change that is about to be made.
#[derive(Debug)]
struct Pending {
    before: Cut,
    wanted: BTreeMap<ValueId, Wanted>,
    redefined: Vec<(ValueId, Operand)>,
    scope: ScopeId,
    started: Instant,
}

/// What trying a change says.
enum Tried {
    Holds,
    Unclear(&'static str),
    Differs(ValueId, String),
}

impl Local {
    /// A witness that may take so much time.
    pub fn new(budget: Duration) -> Self {
        Self {
            report: LocalReport::default(),
            wrong: None,
            left: [budget; 2],
            tried: HashMap::new(),
            held: HashSet::new(),
            pending: None,
        }
    }

    fn check(&mut self, model: &Model, facts: &Inference, pending: &mut Pending, entry: &Entry) -> Tried {
        let rule = (entry.pass.clone(), entry.rule.clone());
        let before = self.tried.get(&rule).copied().unwrap_or(0);
        if self.left[usize::from(pending.is_light())].is_zero() && before > 0 {
            return Tried::Unclear("no time left");
        }
        pending.rename(model);
        let became: HashMap<ValueId, ValueId> = pending
            .redefined
            .iter()
            .filter_map(|&(value, _)| Some((value, pending.heir(model, value)?)))
            .collect();
        if became.len() < pending.redefined.len() {
            return Tried::Unclear("what a value became is not told");
        }
        let scope = entry.produced.first().map(|&node| model.node(node).scope());
        let produced: Vec<NodeId> =
            entry.produced.iter().copied().filter(|&node| Some(model.node(node).scope()) == scope).collect();
        let outputs: Vec<ValueId> = pending.before.outputs.iter().map(|value| became[value]).collect();
        let after = region::cut(model, facts, &produced, &outputs);
        let mut wanted = pending.wanted.clone();
        for &value in &after.inputs {
            wanted.entry(value).or_insert_with(|| Wanted::of(model, facts, value));
        }
        let trial = Trial {
            before: &pending.before,
            after: &after,
            accuracy: entry.accuracy,
            facts,
            is_thorough: before < THOROUGH,
        };
        if region::is_large(&pending.before) || region::is_large(&after) {
            return Tried::Unclear("large constants");
        }
        if [&pending.before, &after].into_iter().any(|part| is_random(&part.model)) {
            return Tried::Unclear("random numbers");
        }
        let key = trial.key(entry, &wanted);
        if let Some(key) = &key
            && self.held.contains(key)
        {
            self.report.repeated += 1;
            return Tried::Holds;
        }
        let (smaller, smaller_key) = trial.smaller(entry, &wanted);
        if let Some(key) = &smaller_key
            && self.held.contains(key)
        {
            self.report.repeated += 1;
            return Tried::Holds;
        }
        self.tried.insert(rule, before + 1);
        let deadline = Instant::now() + LONGEST;
        let holds = |wanted| matches!(trial.on(wanted, None, deadline), Tried::Holds);
        let sizes = if trial.is_thorough { usize::MAX } else { 1 };
        let tried = match !smaller.is_empty() && smaller.iter().take(sizes).all(holds) {
            true => Tried::Holds,
            false => trial.anywhere(model, pending.scope, &wanted),
        };
        if matches!(tried, Tried::Holds) {
            self.held.extend(key.into_iter().chain(smaller_key));
        }
        tried
    }
}

impl Witness for Local {
    fn before(&mut self, model: &Model, facts: &Inference, rewrite: &Rewrite) {
        let started = Instant::now();
        let redefined: Vec<(ValueId, Operand)> = rewrite.redefinitions().collect();
        let outputs: Vec<ValueId> = redefined.iter().map(|&(value, _)| value).collect();
        let before = region::cut(model, facts, rewrite.consumed(), &outputs);
        let wanted = before.inputs.iter().map(|&value| (value, Wanted::of(model, facts, value))).collect();
        let scope = rewrite.consumed().first().map_or(model.main(), |&node| model.node(node).scope());
        self.pending = Some(Pending { before, wanted, redefined, scope, started });
    }

    fn after(&mut self, model: &Model, facts: &Inference, is_made: bool) -> bool {
        let (Some(mut pending), true, Some(entry)) = (self.pending.take(), is_made, model.journal().last())
        else {
            return true;
        };
        match self.check(model, facts, &mut pending, entry) {
            Tried::Holds => self.report.checked += 1,
            Tried::Unclear(why) => *self.report.unchecked.entry(why.to_owned()).or_default() += 1,
            Tried::Differs(value, difference) => {
                self.wrong = Some(Wrong {
                    pass: entry.pass.clone(),
                    rule: entry.rule.clone(),
                    edit: model.journal().len(),
                    nodes: entry.consumed.iter().map(|&node| model.node_label(node)).collect(),
                    value: model.value(value).name().clone(),
                    difference,
                    reproducer: None,
                });
            }
        }
        let time = pending.started.elapsed();
        tracing::debug!("{} of {} checked in {time:.1?}", entry.rule, entry.pass);
        let left = &mut self.left[usize::from(pending.is_light())];
        *left = left.saturating_sub(time);
        self.report.milliseconds += time.as_secs_f64() * 1e3;
        self.wrong.is_none()
    }
}

impl Pending {
    /// Whether what is there is small.
    fn is_light(&self) -> bool {
        let elements: Option<u64> = self.wanted.values().map(Wanted::elements).sum();
        elements.is_none_or(|elements| elements <= LIGHT as u64) && !region::is_heavy(&self.before)
    }

    /// The value that a redefined one is now: itself, what it became another name for, or another one that became the same.
    fn heir(&self, model: &Model, value: ValueId) -> Option<ValueId> {
        let live = |id: &ValueId| model.value(*id).is_live();
        let by = self.redefined.iter().find(|(of, _)| *of == value)?.1;
        let named = match by {
            Operand::Value(to) => Some(to),
            _ => None,
        };
        let same = self.redefined.iter().filter(|(_, other)| *other == by).map(|(other, _)| *other);
        std::iter::once(value).chain(named).chain(same).find(live)
    }

    /// Calls what the old nodes took by the names that it has now: an output gives its name to what it becomes another name for.
    fn rename(&mut self, model: &Model) {
        let gone = |value: ValueId| !model.value(value).is_live();
        let taken: Vec<(ValueId, ValueId)> = self
            .before
            .inputs
            .iter()
            .filter(|&&value| gone(value))
            .filter_map(|&value| {
                let by = |(_, by): &&(ValueId, Operand)| *by == Operand::Value(value);
                let (other, _) = self.redefined.iter().find(by)?;
                Some((value, self.heir(model, *other)?))
            })
            .collect();
        for (old, new) in taken {
            self.before.inputs.iter_mut().filter(|value| **value == old).for_each(|value| *value = new);
            if let Some(wanted) = self.wanted.remove(&old) {
                self.wanted.insert(new, wanted);
            }
        }
    }
}

/// A change to be tried.
struct Trial<'a> {
    before: &'a Cut,
    after: &'a Cut,
    accuracy: Accuracy,
    facts: &'a Inference,
    /// All kinds of values are tried, at several sizes.
    is_thorough: bool,
}

impl Trial<'_> {
    /// What the change is, as far as trying it can tell: the rule, both sides, and the shapes of what they take.
    fn key(&self, entry: &Entry, wanted: &BTreeMap<ValueId, Wanted>) -> Option<Vec<u8>> {
        let mut key = format!("{} {} {:?} ", entry.pass, entry.rule, entry.accuracy).into_bytes();
        region::describe(self.before, &mut key)?;
        region::describe(self.after, &mut key)?;
        for attempt in 0..2 {
            let mut sizes = Sizes::new(attempt);
            for part in [self.before, self.after] {
                for value in &part.inputs {
                    // Which of the values that one side takes the other takes too.
                    let place = self.before.inputs.iter().position(|input| input == value);
                    let described = wanted.get(value)?.describe(self.facts.symbols(), &mut sizes)?;
                    key.extend(format!("{place:?} {described};").into_bytes());
                }
            }
        }
        Some(key)
    }

    /// What the change takes at smaller sizes, where those of the model are fixed and large, and what it is at these sizes. That it holds there
    /// counts; that it does not may be because of the sizes.
    fn smaller(
        &self,
        entry: &Entry,
        wanted: &BTreeMap<ValueId, Wanted>,
    ) -> (Vec<BTreeMap<ValueId, Wanted>>, Option<Vec<u8>>) {
        let elements: Option<u64> = wanted.values().map(Wanted::elements).sum();
        let is_worth_it = elements.is_some_and(|elements| elements > LIGHT as u64)
            && self.after.inputs.iter().all(|value| self.before.inputs.contains(value))
            && !wanted.values().any(Wanted::is_known);
        let smaller = if is_worth_it { region::reduced(self.before) } else { Vec::new() };
        let key = smaller.first().and_then(|smaller| self.key(entry, smaller));
        (smaller, key)
    }

    /// Tries the change alone, and with more and more around it.
    fn anywhere(&self, model: &Model, scope: ScopeId, wanted: &BTreeMap<ValueId, Wanted>) -> Tried {
        let mut last = self.on(wanted, None, Instant::now() + LONGEST);
        if matches!(last, Tried::Holds) {
            return last;
        }
        let boundary: Vec<ValueId> = wanted.keys().copied().collect();
        let deadline = Instant::now() + LONGEST_DOUBT;
        let mut size = 0;
        for steps in STEPS {
            let nodes = region::surroundings(model, scope, &boundary, steps);
            if nodes.len() == size {
                break;
            }
            size = nodes.len();
            let around = region::cut(model, self.facts, &nodes, &boundary);
            if region::is_large(&around) {
                return Tried::Unclear("large surroundings");
            }
            if is_random(&around.model) {
                return Tried::Unclear("random numbers");
            }
            let wanted =
                around.inputs.iter().map(|&value| (value, Wanted::of(model, self.facts, value))).collect();
            last = self.on(&wanted, Some(&around), deadline);
            if matches!(last, Tried::Holds) {
                break;
            }
        }
        last
    }

    /// Tries the change on synthetic values, or that `around` computes from such.
    fn on(&self, wanted: &BTreeMap<ValueId, Wanted>, around: Option<&Cut>, deadline: Instant) -> Tried {
        let symbols = self.facts.symbols();
        let heavy = region::is_heavy(self.before) || around.is_some_and(region::is_heavy);
        let (mut clear, mut why) = (0, "its inputs cannot be generated");
        for attempt in 0..Sizes::ATTEMPTS {
            let mut ran = false;
            let mut sizes = Sizes::new(attempt);
            let kinds = if self.is_thorough { usize::MAX } else { FEW_KINDS };
            for (place, &flavour) in self.flavours().iter().take(kinds).enumerate() {
                let Some(given) = region::made_up(wanted, symbols, &mut sizes, flavour) else { break };
                // What takes long is tried on fewer values.
                let most = match clear {
                    _ if given.is_empty() => 1,
                    0 if region::elements(&given) > 8 * LIGHT => 1,
                    0 if heavy || region::elements(&given) > LIGHT => 2,
                    0 => usize::MAX,
                    _ => 1,
                };
                if place >= most {
                    break;
                }
                let given = match around.map(|around| (around, region::run(around, &given, false, deadline)))
                {
                    None => given,
                    Some((around, Ok(values))) => around.outputs.iter().copied().zip(values).collect(),
                    Some((_, Err(_))) => {
                        why = "its surroundings do not run on synthetic values";
                        continue;
                    }
                };
                match self.once(&given, flavour, deadline) {
                    Tried::Holds => ran = true,
                    Tried::Unclear(reason) => why = reason,
                    differs => return differs,
                }
            }
            clear += usize::from(ran);
            let enough = if self.is_thorough { 2 } else { 1 };
            if clear >= enough || ran && sizes.is_fixed() || Instant::now() > deadline {
                break;
            }
        }
        if clear > 0 { Tried::Holds } else { Tried::Unclear(why) }
    }

    /// The flavours on which the promise says something.
    fn flavours(&self) -> &'static [Flavour] {
        const FINITE: [Flavour; 5] =
            [Flavour::Normal, Flavour::Small, Flavour::Negative, Flavour::Zeros, Flavour::Large];
        const ALL: [Flavour; 7] = [
            Flavour::Normal,
            Flavour::NotFinite,
            Flavour::Negative,
            Flavour::Small,
            Flavour::Zeros,
            Flavour::Large,
            Flavour::Denormal,
        ];
        match self.accuracy {
            Accuracy::BitExact | Accuracy::ValueExact => &ALL,
            Accuracy::Rounding { .. } | Accuracy::Approximate { .. } => &FINITE,
        }
    }

    fn once(&self, given: &Given, flavour: Flavour, deadline: Instant) -> Tried {
        let Ok(expected) = region::run(self.before, given, false, deadline) else {
            return Tried::Unclear("it does not run on synthetic values");
        };
        let first = || self.after.outputs.first().copied();
        let found = match region::run(self.after, given, false, deadline) {
            Ok(found) => found,
            Err(_) if Instant::now() > deadline => return Tried::Unclear("it takes too long"),
            Err(error) => {
                return first().map_or(Tried::Holds, |value| Tried::Differs(value, error.to_string()));
            }
        };
        let mut wide: Option<[Vec<Value>; 2]> = None;
        for (place, (x, y)) in expected.iter().zip(&found).enumerate() {
            let Some(&value) = self.after.outputs.get(place) else { break };
            let said = |difference: String| Tried::Differs(value, difference);
            let difference = match compare(x, y) {
                Ok(difference) => difference,
                // Where numbers are large, another order of computing may leave the range of the type.
                Err(Mismatch::NotFinite) if flavour == Flavour::Large && self.rounds() => continue,
                Err(mismatch) => return said(mismatch.to_string()),
            };
            if difference.identical {
                continue;
            }
            match self.accuracy {
                Accuracy::BitExact => return said(format!("bits differ, by {:.1e}", difference.max_abs)),
                _ if difference.max_abs == 0.0 => {}
                Accuracy::ValueExact => return said(format!("numbers differ by {:.1e}", difference.max_abs)),
                Accuracy::Approximate { rtol, atol } => {
                    if difference.max_rel > rtol && difference.max_abs > atol {
                        return said(format!("numbers differ by {:.1e}", difference.max_abs));
                    }
                }
                Accuracy::Rounding { ulps } => {
                    if wide.is_none() {
                        let runs =
                            [self.before, self.after].map(|part| region::run(part, given, true, deadline));
                        let [Ok(first), Ok(second)] = runs else {
                            return Tried::Unclear("it does not run in 64 bits");
                        };
                        wide = Some([first, second]);
                    }
                    let judged = wide.as_ref().and_then(|[first, second]| {
                        Judged::of([x, y], [first.get(place)?, second.get(place)?])
                    });
                    let few = if ulps.is_finite() { ulps.max(FEW) } else { FEW };
                    if judged.is_none_or(|judged| judged.verdict(few, 0.0) == Verdict::Different) {
                        return said(format!("numbers differ by {:.1e} of their scale", difference.max_rel));
                    }
                }
            }
        }
        Tried::Holds
    }

    fn rounds(&self) -> bool {
        matches!(self.accuracy, Accuracy::Rounding { .. } | Accuracy::Approximate { .. })
    }
}
