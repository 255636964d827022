//! What the checker says: a rule, how bad it is, where, and what to do about it.

use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use onnxforge_proto::Str;

macro_rules! rules {
    ($( $rule:ident $id:literal $about:literal; )*) => {
        /// A rule that a model can break. Its id is stable.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)]
        pub enum Rule { $($rule),* }

        impl Rule {
            /// Every rule.
            pub const ALL: &'static [Self] = &[$(Self::$rule),*];

            /// The name that reports use.
            pub fn id(self) -> &'static str {
                match self { $(Self::$rule => $id),* }
            }

            /// What the rule asks for, in one line.
            pub fn about(self) -> &'static str {
                match self { $(Self::$rule => $about),* }
            }
        }
    };
}

rules! {
    MissingGraph "missing-graph" "A model holds a graph.";
    IrVersion "ir-version" "A model says which version of the format it is written in, and that version exists.";
    IrFeature "ir-feature" "What a model uses is part of the version of the format that it declares.";
    OpsetImport "opset-import" "Models and functions import each operator set once, with a version that exists.";
    DomainImport "domain-import" "The domain of every node is imported.";
    DomainSpelling "domain-spelling" "Nodes leave the standard domain empty.";
    DuplicateMetadata "duplicate-metadata" "The keys of metadata are distinct.";
    FunctionIdentity "function-identity" "Domain, name and overload of a local function are given and identify it alone.";
    FunctionParameter "function-parameter" "Inputs, outputs and attributes of a function are named once, and its outputs are computed.";
    FunctionRecursion "function-recursion" "Local functions do not call themselves, not even through others.";
    FunctionOpset "function-opset" "An operator in a function means the same under the model's imports.";
    GraphName "graph-name" "Graphs have names.";
    MissingName "missing-name" "Inputs, outputs, initializers and attributes have names.";
    Ssa "ssa" "Every value is defined once.";
    Shadowing "shadowing" "A body does not reuse a name that it can see outside.";
    DanglingName "dangling-name" "Every value that is read is defined.";
    TopologicalOrder "topological-order" "A node stands after the nodes whose outputs it reads.";
    Cycle "cycle" "No node depends on its own output.";
    GraphOutput "graph-output" "Every output of a graph is computed in that graph.";
    InitializerInput "initializer-input" "Initializers are inputs too up to IR version 3; in bodies they are not from 4 on.";
    ValueInfo "value-info" "Type annotations belong to values that exist, one each.";
    QuantizationAnnotation "quantization-annotation" "Quantization annotations refer to values that exist.";
    Training "training" "Training bindings connect initializers with outputs that exist.";
    DeviceConfiguration "device-configuration" "Device configurations are complete, and what refers to them finds them.";
    OpType "op-type" "Every node names its operator.";
    UnknownOperator "unknown-operator" "The operator exists in the imported version of its domain.";
    RuntimeOperator "runtime-operator" "The standard domain holds no operators that only a runtime has, or had before it did.";
    DeprecatedOperator "deprecated-operator" "The operator was not withdrawn by the imported version of its domain.";
    DuplicateNodeName "duplicate-node-name" "The nodes of a graph have distinct names, where they have names.";
    Arity "arity" "A node has as many inputs and outputs as its operator allows.";
    RequiredValue "required-value" "Required inputs and outputs are not left empty.";
    NoOutputs "no-outputs" "A node computes something.";
    AttributeForm "attribute-form" "An attribute has a type and one value, of that type.";
    AttributeDuplicate "attribute-duplicate" "The attributes of a node have distinct names.";
    AttributeUnknown "attribute-unknown" "The operator has an attribute of this name.";
    AttributeType "attribute-type" "An attribute has the type that the operator asks for.";
    AttributeMissing "attribute-missing" "Required attributes are given.";
    AttributeReference "attribute-reference" "References to attributes stand in functions that declare the attribute.";
    BodyArity "body-arity" "Bodies have the inputs and outputs that their operator hands over and takes back.";
    Utf8 "utf8" "Texts are valid UTF-8.";
    TypeForm "type-form" "Declared types are complete and use element types that exist.";
    MissingType "missing-type" "Outputs of the main graph declare their type.";
    MissingShape "missing-shape" "Inputs and outputs of the main graph declare a shape, or at least a rank.";
    TypeMismatch "type-mismatch" "Declared types are ones that the operator accepts, together.";
    Call "call" "What is known of the inputs of a node is something that its operator can compute with.";
    TypeConflict "type-conflict" "All declarations of a value agree.";
    Dimension "dimension" "Declared dimensions are not negative.";
    Tensor "tensor" "Type, dimensions and stored elements of a tensor agree.";
    ExternalData "external-data" "Elements that are stored in another file are there.";
    SparseTensor "sparse-tensor" "A sparse tensor lists as many sorted indices within its dimensions as it has values.";
    Nesting "nesting" "Bodies and types are not nested beyond reason.";
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The model is valid, but something about it is odd or will trouble other tools.
    Warning,
    /// The model is not valid.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// One thing that is wrong with a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The rule that is broken.
    pub rule: Rule,
    /// How bad that is.
    pub severity: Severity,
    /// Where in the model.
    pub place: Place,
    /// What is wrong and, where there is one, the hint.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}] {}: {}", self.severity, self.rule, self.place, self.message)
    }
}

/// A path from the model down to the thing that is meant:
/// `graph "main" / node 12 "Conv_3" (Conv) / attribute "body"`. Problems in one body share the path to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place(Arc<Link>);

#[derive(Debug, PartialEq, Eq)]
struct Link {
    outer: Option<Place>,
    step: Step,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.outer {
            Some(outer) if outer.0.step != Step::model() => write!(f, "{outer} / {}", self.0.step),
            _ => write!(f, "{}", self.0.step),
        }
    }
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One step of a path: `node 12 "Conv_3" (Conv)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    kind: &'static str,
    index: Option<usize>,
    name: Option<Str>,
    /// Domain and name of what a node calls.
    op: Option<(Option<Str>, Str)>,
}

impl Step {
    fn model() -> Self {
        Self { kind: "model", index: None, name: None, op: None }
    }

    /// A thing that its name tells apart.
    pub(super) fn named(kind: &'static str, name: Option<&Str>) -> Self {
        Self { kind, index: None, name: name.filter(|name| !name.is_empty()).cloned(), op: None }
    }

    /// A thing in a list; its position is shown when it has no name.
    pub(super) fn listed(kind: &'static str, index: usize, name: Option<&Str>) -> Self {
        let named = Self::named(kind, name);
        Self { index: named.name.is_none().then_some(index), ..named }
    }

    /// A node of a model that is held.
    pub(super) fn held(index: usize, node: &onnxforge_ir::Node) -> Self {
        let domain = Some(node.op().domain.clone()).filter(|domain| !domain.is_empty());
        let named = Self::named("node", node.name());
        Self { index: Some(index), op: Some((domain, node.op().name.clone())), ..named }
    }

    /// A node.
    pub(super) fn node(index: usize, node: &onnxforge_proto::schema::NodeProto) -> Self {
        let domain = node.domain.as_ref().filter(|domain| !domain.is_empty()).cloned();
        let op = node.op_type.as_ref().filter(|op| !op.is_empty()).cloned();
        let named = Self::named("node", node.name.as_ref());
        Self { index: Some(index), op: op.map(|op| (domain, op)), ..named }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind)?;
        if let Some(index) = self.index {
            write!(f, " {index}")?;
        }
        if let Some(name) = &self.name {
            write!(f, " {}", Quoted(name))?;
        }
        match &self.op {
            Some((Some(domain), op)) => write!(f, " ({}.{})", Plain(domain), Plain(op)),
            Some((None, op)) => write!(f, " ({})", Plain(op)),
            None => Ok(()),
        }
    }
}

/// Where the checker is. The owned path is made when the first problem needs it.
pub(super) struct Here<'a> {
    outer: Option<&'a Here<'a>>,
    step: Step,
    place: OnceCell<Place>,
}

impl<'a> Here<'a> {
    pub(super) fn model() -> Self {
        Self { outer: None, step: Step::model(), place: OnceCell::new() }
    }

    /// One step further.
    pub(super) fn at(&'a self, step: Step) -> Self {
        Self { outer: Some(self), step, place: OnceCell::new() }
    }

    /// The operator of the node that this is in, if it is an attribute of one.
    pub(super) fn op(&self) -> Option<&str> {
        self.outer?.step.op.as_ref().map(|(_, op)| &**op)
    }

    pub(super) fn place(&self) -> Place {
        let make = || Place(Arc::new(Link { outer: self.outer.map(Here::place), step: self.step.clone() }));
        self.place.get_or_init(make).clone()
    }
}

/// Names longer than this are cut in reports, so that no report is longer than a small multiple of the model.
const LONGEST: usize = 200;

fn cut(text: &str) -> (&str, &'static str) {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => (text.get(..end).unwrap_or_default(), "…"),
        None => (text, ""),
    }
}

/// A name in quotes, with control characters escaped.
pub(super) struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, more) = cut(self.0);
        write!(f, "{text:?}{more}")
    }
}

/// A name without quotes, with control characters escaped.
pub(super) struct Plain<'a>(pub &'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, more) = cut(self.0);
        write!(f, "{}{more}", text.escape_debug())
    }
}
