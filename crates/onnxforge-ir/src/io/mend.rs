//! What runtimes accept although the standard forbids it, brought into the form that the standard asks for.
//!
//! Only what has one meaning is mended, so that the mended model computes what runtimes compute. Everything else is left for
//! `check` and `resolve` to refuse. Nodes out of order are sorted where scopes are built.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::mended::Mend;
use crate::node::normal_domain;
use onnxforge_proto::Str;
use onnxforge_proto::schema::{FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto};
use onnxforge_proto::walk::{Visitor, walk_function, walk_graph};

/// Domains whose versions decide what operators mean: an import that is missing cannot be guessed.
const VERSIONED: [&str; 4] = ["", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training"];

/// Operators of ONNX Runtime for another layout; its versions are those of the standard domain.
const NHWC: &str = "com.ms.internal.nhwc";

/// Mends a message, and lists what was mended.
pub fn mend(message: &mut ModelProto) -> Vec<Mend> {
    let mut mends = Vec::new();
    once(&mut message.opset_import, &mut mends);
    let mut seen = Seen::default();
    if let Some(graph) = &mut message.graph {
        walk_graph(graph, &mut seen);
    }
    import(&mut message.opset_import, &seen.domains, &mut mends);
    versions(message, &seen, &mut mends);
    for function in &mut message.functions {
        once(&mut function.opset_import, &mut mends);
        seen.domains.clear();
        walk_function(function, &mut seen);
        import(&mut function.opset_import, &seen.domains, &mut mends);
    }
    if seen.unnamed > 0 {
        mends.push(Mend::Named { graphs: seen.unnamed });
    }
    if let Some(first) = seen.first {
        mends.push(Mend::Renamed { nodes: seen.renamed, first: first.to_string() });
    }
    mends
}

/// Keeps the last import of each domain, as runtimes do. Domains that are spelled in two ways stay.
fn once(imports: &mut Vec<OperatorSetIdProto>, mends: &mut Vec<Mend>) {
    let spelled = |import: &OperatorSetIdProto| import.domain.clone().unwrap_or_default();
    let mut last: HashMap<Str, usize> = HashMap::new();
    let mut differing: BTreeSet<Str> = BTreeSet::new();
    for (index, import) in imports.iter().enumerate() {
        let domain = spelled(import);
        if let Some(before) = last.insert(domain.clone(), index)
            && imports.get(before).is_some_and(|before| before.version != import.version)
        {
            differing.insert(domain);
        }
    }
    if differing.is_empty() {
        return;
    }
    let mut index = 0;
    imports.retain(|import| {
        index += 1;
        let domain = spelled(import);
        !differing.contains(&domain) || last.get(&domain) == Some(&(index - 1))
    });
    for import in imports.iter().filter(|import| differing.contains(&spelled(import))) {
        let version = import.version.unwrap_or(0);
        mends.push(Mend::ImportedOnce { domain: spelled(import).to_string(), version });
    }
}

/// Imports domains that nodes use and whose version is no question.
fn import(imports: &mut Vec<OperatorSetIdProto>, used: &BTreeSet<Str>, mends: &mut Vec<Mend>) {
    let known: HashMap<Str, Option<i64>> =
        imports.iter().map(|import| (import.domain.clone().unwrap_or_default(), import.version)).collect();
    for domain in used {
        if VERSIONED.contains(&normal_domain(domain)) || known.contains_key(domain) {
            continue;
        }
        let version = match &**domain {
            NHWC => known.get("").copied().flatten().unwrap_or(1),
            _ => 1,
        };
        imports.push(OperatorSetIdProto {
            domain: Some(domain.clone()),
            version: Some(version),
            ..OperatorSetIdProto::default()
        });
        mends.push(Mend::Imported { domain: domain.to_string(), version });
    }
}

/// Declares the version of the format that has what the model uses.
fn versions(message: &mut ModelProto, seen: &Seen, mends: &mut Vec<Mend>) {
    let Some(from) = message.ir_version.filter(|ir| (1..4).contains(ir)) else { return };
    let (to, why) = match (seen.unlisted, message.opset_import.is_empty()) {
        // Without imports, the version itself says which operators there are.
        (_, true) => return,
        (true, false) => (4, "initializers are not among the inputs"),
        (false, false) if from < 3 => (3, "the model imports operator sets"),
        (false, false) => return,
    };
    message.ir_version = Some(to);
    mends.push(Mend::IrVersion { from, to, why });
}

/// What a walk over graphs finds, and mends on the way.
#[derive(Default)]
struct Seen {
    /// The domains of nodes.
    domains: BTreeSet<Str>,
    /// Whether a graph has initializers that are no inputs.
    unlisted: bool,
    unnamed: usize,
    renamed: usize,
    /// The first name that two nodes have.
    first: Option<Str>,
}

impl Seen {
    /// Names of nodes, each once. Constants are no nodes to the runtimes that ask for that.
    fn distinct(&mut self, nodes: &mut [NodeProto]) {
        let counts = |node: &&mut NodeProto| node.op_type.as_deref() != Some("Constant");
        let mut taken: HashSet<Str> = HashSet::new();
        let mut twice: Vec<&mut NodeProto> = Vec::new();
        for node in nodes.iter_mut().filter(counts) {
            if let Some(name) = node.name.as_ref().filter(|name| !name.is_empty())
                && !taken.insert(name.clone())
            {
                twice.push(node);
            }
        }
        let mut next: HashMap<Str, usize> = HashMap::new();
        for node in twice {
            let Some(name) = node.name.clone() else { continue };
            let number = next.entry(name.clone()).or_insert(1);
            let fresh = loop {
                let fresh = Str::from(format!("{name}_{number}"));
                *number += 1;
                if taken.insert(fresh.clone()) {
                    break fresh;
                }
            };
            node.name = Some(fresh);
            self.renamed += 1;
            self.first.get_or_insert(name);
        }
    }
}

impl Visitor for Seen {
    fn graph(&mut self, graph: &mut GraphProto) {
        if graph.name.as_deref().unwrap_or_default().is_empty() {
            graph.name = Some(Str::from("graph"));
            self.unnamed += 1;
        }
        if !self.unlisted && !graph.initializer.is_empty() {
            let inputs: HashSet<&str> =
                graph.input.iter().filter_map(|input| input.name.as_deref()).collect();
            let mut names = graph.initializer.iter().filter_map(|tensor| tensor.name.as_deref());
            self.unlisted = names.any(|name| !inputs.contains(name));
        }
        self.distinct(&mut graph.node);
    }

    fn function(&mut self, function: &mut FunctionProto) {
        self.distinct(&mut function.node);
    }

    fn node(&mut self, node: &mut NodeProto) {
        if let Some(domain) = node.domain.as_ref().filter(|domain| !domain.is_empty())
            && !self.domains.contains(domain)
        {
            self.domains.insert(domain.clone());
        }
    }
}
