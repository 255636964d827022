//! Messages of any content, made from bytes. Where the bytes end everything is absent, so shrinking them
//! shrinks the message.

use onnxforge_proto::Str;
use onnxforge_proto::blob::{Blob, Payload};
use onnxforge_proto::schema::*;
use onnxforge_proto::wire::{Packed, PackedFixed, Unknown};

/// The bytes that are left.
pub struct Source<'a> {
    bytes: std::slice::Iter<'a, u8>,
    depth: u32,
}

impl Source<'_> {
    fn byte(&mut self) -> u8 {
        self.bytes.next().copied().unwrap_or(0)
    }

    fn word(&mut self) -> u64 {
        (0..8).fold(0, |word, _| word << 8 | u64::from(self.byte()))
    }
}

/// Can be made.
pub trait Make: Sized {
    fn make(source: &mut Source<'_>) -> Self;
}

impl Make for Str {
    fn make(source: &mut Source<'_>) -> Self {
        const TEXTS: [&str; 24] = [
            "",
            "x",
            "y",
            "a_1",
            "a b",
            "float",
            "nan",
            "inf",
            "seq",
            "unset",
            "a.b",
            "1",
            "\"",
            "\\",
            "\n",
            "\t",
            "\r",
            "\u{1b}[31m",
            "é\u{85}",
            "#@ a: 1",
            "x\"",
            "b",
            "...",
            "com.microsoft",
        ];
        TEXTS[usize::from(source.byte()) % TEXTS.len()].into()
    }
}

impl Make for Blob {
    fn make(source: &mut Source<'_>) -> Self {
        match source.byte() {
            128.. => Str::make(source).as_bytes().into(),
            length => (0..length % 17).map(|_| source.byte()).collect::<Vec<_>>().into(),
        }
    }
}

impl Make for Payload {
    fn make(source: &mut Source<'_>) -> Self {
        Blob::make(source).into()
    }
}

impl Make for i64 {
    fn make(source: &mut Source<'_>) -> Self {
        match source.byte() {
            0..128 => i64::from(source.byte() as i8),
            _ => source.word() as i64,
        }
    }
}

impl Make for i32 {
    fn make(source: &mut Source<'_>) -> Self {
        match source.byte() {
            0..224 => i32::from(source.byte() % 32) - 1,
            _ => source.word() as i32,
        }
    }
}

impl Make for u64 {
    fn make(source: &mut Source<'_>) -> Self {
        source.word()
    }
}

impl Make for f32 {
    fn make(source: &mut Source<'_>) -> Self {
        const BITS: [u32; 8] =
            [0, 0x8000_0000, 0x7fc0_0000, 0xffc0_0000, 0x7f80_0001, 0xff80_0000, 0x3dcc_cccd, 1];
        f32::from_bits(match source.byte() {
            index @ 0..8 => BITS[usize::from(index)],
            _ => source.word() as u32,
        })
    }
}

impl Make for Unknown {
    fn make(source: &mut Source<'_>) -> Self {
        // Field 1000, a number, and field 1001, a group with a number in it.
        Self(match source.byte() {
            250.. => vec![0xcb, 0x3e, 0x08, 0x01, 0xcc, 0x3e, 0xc0, 0x3e, source.byte() & 0x7f],
            240.. => vec![0xc0, 0x3e, source.byte() & 0x7f],
            _ => Vec::new(),
        })
    }
}

impl<T: Make> Make for Packed<T> {
    fn make(source: &mut Source<'_>) -> Self {
        Self(Vec::make(source))
    }
}

impl<const W: usize> Make for PackedFixed<W> {
    fn make(source: &mut Source<'_>) -> Self {
        match source.byte() % 8 {
            count @ 5.. => Self::Shared(
                (0..usize::from(count - 4) * W).map(|_| source.byte()).collect::<Vec<_>>().into(),
            ),
            _ => Self::Empty,
        }
    }
}

impl<T: Make> Make for Vec<T> {
    fn make(source: &mut Source<'_>) -> Self {
        let count =
            if source.depth > 14 { 0 } else { [0, 0, 0, 1, 1, 2, 3, 4][usize::from(source.byte() % 8)] };
        source.depth += 1;
        let made = (0..count).map(|_| T::make(source)).collect();
        source.depth -= 1;
        made
    }
}

impl<T: Make> Make for Option<T> {
    fn make(source: &mut Source<'_>) -> Self {
        (source.byte() % 8 > 3).then(|| T::make(source))
    }
}

impl<T: Make> Make for Box<T> {
    fn make(source: &mut Source<'_>) -> Self {
        source.depth += 1;
        let made = T::make(source);
        source.depth -= 1;
        Box::new(made)
    }
}

macro_rules! make {
    ($( $message:ident { $($field:ident),* } $(one of $first:ident $(, $others:ident)*)?; )*) => {$(
        impl Make for $message {
            fn make(source: &mut Source<'_>) -> Self {
                if source.depth > 14 {
                    return Self::default();
                }
                #[allow(unused_mut)]
                let mut made = Self { $($field: Make::make(source),)* unknown: Make::make(source) };
                $(
                    let mut is_taken = made.$first.is_some();
                    $(
                        made.$others.take_if(|_| is_taken);
                        is_taken |= made.$others.is_some();
                    )*
                    let _ = is_taken;
                )?
                made
            }
        }
    )*};
}

make! {
    ModelProto { ir_version, producer_name, producer_version, domain, model_version, doc_string, graph,
        opset_import, metadata_props, training_info, functions, configuration };
    GraphProto { node, name, initializer, doc_string, input, output, value_info,
        quantization_annotation, sparse_initializer, metadata_props };
    NodeProto { input, output, name, op_type, attribute, doc_string, domain, overload, metadata_props,
        device_configurations };
    AttributeProto { name, f, i, s, t, g, floats, ints, strings, tensors, graphs, doc_string, tp,
        type_protos, r#type, ref_attr_name, sparse_tensor, sparse_tensors };
    ValueInfoProto { name, r#type, doc_string, metadata_props };
    FunctionProto { name, input, output, attribute, node, doc_string, opset_import, domain,
        attribute_proto, value_info, overload, metadata_props };
    TensorProto { dims, data_type, segment, float_data, int32_data, string_data, int64_data, name,
        raw_data, double_data, uint64_data, doc_string, external_data, data_location, metadata_props };
    Segment { begin, end };
    SparseTensorProto { values, indices, dims };
    TypeProto { denotation, tensor_type, sequence_type, map_type, opaque_type, sparse_tensor_type,
        optional_type } one of tensor_type, sequence_type, map_type, opaque_type, sparse_tensor_type,
        optional_type;
    TensorType { elem_type, shape };
    ElementType { elem_type };
    MapType { key_type, value_type };
    OpaqueType { domain, name };
    TensorShapeProto { dim };
    Dimension { dim_value, dim_param, denotation } one of dim_value, dim_param;
    OperatorSetIdProto { domain, version };
    StringStringEntryProto { key, value };
    TensorAnnotation { tensor_name, quant_parameter_tensor_names };
    TrainingInfoProto { initialization, algorithm, initialization_binding, update_binding };
    DeviceConfigurationProto { name, num_devices, device };
    NodeDeviceConfigurationProto { configuration_id, sharding_spec, pipeline_stage };
    ShardingSpecProto { tensor_name, device, index_to_device_group_map, sharded_dim };
    ShardedDimProto { axis, simple_sharding };
    SimpleShardedDimProto { dim_value, dim_param, num_shards } one of dim_value, dim_param;
    IntIntListEntryProto { key, value };
}

/// The message that `bytes` make.
pub fn make<T: Make>(bytes: &[u8]) -> T {
    T::make(&mut Source { bytes: bytes.iter(), depth: 0 })
}
