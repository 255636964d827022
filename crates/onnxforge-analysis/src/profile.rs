//! How long each PyTorch module takes: times of nodes, summed up by the modules that they come from.

pub mod flame;
pub mod trace;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;

use onnxforge_hierarchy::{Attribution, Certainty, Evidence, Hierarchy, ModuleId, Tags, restore};
use onnxforge_ir::{Model, NodeId};
use onnxforge_verify::bench::{Estimate, median};
use onnxforge_verify::profile::{Measured, Run};
use onnxforge_verify::runtime::Named;
use serde::Serialize;

/// A node that was run.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its name.
    pub name: String,
    /// Its operator.
    pub op: String,
    /// The modules that it comes from, the one that it stands for first.
    pub modules: Vec<ModuleId>,
    /// How much that is worth.
    pub certainty: Certainty,
}

impl Place {
    fn new(name: &str, op: &str, origin: &Attribution) -> Self {
        Self {
            name: name.to_owned(),
            op: op.to_owned(),
            modules: origin.modules.clone(),
            certainty: origin.evidence.certainty(),
        }
    }

    /// The module that its time counts for.
    pub fn module(&self) -> ModuleId {
        self.modules.first().copied().unwrap_or(ModuleId::ROOT)
    }
}

/// The nodes that ran, and the sessions in which they did, by their places in that list.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The nodes.
    pub places: Vec<Place>,
    /// The sessions.
    pub sessions: Vec<Measured<usize>>,
}

impl Observed {
    /// What ONNX Runtime ran: nodes of the graph `saved` that it made of the model. They are found again by what has kept its name.
    pub fn in_runtime(
        sessions: Vec<Measured<Named>>,
        saved: &Model,
        model: &Model,
        hierarchy: &Hierarchy,
    ) -> Self {
        let recorded = restore::recorded(saved, model, hierarchy);
        let found = Hierarchy::of(saved, Some(&recorded));
        let table = hierarchy.table();
        // Its table is that of the model, and what exporters mention besides.
        let home = |module: &ModuleId| table.nearest(&found.table().get(*module).path);
        let mut by_name: HashMap<&str, Option<NodeId>> = HashMap::new();
        for (id, node) in saved.nodes() {
            // Of several nodes of one name nobody knows which one ran.
            let name = node.name().map_or("", |name| name);
            by_name.entry(name).and_modify(|known| *known = None).or_insert(Some(id));
        }
        let unnamed = unnamed(&sessions, saved);
        let place = |ran: &Named| {
            let by_order = unnamed.get(ran).copied();
            let named = by_name.get(&*ran.name).copied().flatten();
            let origin = named.or(by_order).map(|id| found.origin(id));
            let unknown = Attribution::new(ModuleId::ROOT, Evidence::Root);
            let origin = origin.map_or(unknown, |origin| Attribution {
                modules: origin.modules.iter().map(home).collect(),
                evidence: if named.is_some() {
                    origin.evidence
                } else {
                    origin.evidence.max(Evidence::Neighbours)
                },
            });
            Place::new(&ran.name, &ran.op, &origin)
        };
        Self::numbered(sessions, place)
    }

    /// What this library ran.
    pub fn in_this_library(sessions: Vec<Measured<NodeId>>, model: &Model, hierarchy: &Hierarchy) -> Self {
        let place = |id: &NodeId| {
            let node = model.node(*id);
            let name = node.name().map_or_else(|| model.node_label(*id), ToString::to_string);
            Place::new(&name, &node.op().to_string(), hierarchy.origin(*id))
        };
        Self::numbered(sessions, place)
    }

    fn numbered<N: Clone + Eq + Hash>(sessions: Vec<Measured<N>>, place: impl Fn(&N) -> Place) -> Self {
        let mut numbers: HashMap<N, usize> = HashMap::new();
        let mut places = Vec::new();
        let mut number = |node: N| {
            *numbers.entry(node.clone()).or_insert_with(|| {
                places.push(place(&node));
                places.len() - 1
            })
        };
        let sessions = sessions
            .into_iter()
            .map(|session| Measured {
                runs: session.runs.into_iter().map(|run| run.map(&mut number)).collect(),
                plain: session.plain,
            })
            .collect();
        Self { places, sessions }
    }

    /// A run that took about as long as half of all did.
    pub fn typical(&self) -> Option<&Run<usize>> {
        let mut runs: Vec<&Run<usize>> = self.sessions.iter().flat_map(|session| &session.runs).collect();
        runs.sort_by(|a, b| a.total.total_cmp(&b.total));
        runs.get(runs.len() / 2).copied()
    }
}

/// Nodes of the main graph without a name, as those of functions that ONNX Runtime put into it. It calls them after their operator and their
/// number in the graph, which has the order of the file. Of operators that ran more or less often than there are such nodes, nothing is told.
fn unnamed(sessions: &[Measured<Named>], saved: &Model) -> HashMap<Named, NodeId> {
    let number =
        |ran: &Named| -> Option<u64> { ran.name.strip_prefix(&*ran.op)?.strip_prefix('_')?.parse().ok() };
    let mut waiting: HashMap<&str, Vec<NodeId>> = HashMap::new();
    let mut known: HashSet<&str> = HashSet::new();
    for (id, node) in saved.nodes() {
        match node.name().filter(|name| !name.is_empty()) {
            Some(name) => {
                known.insert(name);
            }
            None if node.scope() == saved.main() => {
                waiting.entry(&node.op().name).or_default().push(id);
            }
            None => {}
        }
    }
    let first = sessions.first().and_then(|session| session.runs.first());
    let calls = first.iter().flat_map(|run| &run.calls).map(|call| &call.node);
    let mut ran: HashMap<&str, Vec<&Named>> = HashMap::new();
    for node in calls.filter(|node| number(node).is_some()).filter(|node| !known.contains(&*node.name)) {
        let of_op = ran.entry(&node.op).or_default();
        if !of_op.contains(&node) {
            of_op.push(node);
        }
    }
    let pairs = ran.into_iter().filter_map(|(op, mut ran)| {
        ran.sort_by_key(|node| number(node));
        let nodes = waiting.get(op).filter(|nodes| nodes.len() == ran.len())?;
        Some(ran.into_iter().cloned().zip(nodes.iter().copied()))
    });
    pairs.flatten().collect()
}

/// How long a model takes, and its modules. All times are milliseconds of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Profile {
    /// A run without the profiler.
    pub total_ms: Estimate,
    /// A run with it.
    pub profiled_ms: Estimate,
    /// The share by which the profiler makes a run longer.
    pub overhead: f64,
    /// All nodes together.
    pub nodes_ms: Estimate,
    /// What is left of a run: the engine's own work between nodes.
    pub between_ms: f64,
    /// What nodes took, as a share of what the profiler says of whole runs.
    pub accounted: f64,
    /// How well the time of nodes is known to belong to modules.
    pub attributed: Attributed,
    /// Runs of each session that were counted.
    pub runs: Vec<usize>,
    /// The modules, in the order of the table.
    pub modules: Vec<ModuleTime>,
    /// By operator, the longest first.
    pub operators: Vec<GroupTime>,
    /// By class of the modules, the longest first.
    pub classes: Vec<GroupTime>,
    /// By node, the longest first.
    pub nodes: Vec<NodeTime>,
}

/// Shares of the time of all nodes.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Attributed {
    /// Of nodes whose module is known exactly.
    pub exact: f64,
    /// Of nodes whose module was concluded.
    pub inferred: f64,
    /// Of nodes whose module is not known.
    pub unknown: f64,
    /// Of nodes that belong to a module inside of the model.
    pub below_root: f64,
}

/// How long a module takes.
#[derive(Clone, Debug, Serialize)]
pub struct ModuleTime {
    /// Its path.
    pub module: String,
    /// Its tag.
    pub tag: String,
    /// Its class.
    pub class: Option<String>,
    /// The place of the module around it in this list.
    pub parent: Option<usize>,
    /// Levels below the model.
    pub depth: usize,
    /// How many nodes ran, with those inside of it.
    pub nodes: usize,
    /// Its nodes alone.
    pub self_ms: Estimate,
    /// With everything inside of it.
    pub total_ms: Estimate,
    /// That as a share of all nodes.
    pub share: f64,
}

/// How long nodes of one kind take.
#[derive(Clone, Debug, Serialize)]
pub struct GroupTime {
    /// The operator or class.
    pub name: String,
    /// How many nodes, or modules, there are.
    pub count: usize,
    /// The nodes, for a class those of its modules alone.
    pub self_ms: Estimate,
    /// For a class, with everything inside of its modules.
    pub total_ms: Estimate,
    /// That as a share of all nodes.
    pub share: f64,
}

/// How long a node takes.
#[derive(Clone, Debug, Serialize)]
pub struct NodeTime {
    /// Its name.
    pub node: String,
    /// Its operator.
    pub op: String,
    /// The path of its module.
    pub module: String,
    /// Paths of the other modules that it comes from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// How well that is known.
    pub certainty: Certainty,
    /// Without nodes in its bodies.
    pub self_ms: Estimate,
}

/// Sums up what was observed. Nothing without sessions, or where one has no run.
pub fn profile(observed: &Observed, hierarchy: &Hierarchy, tags: &Tags) -> Option<Profile> {
    let Observed { places, sessions } = observed;
    // Milliseconds of each node, by session.
    let mut times: Vec<Vec<f64>> = Vec::new();
    let (mut totals, mut profiled, mut sums, mut accounted) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for session in sessions {
        let (mut own, calls, nodes, whole) = of_session(session, places.len())?;
        let plain = median(&session.plain) / 1e3;
        if nodes > plain {
            take_off(&mut own, &calls, plain);
        }
        totals.push(plain);
        profiled.push(whole);
        sums.push(nodes.min(plain));
        accounted.push(nodes / whole);
        times.push(own);
    }
    let all = Estimate::of(&sums)?;
    let table = hierarchy.table();
    let counts = table.len();
    let share = |time: f64| if all.median > 0.0 { time / all.median } else { 0.0 };
    // Sessions differ, and all nodes with them: what is ordinary is the share of each. So parts add up to the whole.
    let part_of_all = |values: Vec<f64>| -> Option<Estimate> {
        let found = Estimate::of(&values)?;
        let shares: Vec<f64> =
            values.iter().zip(&sums).map(|(value, sum)| if *sum > 0.0 { value / sum } else { 0.0 }).collect();
        let ordinary = median(&shares) * all.median;
        Some(Estimate { median: ordinary.clamp(found.low, found.high), ..found })
    };
    let estimate = |of: &dyn Fn(&[f64]) -> f64| part_of_all(times.iter().map(|own| of(own)).collect());
    let sum_by = |groups: usize, group: &dyn Fn(&Place) -> Vec<usize>| -> Option<Vec<Estimate>> {
        let of = |own: &Vec<f64>| {
            let mut sum = vec![0.0; groups];
            for (place, time) in places.iter().zip(own) {
                group(place).into_iter().for_each(|group| sum[group] += time);
            }
            sum
        };
        let by_session: Vec<Vec<f64>> = times.iter().map(of).collect();
        let one = |group: usize| part_of_all(by_session.iter().map(|sum| sum[group]).collect());
        (0..groups).map(one).collect()
    };
    let own = sum_by(counts, &|place| vec![place.module().index()])?;
    let total = sum_by(counts, &|place| table.chain(place.module()).map(ModuleId::index).collect())?;
    let mut nodes_of = vec![0usize; counts];
    for place in places {
        table.chain(place.module()).for_each(|module| nodes_of[module.index()] += 1);
    }
    let modules = table.iter().map(|(id, module)| ModuleTime {
        module: module.path.to_string(),
        tag: tags.get(id).to_owned(),
        class: module.short_class().map(str::to_owned),
        parent: table.parent(id).map(ModuleId::index),
        depth: table.depth(id),
        nodes: nodes_of[id.index()],
        self_ms: own[id.index()],
        total_ms: total[id.index()],
        share: share(total[id.index()].median),
    });
    let mut nodes: Vec<NodeTime> = Vec::new();
    for (at, place) in places.iter().enumerate() {
        nodes.push(NodeTime {
            node: place.name.clone(),
            op: place.op.clone(),
            module: table.get(place.module()).path.to_string(),
            also: place.modules.iter().skip(1).map(|&module| table.get(module).path.to_string()).collect(),
            certainty: place.certainty,
            self_ms: estimate(&|own| own[at])?,
        });
    }
    nodes.sort_by(|a, b| b.self_ms.median.total_cmp(&a.self_ms.median));
    let part = |of: &dyn Fn(&Place) -> bool| {
        let time =
            |own: &[f64]| places.iter().zip(own).filter(|(place, _)| of(place)).map(|(_, time)| time).sum();
        // The sum of nothing is a negative zero.
        estimate(&time).map(|estimate| share(estimate.median) + 0.0)
    };
    let overhead: Vec<f64> =
        profiled.iter().zip(&totals).map(|(with, without)| with / without - 1.0).collect();
    let total_ms = Estimate::of(&totals)?;
    Some(Profile {
        total_ms,
        profiled_ms: Estimate::of(&profiled)?,
        overhead: median(&overhead),
        nodes_ms: all,
        between_ms: (total_ms.median - all.median).max(0.0),
        accounted: median(&accounted),
        attributed: Attributed {
            exact: part(&|place| place.certainty == Certainty::Exact)?,
            inferred: part(&|place| place.certainty == Certainty::Inferred)?,
            unknown: part(&|place| place.certainty == Certainty::Root)?,
            below_root: part(&|place| place.module() != ModuleId::ROOT)?,
        },
        runs: sessions.iter().map(|session| session.runs.len()).collect(),
        modules: modules.collect(),
        operators: operators(places, &sum_by, &share)?,
        classes: classes(hierarchy, &sum_by, &share)?,
        nodes,
    })
}

/// Sums times of nodes by numbered groups; a node may be in several.
type SumBy<'f> = dyn Fn(usize, &dyn Fn(&Place) -> Vec<usize>) -> Option<Vec<Estimate>> + 'f;

fn operators(places: &[Place], sum_by: &SumBy<'_>, share: &dyn Fn(f64) -> f64) -> Option<Vec<GroupTime>> {
    let mut numbers: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for place in places {
        let next = numbers.len();
        numbers.entry(&place.op).or_insert((next, 0)).1 += 1;
    }
    let sums = sum_by(numbers.len(), &|place| {
        numbers.get(&*place.op).map(|&(number, _)| number).into_iter().collect()
    })?;
    let group = |(&name, &(number, count)): (&&str, &(usize, usize))| GroupTime {
        name: name.to_owned(),
        count,
        self_ms: sums[number],
        total_ms: sums[number],
        share: share(sums[number].median),
    };
    Some(longest_first(numbers.iter().map(group).collect()))
}

fn classes(hierarchy: &Hierarchy, sum_by: &SumBy<'_>, share: &dyn Fn(f64) -> f64) -> Option<Vec<GroupTime>> {
    let table = hierarchy.table();
    let mut numbers: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (_, module) in table.iter() {
        let next = numbers.len();
        numbers.entry(module.short_class().unwrap_or("?")).or_insert((next, 0)).1 += 1;
    }
    let number = |module: ModuleId| {
        numbers.get(table.get(module).short_class().unwrap_or("?")).map_or(0, |&(number, _)| number)
    };
    let own = sum_by(numbers.len(), &|place| vec![number(place.module())])?;
    let total = sum_by(numbers.len(), &|place| {
        // A module inside of another one of its class counts once.
        let mut around: Vec<usize> = table.chain(place.module()).map(number).collect();
        around.sort_unstable();
        around.dedup();
        around
    })?;
    let group = |(&name, &(number, count)): (&&str, &(usize, usize))| GroupTime {
        name: name.to_owned(),
        count,
        self_ms: own[number],
        total_ms: total[number],
        share: share(total[number].median),
    };
    Some(longest_first(numbers.iter().map(group).filter(|group| group.total_ms.high > 0.0).collect()))
}

fn longest_first(mut groups: Vec<GroupTime>) -> Vec<GroupTime> {
    groups.sort_by(|a, b| b.total_ms.median.total_cmp(&a.total_ms.median));
    groups
}

/// Takes off what the profiler costs inside of nodes, the same for each call, so that together they take as long as they can have taken. ONNX Runtime's writes down
/// the shapes of what a node reads while its clock runs.
fn take_off(own: &mut [f64], calls: &[f64], together: f64) {
    // With a cost above its threshold, a node has nothing left.
    let threshold = |node: usize| own[node] / calls[node];
    let mut order: Vec<usize> = (0..own.len()).filter(|&node| calls[node] > 0.0).collect();
    order.sort_by(|&a, &b| threshold(b).total_cmp(&threshold(a)));
    let (mut time, mut count, mut cost) = (0.0, 0.0, 0.0);
    for &node in &order {
        if count > 0.0 && threshold(node) <= cost {
            break;
        }
        time += own[node];
        count += calls[node];
        cost = ((time - together) / count).max(0.0);
    }
    for node in order {
        own[node] = (own[node] - cost * calls[node]).max(0.0);
    }
}

/// Milliseconds of each node in a session and how often a run calls it, of all nodes together, and of whole runs with the profiler. Runs are those of ordinary length: the median
/// of every node, scaled so that together they take what the median run took.
fn of_session(session: &Measured<usize>, nodes: usize) -> Option<(Vec<f64>, Vec<f64>, f64, f64)> {
    if session.runs.is_empty() || session.plain.is_empty() {
        return None;
    }
    let mut by_node: Vec<Vec<f64>> = vec![Vec::with_capacity(session.runs.len()); nodes];
    let mut sums = Vec::new();
    let mut calls = vec![0.0; nodes];
    for (at, run) in session.runs.iter().enumerate() {
        for call in &run.calls {
            calls[call.node] += 1.0 / session.runs.len() as f64;
            let times = &mut by_node[call.node];
            // A node may be called several times in a run, and not at all in another.
            times.resize(times.len().max(at), 0.0);
            match times.get_mut(at) {
                Some(time) => *time += call.own / 1e3,
                None => times.push(call.own / 1e3),
            }
        }
        sums.push(run.calls.iter().map(|call| call.own).sum::<f64>() / 1e3);
    }
    by_node.iter_mut().for_each(|times| times.resize(session.runs.len(), 0.0));
    let whole = median(&session.runs.iter().map(|run| run.total / 1e3).collect::<Vec<f64>>());
    let mut own: Vec<f64> = by_node.iter().map(|times| median(times)).collect();
    let (together, all) = (own.iter().sum::<f64>(), median(&sums));
    if together > 0.0 {
        own.iter_mut().for_each(|time| *time *= all / together);
    }
    Some((own, calls, all, whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use onnxforge_hierarchy::Policy;
    use onnxforge_ir::io::{LoadOptions, load_bytes};
    use onnxforge_verify::profile::Call;

    fn hierarchy() -> Hierarchy {
        let model = onnxforge_ir::text::parse(
            "<ir_version: 8, opset_import: [\"\" : 13]> g (float[2] x) => (float[2] y) {\n\
             [\"/a/Relu\"] t = Relu(x)\n [\"/a/b/Exp\"] y = Exp(t) }",
        );
        let mut bytes = Vec::new();
        onnxforge_proto::wire::encode(&model.unwrap()).write_to(&mut bytes).unwrap();
        let model = load_bytes(bytes, None, &LoadOptions::default()).unwrap();
        Hierarchy::of(&model, None)
    }

    fn observed(hierarchy: &Hierarchy, runs: &[[f64; 2]], plain: f64) -> Observed {
        let place = |name: &str, path: &str| Place {
            name: name.to_owned(),
            op: name.to_owned(),
            modules: vec![hierarchy.table().find(path).unwrap()],
            certainty: Certainty::Exact,
        };
        let run = |times: &[f64; 2]| Run {
            total: times[0] + times[1] + 100.0,
            calls: (0..2)
                .map(|node| Call { node, start: node as f64, time: times[node], own: times[node] })
                .collect(),
        };
        let session = Measured { runs: runs.iter().map(run).collect(), plain: vec![plain] };
        Observed { places: vec![place("Relu", "a"), place("Exp", "a.b")], sessions: vec![session; 6] }
    }

    #[test]
    fn modules_have_the_time_of_what_is_inside_of_them() {
        let hierarchy = hierarchy();
        let tags = Tags::new(hierarchy.table(), &Policy::all());
        let found =
            profile(&observed(&hierarchy, &[[1000.0, 3000.0]; 3], 4500.0), &hierarchy, &tags).unwrap();
        let time = |path: &str| {
            let module = found.modules.iter().find(|module| module.module == path).unwrap();
            (module.self_ms.median, module.total_ms.median, module.share)
        };
        assert_eq!(time("a.b"), (3.0, 3.0, 0.75));
        assert_eq!(time("a"), (1.0, 4.0, 1.0));
        assert_eq!(time(""), (0.0, 4.0, 1.0));
        assert_eq!((found.total_ms.median, found.between_ms), (4.5, 0.5));
        assert_eq!(found.attributed.exact, 1.0);
        assert_eq!(found.operators[0].name, "Exp");
    }

    #[test]
    fn what_the_profiler_costs_is_taken_off() {
        let hierarchy = hierarchy();
        let tags = Tags::new(hierarchy.table(), &Policy::all());
        let found =
            profile(&observed(&hierarchy, &[[1000.0, 3000.0]; 3], 2000.0), &hierarchy, &tags).unwrap();
        assert_eq!((found.nodes_ms.median, found.modules[0].total_ms.median), (2.0, 2.0));
        assert!((found.overhead - 1.05).abs() < 1e-9, "{}", found.overhead);
    }

    #[test]
    fn it_costs_each_call_the_same() {
        let mut own = [1.0, 6.0, 5.0, 0.0];
        take_off(&mut own, &[1.0, 1.0, 2.0, 0.0], 6.0);
        // 1.5 for each call would be more than the first node has.
        let cost = 5.0 / 3.0;
        assert_eq!(own[0], 0.0);
        assert!(
            (own[1] - (6.0 - cost)).abs() < 1e-9 && (own[2] - (5.0 - 2.0 * cost)).abs() < 1e-9,
            "{own:?}"
        );
        assert!((own.iter().sum::<f64>() - 6.0).abs() < 1e-9);
    }

    #[test]
    fn one_slow_run_does_not_count() {
        let hierarchy = hierarchy();
        let tags = Tags::new(hierarchy.table(), &Policy::all());
        let runs = [[1000.0, 3000.0], [90_000.0, 3000.0], [1000.0, 3000.0]];
        let found = profile(&observed(&hierarchy, &runs, 9000.0), &hierarchy, &tags).unwrap();
        assert_eq!(found.nodes_ms.median, 4.0);
        assert!(profile(&observed(&hierarchy, &[], 1.0), &hierarchy, &tags).is_none());
    }
}
