//! What a model is made of that passes are about: a forensic report.
//!
//! Each kind of finding says where it is looked for (the file as it is, or the model without detours, see [`tidied`]), how it is recognised, and
//! which passes handle it. Nothing is guessed: a pass that handles a finding runs, alone, on a copy. A place is handled where an edit of the pass
//! consumes it; elsewhere the pass's own reason tells why it stays. What a finding is worth are the nodes that went with those edits.

mod constants;
mod judge;
mod layers;
mod layout;
mod shapes;
mod transformers;

pub(super) use self::transformers::gates;

use std::collections::BTreeMap;

use serde::Serialize;

use self::judge::Bench;
use super::scene::{Left, Place, Scene, tidied};
use onnxforge_hierarchy::Hierarchy;
use onnxforge_ir::Model;
use onnxforge_rewrite::passes::Pass;
use onnxforge_rewrite::upgrade;

/// The operator set that has everything that fusions make.
const NEW: i64 = 23;

/// The report about a model.
#[derive(Clone, Debug, Serialize)]
pub struct Audit {
    /// Version of this layout.
    pub schema: u32,
    /// The version of the standard operators.
    pub opset: Option<i64>,
    /// Nodes of the whole model, bodies and functions included.
    pub nodes: usize,
    /// The same without detours.
    pub nodes_tidied: usize,
    /// Every kind of finding, also those of which there is none.
    pub findings: Vec<Finding>,
}

/// A kind of finding in a model.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Its name.
    pub id: &'static str,
    /// What it belongs to.
    pub family: &'static str,
    /// What it is.
    pub text: &'static str,
    /// How many places there are.
    pub count: usize,
    /// How many of them the passes handle.
    pub handled: usize,
    /// Nodes that go when the passes run.
    pub worth: i64,
    /// Bytes of constants that go when the passes run.
    pub bytes: i64,
    /// The passes that handle it.
    pub passes: Vec<&'static str>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_pass: Option<&'static str>,
    /// Where it was looked for, and where the passes ran: `file` or `tidied`.
    pub measured_on: On,
    /// Why places stay, and how many.
    pub stays: BTreeMap<String, usize>,
    /// Whether the operator set is too old for a pass.
    #[serde(skip)]
    is_too_old: bool,
    /// The same after a conversion to a newer operator set, where that is what places stay for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newer: Option<Newer>,
    /// Other figures.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub details: BTreeMap<&'static str, f64>,
    /// The nodes of the file that belong to it, place by place.
    pub places: Vec<Listed>,
}

/// What becomes of a finding with a newer operator set.
#[derive(Clone, Debug, Serialize)]
pub struct Newer {
    /// The version of the standard operators.
    pub opset: i64,
    /// How many places there are then.
    pub count: usize,
    /// How many of them the passes handle.
    pub handled: usize,
    /// Nodes that go when the passes run.
    pub worth: i64,
}

/// A place.
#[derive(Clone, Debug, Serialize)]
pub struct Listed {
    /// The place in the model that was looked at: the file's, or what [`tidied`] makes of it.
    #[serde(skip)]
    pub place: Place,
    /// Nodes of the file.
    pub nodes: Vec<Member>,
    /// Constants, where it is about constants.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub constants: Vec<String>,
    /// The pass that handles it.
    pub pass: Option<&'static str>,
    /// Why it stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stays: Option<String>,
}

/// A node of a place.
#[derive(Clone, Debug, Serialize)]
pub struct Member {
    /// The node.
    pub node: String,
    /// The path of the PyTorch module that it comes from, where that is known.
    pub module: Option<String>,
}

/// Where something is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum On {
    /// In the file as it is.
    File,
    /// In the model without detours.
    Tidied,
}

/// A kind of finding.
struct Kind {
    id: &'static str,
    text: &'static str,
    on: On,
    /// Passes that handle it, in the order in which they are asked.
    passes: &'static [&'static Pass],
    /// Where there is no pass, why; elsewhere, why one stays silent about a place.
    otherwise: &'static str,
    find: Find,
}

/// How places are recognised.
enum Find {
    /// By rules of a pass.
    Rules(&'static Pass, &'static [&'static str], Left),
    /// They are the edits of a pass.
    Edits(&'static Pass),
    /// By a look at the whole.
    Walk(fn(&Scene<'_>) -> Found),
}

/// What was found.
#[derive(Default)]
struct Found {
    places: Vec<Place>,
    details: BTreeMap<&'static str, f64>,
}

impl From<Vec<Place>> for Found {
    fn from(places: Vec<Place>) -> Self {
        Self { places, ..Self::default() }
    }
}

/// All kinds, by family.
fn kinds() -> impl Iterator<Item = (&'static str, &'static Kind)> {
    let families: [(&str, &[Kind]); 5] = [
        ("shapes", shapes::KINDS),
        ("layout", layout::KINDS),
        ("constants", constants::KINDS),
        ("layers", layers::KINDS),
        ("transformers", transformers::KINDS),
    ];
    families.into_iter().flat_map(|(family, kinds)| kinds.iter().map(move |kind| (family, kind)))
}

/// The names of all kinds of findings, in the order of the report, each with the passes that handle it.
pub fn catalogue() -> impl Iterator<Item = (&'static str, &'static [&'static Pass])> {
    kinds().map(|(_, kind)| (kind.id, kind.passes))
}

/// Looks for everything. `hierarchy` is that of the same model.
pub fn audit(model: &Model, hierarchy: &Hierarchy) -> Audit {
    let (mut file, mut plain) = (model.clone(), tidied(model, false));
    let nodes_tidied = plain.node_count();
    let mut on_file = Bench::new(Scene::of(&mut file));
    let mut on_tidied = Bench::new(Scene::of(&mut plain));
    let mut findings: Vec<Finding> = kinds()
        .map(|(family, kind)| {
            let bench = if kind.on == On::File { &mut on_file } else { &mut on_tidied };
            bench.finding(family, kind, model, hierarchy)
        })
        .collect();
    drop((on_file, on_tidied));
    let opset = model.opset(model.main(), "");
    look_again(model, opset, &mut findings);
    Audit { schema: 1, opset, nodes: model.node_count(), nodes_tidied, findings }
}

/// What becomes of those findings that stay because the operator set is too old.
fn look_again(model: &Model, opset: Option<i64>, findings: &mut [Finding]) {
    if !findings.iter().any(|finding| finding.is_too_old) || opset.is_none_or(|opset| opset >= NEW) {
        return;
    }
    let mut upgraded = model.clone();
    if let Err(error) = upgrade::upgrade(&mut upgraded, NEW) {
        tracing::info!("not looked at with opset {NEW}: {error}");
        return;
    }
    let mut plain = tidied(&upgraded, false);
    let mut bench = Bench::new(Scene::of(&mut plain));
    for (finding, (_, kind)) in findings.iter_mut().zip(kinds()) {
        if finding.is_too_old && kind.on == On::Tidied {
            let judged = bench.judged(kind);
            finding.newer = Some(Newer {
                opset: NEW,
                count: judged.places.len(),
                handled: judged.handled(),
                worth: judged.worth,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::unknown_rules;

    #[test]
    fn named_rules_exist() {
        let of_kinds = kinds().filter_map(|(_, kind)| match kind.find {
            Find::Rules(pass, rules, _) => Some((kind.id, pass, rules)),
            Find::Walk(_) | Find::Edits(_) => None,
        });
        let (pass, rules) = shapes::EXPANDED_OPERANDS;
        for (id, pass, rules) in of_kinds.chain([("expand_add", pass, rules)]) {
            assert_eq!(unknown_rules(pass, rules), [""; 0], "{id}: {pass:?}");
        }
    }
}
