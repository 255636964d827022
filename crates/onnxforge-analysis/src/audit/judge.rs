//! Runs passes on what was found, and tells what they made of it.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Find, Finding, Found, Kind, Listed, Member};
use crate::scene::{Place, Scene, Trial};
use onnxforge_hierarchy::{Certainty, Hierarchy};
use onnxforge_ir::{Model, NodeId, ValueId};
use onnxforge_rewrite::Reason;
use onnxforge_rewrite::passes::Pass;

/// How many nodes behind a place a pass may stand when it says why it leaves it alone.
const BEHIND: usize = 3;

/// A scene, and what passes did with copies of it.
pub struct Bench<'m> {
    scene: Scene<'m>,
    trials: HashMap<&'static str, Tried>,
}

/// What a pass did.
struct Tried {
    trial: Trial,
    /// Nodes that edits consumed.
    consumed: HashSet<NodeId>,
    /// Values that edits gave another definition.
    redefined: HashSet<ValueId>,
    /// Reasons by node.
    left: HashMap<NodeId, Reason>,
}

/// A kind of finding, judged.
pub struct Judged {
    pub places: Vec<(Place, Verdict)>,
    pub details: BTreeMap<&'static str, f64>,
    pub worth: i64,
    pub bytes: i64,
}

/// What becomes of a place.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// This pass handles it.
    Handled(&'static str),
    /// It stays, for this reason of a pass.
    Stays(Reason),
    /// It stays, and no pass says why.
    Silent(&'static str),
    /// No pass is about it.
    Nothing,
}

impl Judged {
    pub fn handled(&self) -> usize {
        self.places.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Handled(_))).count()
    }
}

impl<'m> Bench<'m> {
    pub fn new(scene: Scene<'m>) -> Self {
        Self { scene, trials: HashMap::new() }
    }

    /// What a pass does with the scene; the same answer to the same question.
    fn tried(&mut self, pass: &'static Pass) -> &Tried {
        let scene = &self.scene;
        self.trials.entry(pass.name).or_insert_with(|| {
            let trial = scene.trial(pass);
            let consumed = trial.edits().iter().flat_map(|entry| entry.consumed.iter().copied()).collect();
            let redefined = trial.edits().iter().flat_map(|entry| entry.redefined.iter().copied()).collect();
            let skipped = trial.outcome.skipped.iter();
            let left = skipped.map(|skipped| (skipped.node, skipped.reason.clone())).collect();
            Tried { trial, consumed, redefined, left }
        })
    }

    /// Finds places, and asks the passes.
    pub fn judged(&mut self, kind: &Kind) -> Judged {
        let Found { places, details } = match kind.find {
            Find::Rules(pass, rules, left) => self.scene.places(pass, rules, left).into(),
            Find::Walk(walk) => walk(&self.scene),
            Find::Edits(pass) => self.edits(pass).into(),
        };
        let mut judged = Judged { places: Vec::new(), details, worth: 0, bytes: 0 };
        let mut open: Vec<(Place, Verdict)> =
            places.into_iter().map(|place| (place, Verdict::Nothing)).collect();
        for &pass in kind.passes {
            if open.iter().all(|(_, verdict)| matches!(verdict, Verdict::Handled(_))) {
                break;
            }
            let behind: Vec<Vec<NodeId>> = open.iter().map(|(place, _)| self.behind(place)).collect();
            let tried = self.tried(pass);
            let mut handled: Vec<&Place> = Vec::new();
            for ((place, verdict), behind) in open.iter_mut().zip(behind) {
                if matches!(verdict, Verdict::Handled(_)) {
                    continue;
                }
                if tried.takes(place) {
                    *verdict = Verdict::Handled(pass.name);
                    handled.push(place);
                } else if let Some(reason) = tried.reason(place, &behind) {
                    *verdict = Verdict::Stays(reason);
                } else if matches!(verdict, Verdict::Nothing) {
                    *verdict = Verdict::Silent(kind.otherwise);
                }
            }
            let (worth, bytes) = tried.worth(&handled);
            judged.worth += worth;
            judged.bytes = judged.bytes.saturating_add(bytes);
        }
        judged.places = open;
        judged
    }

    /// The edits of a pass as places.
    fn edits(&mut self, pass: &'static Pass) -> Vec<Place> {
        let tried = self.tried(pass);
        let place = |entry: &onnxforge_ir::Entry| Place {
            root: entry.consumed.first().copied(),
            nodes: entry.consumed.clone(),
            constants: if entry.consumed.is_empty() { entry.redefined.clone() } else { Vec::new() },
        };
        tried.trial.edits().iter().map(place).collect()
    }

    /// The nodes that read what a place gives, directly or a few nodes later.
    fn behind(&self, place: &Place) -> Vec<NodeId> {
        let model = self.scene.model();
        let mut found: Vec<NodeId> = Vec::new();
        let mut border: Vec<NodeId> = place.root.into_iter().collect();
        for _ in 0..BEHIND {
            let outputs = border.iter().flat_map(|&node| model.node(node).outputs().iter().flatten());
            border = outputs.flat_map(|&output| self.scene.readers(output)).take(64).collect();
            found.extend(&border);
        }
        found
    }

    /// The finding as it is reported, in terms of the nodes of `file`.
    pub fn finding(
        &mut self,
        family: &'static str,
        kind: &'static Kind,
        file: &Model,
        hierarchy: &Hierarchy,
    ) -> Finding {
        let judged = self.judged(kind);
        let mut stays: BTreeMap<String, usize> = BTreeMap::new();
        let (handled, mut places, mut is_too_old) = (judged.handled(), Vec::new(), false);
        for (place, verdict) in judged.places {
            is_too_old |= matches!(verdict, Verdict::Stays(Reason::Opset { .. }));
            let (pass, reason) = match verdict {
                Verdict::Handled(pass) => (Some(pass), None),
                Verdict::Stays(reason) => (None, Some(reason.to_string())),
                Verdict::Silent(reason) => (None, Some(reason.to_owned())),
                Verdict::Nothing => (None, None),
            };
            if let Some(reason) = &reason {
                *stays.entry(reason.clone()).or_default() += 1;
            }
            let name = |&value: &ValueId| self.scene.model().value(value).name().to_string();
            places.push(Listed {
                nodes: self.members(&place, file, hierarchy),
                constants: place.constants.iter().map(name).collect(),
                pass,
                stays: reason,
                place,
            });
        }
        Finding {
            id: kind.id,
            family,
            text: kind.text,
            count: places.len(),
            handled,
            worth: judged.worth,
            bytes: judged.bytes,
            passes: kind.passes.iter().map(|pass| pass.name).collect(),
            no_pass: kind.passes.is_empty().then_some(kind.otherwise),
            measured_on: kind.on,
            stays,
            is_too_old,
            newer: None,
            details: judged.details,
            places,
        }
    }

    /// The nodes of the file that a place goes back to.
    fn members(&self, place: &Place, file: &Model, hierarchy: &Hierarchy) -> Vec<Member> {
        let mut seen = HashSet::new();
        let nodes = place.nodes.iter().flat_map(|&node| sources(self.scene.model(), file, node));
        let nodes = nodes.filter(|node| seen.insert(*node));
        let module = |node: NodeId| {
            let origin = hierarchy.origin(node);
            let known = origin.evidence.certainty() != Certainty::Root && !origin.modules.is_empty();
            known.then(|| hierarchy.table().get(origin.primary()).path.to_string())
        };
        nodes.map(|node| Member { node: file.node_label(node), module: module(node) }).collect()
    }
}

/// The nodes of the file that a node of the scene goes back to: itself, or of those that it was made of the ones that do the same.
pub fn sources(scene: &Model, file: &Model, node: NodeId) -> Vec<NodeId> {
    let of = scene.origins().sources(scene.node(node).origin());
    let alike: Vec<NodeId> =
        of.iter().copied().filter(|&source| file.node(source).op() == scene.node(node).op()).collect();
    if alike.is_empty() { of } else { alike }
}

impl Tried {
    /// Whether an edit consumed the place. What stands for it must be gone, where there is such a node.
    fn takes(&self, place: &Place) -> bool {
        let gone =
            |value: &ValueId| !self.trial.model.value(*value).is_live() || self.redefined.contains(value);
        match place.root {
            Some(root) => self.consumed.contains(&root),
            None => place.constants.iter().any(gone),
        }
    }

    /// What the pass says about the place, or about what stands behind it.
    fn reason(&self, place: &Place, behind: &[NodeId]) -> Option<Reason> {
        place.nodes.iter().chain(behind).find_map(|node| self.left.get(node)).cloned()
    }

    /// Nodes and bytes that went with the edits that are about these places, or about what such edits made.
    fn worth(&self, places: &[&Place]) -> (i64, i64) {
        let mut about: HashSet<NodeId> =
            places.iter().flat_map(|place| place.nodes.iter().copied()).collect();
        let constants: HashSet<_> = places.iter().flat_map(|place| &place.constants).collect();
        let mut sum = (0i64, 0i64);
        for entry in self.trial.edits() {
            let of_nodes = entry.consumed.iter().any(|node| about.contains(node));
            let of_constants = entry.redefined.iter().any(|value| constants.contains(value))
                || entry.consumed.is_empty() && !constants.is_empty() && entry.redefined.is_empty();
            if of_nodes || of_constants {
                about.extend(&entry.produced);
                sum = (sum.0 - entry.nodes, sum.1.saturating_sub(entry.bytes));
            }
        }
        sum
    }
}
