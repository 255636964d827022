//! What PyTorch's exporter leaves in a file: the stack of modules of each node, and the owners of parameters.

use std::collections::{HashMap, HashSet};

use super::module::{Module, ModuleId, ModuleTable};
use super::repr::{ReprError, texts};
use onnxforge_ir::scope::ScopeKind;
use onnxforge_ir::{Model, Node, Value};
use onnxforge_proto::Str;
use onnxforge_proto::schema::StringStringEntryProto;

const SCOPES: &str = "pkg.torch.onnx.name_scopes";
const CLASSES: &str = "pkg.torch.onnx.class_hierarchy";
/// Grouping for viewers: `path: class` of each level, the operator last.
pub const NAMESPACE: &str = "namespace";
/// What this program writes at a node: the modules that it comes from. Then the exporter's own keys are not asked.
pub(super) const MODULE: &str = "onnxforge.module";
const SIGNATURE: &str = "pkg.torch.export.ExportedProgram.graph_signature";
const RULES: &str = "pkg.onnxscript.rewriter.rule_name";
const FOLDED_FROM: &str = "pkg.onnxscript.optimizer.folded_from";
/// What stands for a class in a namespace where none is known.
pub const NO_CLASS: &str = "module";
/// What the exporter says where it has no stack.
const NO_STACK: &str = "_empty_nn_module_stack_from_metadata_hook";

/// Keys that hold lines of the user's source with the paths of the machine that exported.
pub const TRACES: &[&str] = &["pkg.torch.onnx.stack_trace"];

/// A level of a stack: path and class.
pub type Level = (String, Option<String>);

/// The text of a metadata entry.
pub fn entry<'m>(metadata: &'m [StringStringEntryProto], key: &str) -> Option<&'m str> {
    metadata.iter().find(|entry| entry.key.as_deref() == Some(key)).and_then(|entry| entry.value.as_deref())
}

/// The modules that were running when a node was made, the outermost first; `None` where the exporter does not tell.
pub fn stack(node: &Node) -> Option<Result<Vec<Level>, ReprError>> {
    let metadata = node.metadata();
    let scopes = entry(metadata, SCOPES)?;
    let read = || {
        let mut paths = texts(scopes)?;
        let classes = entry(metadata, CLASSES).map(texts).transpose()?.unwrap_or_default();
        // The last one is the operation itself.
        paths.pop();
        let mut classes = classes.into_iter();
        let levels = paths.into_iter().map(|path| (path, classes.next()));
        Ok(levels.filter(|(path, _)| path != NO_STACK).collect::<Vec<_>>())
    };
    match read() {
        Ok(levels) if levels.is_empty() => None,
        levels => Some(levels),
    }
}

/// The levels for viewers, where nothing else is left of what an exporter wrote: anybody may have written them.
pub fn grouped(node: &Node) -> Option<Vec<Level>> {
    let alone = entry(node.metadata(), SCOPES).is_none() && entry(node.metadata(), MODULE).is_none();
    entry(node.metadata(), NAMESPACE).filter(|_| alone).and_then(namespace)
}

/// The levels of a namespace; names with a slash in them are put together again.
pub fn namespace(text: &str) -> Option<Vec<Level>> {
    let mut levels: Vec<Level> = Vec::new();
    let mut name = String::new();
    for part in text.split('/') {
        name.push_str(part);
        match name.rsplit_once(": ") {
            Some((path, class)) => {
                levels.push((path.to_owned(), (class != NO_CLASS).then(|| class.to_owned())));
                name.clear();
            }
            None => name.push('/'),
        }
    }
    levels.pop();
    levels.retain(|(path, _)| path != NO_STACK);
    let rooted = levels.first().is_some_and(|(path, _)| path.is_empty());
    rooted.then_some(levels)
}

/// A module to put together while reading.
#[derive(Default)]
struct Draft {
    class: Option<String>,
    parameters: Vec<String>,
    buffers: Vec<String>,
}

/// The modules that a file mentions, in the order in which they appear.
pub fn modules(model: &Model) -> Vec<Module> {
    let mut drafts: Vec<(String, Draft)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut draft = |path: &str, change: &mut dyn FnMut(&mut Draft)| {
        let place = *places.entry(path.to_owned()).or_insert_with(|| {
            drafts.push((path.to_owned(), Draft::default()));
            drafts.len() - 1
        });
        change(&mut drafts[place].1);
    };
    for (_, node) in model.nodes() {
        for (path, class) in stack(node).and_then(Result::ok).or_else(|| grouped(node)).unwrap_or_default() {
            draft(&path, &mut |draft| {
                if draft.class.is_none() {
                    draft.class.clone_from(&class);
                }
            });
        }
    }
    for (kind, target) in signature(model) {
        let (path, own) = target.rsplit_once('.').unwrap_or(("", &target));
        draft(path, &mut |draft| match kind {
            Kind::Parameter => draft.parameters.push(own.to_owned()),
            Kind::Buffer => draft.buffers.push(own.to_owned()),
        });
    }
    let module = |(path, draft): (String, Draft)| Module {
        path: path.into(),
        class: draft.class.map(Str::from),
        direct_parameters: draft.parameters,
        direct_buffers: draft.buffers,
        ..Module::default()
    };
    drafts.into_iter().map(module).collect()
}

#[derive(Clone, Copy)]
enum Kind {
    Parameter,
    Buffer,
}

/// The parameters and buffers that the signature of the exported program lists, those that were folded away included.
fn signature(model: &Model) -> Vec<(Kind, String)> {
    let ScopeKind::Main(graph) = model.scope(model.main()).kind() else { return Vec::new() };
    let text = entry(&graph.metadata_props, SIGNATURE).unwrap_or_default();
    let line = |line: &str| {
        let (_, rest) = line.split_once(": ")?;
        let (kind, rest) = rest.split_once(" target=")?;
        let kind = match kind.trim() {
            "PARAMETER" => Kind::Parameter,
            "BUFFER" => Kind::Buffer,
            _ => return None,
        };
        let quote = rest.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
        let end = rest.get(1..)?.find(quote)? + 2;
        Some((kind, texts(&format!("[{}]", rest.get(..end)?)).ok()?.pop()?))
    };
    text.lines().filter_map(line).collect()
}

/// Whether the exporter says that it made the node out of several.
pub fn is_fused(node: &Node) -> bool {
    entry(node.metadata(), RULES).is_some_and(|rules| rules.contains("Fuse"))
}

/// The modules that own a stored tensor: by its name, or by those of the parameters that it was folded from.
pub fn owners(table: &ModuleTable, value: &Value) -> Vec<ModuleId> {
    if let Some(owner) = table.owner(value.name()) {
        return vec![owner];
    }
    let folded = value.info().and_then(|info| entry(&info.metadata_props, FOLDED_FROM));
    let names = folded.and_then(|text| texts(text).ok()).unwrap_or_default();
    let mut seen = HashSet::new();
    names.iter().filter_map(|name| table.owner(name)).filter(|&owner| seen.insert(owner)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_with_slashes_in_names() {
        let level = |path: &str, class: &str| (path.to_owned(), Some(class.to_owned()));
        assert_eq!(
            namespace(": m.Net/d1.x/y: m.Leaf/add: aten.add.Tensor"),
            Some(vec![level("", "m.Net"), level("d1.x/y", "m.Leaf")])
        );
        assert_eq!(
            namespace(": module/a: module/Relu: Relu"),
            Some(vec![(String::new(), None), ("a".to_owned(), None)])
        );
        assert_eq!(namespace("encoder/layer"), None);
        assert_eq!(namespace(&format!("{NO_STACK}: {NO_STACK}/sym_size: aten.sym_size.int")), None);
    }
}
