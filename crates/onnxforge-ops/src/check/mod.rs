//! Is a model valid? Every structural rule of the standard, every problem with its place.
//!
//! The checker works on the message as it was read, because names are a property of the file: a model that breaks the
//! rules has no meaning, but it can still be looked at whole. It never stops at the first problem. A problem is an
//! [`Severity::Error`] when the standard forbids it. Everything that onnx's own checker refuses is one, except for its
//! limits on the number of functions and the depth of their calls, which the standard does not know; and so is what that
//! checker does not look at: types, bodies, calls of local functions, training, devices.
//!
//! Time is linear in the model but for sorting out names in nested bodies, memory a small multiple of the message.

mod attribute;
mod body;
mod conflict;
mod context;
mod extras;
mod function;
mod graph;
mod node;
mod order;
mod problem;
mod scope;
mod suggest;
mod tensor;
mod types;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

pub use conflict::conflicts;
pub use problem::{Place, Problem, Rule, Severity};
pub use suggest::nearest;

use crate::signature::ir_for_opset;
use context::Context;
use function::FunctionId;
use graph::Role;
use onnxforge_ir::io::external::ExternalFiles;
use onnxforge_proto::schema::ModelProto;
use problem::{Here, Step};
use scope::Scope;

/// The newest version of the format.
const NEWEST_IR: i64 = 14;

/// Lists everything that is wrong with a model. Without an [`Severity::Error`] in the list the model is valid.
///
/// Data in other files is looked up through `files`.
pub fn check(model: &ModelProto, files: &mut ExternalFiles) -> Vec<Problem> {
    let mut checker = Checker {
        model,
        files,
        ir: model.ir_version.filter(|&ir| ir > 0).unwrap_or(NEWEST_IR),
        problems: Vec::new(),
        budget: suggest::BUDGET,
        features: BTreeSet::new(),
        context: Context::default(),
        model_imports: HashMap::new(),
        functions: HashMap::new(),
        function_attributes: HashMap::new(),
        required_inputs: HashMap::new(),
        calls: Vec::new(),
        configurations: HashSet::new(),
        scope: Scope::default(),
        outer: Vec::new(),
        main: None,
    };
    checker.run();
    checker.problems
}

struct Checker<'m> {
    model: &'m ModelProto,
    files: &'m mut ExternalFiles,
    /// The version of the format that the model declares; the newest when it declares none that exists.
    ir: i64,
    problems: Vec<Problem>,
    /// How much effort is left for finding similar names.
    budget: u64,
    /// Parts of the format that have been found to be too new.
    features: BTreeSet<&'static str>,
    /// What the nodes that are being looked at can rely on.
    context: Context<'m>,
    /// What the model imports, and where it does not, what the first function does.
    model_imports: HashMap<&'m str, Option<i64>>,
    functions: HashMap<FunctionId<'m>, usize>,
    /// The attributes of the functions that have been called.
    function_attributes: HashMap<usize, HashSet<&'m str>>,
    /// What the functions that were called with fewer inputs than they have cannot do without.
    required_inputs: HashMap<usize, BTreeMap<usize, &'static str>>,
    /// The local functions that were called since this was emptied.
    calls: Vec<usize>,
    configurations: HashSet<&'m str>,
    /// The names of the graph that is being looked at, and of those around it, outermost first.
    scope: Scope<'m>,
    outer: Vec<Scope<'m>>,
    /// The names of the main graph, once it is done.
    main: Option<Scope<'m>>,
}

impl<'m> Checker<'m> {
    fn run(&mut self) {
        let here = Here::model();
        self.versions(&here);
        self.model_metadata(&here);
        self.devices(&here);
        self.index_functions(&here);
        match self.model.graph.as_deref() {
            Some(graph) => {
                self.graph(graph, Role::Main, &here);
                let main = self.leave();
                let root = std::mem::replace(&mut self.scope, main);
                self.training(&here);
                self.main = Some(std::mem::replace(&mut self.scope, root));
            }
            None => self.error(Rule::MissingGraph, &here, "the model has no graph"),
        }
        self.finish_context();
        self.all_functions(&here);
    }

    fn versions(&mut self, here: &Here<'_>) {
        let ir = self.model.ir_version.unwrap_or(0);
        match ir {
            0 => self.error(Rule::IrVersion, here, "the model does not say its IR version"),
            ..0 => self.error(Rule::IrVersion, here, format!("IR version {ir} does not exist")),
            1..3 => {
                let message = format!("IR version {ir} is older than the first release of ONNX, which has 3");
                self.warning(Rule::IrVersion, here, message);
            }
            3..=NEWEST_IR => {}
            _ => {
                let message = format!("IR version {ir} is newer than {NEWEST_IR}, the newest one known here");
                self.error(Rule::IrVersion, here, message);
            }
        }
        self.context = self.imports(&self.model.opset_import, here);
        let imports = &self.model.opset_import;
        match (imports.is_empty(), (1..3).contains(&ir)) {
            (true, true) => self.implied_import(),
            (true, false) => {
                self.error(Rule::OpsetImport, here, "the model imports no operator set; add one");
            }
            (false, true) => {
                let message = format!("IR version {ir} has no opset imports; declare 3 or later");
                self.error(Rule::OpsetImport, here, message);
            }
            (false, false) => {}
        }
        for (index, import) in imports.iter().enumerate() {
            let Some(version) = import.version else {
                continue;
            };
            let domain = node::normal(import.domain.as_ref());
            if let Some(needed) = ir_for_opset(domain, version).filter(|&needed| ir >= 3 && needed > ir) {
                let message = format!(
                    "version {version} came with IR version {needed}, the model declares {ir}; declare {needed}"
                );
                self.warning(
                    Rule::IrFeature,
                    &here.at(Step::listed("opset import", index, import.domain.as_ref())),
                    message,
                );
            }
        }
    }

    fn error(&mut self, rule: Rule, here: &Here<'_>, message: impl Into<String>) {
        self.error_at(rule, here.place(), message);
    }

    fn error_at(&mut self, rule: Rule, place: Place, message: impl Into<String>) {
        self.problems.push(Problem { rule, severity: Severity::Error, place, message: message.into() });
    }

    fn warning(&mut self, rule: Rule, here: &Here<'_>, message: impl Into<String>) {
        self.problems.push(Problem {
            rule,
            severity: Severity::Warning,
            place: here.place(),
            message: message.into(),
        });
    }

    /// Something that readers of the declared version may overlook; said once for each kind of thing.
    fn needs_ir(&mut self, since: i64, what: &'static str, here: &Here<'_>) {
        if self.too_new(since, what) {
            self.warning(Rule::IrFeature, here, self.feature(since, what));
        }
    }

    /// Something without which the model cannot be understood.
    fn needs_ir_error(&mut self, since: i64, what: &'static str, here: &Here<'_>) {
        if self.too_new(since, what) {
            self.error(Rule::IrFeature, here, self.feature(since, what));
        }
    }

    fn too_new(&mut self, since: i64, what: &'static str) -> bool {
        self.ir < since && self.features.insert(what)
    }

    fn feature(&self, since: i64, what: &str) -> String {
        format!(
            "{what}: part of the format from IR version {since} on, the model declares {}; declare {since}",
            self.ir
        )
    }
}
