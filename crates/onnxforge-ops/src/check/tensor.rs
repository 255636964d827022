//! Stored tensors, dense and sparse.

use super::Checker;
use super::problem::{Here, Rule};
use onnxforge_ir::dtype::DType;
use onnxforge_ir::io::tensor::{StoredTensorError, from_proto};
use onnxforge_ir::tensor::{Data, Tensor};
use onnxforge_proto::schema::{SparseTensorProto, TensorProto};

impl<'m> Checker<'m> {
    /// A stored tensor. Gives it back when type, dimensions and elements agree.
    pub(super) fn tensor(&mut self, proto: &TensorProto, here: &Here<'_>) -> Option<Tensor> {
        self.metadata(&proto.metadata_props, here);
        let tensor = match from_proto(proto.clone(), self.files) {
            Ok(tensor) => tensor,
            Err(StoredTensorError::DataType(0)) => {
                self.error(Rule::Tensor, here, "the tensor has no data type");
                return None;
            }
            Err(error) => {
                self.error(Rule::Tensor, here, error.to_string());
                return None;
            }
        };
        self.needs_type(tensor.dtype(), here);
        match tensor.data() {
            Data::Unavailable(why) => self.error(Rule::ExternalData, here, why.to_string()),
            Data::Strings(strings) => {
                if let Some(index) = strings.iter().position(|text| std::str::from_utf8(text).is_err()) {
                    self.warning(Rule::Utf8, here, format!("element {index} is not valid UTF-8"));
                }
            }
            Data::Bytes(bytes) if tensor.dtype().bits() == 6 => {
                let used = tensor.len().wrapping_mul(6) % 8;
                if used > 0 && bytes.last().is_some_and(|last| last >> used != 0) {
                    let message = "the bits after the last element are not zero; the format asks for zeros";
                    self.error(Rule::Tensor, here, message);
                }
            }
            _ => {}
        }
        Some(tensor)
    }

    /// A tensor of which only some elements are stored.
    pub(super) fn sparse_tensor(&mut self, proto: &SparseTensorProto, here: &Here<'_>) {
        self.needs_ir(6, "sparse tensors", here);
        let Some(values) = &proto.values else {
            return self.error(Rule::SparseTensor, here, "the values are missing");
        };
        let values = self.tensor(values, here);
        let indices = proto.indices.as_ref().and_then(|indices| self.tensor(indices, here));
        if let Some(why) = sparse_dims(&proto.dims) {
            self.error(Rule::SparseTensor, here, why);
        } else if let Some(why) = values.and_then(|values| sparse(proto, &values, indices.as_ref())) {
            self.error(Rule::SparseTensor, here, why);
        }
    }
}

fn sparse_dims(dims: &[i64]) -> Option<String> {
    if dims.is_empty() {
        return Some("a sparse tensor has at least one dimension".to_owned());
    }
    if let Some((axis, size)) = dims.iter().enumerate().find(|&(_, &size)| size <= 0) {
        return Some(format!("dimension {axis} is {size}; the dimensions of a sparse tensor are positive"));
    }
    let elements = dims.iter().try_fold(1i64, |product, &size| product.checked_mul(size));
    elements
        .is_none()
        .then(|| format!("the dimensions {dims:?} multiply to more elements than can be counted"))
}

/// What is wrong between the parts of a sparse tensor whose dimensions are sound.
fn sparse(proto: &SparseTensorProto, values: &Tensor, indices: Option<&Tensor>) -> Option<String> {
    let &[count] = values.shape() else {
        return Some(format!("the values have shape {:?}; they are a list", values.shape()));
    };
    let Some(indices) = indices else {
        // Indices that are there but broken have been reported already.
        let missing = proto.indices.is_none() && count != 0;
        return missing.then(|| format!("there are {count} values and no indices"));
    };
    if indices.dtype() != DType::I64 {
        return Some(format!("the indices are {}; they are int64", indices.dtype()));
    }
    let rank = proto.dims.len();
    let linear = match *indices.shape() {
        [found] if found == count => true,
        [found, width] if found == count && width == rank => false,
        ref other => {
            return Some(format!(
                "the indices have shape {other:?}; for {count} values it is [{count}] or [{count}, {rank}]"
            ));
        }
    };
    let Data::Bytes(bytes) = indices.data() else {
        return None;
    };
    let numbers = bytes.as_chunks::<8>().0;
    let product = [proto.dims.iter().product::<i64>()];
    let limits = if linear { &product[..] } else { &proto.dims[..] };
    let mut before: Option<&[[u8; 8]]> = None;
    for (position, index) in numbers.chunks(limits.len().max(1)).enumerate() {
        let components = || index.iter().map(|bytes| i64::from_le_bytes(*bytes));
        if let Some((value, limit)) =
            components().zip(limits).find(|(value, limit)| !(0..**limit).contains(value))
        {
            return Some(format!("index {position} is {value}, outside 0 to {}", limit - 1));
        }
        if before.is_some_and(|before| before.iter().map(|bytes| i64::from_le_bytes(*bytes)).ge(components()))
        {
            return Some(format!(
                "index {position} does not come after the one before it; sort them, each once"
            ));
        }
        before = Some(index);
    }
    None
}
