//! Every message of `onnx.proto` as `prost` reads and writes it, written from the published schema and from nothing else.
//!
//! [`Make`] makes a message out of arbitrary bytes, so that shrinking bytes shrinks messages; [`Build`] makes our message
//! with the same content, field name by field name.

use onnxforge_proto::blob::{Blob, Payload};
use onnxforge_proto::schema;
use onnxforge_proto::wire::{Packed, PackedFixed, Unknown};

/// Bytes to make messages of; zeros when they are used up, and zeros make absent fields.
pub struct Source<'a> {
    bytes: std::slice::Iter<'a, u8>,
    depth: u32,
}

impl<'a> Source<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes: bytes.iter(), depth: 0 }
    }

    fn byte(&mut self) -> u8 {
        self.bytes.next().copied().unwrap_or(0)
    }

    /// Below this depth no more messages are made.
    fn deep(&self) -> bool {
        self.depth > 6
    }
}

pub trait Make {
    const MESSAGE: bool = false;
    fn make(source: &mut Source<'_>) -> Self;
}

/// Our form of the same content.
pub trait Build<T> {
    fn build(&self) -> T;
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Make for $type {
            fn make(source: &mut Source<'_>) -> Self {
                // Small numbers, limits, and everything between.
                let shape = source.byte();
                match shape % 8 {
                    0..=3 => (shape >> 3) as $type,
                    4 => <$type>::MAX,
                    5 => <$type>::MIN,
                    6 => (0 as $type).wrapping_sub((shape >> 3) as $type),
                    _ => <$type>::from_le_bytes(std::array::from_fn(|_| source.byte())),
                }
            }
        }
        impl Build<$type> for $type {
            fn build(&self) -> $type { *self }
        }
    )*};
}
integers!(i64, i32, u64, u8);

macro_rules! floats {
    ($($type:ident),*) => {$(
        impl Make for $type {
            fn make(source: &mut Source<'_>) -> Self {
                let value = $type::from_le_bytes(std::array::from_fn(|_| source.byte()));
                // Not a number equals nothing, not even itself; its bits have their own test.
                if value.is_nan() { -0.0 } else { value }
            }
        }
        impl Build<$type> for $type {
            fn build(&self) -> $type { *self }
        }
    )*};
}
floats!(f32, f64);

impl Make for String {
    fn make(source: &mut Source<'_>) -> Self {
        let length = source.byte() % 6;
        (0..length)
            .map(|_| ['a', 'Z', '0', '/', 'ß', '→', '🦀', '\0'][usize::from(source.byte() % 8)])
            .collect()
    }
}

impl<T: Make> Make for Option<T> {
    fn make(source: &mut Source<'_>) -> Self {
        let absent = T::MESSAGE && source.deep() || source.byte().is_multiple_of(3);
        (!absent).then(|| T::make(source))
    }
}

impl<T: Make> Make for Vec<T> {
    fn make(source: &mut Source<'_>) -> Self {
        let count = if T::MESSAGE && source.deep() { 0 } else { source.byte() % 4 };
        (0..count).map(|_| T::make(source)).collect()
    }
}

impl<T: Make> Make for Box<T> {
    const MESSAGE: bool = T::MESSAGE;
    fn make(source: &mut Source<'_>) -> Self {
        Box::new(T::make(source))
    }
}

impl Build<onnxforge_proto::Str> for String {
    fn build(&self) -> onnxforge_proto::Str {
        self.as_str().into()
    }
}

impl Build<Blob> for Vec<u8> {
    fn build(&self) -> Blob {
        self.as_slice().into()
    }
}

impl Build<Payload> for Vec<u8> {
    fn build(&self) -> Payload {
        Payload::Bytes(self.build())
    }
}

impl<T: Copy> Build<Packed<T>> for Vec<T> {
    fn build(&self) -> Packed<T> {
        Packed(self.clone())
    }
}

impl Build<PackedFixed<4>> for Vec<f32> {
    fn build(&self) -> PackedFixed<4> {
        let bytes: Vec<u8> = self.iter().flat_map(|v| v.to_le_bytes()).collect();
        if bytes.is_empty() { PackedFixed::Empty } else { PackedFixed::Shared(bytes.into()) }
    }
}

impl Build<PackedFixed<8>> for Vec<f64> {
    fn build(&self) -> PackedFixed<8> {
        let bytes: Vec<u8> = self.iter().flat_map(|v| v.to_le_bytes()).collect();
        if bytes.is_empty() { PackedFixed::Empty } else { PackedFixed::Shared(bytes.into()) }
    }
}

impl<T: Build<U>, U> Build<Option<U>> for Option<T> {
    fn build(&self) -> Option<U> {
        self.as_ref().map(T::build)
    }
}

impl<T: Build<U>, U> Build<Vec<U>> for Vec<T> {
    fn build(&self) -> Vec<U> {
        self.iter().map(T::build).collect()
    }
}

impl<T: Build<U>, U> Build<Box<U>> for Box<T> {
    fn build(&self) -> Box<U> {
        Box::new((**self).build())
    }
}

macro_rules! messages {
    ($( $name:ident { $( $(#[$($attr:tt)*])* $field:ident: $type:ty, )* } )*) => {
        $(
            #[derive(Clone, PartialEq, prost::Message)]
            pub struct $name { $( $(#[$($attr)*])* pub $field: $type, )* }

            impl Make for $name {
                const MESSAGE: bool = true;
                fn make(source: &mut Source<'_>) -> Self {
                    source.depth += 1;
                    let made = Self { $( $field: Make::make(source), )* };
                    source.depth -= 1;
                    made
                }
            }

            impl Build<schema::$name> for $name {
                fn build(&self) -> schema::$name {
                    schema::$name { $( $field: self.$field.build(), )* unknown: Unknown::default() }
                }
            }
        )*
    };
}

/// Calls a generic function for every message type.
macro_rules! for_every_message {
    ($function:ident $(, $argument:expr)*) => {
        for_every_message!(@ $function ($($argument),*)
            ModelProto GraphProto NodeProto AttributeProto ValueInfoProto FunctionProto TensorProto Segment
            SparseTensorProto TypeProto TensorType ElementType MapType OpaqueType TensorShapeProto Dimension
            OperatorSetIdProto StringStringEntryProto TensorAnnotation TrainingInfoProto DeviceConfigurationProto
            NodeDeviceConfigurationProto ShardingSpecProto ShardedDimProto SimpleShardedDimProto IntIntListEntryProto)
    };
    (@ $function:ident $arguments:tt $($name:ident)*) => {
        $( for_every_message!(@one $function $arguments $name); )*
    };
    (@one $function:ident ($($argument:expr),*) $name:ident) => {
        $function::<oracle::$name, onnxforge_proto::schema::$name>(stringify!($name) $(, $argument)*)
    };
}

messages! {
    ModelProto {
        #[prost(int64, optional, tag = "1")] ir_version: Option<i64>,
        #[prost(message, repeated, tag = "8")] opset_import: Vec<OperatorSetIdProto>,
        #[prost(string, optional, tag = "2")] producer_name: Option<String>,
        #[prost(string, optional, tag = "3")] producer_version: Option<String>,
        #[prost(string, optional, tag = "4")] domain: Option<String>,
        #[prost(int64, optional, tag = "5")] model_version: Option<i64>,
        #[prost(string, optional, tag = "6")] doc_string: Option<String>,
        #[prost(message, optional, boxed, tag = "7")] graph: Option<Box<GraphProto>>,
        #[prost(message, repeated, tag = "14")] metadata_props: Vec<StringStringEntryProto>,
        #[prost(message, repeated, tag = "20")] training_info: Vec<TrainingInfoProto>,
        #[prost(message, repeated, tag = "25")] functions: Vec<FunctionProto>,
        #[prost(message, repeated, tag = "26")] configuration: Vec<DeviceConfigurationProto>,
    }
    GraphProto {
        #[prost(message, repeated, tag = "1")] node: Vec<NodeProto>,
        #[prost(string, optional, tag = "2")] name: Option<String>,
        #[prost(message, repeated, tag = "5")] initializer: Vec<TensorProto>,
        #[prost(message, repeated, tag = "15")] sparse_initializer: Vec<SparseTensorProto>,
        #[prost(string, optional, tag = "10")] doc_string: Option<String>,
        #[prost(message, repeated, tag = "11")] input: Vec<ValueInfoProto>,
        #[prost(message, repeated, tag = "12")] output: Vec<ValueInfoProto>,
        #[prost(message, repeated, tag = "13")] value_info: Vec<ValueInfoProto>,
        #[prost(message, repeated, tag = "14")] quantization_annotation: Vec<TensorAnnotation>,
        #[prost(message, repeated, tag = "16")] metadata_props: Vec<StringStringEntryProto>,
    }
    NodeProto {
        #[prost(string, repeated, tag = "1")] input: Vec<String>,
        #[prost(string, repeated, tag = "2")] output: Vec<String>,
        #[prost(string, optional, tag = "3")] name: Option<String>,
        #[prost(string, optional, tag = "4")] op_type: Option<String>,
        #[prost(string, optional, tag = "7")] domain: Option<String>,
        #[prost(string, optional, tag = "8")] overload: Option<String>,
        #[prost(message, repeated, tag = "5")] attribute: Vec<AttributeProto>,
        #[prost(string, optional, tag = "6")] doc_string: Option<String>,
        #[prost(message, repeated, tag = "9")] metadata_props: Vec<StringStringEntryProto>,
        #[prost(message, repeated, tag = "10")] device_configurations: Vec<NodeDeviceConfigurationProto>,
    }
    AttributeProto {
        #[prost(string, optional, tag = "1")] name: Option<String>,
        #[prost(string, optional, tag = "21")] ref_attr_name: Option<String>,
        #[prost(string, optional, tag = "13")] doc_string: Option<String>,
        #[prost(int32, optional, tag = "20")] r#type: Option<i32>,
        #[prost(float, optional, tag = "2")] f: Option<f32>,
        #[prost(int64, optional, tag = "3")] i: Option<i64>,
        #[prost(bytes = "vec", optional, tag = "4")] s: Option<Vec<u8>>,
        #[prost(message, optional, boxed, tag = "5")] t: Option<Box<TensorProto>>,
        #[prost(message, optional, boxed, tag = "6")] g: Option<Box<GraphProto>>,
        #[prost(message, optional, boxed, tag = "22")] sparse_tensor: Option<Box<SparseTensorProto>>,
        #[prost(message, optional, boxed, tag = "14")] tp: Option<Box<TypeProto>>,
        #[prost(float, repeated, packed = "false", tag = "7")] floats: Vec<f32>,
        #[prost(int64, repeated, packed = "false", tag = "8")] ints: Vec<i64>,
        #[prost(bytes = "vec", repeated, tag = "9")] strings: Vec<Vec<u8>>,
        #[prost(message, repeated, tag = "10")] tensors: Vec<TensorProto>,
        #[prost(message, repeated, tag = "11")] graphs: Vec<GraphProto>,
        #[prost(message, repeated, tag = "23")] sparse_tensors: Vec<SparseTensorProto>,
        #[prost(message, repeated, tag = "15")] type_protos: Vec<TypeProto>,
    }
    ValueInfoProto {
        #[prost(string, optional, tag = "1")] name: Option<String>,
        #[prost(message, optional, boxed, tag = "2")] r#type: Option<Box<TypeProto>>,
        #[prost(string, optional, tag = "3")] doc_string: Option<String>,
        #[prost(message, repeated, tag = "4")] metadata_props: Vec<StringStringEntryProto>,
    }
    FunctionProto {
        #[prost(string, optional, tag = "1")] name: Option<String>,
        #[prost(string, repeated, tag = "4")] input: Vec<String>,
        #[prost(string, repeated, tag = "5")] output: Vec<String>,
        #[prost(string, repeated, tag = "6")] attribute: Vec<String>,
        #[prost(message, repeated, tag = "11")] attribute_proto: Vec<AttributeProto>,
        #[prost(message, repeated, tag = "7")] node: Vec<NodeProto>,
        #[prost(string, optional, tag = "8")] doc_string: Option<String>,
        #[prost(message, repeated, tag = "9")] opset_import: Vec<OperatorSetIdProto>,
        #[prost(string, optional, tag = "10")] domain: Option<String>,
        #[prost(string, optional, tag = "13")] overload: Option<String>,
        #[prost(message, repeated, tag = "12")] value_info: Vec<ValueInfoProto>,
        #[prost(message, repeated, tag = "14")] metadata_props: Vec<StringStringEntryProto>,
    }
    TensorProto {
        #[prost(int64, repeated, packed = "false", tag = "1")] dims: Vec<i64>,
        #[prost(int32, optional, tag = "2")] data_type: Option<i32>,
        #[prost(message, optional, boxed, tag = "3")] segment: Option<Box<Segment>>,
        #[prost(float, repeated, tag = "4")] float_data: Vec<f32>,
        #[prost(int32, repeated, tag = "5")] int32_data: Vec<i32>,
        #[prost(bytes = "vec", repeated, tag = "6")] string_data: Vec<Vec<u8>>,
        #[prost(int64, repeated, tag = "7")] int64_data: Vec<i64>,
        #[prost(string, optional, tag = "8")] name: Option<String>,
        #[prost(string, optional, tag = "12")] doc_string: Option<String>,
        #[prost(bytes = "vec", optional, tag = "9")] raw_data: Option<Vec<u8>>,
        #[prost(message, repeated, tag = "13")] external_data: Vec<StringStringEntryProto>,
        #[prost(int32, optional, tag = "14")] data_location: Option<i32>,
        #[prost(double, repeated, tag = "10")] double_data: Vec<f64>,
        #[prost(uint64, repeated, tag = "11")] uint64_data: Vec<u64>,
        #[prost(message, repeated, tag = "16")] metadata_props: Vec<StringStringEntryProto>,
    }
    Segment {
        #[prost(int64, optional, tag = "1")] begin: Option<i64>,
        #[prost(int64, optional, tag = "2")] end: Option<i64>,
    }
    SparseTensorProto {
        #[prost(message, optional, boxed, tag = "1")] values: Option<Box<TensorProto>>,
        #[prost(message, optional, boxed, tag = "2")] indices: Option<Box<TensorProto>>,
        #[prost(int64, repeated, packed = "false", tag = "3")] dims: Vec<i64>,
    }
    TensorType {
        #[prost(int32, optional, tag = "1")] elem_type: Option<i32>,
        #[prost(message, optional, boxed, tag = "2")] shape: Option<Box<TensorShapeProto>>,
    }
    ElementType {
        #[prost(message, optional, boxed, tag = "1")] elem_type: Option<Box<TypeProto>>,
    }
    MapType {
        #[prost(int32, optional, tag = "1")] key_type: Option<i32>,
        #[prost(message, optional, boxed, tag = "2")] value_type: Option<Box<TypeProto>>,
    }
    OpaqueType {
        #[prost(string, optional, tag = "1")] domain: Option<String>,
        #[prost(string, optional, tag = "2")] name: Option<String>,
    }
    TensorShapeProto {
        #[prost(message, repeated, tag = "1")] dim: Vec<Dimension>,
    }
    OperatorSetIdProto {
        #[prost(string, optional, tag = "1")] domain: Option<String>,
        #[prost(int64, optional, tag = "2")] version: Option<i64>,
    }
    StringStringEntryProto {
        #[prost(string, optional, tag = "1")] key: Option<String>,
        #[prost(string, optional, tag = "2")] value: Option<String>,
    }
    TensorAnnotation {
        #[prost(string, optional, tag = "1")] tensor_name: Option<String>,
        #[prost(message, repeated, tag = "2")] quant_parameter_tensor_names: Vec<StringStringEntryProto>,
    }
    TrainingInfoProto {
        #[prost(message, optional, boxed, tag = "1")] initialization: Option<Box<GraphProto>>,
        #[prost(message, optional, boxed, tag = "2")] algorithm: Option<Box<GraphProto>>,
        #[prost(message, repeated, tag = "3")] initialization_binding: Vec<StringStringEntryProto>,
        #[prost(message, repeated, tag = "4")] update_binding: Vec<StringStringEntryProto>,
    }
    DeviceConfigurationProto {
        #[prost(string, optional, tag = "1")] name: Option<String>,
        #[prost(int32, optional, tag = "2")] num_devices: Option<i32>,
        #[prost(string, repeated, tag = "3")] device: Vec<String>,
    }
    NodeDeviceConfigurationProto {
        #[prost(string, optional, tag = "1")] configuration_id: Option<String>,
        #[prost(message, repeated, tag = "2")] sharding_spec: Vec<ShardingSpecProto>,
        #[prost(int32, optional, tag = "3")] pipeline_stage: Option<i32>,
    }
    ShardingSpecProto {
        #[prost(string, optional, tag = "1")] tensor_name: Option<String>,
        #[prost(int64, repeated, packed = "false", tag = "2")] device: Vec<i64>,
        #[prost(message, repeated, tag = "3")] index_to_device_group_map: Vec<IntIntListEntryProto>,
        #[prost(message, repeated, tag = "4")] sharded_dim: Vec<ShardedDimProto>,
    }
    ShardedDimProto {
        #[prost(int64, optional, tag = "1")] axis: Option<i64>,
        #[prost(message, repeated, tag = "2")] simple_sharding: Vec<SimpleShardedDimProto>,
    }
    IntIntListEntryProto {
        #[prost(int64, optional, tag = "1")] key: Option<i64>,
        #[prost(int64, repeated, packed = "false", tag = "2")] value: Vec<i64>,
    }
}

/// The kinds of types, of which a message holds at most one.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum TypeValue {
    #[prost(message, tag = "1")]
    Tensor(TensorType),
    #[prost(message, tag = "4")]
    Sequence(Box<ElementType>),
    #[prost(message, tag = "5")]
    Map(Box<MapType>),
    #[prost(message, tag = "7")]
    Opaque(OpaqueType),
    #[prost(message, tag = "8")]
    Sparse(TensorType),
    #[prost(message, tag = "9")]
    Optional(Box<ElementType>),
}

impl Make for TypeValue {
    const MESSAGE: bool = true;
    fn make(source: &mut Source<'_>) -> Self {
        match source.byte() % 6 {
            0 => Self::Tensor(Make::make(source)),
            1 => Self::Sequence(Make::make(source)),
            2 => Self::Map(Make::make(source)),
            3 => Self::Opaque(Make::make(source)),
            4 => Self::Sparse(Make::make(source)),
            _ => Self::Optional(Make::make(source)),
        }
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct TypeProto {
    #[prost(oneof = "TypeValue", tags = "1, 4, 5, 7, 8, 9")]
    pub value: Option<TypeValue>,
    #[prost(string, optional, tag = "6")]
    pub denotation: Option<String>,
}

impl Make for TypeProto {
    const MESSAGE: bool = true;
    fn make(source: &mut Source<'_>) -> Self {
        source.depth += 1;
        let made = Self { value: Make::make(source), denotation: Make::make(source) };
        source.depth -= 1;
        made
    }
}

impl Build<schema::TypeProto> for TypeProto {
    fn build(&self) -> schema::TypeProto {
        let mut ours = schema::TypeProto { denotation: self.denotation.build(), ..Default::default() };
        match &self.value {
            Some(TypeValue::Tensor(ty)) => ours.tensor_type = Some(Box::new(ty.build())),
            Some(TypeValue::Sequence(ty)) => ours.sequence_type = Some(ty.build()),
            Some(TypeValue::Map(ty)) => ours.map_type = Some(ty.build()),
            Some(TypeValue::Opaque(ty)) => ours.opaque_type = Some(Box::new(ty.build())),
            Some(TypeValue::Sparse(ty)) => ours.sparse_tensor_type = Some(Box::new(ty.build())),
            Some(TypeValue::Optional(ty)) => ours.optional_type = Some(ty.build()),
            None => {}
        }
        ours
    }
}

/// A number or a name.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum DimValue {
    #[prost(int64, tag = "1")]
    Value(i64),
    #[prost(string, tag = "2")]
    Param(String),
}

impl Make for DimValue {
    fn make(source: &mut Source<'_>) -> Self {
        if source.byte().is_multiple_of(2) {
            Self::Value(Make::make(source))
        } else {
            Self::Param(Make::make(source))
        }
    }
}

macro_rules! dimensions {
    ($( $name:ident { #[$($attr:tt)*] $field:ident: $type:ty } )*) => {$(
        #[derive(Clone, PartialEq, prost::Message)]
        pub struct $name {
            #[prost(oneof = "DimValue", tags = "1, 2")]
            pub value: Option<DimValue>,
            #[$($attr)*]
            pub $field: Option<$type>,
        }

        impl Make for $name {
            const MESSAGE: bool = true;
            fn make(source: &mut Source<'_>) -> Self {
                Self { value: Make::make(source), $field: Make::make(source) }
            }
        }

        impl Build<schema::$name> for $name {
            fn build(&self) -> schema::$name {
                let mut ours = schema::$name { $field: self.$field.build(), ..Default::default() };
                match &self.value {
                    Some(DimValue::Value(value)) => ours.dim_value = Some(*value),
                    Some(DimValue::Param(name)) => ours.dim_param = Some(name.build()),
                    None => {}
                }
                ours
            }
        }
    )*};
}

dimensions! {
    Dimension { #[prost(string, optional, tag = "3")] denotation: String }
    SimpleShardedDimProto { #[prost(int64, optional, tag = "3")] num_shards: i64 }
}
