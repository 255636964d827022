//! What the report's page shows, as JSON; [`page::page`] puts it into the page.

pub mod page;

use std::collections::HashMap;

use serde::Serialize;

use super::coverage::{self, Coverage};
use super::extract::Extractor;
use super::module::ModuleId;
use super::{Hierarchy, Tags};
use onnxforge_ir::{Def, Model, NodeId, ValueId};
use onnxforge_ops::callee::constant_nodes;
use onnxforge_ops::infer::Inference;

/// What there is to show.
pub struct Contents<'m> {
    /// The model.
    pub model: &'m Model,
    /// The path of its file, as users write it.
    pub file: &'m str,
    /// Its hierarchy.
    pub hierarchy: &'m Hierarchy,
    /// Its tags.
    pub tags: &'m Tags,
    /// Its shapes.
    pub facts: &'m Inference,
    /// Floating point operations of a node, where known.
    pub flops: &'m dyn Fn(NodeId) -> Option<u64>,
    /// What these were counted for.
    pub flops_note: Option<String>,
    /// What passes did, if they did something.
    pub optimization: Option<Optimization>,
    /// The model before passes changed it, with the same modules.
    pub before: Option<&'m Contents<'m>>,
    /// Milliseconds of each module, by its nodes alone and with everything inside of it, in the order of the table, where they were measured.
    pub times: Option<Vec<(f64, f64)>>,
}

/// What passes did.
#[derive(Clone, Debug, Serialize)]
pub struct Optimization {
    /// Nodes before.
    pub before: usize,
    /// Nodes after.
    pub after: usize,
    /// The passes that changed something.
    pub passes: Vec<PassEffect>,
    /// Nodes of each module before, with everything inside of it, in the order of the table.
    #[serde(skip)]
    pub modules: Vec<usize>,
}

/// What one pass did.
#[derive(Clone, Debug, Serialize)]
pub struct PassEffect {
    /// The pass.
    pub pass: String,
    /// Its edits.
    pub edits: usize,
    /// Nodes that it added; negative for those that it removed.
    pub nodes: i64,
}

#[derive(Serialize)]
struct Data<'m> {
    schema: u32,
    title: &'m str,
    model: Facts<'m>,
    modules: Vec<Entry<'m>>,
    nodes: Columns<'m>,
    graph: Flow<'m>,
    /// Nodes and graph before passes changed the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<Before<'m>>,
    categories: Vec<coverage::CategoryCoverage>,
    optimization: Option<&'m Optimization>,
}

#[derive(Serialize)]
struct Facts<'m> {
    file: &'m str,
    producer: Option<String>,
    opset: Option<i64>,
    nodes: usize,
    parameters: u64,
    bytes: u64,
    flops: Option<u64>,
    flops_note: Option<&'m str>,
}

/// A number of a module itself, and with everything inside of it.
#[derive(Clone, Copy, Default, Serialize)]
struct Both {
    own: u64,
    all: u64,
}

/// Milliseconds of a module itself, and with everything inside of it.
#[derive(Clone, Copy, Serialize)]
struct Time {
    own: f64,
    all: f64,
}

#[derive(Serialize)]
struct Entry<'m> {
    path: &'m str,
    tag: &'m str,
    class: String,
    full_class: Option<&'m str>,
    parent: Option<usize>,
    nodes: Both,
    parameters: Both,
    bytes: Both,
    flops: Option<Both>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<Time>,
    inputs: Vec<Input>,
    outputs: Vec<Output>,
    weights: Vec<Weight>,
    shared: usize,
    before: Option<usize>,
    extract: Option<String>,
    without: Option<&'static str>,
}

#[derive(Serialize)]
struct Input {
    name: String,
    r#type: String,
    from: Vec<usize>,
}

#[derive(Serialize)]
struct Output {
    name: String,
    r#type: String,
    to: Vec<usize>,
}

#[derive(Serialize)]
struct Weight {
    name: String,
    r#type: String,
    bytes: u64,
}

/// The nodes and the graph of another state of the model, whose modules are the same.
#[derive(Serialize)]
struct Before<'m> {
    nodes: Columns<'m>,
    graph: Flow<'m>,
}

/// What flows between nodes. Nodes are numbered as in the columns; constants, and what is computed from them alone, do not flow.
#[derive(Default, Serialize)]
struct Flow<'m> {
    /// Names of the tensors.
    names: Vec<&'m str>,
    /// Their types, as numbers in `texts`.
    types: Vec<usize>,
    texts: Vec<String>,
    /// The node that makes each; none makes an input.
    makers: Vec<Option<usize>>,
    /// The tensors that each node reads, those that its bodies capture included.
    reads: Vec<Vec<usize>>,
    /// The outputs of the model.
    outputs: Vec<usize>,
}

/// The nodes, one list for each of their properties.
#[derive(Default, Serialize)]
struct Columns<'m> {
    name: Vec<&'m str>,
    op: Vec<String>,
    category: Vec<&'static str>,
    modules: Vec<Vec<usize>>,
    evidence: Vec<super::Certainty>,
    why: Vec<&'static str>,
    confidence: Vec<f64>,
    output: Vec<&'m str>,
}

impl Contents<'_> {
    /// The data of the page.
    pub fn data(&self) -> String {
        let title = self.file.rsplit(['/', '\\']).next().unwrap_or(self.file);
        let found =
            coverage::coverage(self.model, self.hierarchy, self.tags, &coverage::Thresholds::default());
        let modules = self.modules(&found);
        let data = Data {
            schema: 1,
            title,
            model: self.facts_of(&modules),
            modules,
            nodes: self.columns(),
            graph: self.flow(),
            before: self.before.map(|before| Before { nodes: before.columns(), graph: before.flow() }),
            categories: found.categories,
            optimization: self.optimization.as_ref(),
        };
        serde_json::to_string(&data).unwrap_or_default()
    }

    fn facts_of<'s>(&'s self, modules: &[Entry<'_>]) -> Facts<'s> {
        let header = self.model.header();
        let producer = [&header.producer_name, &header.producer_version].into_iter().flatten();
        let producer: Vec<&str> = producer.map(|text| &**text).filter(|text| !text.is_empty()).collect();
        Facts {
            file: self.file,
            producer: (!producer.is_empty()).then(|| producer.join(" ")),
            opset: self.model.opset(self.model.main(), ""),
            nodes: self.model.node_count(),
            parameters: self
                .model
                .initializers()
                .filter_map(|(_, constant)| constant.dense())
                .map(|tensor| tensor.len() as u64)
                .fold(0, u64::saturating_add),
            bytes: self.model.stored_bytes(),
            flops: modules.first().and_then(|root| root.flops).map(|flops| flops.all),
            flops_note: self.flops_note.as_deref(),
        }
    }

    fn modules(&self, found: &Coverage) -> Vec<Entry<'_>> {
        let table = self.hierarchy.table();
        let extractor = Extractor::new(self.model, self.hierarchy, self.facts);
        let without: std::collections::HashMap<&str, &'static str> =
            found.without_nodes.iter().map(|module| (module.module.as_str(), module.why)).collect();
        let [nodes, parameters, bytes, flops] = self.sums();
        let counted = flops.first().is_some_and(|root| root.all > 0);
        let shared = self.shared();
        let indices = |modules: Vec<ModuleId>| modules.into_iter().map(ModuleId::index).collect();
        let entry = |(id, module): (ModuleId, &'_ super::Module)| {
            let at = id.index();
            let has_nodes = nodes[at].all > 0 || shared[at] > 0;
            let [inputs, outputs] =
                if has_nodes { extractor.ends(&module.path).unwrap_or_default() } else { Default::default() };
            let ty = |value| self.ty(value);
            let name = |value| self.model.value(value).name().to_string();
            Entry {
                path: &table.get(id).path,
                tag: self.tags.get(id),
                class: module.short_class().unwrap_or_default().to_owned(),
                full_class: table.get(id).class.as_deref(),
                parent: table.parent(id).map(ModuleId::index),
                nodes: nodes[at],
                parameters: parameters[at],
                bytes: bytes[at],
                flops: counted.then(|| flops[at]),
                time: self
                    .times
                    .as_ref()
                    .and_then(|times| times.get(at))
                    .map(|&(own, all)| Time { own, all }),
                inputs: inputs
                    .into_iter()
                    .map(|(value, from)| Input { name: name(value), r#type: ty(value), from: indices(from) })
                    .collect(),
                outputs: outputs
                    .into_iter()
                    .map(|(value, to)| Output { name: name(value), r#type: ty(value), to: indices(to) })
                    .collect(),
                weights: Vec::new(),
                shared: shared[at],
                before: self
                    .optimization
                    .as_ref()
                    .and_then(|optimization| optimization.modules.get(at).copied()),
                extract: has_nodes.then(|| self.command(&module.path)),
                without: without.get(&*module.path).copied(),
            }
        };
        let mut entries: Vec<Entry<'_>> = table.iter().map(entry).collect();
        for (value, constant) in self.model.initializers() {
            entries[self.hierarchy.home(self.model, value).index()].weights.push(Weight {
                name: self.model.value(value).name().to_string(),
                r#type: self.ty(value),
                bytes: constant.byte_len(),
            });
        }
        entries
    }

    /// Nodes, parameters, bytes and operations of every module.
    fn sums(&self) -> [Vec<Both>; 4] {
        let table = self.hierarchy.table();
        let mut sums: [Vec<Both>; 4] = std::array::from_fn(|_| vec![Both::default(); table.len()]);
        let mut add = |which: usize, module: ModuleId, count: u64| {
            let both = &mut sums[which][module.index()];
            both.own = both.own.saturating_add(count);
            for above in table.chain(module) {
                let both = &mut sums[which][above.index()];
                both.all = both.all.saturating_add(count);
            }
        };
        for (id, _) in self.model.nodes() {
            let module = self.hierarchy.origin(id).primary();
            add(0, module, 1);
            add(3, module, (self.flops)(id).unwrap_or(0));
        }
        for (value, constant) in self.model.initializers() {
            let home = self.hierarchy.home(self.model, value);
            add(1, home, constant.dense().map_or(0, |tensor| tensor.len() as u64));
            add(2, home, constant.byte_len());
        }
        sums
    }

    /// For each module how many of its nodes come from modules outside of it, too.
    fn shared(&self) -> Vec<usize> {
        let table = self.hierarchy.table();
        let mut counts = vec![0; table.len()];
        for (id, _) in self.model.nodes() {
            let modules = &self.hierarchy.origin(id).modules;
            if modules.len() < 2 {
                continue;
            }
            let around = table.common(modules.iter().copied()).unwrap_or(ModuleId::ROOT);
            let mut above: Vec<ModuleId> = modules
                .iter()
                .flat_map(|&module| table.chain(module).take_while(|&above| above != around))
                .collect();
            above.sort();
            above.dedup();
            above.into_iter().for_each(|module| counts[module.index()] += 1);
        }
        counts
    }

    fn columns(&self) -> Columns<'_> {
        let mut columns = Columns::default();
        for (id, node) in self.model.nodes() {
            let origin = self.hierarchy.origin(id);
            columns.name.push(node.name().map_or("", |name| name));
            columns.op.push(node.op().to_string());
            columns.category.push(coverage::name(coverage::category(node)));
            columns.modules.push(origin.modules.iter().map(|module| module.index()).collect());
            columns.evidence.push(origin.evidence.certainty());
            columns.why.push(origin.evidence.words());
            columns.confidence.push(self.hierarchy.confidence(id));
            let output = node.outputs().iter().flatten().next();
            columns.output.push(output.map_or("", |&value| self.model.value(value).name()));
        }
        columns
    }

    fn flow(&self) -> Flow<'_> {
        let numbers: HashMap<NodeId, usize> =
            self.model.nodes().enumerate().map(|(number, (id, _))| (id, number)).collect();
        // What is computed from constants alone is one, too; exporters share such values between all modules.
        let constant = constant_nodes(self.model);
        let mut flow = Flow::default();
        let mut texts: HashMap<String, usize> = HashMap::new();
        let mut tensors: HashMap<ValueId, usize> = HashMap::new();
        for (id, value) in
            self.model.values().filter(|(_, value)| value.is_live() && value.constant().is_none())
        {
            let maker = match value.def() {
                Def::Node { node, .. } if constant.contains(node) => continue,
                Def::Node { node, .. } => numbers.get(node).copied(),
                // What a body takes comes from the node that holds it; nobody can tell where what a function takes does.
                Def::Input { scope, .. } if *scope != self.model.main() => {
                    match self.model.scope(*scope).holder().and_then(|holder| numbers.get(&holder)) {
                        Some(&holder) => Some(holder),
                        None => continue,
                    }
                }
                _ => None,
            };
            let text = self.ty(id);
            let next = texts.len();
            let number = *texts.entry(text.clone()).or_insert(next);
            if number == next {
                flow.texts.push(text);
            }
            tensors.insert(id, flow.names.len());
            flow.names.push(value.name());
            flow.types.push(number);
            flow.makers.push(maker);
        }
        for (_, node) in self.model.nodes() {
            let mut read: Vec<usize> =
                node.inputs().iter().flatten().filter_map(|value| tensors.get(value).copied()).collect();
            // What a body hands on reaches those that read its holder.
            let results = node.bodies().flat_map(|body| self.model.scope(body).outputs());
            read.extend(results.filter_map(|port| tensors.get(&port.value).copied()));
            read.dedup();
            flow.reads.push(read);
        }
        let outputs = self.model.scope(self.model.main()).outputs();
        flow.outputs = outputs.iter().filter_map(|port| tensors.get(&port.value).copied()).collect();
        flow
    }

    fn ty(&self, value: ValueId) -> String {
        if let Some(tensor) = self.model.constant(value) {
            let dims: Vec<String> = tensor.shape().iter().map(ToString::to_string).collect();
            return format!("{}[{}]", tensor.dtype().name(), dims.join(","));
        }
        match self.facts.tensor(value) {
            Some(fact) => fact.display(self.facts.symbols()).to_string(),
            None => self.model.declared_type(value).to_string(),
        }
    }

    /// The command that cuts a module out.
    fn command(&self, path: &str) -> String {
        let name: String =
            path.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect();
        let module = if path.is_empty() { "/" } else { path };
        let file = if name.is_empty() { "model" } else { &name };
        format!("onnxforge extract {} -m {} -o {file}.onnx", quoted(self.file), quoted(module))
    }
}

/// A word for a shell.
fn quoted(text: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-/+:@".contains(letter);
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_for_a_shell() {
        assert_eq!(quoted("a/b.onnx"), "a/b.onnx");
        assert_eq!(quoted("it's; rm"), r"'it'\''s; rm'");
        assert_eq!((quoted(""), quoted("-o")), ("''".to_owned(), "'-o'".to_owned()));
    }
}
