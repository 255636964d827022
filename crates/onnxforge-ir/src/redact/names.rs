//! Names that say nothing: hashes of the real ones, the same hash for the same name.

use std::collections::HashSet;

use sha2::{Digest, Sha256};

use onnxforge_proto::Str;
use onnxforge_proto::schema::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto,
};
use onnxforge_proto::walk::{Visitor, walk};

/// The first 64 bits of a SHA-256 over salt and text.
fn digest(salt: &str, text: &str) -> u64 {
    let hash = Sha256::new().chain_update(salt).chain_update([0]).chain_update(text).finalize();
    hash.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// Replaces every name in `model` and drops documentation and metadata. Operators keep theirs.
pub(super) fn hash(model: &mut ModelProto, salt: &str) {
    let function =
        |f: &FunctionProto| (f.domain.clone().unwrap_or_default(), f.name.clone().unwrap_or_default());
    let functions: HashSet<(Str, Str)> = model.functions.iter().map(function).collect();
    let mut hasher = Hasher { salt, functions };
    walk(model, &mut hasher);
    for info in &mut model.training_info {
        for entry in info.initialization_binding.iter_mut().chain(&mut info.update_binding) {
            hasher.name(&mut entry.key);
            hasher.name(&mut entry.value);
        }
    }
    for configuration in &mut model.configuration {
        hasher.name(&mut configuration.name);
        configuration.device.iter_mut().for_each(|device| hasher.rename(device));
    }
    model.doc_string = None;
    model.domain = None;
    model.producer_name = None;
    model.producer_version = None;
    let recipes = |key: &Option<Str>| key.as_deref() == Some(super::RECIPE_KEY);
    model.metadata_props.retain(|entry| recipes(&entry.key));
}

struct Hasher<'a> {
    salt: &'a str,
    functions: HashSet<(Str, Str)>,
}

impl Hasher<'_> {
    fn rename(&self, name: &mut Str) {
        if !name.is_empty() {
            *name = format!("h{:016x}", digest(self.salt, name)).into();
        }
    }

    fn name(&self, name: &mut Option<Str>) {
        if let Some(name) = name {
            self.rename(name);
        }
    }
}

impl Visitor for Hasher<'_> {
    fn graph(&mut self, graph: &mut GraphProto) {
        self.name(&mut graph.name);
        graph.doc_string = None;
        graph.metadata_props.clear();
        for annotation in &mut graph.quantization_annotation {
            self.name(&mut annotation.tensor_name);
            annotation.quant_parameter_tensor_names.iter_mut().for_each(|entry| self.name(&mut entry.value));
        }
    }

    fn function(&mut self, function: &mut FunctionProto) {
        self.name(&mut function.name);
        function.doc_string = None;
        function.metadata_props.clear();
        function.input.iter_mut().chain(&mut function.output).for_each(|name| self.rename(name));
        function.attribute.iter_mut().for_each(|name| self.rename(name));
        function.attribute_proto.iter_mut().for_each(|attribute| self.name(&mut attribute.name));
    }

    fn node(&mut self, node: &mut NodeProto) {
        self.name(&mut node.name);
        node.doc_string = None;
        node.metadata_props.clear();
        node.input.iter_mut().chain(&mut node.output).for_each(|name| self.rename(name));
        let call = (node.domain.clone().unwrap_or_default(), node.op_type.clone().unwrap_or_default());
        if self.functions.contains(&call) {
            self.name(&mut node.op_type);
            node.attribute.iter_mut().for_each(|attribute| self.name(&mut attribute.name));
        }
        for device in &mut node.device_configurations {
            self.name(&mut device.configuration_id);
            device.sharding_spec.iter_mut().for_each(|spec| self.name(&mut spec.tensor_name));
        }
    }

    fn attribute(&mut self, attribute: &mut AttributeProto) {
        attribute.doc_string = None;
        self.name(&mut attribute.ref_attr_name);
    }

    fn value(&mut self, info: &mut ValueInfoProto) {
        self.name(&mut info.name);
        info.doc_string = None;
        info.metadata_props.clear();
    }

    fn tensor(&mut self, tensor: &mut TensorProto) {
        self.name(&mut tensor.name);
        tensor.doc_string = None;
        tensor.metadata_props.retain(|entry| entry.key.as_deref() == Some(super::RECIPE_KEY));
    }

    fn r#type(&mut self, ty: &mut TypeProto) {
        for tensor in [&mut ty.tensor_type, &mut ty.sparse_tensor_type].into_iter().flatten() {
            for dim in tensor.shape.iter_mut().flat_map(|shape| &mut shape.dim) {
                self.name(&mut dim.dim_param);
            }
        }
    }
}
