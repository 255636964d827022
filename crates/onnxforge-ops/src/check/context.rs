//! Imports: which version of which domain the nodes of a model or function mean.

use std::collections::{BTreeMap, HashMap};

use super::Checker;
use super::node::normal;
use super::problem::{Here, Place, Quoted, Rule, Step};
use super::scope::op_name;
use super::suggest::{closest, question};
use crate::signature::{AttrKind, Lookup, latest_opset, signature};
use onnxforge_proto::schema::{FunctionProto, NodeProto, OperatorSetIdProto};

/// What the nodes of a model or function can rely on.
#[derive(Default)]
pub(super) struct Context<'m> {
    /// Domain to version; no version where the import gives none that exists.
    pub(super) imports: HashMap<&'m str, Option<i64>>,
    pub(super) domains: Vec<&'m str>,
    pub(super) function: Option<&'m FunctionProto>,
    /// Attributes of the function, and the kind of those that have a default.
    pub(super) parameters: HashMap<&'m str, Option<AttrKind>>,
    pub(super) parameter_names: Vec<&'m str>,
    /// Domains that nodes need and nobody imports: the first such node, and how many there are.
    missing: BTreeMap<&'m str, (Place, usize)>,
    /// Nodes that spell the standard domain out.
    spelled: Option<(Place, usize)>,
}

impl<'m> Checker<'m> {
    /// The imports of a model or function.
    pub(super) fn imports(&mut self, imports: &'m [OperatorSetIdProto], here: &Here<'_>) -> Context<'m> {
        let mut context = Context::default();
        // Of imports that are spelled alike every tool takes the last one.
        let spelled = |import: &'m OperatorSetIdProto| import.domain.as_deref().unwrap_or_default();
        let last: HashMap<&str, usize> =
            imports.iter().enumerate().map(|(index, import)| (spelled(import), index)).collect();
        for (index, import) in imports.iter().enumerate() {
            let at = here.at(Step::listed("opset import", index, import.domain.as_ref()));
            if last.get(spelled(import)).is_some_and(|&last| last > index) {
                let message = "the domain is imported again further down, which holds; remove this import";
                self.warning(Rule::OpsetImport, &at, message);
                continue;
            }
            let domain = normal(import.domain.as_ref());
            let version = self.import_version(domain, import.version, &at);
            if let Some(first) = context.imports.get(domain).copied() {
                if first == version {
                    self.warning(Rule::OpsetImport, &at, "the domain is imported twice; remove one");
                } else {
                    let message = "the domain is imported twice, with different versions; remove one";
                    self.error(Rule::OpsetImport, &at, message);
                }
                context.imports.insert(domain, first.max(version));
                continue;
            }
            context.imports.insert(domain, version);
            context.domains.push(domain);
        }
        context
    }

    fn import_version(&mut self, domain: &str, version: Option<i64>, here: &Here<'_>) -> Option<i64> {
        let latest = latest_opset(domain);
        match (version, latest) {
            // Nobody knows the versions of these; any number will do.
            (None, None) => {
                self.warning(Rule::OpsetImport, here, "the import has no version");
                return Some(0);
            }
            (Some(version), None) if version < 0 && i32::try_from(version).is_ok() => {
                self.warning(
                    Rule::OpsetImport,
                    here,
                    format!("version {version}: versions usually start at 1"),
                );
                return Some(version);
            }
            // What no node uses need not exist.
            (None, Some(_)) if !domain.is_empty() => {
                self.warning(Rule::OpsetImport, here, "the import has no version");
            }
            (None, Some(_)) => self.error(Rule::OpsetImport, here, "the import has no version"),
            (Some(version), _) if i32::try_from(version).is_err() => {
                self.error(Rule::OpsetImport, here, format!("version {version} is out of range"));
            }
            (Some(version), Some(_)) if version < 1 && !domain.is_empty() => {
                let message = format!("version {version} does not exist; the first is 1");
                self.warning(Rule::OpsetImport, here, message);
            }
            (Some(version), _) if version < 0 || (version == 0 && latest.is_some()) => {
                self.error(
                    Rule::OpsetImport,
                    here,
                    format!("version {version} does not exist; the first is 1"),
                );
            }
            (Some(version), None) => {
                if version == 0 {
                    self.warning(Rule::OpsetImport, here, "version 0: versions usually start at 1");
                }
                return Some(version);
            }
            (Some(version), Some(latest)) => {
                if version > latest {
                    let message = format!(
                        "version {version} is newer than {latest}, the newest one known here; \
                         nodes are checked against that"
                    );
                    self.warning(Rule::OpsetImport, here, message);
                }
                return Some(version);
            }
        }
        None
    }

    /// Models of the first two versions of the format import the first operator set without saying so.
    pub(super) fn implied_import(&mut self) {
        self.context.imports.insert("", Some(1));
    }

    /// The imported version of a domain, where there is one.
    pub(super) fn version(&mut self, node: &NodeProto, domain: &'m str, here: &Here<'_>) -> Option<i64> {
        if node.domain.as_deref() == Some("ai.onnx") {
            self.context.spelled.get_or_insert_with(|| (here.place(), 0)).1 += 1;
        }
        match self.context.imports.get(domain) {
            Some(Some(version)) => Some(*version),
            Some(None) => {
                if !domain.is_empty() {
                    let message = "the domain of this node is imported without a version that exists";
                    self.error(Rule::OpsetImport, here, message);
                }
                None
            }
            None => {
                self.context.missing.entry(domain).or_insert_with(|| (here.place(), 0)).1 += 1;
                None
            }
        }
    }

    /// What the nodes of the current context needed in vain.
    pub(super) fn finish_context(&mut self) {
        let what = if self.context.function.is_some() { "function" } else { "model" };
        let others = |count: usize| match count {
            1 => String::new(),
            2 => " (and of 1 other node)".to_owned(),
            _ => format!(" (and of {} other nodes)", count - 1),
        };
        for (domain, (place, count)) in std::mem::take(&mut self.context.missing) {
            let near = closest(&mut self.budget, domain, self.context.domains.iter().copied());
            let hint =
                near.map_or_else(|| format!("; add it to the {what}'s opset imports"), |n| question(Some(n)));
            let name =
                if domain.is_empty() { "the standard domain".to_owned() } else { Quoted(domain).to_string() };
            let message = format!(
                "the domain of this node{} is not imported by the {what}: {name}{hint}",
                others(count)
            );
            self.error_at(Rule::DomainImport, place, message);
        }
        if let Some((place, count)) = self.context.spelled.take() {
            let message = format!(
                "the domain of this node{} is spelled \"ai.onnx\", which not every tool takes for the standard domain; \
                 leave it empty",
                others(count)
            );
            self.error_at(Rule::DomainSpelling, place, message);
        }
    }

    /// In a function: an operator must mean the same under the model's imports, or inlining would change it.
    pub(super) fn same_operator(
        &mut self,
        domain: &str,
        op: &str,
        version: i64,
        found: Lookup,
        here: &Here<'_>,
    ) {
        if self.context.function.is_none() {
            return;
        }
        let Some(&Some(model)) = self.model_imports.get(domain) else {
            return;
        };
        let since = |lookup| match lookup {
            Lookup::Found(signature) | Lookup::Deprecated(signature) => Some(signature.since),
            _ => None,
        };
        if model != version && since(found) != since(signature(domain, op, model)) {
            let message = format!(
                "{} is another operator in version {model}, which the model imports, than in {version}, which the \
                 function imports; import the same version",
                op_name(domain, op)
            );
            self.error(Rule::FunctionOpset, here, message);
        }
    }
}
