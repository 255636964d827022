//! The messages of a package's model, as far as ML Programs need them, and numbers that fields take.
//!
//! Maps are repeated entries of a key and a value. What is not in these tables is kept as unknown fields, as everywhere.

use onnxforge_ir::DType;
use onnxforge_proto::blob::Blob;
use onnxforge_proto::wire::Packed;
use onnxforge_proto::{Str, messages};

messages! {
    /// The file `model.mlmodel`.
    Spec {
        1 version: Option<i32>;
        2 description: Option<Box<Description>>;
        502 program: Option<Box<Program>>;
    }

    /// What users see of a model.
    Description {
        1 inputs: Vec<Feature>;
        10 outputs: Vec<Feature>;
        100 metadata: Option<Box<Metadata>>;
    }

    /// Texts about a model.
    Metadata {
        1 summary: Option<Str>;
        2 version: Option<Str>;
        3 author: Option<Str>;
        4 license: Option<Str>;
        100 custom: Vec<TextEntry>;
    }

    /// A text by its name.
    TextEntry {
        1 key: Option<Str>;
        2 value: Option<Str>;
    }

    /// An input or output.
    Feature {
        1 name: Option<Str>;
        2 summary: Option<Str>;
        3 kind: Option<Box<FeatureType>>;
    }

    /// What an input or output takes: an image or an array.
    FeatureType {
        4 image: Option<Box<Image>>, not array;
        5 array: Option<Box<ArrayType>>, not image;
        1000 optional: Option<i32>;
    }

    /// An image.
    Image {
        1 width: Option<i64>;
        2 height: Option<i64>;
        3 color: Option<i32>;
    }

    /// An array.
    ArrayType {
        1 shape: Packed<i64>;
        2 dtype: Option<i32>;
        21 enumerated: Option<Box<Shapes>>, not range;
        31 range: Option<Box<ShapeRange>>, not enumerated;
    }

    /// Shapes of which an array has one.
    Shapes {
        1 shapes: Vec<ShapeOf>;
    }

    /// One shape.
    ShapeOf {
        1 shape: Packed<i64>;
    }

    /// The sizes that each axis may have.
    ShapeRange {
        1 sizes: Vec<SizeRange>;
    }

    /// The sizes that an axis may have.
    SizeRange {
        1 lower: Option<i64>;
        2 upper: Option<i64>;
    }

    /// An ML Program.
    Program {
        1 version: Option<i64>;
        2 functions: Vec<FunctionEntry>;
        4 attributes: Vec<ValueEntry>;
    }

    /// A function by its name.
    FunctionEntry {
        1 key: Option<Str>;
        2 value: Option<Box<Function>>;
    }

    /// A function.
    Function {
        1 inputs: Vec<NamedType>;
        2 opset: Option<Str>;
        3 blocks: Vec<BlockEntry>;
    }

    /// A body of a function by the operator set that it is written for.
    BlockEntry {
        1 key: Option<Str>;
        2 value: Option<Box<Block>>;
    }

    /// Operations in the order in which they are made.
    Block {
        1 inputs: Vec<NamedType>;
        2 outputs: Vec<Str>;
        3 operations: Vec<Operation>;
    }

    /// A call of an operator.
    Operation {
        1 kind: Option<Str>;
        2 inputs: Vec<ArgumentEntry>;
        3 outputs: Vec<NamedType>;
        4 blocks: Vec<Block>;
        5 attributes: Vec<ValueEntry>;
    }

    /// What a parameter gets, by the name of that.
    ArgumentEntry {
        1 key: Option<Str>;
        2 value: Option<Box<Argument>>;
    }

    /// What a parameter gets: one value, or a list.
    Argument {
        1 bindings: Vec<Binding>;
    }

    /// A value by its name, or written down where it is read.
    Binding {
        1 name: Option<Str>, not value;
        2 value: Option<Box<Value>>, not name;
    }

    /// A value by its name.
    ValueEntry {
        1 key: Option<Str>;
        2 value: Option<Box<Value>>;
    }

    /// The type of a value.
    NamedType {
        1 name: Option<Str>;
        2 kind: Option<Box<ValueType>>;
    }

    /// A type. Lists, tuples and dictionaries are not in these tables.
    ValueType {
        1 tensor: Option<Box<TensorType>>;
    }

    /// The type of a tensor.
    TensorType {
        1 dtype: Option<i32>;
        2 rank: Option<i64>;
        3 dims: Vec<Dimension>;
    }

    /// A size.
    Dimension {
        1 constant: Option<Box<ConstantSize>>, not unknown_size;
        2 unknown_size: Option<Box<UnknownSize>>, not constant;
    }

    /// A size that is known.
    ConstantSize {
        1 size: Option<i64>;
    }

    /// One that is not.
    UnknownSize {
        1 variadic: Option<i32>;
    }

    /// A value that is written down.
    Value {
        2 kind: Option<Box<ValueType>>;
        3 immediate: Option<Box<Immediate>>, not file;
        5 file: Option<Box<FileValue>>, not immediate;
    }

    /// A value in the program itself.
    Immediate {
        1 tensor: Option<Box<Elements>>;
    }

    /// A value in a file of weights.
    FileValue {
        1 name: Option<Str>;
        2 offset: Option<i64>;
    }

    /// The elements of a tensor, in the field of their kind.
    Elements {
        1 floats: Option<Box<Floats>>;
        2 ints: Option<Box<Ints>>;
        3 bools: Option<Box<Bools>>;
        4 texts: Option<Box<Texts>>;
        7 bytes: Option<Box<Bytes>>;
    }

    /// Floats of 32 bits.
    Floats {
        1 values: Packed<f32>;
    }

    /// Integers of 32 bits and fewer.
    Ints {
        1 values: Packed<i32>;
    }

    /// Truth values.
    Bools {
        1 values: Packed<i32>;
    }

    /// Texts.
    Texts {
        1 values: Vec<Str>;
    }

    /// Elements byte for byte.
    Bytes {
        1 values: Option<Blob>;
    }
}

/// Element types of programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Elem {
    Bool,
    Text,
    F16,
    F32,
    I8,
    I32,
    U8,
    I16,
    U16,
    I4,
    U4,
}

/// Each with its number in types, its number in files of weights, its name as an argument of casts, and what it is here.
const ELEMS: &[(Elem, i32, u32, &str, Option<DType>)] = &[
    (Elem::Bool, 1, 0, "bool", Some(DType::Bool)),
    (Elem::Text, 2, 0, "string", None),
    (Elem::F16, 10, 1, "fp16", Some(DType::F16)),
    (Elem::F32, 11, 2, "fp32", Some(DType::F32)),
    (Elem::I8, 21, 4, "int8", Some(DType::I8)),
    (Elem::I32, 23, 14, "int32", Some(DType::I32)),
    (Elem::U8, 31, 3, "uint8", Some(DType::U8)),
    (Elem::I16, 22, 6, "int16", Some(DType::I16)),
    (Elem::U16, 32, 7, "uint16", Some(DType::U16)),
    (Elem::I4, 25, 8, "int4", Some(DType::I4)),
    (Elem::U4, 35, 11, "uint4", Some(DType::U4)),
];

impl Elem {
    fn row(self) -> &'static (Elem, i32, u32, &'static str, Option<DType>) {
        ELEMS.iter().find(|row| row.0 == self).unwrap_or(&ELEMS[0])
    }

    /// Its number in types.
    pub fn code(self) -> i32 {
        self.row().1
    }

    /// Its number in files of weights; 0 where these do not have it.
    pub fn stored(self) -> u32 {
        self.row().2
    }

    /// What casts call it.
    pub fn name(self) -> &'static str {
        self.row().3
    }

    /// What it is in ONNX.
    pub fn dtype(self) -> Option<DType> {
        self.row().4
    }

    /// The element type of this number.
    pub fn of_code(code: i32) -> Option<Self> {
        ELEMS.iter().find(|row| row.1 == code).map(|row| row.0)
    }

    /// The element type that casts call so.
    pub fn of_name(name: &str) -> Option<Self> {
        ELEMS.iter().find(|row| row.3 == name).map(|row| row.0)
    }

    /// Whether it is a float.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::F32)
    }
}

/// Element types of arrays that users hand over.
pub const ARRAY_TYPES: &[(Elem, i32)] = &[(Elem::F32, 65568), (Elem::F16, 65552), (Elem::I32, 131_104)];

/// The colours of an image.
pub const GRAYSCALE: i32 = 10;
/// Red, green and blue.
pub const RGB: i32 = 20;
/// Blue, green and red.
pub const BGR: i32 = 30;
