//! Every message of `onnx.proto`, IR versions 3 to 14, as one table: field number, name, type.
//!
//! `Option` is an optional field and keeps whether it was present; `Vec` is a repeated one. Enumerations are kept as the
//! number that was read, so that a value of a later version survives.

use super::Str;
use super::messages;
use super::wire::{Packed, PackedFixed};
use crate::blob::{Blob, Payload};

messages! {
    /// The file.
    ModelProto {
        1 ir_version: Option<i64>;
        2 producer_name: Option<Str>;
        3 producer_version: Option<Str>;
        4 domain: Option<Str>;
        5 model_version: Option<i64>;
        6 doc_string: Option<Str>;
        7 graph: Option<Box<GraphProto>>;
        8 opset_import: Vec<OperatorSetIdProto>;
        14 metadata_props: Vec<StringStringEntryProto>;
        20 training_info: Vec<TrainingInfoProto>;
        25 functions: Vec<FunctionProto>;
        26 configuration: Vec<DeviceConfigurationProto>;
    }

    /// A graph: the main one, or the body of a node.
    GraphProto {
        1 node: Vec<NodeProto>;
        2 name: Option<Str>;
        5 initializer: Vec<TensorProto>;
        10 doc_string: Option<Str>;
        11 input: Vec<ValueInfoProto>;
        12 output: Vec<ValueInfoProto>;
        13 value_info: Vec<ValueInfoProto>;
        14 quantization_annotation: Vec<TensorAnnotation>;
        15 sparse_initializer: Vec<SparseTensorProto>;
        16 metadata_props: Vec<StringStringEntryProto>;
    }

    /// A call of an operator or of a local function.
    NodeProto {
        1 input: Vec<Str>;
        2 output: Vec<Str>;
        3 name: Option<Str>;
        4 op_type: Option<Str>;
        5 attribute: Vec<AttributeProto>;
        6 doc_string: Option<Str>;
        7 domain: Option<Str>;
        8 overload: Option<Str>;
        9 metadata_props: Vec<StringStringEntryProto>;
        10 device_configurations: Vec<NodeDeviceConfigurationProto>;
    }

    /// A named argument of a node.
    AttributeProto {
        1 name: Option<Str>;
        2 f: Option<f32>;
        3 i: Option<i64>;
        4 s: Option<Blob>;
        5 t: Option<Box<TensorProto>>;
        6 g: Option<Box<GraphProto>>;
        7 floats: Vec<f32>;
        8 ints: Vec<i64>;
        9 strings: Vec<Blob>;
        10 tensors: Vec<TensorProto>;
        11 graphs: Vec<GraphProto>;
        13 doc_string: Option<Str>;
        14 tp: Option<Box<TypeProto>>;
        15 type_protos: Vec<TypeProto>;
        20 r#type: Option<i32>;
        21 ref_attr_name: Option<Str>;
        22 sparse_tensor: Option<Box<SparseTensorProto>>;
        23 sparse_tensors: Vec<SparseTensorProto>;
    }

    /// The name and type of a value.
    ValueInfoProto {
        1 name: Option<Str>;
        2 r#type: Option<Box<TypeProto>>;
        3 doc_string: Option<Str>;
        4 metadata_props: Vec<StringStringEntryProto>;
    }

    /// A local function.
    FunctionProto {
        1 name: Option<Str>;
        4 input: Vec<Str>;
        5 output: Vec<Str>;
        6 attribute: Vec<Str>;
        7 node: Vec<NodeProto>;
        8 doc_string: Option<Str>;
        9 opset_import: Vec<OperatorSetIdProto>;
        10 domain: Option<Str>;
        11 attribute_proto: Vec<AttributeProto>;
        12 value_info: Vec<ValueInfoProto>;
        13 overload: Option<Str>;
        14 metadata_props: Vec<StringStringEntryProto>;
    }

    /// A constant.
    TensorProto {
        1 dims: Vec<i64>;
        2 data_type: Option<i32>;
        3 segment: Option<Box<Segment>>;
        4 float_data: PackedFixed<4>;
        5 int32_data: Packed<i32>;
        6 string_data: Vec<Blob>;
        7 int64_data: Packed<i64>;
        8 name: Option<Str>;
        9 raw_data: Option<Payload>;
        10 double_data: PackedFixed<8>;
        11 uint64_data: Packed<u64>;
        12 doc_string: Option<Str>;
        13 external_data: Vec<StringStringEntryProto>;
        14 data_location: Option<i32>;
        16 metadata_props: Vec<StringStringEntryProto>;
    }

    /// The part of a chunked tensor.
    Segment {
        1 begin: Option<i64>;
        2 end: Option<i64>;
    }

    /// A constant that is zero but for the listed elements.
    SparseTensorProto {
        1 values: Option<Box<TensorProto>>;
        2 indices: Option<Box<TensorProto>>;
        3 dims: Vec<i64>;
    }

    /// A sequence of values, in a file of its own (`onnx-data.proto`).
    SequenceProto {
        1 name: Option<Str>;
        2 elem_type: Option<i32>;
        3 tensor_values: Vec<TensorProto>;
        4 sparse_tensor_values: Vec<SparseTensorProto>;
        5 sequence_values: Vec<SequenceProto>;
        6 map_values: Vec<MapProto>;
        7 optional_values: Vec<OptionalProto>;
    }

    /// Keys to values, in a file of its own.
    MapProto {
        1 name: Option<Str>;
        2 key_type: Option<i32>;
        3 keys: Vec<i64>;
        4 string_keys: Vec<Blob>;
        5 values: Option<Box<SequenceProto>>;
    }

    /// A value or nothing, in a file of its own.
    OptionalProto {
        1 name: Option<Str>;
        2 elem_type: Option<i32>;
        3 tensor_value: Option<Box<TensorProto>>;
        4 sparse_tensor_value: Option<Box<SparseTensorProto>>;
        5 sequence_value: Option<Box<SequenceProto>>;
        6 map_value: Option<Box<MapProto>>;
        7 optional_value: Option<Box<OptionalProto>>;
    }

    /// The type of a value.
    TypeProto {
        1 tensor_type: Option<Box<TensorType>>, not sequence_type, not map_type, not opaque_type, not sparse_tensor_type, not optional_type;
        4 sequence_type: Option<Box<ElementType>>, not tensor_type, not map_type, not opaque_type, not sparse_tensor_type, not optional_type;
        5 map_type: Option<Box<MapType>>, not tensor_type, not sequence_type, not opaque_type, not sparse_tensor_type, not optional_type;
        6 denotation: Option<Str>;
        7 opaque_type: Option<Box<OpaqueType>>, not tensor_type, not sequence_type, not map_type, not sparse_tensor_type, not optional_type;
        8 sparse_tensor_type: Option<Box<TensorType>>, not tensor_type, not sequence_type, not map_type, not opaque_type, not optional_type;
        9 optional_type: Option<Box<ElementType>>, not tensor_type, not sequence_type, not map_type, not opaque_type, not sparse_tensor_type;
    }

    /// `TypeProto.Tensor` and `TypeProto.SparseTensor`.
    TensorType {
        1 elem_type: Option<i32>;
        2 shape: Option<Box<TensorShapeProto>>;
    }

    /// `TypeProto.Sequence` and `TypeProto.Optional`.
    ElementType {
        1 elem_type: Option<Box<TypeProto>>;
    }

    /// `TypeProto.Map`.
    MapType {
        1 key_type: Option<i32>;
        2 value_type: Option<Box<TypeProto>>;
    }

    /// `TypeProto.Opaque`.
    OpaqueType {
        1 domain: Option<Str>;
        2 name: Option<Str>;
    }

    /// The dimensions of a tensor.
    TensorShapeProto {
        1 dim: Vec<Dimension>;
    }

    /// `TensorShapeProto.Dimension`: a number, a name, or unknown.
    Dimension {
        1 dim_value: Option<i64>, not dim_param;
        2 dim_param: Option<Str>, not dim_value;
        3 denotation: Option<Str>;
    }

    /// A domain and the version of it that is in use.
    OperatorSetIdProto {
        1 domain: Option<Str>;
        2 version: Option<i64>;
    }

    /// One metadata entry.
    StringStringEntryProto {
        1 key: Option<Str>;
        2 value: Option<Str>;
    }

    /// Quantization parameters of a value.
    TensorAnnotation {
        1 tensor_name: Option<Str>;
        2 quant_parameter_tensor_names: Vec<StringStringEntryProto>;
    }

    /// How to train the model.
    TrainingInfoProto {
        1 initialization: Option<Box<GraphProto>>;
        2 algorithm: Option<Box<GraphProto>>;
        3 initialization_binding: Vec<StringStringEntryProto>;
        4 update_binding: Vec<StringStringEntryProto>;
    }

    /// A set of devices.
    DeviceConfigurationProto {
        1 name: Option<Str>;
        2 num_devices: Option<i32>;
        3 device: Vec<Str>;
    }

    /// How a node runs on a set of devices.
    NodeDeviceConfigurationProto {
        1 configuration_id: Option<Str>;
        2 sharding_spec: Vec<ShardingSpecProto>;
        3 pipeline_stage: Option<i32>;
    }

    /// How a tensor is split over devices.
    ShardingSpecProto {
        1 tensor_name: Option<Str>;
        2 device: Vec<i64>;
        3 index_to_device_group_map: Vec<IntIntListEntryProto>;
        4 sharded_dim: Vec<ShardedDimProto>;
    }

    /// How one axis is split.
    ShardedDimProto {
        1 axis: Option<i64>;
        2 simple_sharding: Vec<SimpleShardedDimProto>;
    }

    /// One piece of an axis.
    SimpleShardedDimProto {
        1 dim_value: Option<i64>, not dim_param;
        2 dim_param: Option<Str>, not dim_value;
        3 num_shards: Option<i64>;
    }

    /// A number and the numbers that it maps to.
    IntIntListEntryProto {
        1 key: Option<i64>;
        2 value: Vec<i64>;
    }
}
