//! Signatures of the standard ONNX operators, version by version.
//!
//! The facts live in `signatures.txt`, which `scripts/make_signatures.py` writes from the schemas of
//! the onnx package; its header explains the grammar. It is read once, at the first question.
//! What it does not hold is unknown, which is an answer and not an error: custom operators are welcome.

mod table;

use std::{fmt, ops::RangeInclusive};

use table::{canonical, table};

use onnxforge_ir::DType;

/// One version of one operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// The domain; empty for ai.onnx.
    pub domain: &'static str,
    /// The operator's name.
    pub name: &'static str,
    /// The first opset of the domain that this version holds for.
    pub since: u32,
    /// The operator may no longer be used from `since` on.
    pub deprecated: bool,
    /// False when the operator itself may draw random numbers (Dropout: it does so in training only).
    /// An operator with graph attributes is as deterministic as its graphs.
    pub deterministic: bool,
    /// Inputs in order; only the last may be variadic.
    pub inputs: Vec<Param>,
    /// Outputs in order; only the last may be variadic.
    pub outputs: Vec<Param>,
    /// Attributes, sorted by name.
    pub attributes: Vec<AttributeDef>,
    /// Type variables and what they range over. Parameters that name one variable share one type.
    pub constraints: Vec<(&'static str, TypeSet)>,
}

/// A formal input or output.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// Its name in the standard.
    pub name: &'static str,
    /// A type variable of the signature, or the type itself as the table writes it (`int64`).
    pub ty: &'static str,
    /// The types it may have.
    pub types: TypeSet,
    /// Whether it must be given, and how often.
    pub presence: Presence,
}

/// Whether a parameter must be given, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Presence {
    Required,
    Optional,
    /// `min` times or more; `homogeneous` when all of them have one type.
    Variadic {
        min: usize,
        homogeneous: bool,
    },
}

/// A formal attribute.
#[derive(Clone, Debug, PartialEq)]
pub struct AttributeDef {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: AttrKind,
    /// A node without it is invalid.
    pub required: bool,
    /// What its absence means, where the standard gives a constant.
    pub default: Option<DefaultValue>,
}

/// The default of an attribute.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum DefaultValue {
    Int(i64),
    Float(f32),
    String(&'static str),
    Ints(Vec<i64>),
    Floats(Vec<f32>),
    Strings(Vec<&'static str>),
}

macro_rules! attr_kinds {
    ($($kind:ident = $code:literal $name:literal,)+) => {
        /// The kind of an attribute; its value is the code in `AttributeProto.AttributeType`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum AttrKind { $($kind = $code),+ }

        impl AttrKind {
            /// The kind with this `AttributeProto.AttributeType` code.
            pub fn from_code(code: i32) -> Option<Self> {
                match code { $($code => Some(Self::$kind),)+ _ => None }
            }

            /// Its name in lower case.
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name),+ }
            }
        }
    };
}

attr_kinds! {
    Float = 1 "float", Int = 2 "int", String = 3 "string", Tensor = 4 "tensor", Graph = 5 "graph",
    Floats = 6 "floats", Ints = 7 "ints", Strings = 8 "strings", Tensors = 9 "tensors",
    Graphs = 10 "graphs", SparseTensor = 11 "sparse_tensor", SparseTensors = 12 "sparse_tensors",
    TypeProto = 13 "type_proto", TypeProtos = 14 "type_protos",
}

/// What a value is built of around its element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Form {
    Tensor,
    Sparse,
    Seq,
    Optional,
    OptionalSeq,
    MapFromInt64,
    MapFromString,
    SeqOfMapFromInt64,
    SeqOfMapFromString,
}

/// How each form is written around its elements, in the order of the enum.
const FRAMES: [(&str, &str); 9] = [
    ("", ""),
    ("sparse(", ")"),
    ("seq(", ")"),
    ("optional(", ")"),
    ("optional(seq(", "))"),
    ("map(int64,", ")"),
    ("map(string,", ")"),
    ("seq(map(int64,", "))"),
    ("seq(map(string,", "))"),
];

/// Names of the element types; the place of a name is its `TensorProto.DataType` code.
const ELEMENTS: &str = "undefined float uint8 int8 uint16 int16 int32 int64 string bool float16 \
    double uint32 uint64 complex64 complex128 bfloat16 float8e4m3fn float8e4m3fnuz float8e5m2 \
    float8e5m2fnuz uint4 int4 float4e2m1 float8e8m0 uint2 int2 float6e2m3 float6e3m2";

/// A set of types: for each form, one bit per `TensorProto.DataType` code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TypeSet([u32; FRAMES.len()]);

impl TypeSet {
    /// Whether it holds this form of elements with this `TensorProto.DataType` code.
    pub fn contains(&self, form: Form, code: i32) -> bool {
        (0..32).contains(&code) && (self.0[form as usize] >> code) & 1 == 1
    }

    /// Whether it holds every type that `other` holds.
    pub fn includes(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).all(|(own, other)| other & !own == 0)
    }

    /// Whether a tensor of elements with this `TensorProto.DataType` code may appear.
    pub fn allows_tensor(&self, code: i32) -> bool {
        self.contains(Form::Tensor, code)
    }

    /// The only form that appears, if there is just one.
    pub fn only_form(&self) -> Option<Form> {
        use Form::{
            MapFromInt64, MapFromString, Optional, OptionalSeq, Seq, SeqOfMapFromInt64, SeqOfMapFromString,
            Sparse, Tensor,
        };
        let forms = [
            Tensor,
            Sparse,
            Seq,
            Optional,
            OptionalSeq,
            MapFromInt64,
            MapFromString,
            SeqOfMapFromInt64,
            SeqOfMapFromString,
        ];
        let mut present = forms.into_iter().filter(|&form| self.allows(form));
        present.next().filter(|_| present.next().is_none())
    }

    /// The element type, when only tensors of one type may appear.
    pub fn only_tensor(&self) -> Option<DType> {
        let bits = self.0[Form::Tensor as usize];
        if self.only_form() != Some(Form::Tensor) || bits.count_ones() != 1 {
            return None;
        }
        DType::from_code(bits.trailing_zeros() as i32)
    }

    /// Whether the form may appear with any element type.
    pub fn allows(&self, form: Form) -> bool {
        self.0[form as usize] != 0
    }
}

/// Prints `float, seq(float)` for a tensor of floats or a sequence of them.
impl fmt::Display for TypeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (bits, (open, close)) in self.0.iter().zip(FRAMES) {
            let elements = (0..).zip(ELEMENTS.split(' '));
            for (_, name) in elements.filter(|(code, _)| (bits >> code) & 1 == 1) {
                write!(f, "{separator}{open}{name}{close}")?;
                separator = ", ";
            }
        }
        Ok(())
    }
}

impl Signature {
    fn key(&self) -> (&'static str, &'static str) {
        (self.domain, self.name)
    }

    /// The formal parameter of input `index`; a variadic one repeats.
    pub fn input(&self, index: usize) -> Option<&Param> {
        param(&self.inputs, index)
    }

    /// The formal parameter of output `index`; a variadic one repeats.
    pub fn output(&self, index: usize) -> Option<&Param> {
        param(&self.outputs, index)
    }

    /// The least and the greatest number of inputs; `usize::MAX` is unbounded.
    pub fn input_arity(&self) -> RangeInclusive<usize> {
        arity(&self.inputs)
    }

    /// The least and the greatest number of outputs; `usize::MAX` is unbounded.
    pub fn output_arity(&self) -> RangeInclusive<usize> {
        arity(&self.outputs)
    }

    /// The attribute of this name.
    pub fn attribute(&self, name: &str) -> Option<&AttributeDef> {
        self.attributes.iter().find(|a| a.name == name)
    }
}

fn param(params: &[Param], index: usize) -> Option<&Param> {
    let repeats = |last: &&Param| matches!(last.presence, Presence::Variadic { .. });
    params.get(index).or_else(|| params.last().filter(repeats))
}

fn arity(params: &[Param]) -> RangeInclusive<usize> {
    let bounds = |(least, greatest): (usize, usize), param: &Param| match param.presence {
        Presence::Required => (greatest + 1, greatest + 1),
        Presence::Optional => (least, greatest + 1),
        Presence::Variadic { min, .. } => (greatest + min, usize::MAX),
    };
    let (least, greatest) = params.iter().fold((0, 0), bounds);
    least..=greatest
}

/// What the table knows about an operator at an opset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lookup {
    /// The version that holds.
    Found(&'static Signature),
    /// The version that holds, and it says that the operator may no longer be used.
    Deprecated(&'static Signature),
    /// The operator comes with a later opset: `first`.
    #[allow(missing_docs)]
    TooNew { first: u32 },
    /// The domain has no operator of this name.
    UnknownOp,
    /// Nothing is known about the domain.
    UnknownDomain,
}

/// The signature of an operator in a model that imports `opset` of `domain`: the newest up to there.
pub fn signature(domain: &str, op: &str, opset: i64) -> Lookup {
    let domain = canonical(domain);
    let versions = table().versions.get(&(domain, op)).map_or(&[][..], |range| &signatures()[range.clone()]);
    let newest = versions.iter().rfind(|s| i64::from(s.since) <= opset);
    match (newest, versions.first().map(|oldest| oldest.since)) {
        (Some(found), _) if found.deprecated => Lookup::Deprecated(found),
        (Some(found), _) => Lookup::Found(found),
        (None, Some(first)) => Lookup::TooNew { first },
        (None, None) if latest_opset(domain).is_some() => Lookup::UnknownOp,
        (None, None) => Lookup::UnknownDomain,
    }
}

/// All signatures, sorted by domain, name and version.
pub fn signatures() -> &'static [Signature] {
    &table().signatures
}

/// The domains of the table, sorted; ai.onnx is the empty one.
pub fn known_domains() -> impl Iterator<Item = &'static str> {
    table().domains.iter().map(|known| known.0)
}

/// The newest opset of a domain; none when the domain is unknown.
pub fn latest_opset(domain: &str) -> Option<i64> {
    let mut known = table().domains.iter();
    Some(known.find(|known| known.0 == canonical(domain))?.1)
}

/// The IR version of the first onnx release that carried `opset` of `domain`; none when none did.
pub fn ir_for_opset(domain: &str, opset: i64) -> Option<i64> {
    let has = |known: &(&str, i64)| known.0 == canonical(domain) && (1..=known.1).contains(&opset);
    let mut releases = table().releases.iter();
    Some(releases.find(|release| release.opsets.iter().any(has))?.ir)
}

#[cfg(test)]
mod tests {
    use super::{DefaultValue as Default, *};

    fn found(domain: &str, op: &str, opset: i64) -> &'static Signature {
        match signature(domain, op, opset) {
            Lookup::Found(signature) => signature,
            other => panic!("{domain}.{op} at {opset}: {other:?}"),
        }
    }

    fn default(op: &str, opset: i64, name: &str) -> Default {
        let attribute = found("", op, opset).attribute(name).unwrap();
        attribute.default.clone().unwrap()
    }

    fn variadic(min: usize, homogeneous: bool) -> Presence {
        Presence::Variadic { min, homogeneous }
    }

    #[test]
    fn the_newest_version_up_to_the_opset_holds() {
        let since = |opset| found("", "Relu", opset).since;
        assert_eq!([1, 5, 6, 13, 14, 99].map(since), [1, 1, 6, 13, 14, 14]);
        assert_eq!(found("ai.onnx", "Relu", 13), found("", "Relu", 13));
        assert_eq!(signature("", "Relu", 0), Lookup::TooNew { first: 1 });
        assert_eq!(signature("", "Gelu", 19), Lookup::TooNew { first: 20 });
        assert_eq!(signature("", "Rel", 13), Lookup::UnknownOp);
        assert_eq!(signature("com.example", "Relu", 1), Lookup::UnknownDomain);
        assert!(matches!(signature("", "Upsample", 13), Lookup::Deprecated(s) if s.since == 10));
        let norm = signature("", "GroupNormalization", 20);
        assert!(matches!(norm, Lookup::Deprecated(_)));
        assert_eq!(found("", "GroupNormalization", 21).since, 21);
    }

    #[test]
    fn parameters_and_their_types() {
        let conv = found("", "Conv", 13);
        assert_eq!((conv.since, conv.input_arity()), (11, 2..=3));
        assert_eq!(conv.inputs[2].presence, Presence::Optional);
        let types = conv.input(0).unwrap().types;
        assert_eq!(types.to_string(), "float, float16, double");
        let codes = (-1..40).filter(|&code| types.allows_tensor(code));
        assert_eq!(codes.collect::<Vec<_>>(), [1, 10, 11]);
        assert!(found("", "Cast", 28).inputs[0].types.allows_tensor(28));
        assert_eq!(found("", "Clip", 10).input_arity(), 1..=1);
        assert_eq!(found("", "Clip", 11).input_arity(), 1..=3);
        assert_eq!(found("", "Dropout", 13).output_arity(), 1..=2);
    }

    #[test]
    fn attributes_and_their_defaults() {
        let conv = found("", "Conv", 13);
        assert_eq!(conv.attribute("pads").unwrap().kind, AttrKind::Ints);
        assert_eq!(conv.attribute("bias"), None);
        assert!(found("", "Cast", 13).attribute("to").unwrap().required);
        assert_eq!(default("Conv", 13, "auto_pad"), Default::String("NOTSET"));
        assert_eq!(default("Clip", 6, "max"), Default::Float(f32::MAX));
        assert_eq!(default("Softmax", 11, "axis"), Default::Int(1));
        assert_eq!(default("Softmax", 13, "axis"), Default::Int(-1));
        let axes = default("MeanVarianceNormalization", 13, "axes");
        assert_eq!(axes, Default::Ints(vec![0, 2, 3]));
        let activations = default("RNN", 22, "activations");
        assert_eq!(activations, Default::Strings(vec!["Tanh", "Tanh"]));
    }

    #[test]
    fn variadics_and_containers() {
        let (branch, repeat) = (found("", "If", 16), found("", "Loop", 16));
        let then_branch = branch.attribute("then_branch").unwrap();
        assert_eq!(then_branch.kind, AttrKind::Graph);
        assert_eq!(branch.output_arity(), 1..=usize::MAX);
        assert_eq!(branch.input(1), None);
        assert_eq!(found("", "Loop", 1).input_arity(), 3..=usize::MAX);
        assert_eq!(repeat.input_arity(), 2..=usize::MAX);
        assert_eq!(repeat.inputs[2].presence, variadic(0, false));
        assert_eq!(found("", "Concat", 13).inputs[0].presence, variadic(1, true));
        let types = repeat.input(7).unwrap().types;
        assert!(types.contains(Form::OptionalSeq, 16) && !types.allows(Form::Sparse));
        let zip = found("ai.onnx.ml", "ZipMap", 3);
        assert_eq!((zip.inputs[0].ty, zip.outputs[0].ty), ("float", "T"));
        let maps = "seq(map(int64,float)), seq(map(string,float))";
        assert_eq!(zip.outputs[0].types.to_string(), maps);
    }

    #[test]
    fn random_operators_are_marked() {
        for op in "RandomNormal RandomUniformLike Multinomial Bernoulli Dropout".split(' ') {
            assert!(!found("", op, 22).deterministic, "{op}");
        }
        for op in "Conv If Loop AffineGrid DepthToSpace ConstantOfShape".split(' ') {
            assert!(found("", op, 28).deterministic, "{op}");
        }
    }

    #[test]
    fn domains_and_releases() {
        assert_eq!(known_domains().next(), Some(""));
        assert_eq!(latest_opset("ai.onnx"), Some(28));
        assert_eq!(latest_opset("com.example"), None);
        let ir = |opset| ir_for_opset("", opset).unwrap_or(0);
        assert_eq!([0, 1, 2, 9, 18, 28, 29].map(ir), [0, 3, 3, 4, 8, 14, 0]);
        assert_eq!(ir_for_opset("ai.onnx.ml", 3), Some(8));
        assert_eq!(ir_for_opset("com.example", 1), None);
    }
}
