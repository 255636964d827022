//! The operations of a program, and which function reads which.

use onnxforge_ir::DType;
use onnxforge_proto::Str;

use super::emit::Emit;
use super::values::Known;
use super::{Reader, Trouble, elements, layers, places};
use crate::coreml::schema::{Binding, Operation};
use crate::message::Attr;

/// The parameters and the results of an operation.
pub struct Call {
    pub kind: String,
    inputs: Vec<(Str, Vec<Known>)>,
    outputs: Vec<Known>,
}

impl Call {
    /// The call that an operation is.
    pub fn of(
        reader: &mut Reader<'_>,
        kind: &str,
        operation: &Operation,
        outputs: Vec<Known>,
    ) -> Result<Self, Trouble> {
        if !operation.blocks.is_empty() {
            return Err(format!("{kind}, which has a body"));
        }
        let mut inputs = Vec::new();
        for entry in &operation.inputs {
            let bindings = entry.value.as_ref().map(|argument| &argument.bindings[..]).unwrap_or_default();
            let values = bindings.iter().map(|binding| bound(reader, binding)).collect::<Result<_, _>>()?;
            inputs.push((entry.key.clone().unwrap_or_default(), values));
        }
        // Constants that are computed once have their operands as attributes.
        if kind.starts_with("constexpr_") {
            for entry in operation.attributes.iter().filter(|entry| entry.key.as_deref() != Some("name")) {
                let value = entry.value.as_deref().ok_or("an attribute without a value")?;
                let name = reader.emit.fresh("stored");
                let value = reader.value(value, name)?;
                inputs.push((entry.key.clone().unwrap_or_default(), vec![value]));
            }
        }
        Ok(Self { kind: kind.to_owned(), inputs, outputs })
    }

    /// What a parameter gets, if it gets something.
    pub fn optional(&self, name: &str) -> Option<&Known> {
        self.inputs.iter().find(|input| &*input.0 == name).and_then(|input| input.1.first())
    }

    /// What a parameter gets.
    pub fn input(&self, name: &str) -> Result<&Known, Trouble> {
        self.optional(name).ok_or_else(|| format!("{} without {name}", self.kind))
    }

    /// Several values that a parameter gets.
    pub fn list(&self, name: &str) -> &[Known] {
        self.inputs.iter().find(|input| &*input.0 == name).map(|input| &input.1[..]).unwrap_or_default()
    }

    /// The integers that a parameter gets.
    pub fn ints(&self, name: &str) -> Result<Option<Vec<i64>>, Trouble> {
        let value = self.optional(name);
        value
            .map(|value| value.ints().ok_or_else(|| format!("{} with {name} that is computed", self.kind)))
            .transpose()
    }

    /// The integers that a parameter must get.
    pub fn demanded(&self, name: &str) -> Result<Vec<i64>, Trouble> {
        self.ints(name)?.ok_or_else(|| format!("{} without {name}", self.kind))
    }

    /// An integer.
    pub fn int(&self, name: &str, default: i64) -> Result<i64, Trouble> {
        Ok(self.ints(name)?.and_then(|all| all.first().copied()).unwrap_or(default))
    }

    /// A truth value.
    pub fn flag(&self, name: &str) -> Result<bool, Trouble> {
        Ok(self.int(name, 0)? != 0)
    }

    /// A number.
    pub fn number(&self, name: &str, default: f64) -> Result<f64, Trouble> {
        match self.optional(name) {
            None => Ok(default),
            Some(value) => {
                let first = value.numbers().and_then(|all| all.first().copied());
                first.ok_or_else(|| format!("{} with {name} that is computed", self.kind))
            }
        }
    }

    /// A text.
    pub fn text(&self, name: &str, default: &'static str) -> Result<String, Trouble> {
        match self.optional(name) {
            None => Ok(default.to_owned()),
            Some(value) => {
                let text = value.text.as_ref().map(ToString::to_string);
                text.ok_or_else(|| format!("{} with {name} that is no text", self.kind))
            }
        }
    }

    /// A result.
    pub fn output(&self, index: usize) -> Result<&Known, Trouble> {
        self.outputs.get(index).ok_or_else(|| format!("{} without a result", self.kind))
    }

    /// All results.
    pub fn outputs(&self) -> &[Known] {
        &self.outputs
    }

    /// The name of the only result.
    pub fn result(&self) -> Result<Str, Trouble> {
        self.output(0).map(|output| output.name.clone())
    }

    /// Its element type.
    pub fn dtype(&self) -> Result<DType, Trouble> {
        self.output(0).map(Known::dtype)
    }
}

fn bound(reader: &mut Reader<'_>, binding: &Binding) -> Result<Known, Trouble> {
    if let Some(value) = &binding.value {
        let name = reader.emit.fresh("stored");
        return reader.value(value, name);
    }
    let name = binding.name.as_deref().unwrap_or_default();
    reader.values.get(name).cloned().ok_or_else(|| format!("a value {name} that is not there"))
}

/// A node with this result, which is computed in another element type where that of the program has no such operator.
pub fn back(
    emit: &mut Emit,
    call: &Call,
    op: &str,
    inputs: Vec<Str>,
    attrs: Vec<Attr<'_>>,
) -> Result<(), Trouble> {
    let y = emit.call(op, inputs, attrs);
    let to = call.dtype()?.code();
    emit.node("Cast", vec![y], vec![call.result()?], vec![Attr::Int("to", to.into())]);
    Ok(())
}

/// Reads an operation.
pub fn read(reader: &mut Reader<'_>, call: &Call) -> Result<(), Trouble> {
    let read: fn(&mut Emit, &Call) -> Result<(), Trouble> = match &*call.kind {
        "abs" | "acos" | "asin" | "atan" | "atanh" | "ceil" | "cos" | "cosh" | "erf" | "exp" | "floor"
        | "relu" | "round" | "sigmoid" | "sign" | "sin" | "sinh" | "softplus" | "softsign" | "sqrt"
        | "tan" | "tanh" | "logical_not" | "identity" | "add" | "sub" | "mul" | "real_div" | "maximum"
        | "minimum" | "pow" | "logical_and" | "logical_or" | "logical_xor" | "equal" | "less"
        | "less_equal" | "greater" | "greater_equal" => elements::plain,
        "elu" | "leaky_relu" | "sigmoid_hard" | "gelu" | "softmax" => elements::with_settings,
        "square" | "silu" | "not_equal" | "relu6" | "clip" | "log" | "rsqrt" | "inverse" | "floor_div"
        | "mod" => elements::composed,
        "select" => elements::select,
        "cast" => elements::cast,
        "cumsum" => elements::cumsum,
        "matmul" => layers::matmul,
        "linear" => layers::linear,
        "conv" => layers::conv,
        "conv_transpose" => layers::conv_transpose,
        "max_pool" | "avg_pool" => layers::pool,
        "batch_norm" | "instance_norm" => layers::channel_norm,
        "layer_norm" => layers::layer_norm,
        "local_response_norm" => layers::local_response,
        "reduce_mean" | "reduce_sum" | "reduce_max" | "reduce_min" | "reduce_prod" | "reduce_l1_norm"
        | "reduce_l2_norm" | "reduce_sum_square" | "reduce_log_sum" | "reduce_log_sum_exp" => layers::reduce,
        "reduce_argmax" | "reduce_argmin" => layers::arg_extreme,
        "topk" => layers::top_k,
        "resize_bilinear" | "upsample_bilinear" | "upsample_nearest_neighbor" => layers::resize,
        "quantize" | "dequantize" | "constexpr_affine_dequantize" => layers::quantized,
        "constexpr_blockwise_shift_scale" => layers::blocks,
        "reshape" => places::reshape,
        "squeeze" | "expand_dims" => places::axes,
        "transpose" => places::transpose,
        "concat" => places::concat,
        "split" => places::split,
        "slice_by_index" => places::slice_by_index,
        "slice_by_size" => places::slice_by_size,
        "pad" => places::pad,
        "tile" | "fill" => places::repeated,
        "shape" => places::shape,
        "range_1d" => places::range,
        "gather" | "gather_along_axis" | "gather_nd" => places::gather,
        "scatter_along_axis" | "scatter_nd" => places::scatter,
        "band_part" => places::triangle,
        "depth_to_space" | "space_to_depth" | "pixel_shuffle" => places::blocks,
        kind => return Err(kind.to_owned()),
    };
    read(&mut reader.emit, call)
}
