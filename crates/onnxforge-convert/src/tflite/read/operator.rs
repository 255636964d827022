//! The calls of a file, and which function reads which operator.

use onnxforge_proto::Str;

use super::emit::Emit;
use super::{Trouble, elements, layers, places};
use crate::message::Attr;
use crate::tflite::flatbuffer::view::{Damage, Table};
use crate::tflite::schema::Builtin;

/// A call.
pub struct Operator<'a> {
    pub builtin: Builtin,
    table: Table<'a>,
    options: Option<Table<'a>>,
    inputs: Vec<Option<usize>>,
    outputs: Vec<usize>,
}

impl<'a> Operator<'a> {
    /// The call in a table, whose tensors are among so many; inside, why it is not read.
    pub fn of(
        table: &Table<'a>,
        codes: &[Option<Builtin>],
        tensors: usize,
    ) -> Result<Result<Self, Trouble>, Damage> {
        let code = codes.get(table.index(0)?).ok_or_else(|| table.wrong("an operator that is not listed"))?;
        let index = |index: i32| usize::try_from(index).ok().filter(|&index| index < tensors);
        let mut inputs = Vec::new();
        for given in table.ints(1)?.unwrap_or_default() {
            let input = index(given);
            if input.is_none() && given != -1 {
                return Err(table.wrong("an input that is no tensor"));
            }
            inputs.push(input);
        }
        let outputs = table.ints(2)?.unwrap_or_default().into_iter().map(index).collect::<Option<Vec<_>>>();
        let outputs = outputs.ok_or_else(|| table.wrong("an output that is no tensor"))?;
        let Some(builtin) = *code else { return Ok(Err("an operator that is not known here".into())) };
        let options = table.table(4)?;
        let kind = table.byte(3)?;
        if options.is_some() && kind != builtin.options {
            return Err(table.wrong("options of another operator"));
        }
        Ok(Ok(Self { builtin, table: *table, options, inputs, outputs }))
    }

    /// An input that has to be there.
    pub fn input(&self, index: usize) -> Result<usize, Trouble> {
        let input = self.inputs.get(index).copied().flatten();
        input.ok_or_else(|| self.table.wrong("an operator lacks an input").into())
    }

    /// An input that may be left out.
    pub fn optional(&self, index: usize) -> Option<usize> {
        self.inputs.get(index).copied().flatten()
    }

    /// All inputs, which must be there.
    pub fn inputs(&self) -> Result<Vec<usize>, Trouble> {
        (0..self.inputs.len()).map(|index| self.input(index)).collect()
    }

    /// An output that has to be there.
    pub fn output(&self, index: usize) -> Result<usize, Trouble> {
        let output = self.outputs.get(index).copied();
        output.ok_or_else(|| self.table.wrong("an operator lacks an output").into())
    }

    /// All outputs.
    pub fn outputs(&self) -> &[usize] {
        &self.outputs
    }

    /// An integer among the options.
    pub fn int(&self, number: u16, default: i32) -> Result<i32, Trouble> {
        Ok(self.options.map_or(Ok(default), |options| options.int(number, default))?)
    }

    /// A byte among the options.
    pub fn byte(&self, number: u16) -> Result<u8, Trouble> {
        Ok(self.options.map_or(Ok(0), |options| options.byte(number))?)
    }

    /// A truth value among the options.
    pub fn flag(&self, number: u16) -> Result<bool, Trouble> {
        Ok(self.byte(number)? != 0)
    }

    /// A number among the options.
    pub fn float(&self, number: u16) -> Result<f32, Trouble> {
        Ok(self.options.map_or(Ok(0.0), |options| options.float(number))?)
    }

    /// A list among the options.
    pub fn ints(&self, number: u16) -> Result<Option<Vec<i64>>, Trouble> {
        let list = self.options.map_or(Ok(None), |options| options.ints(number))?;
        Ok(list.map(|list| list.into_iter().map(i64::from).collect()))
    }
}

impl Emit {
    /// The name of the first result of an operator.
    pub fn result(&mut self, operator: &Operator<'_>) -> Result<Str, Trouble> {
        Ok(self.output(operator.output(0)?))
    }

    /// A node of a domain whose result is that of an operator once an activation is applied.
    pub fn activated(
        &mut self,
        operator: &Operator<'_>,
        (domain, op): (&str, &str),
        inputs: Vec<Str>,
        attrs: Vec<Attr<'_>>,
        activation: u8,
    ) -> Result<(), Trouble> {
        let y = self.result(operator)?;
        if activation == 0 {
            self.node(domain, op, inputs, vec![y], attrs);
            return Ok(());
        }
        let before = self.tensors.fresh(op);
        self.node(domain, op, inputs, vec![before.clone()], attrs);
        match activation {
            1 => self.node("", "Relu", vec![before], vec![y], vec![]),
            2 => self.clip(before, (-1.0, 1.0), y),
            3 => self.clip(before, (0.0, 6.0), y),
            4 => self.node("", "Tanh", vec![before], vec![y], vec![]),
            _ => return Err("an activation that is not known here".into()),
        }
        Ok(())
    }

    /// Numbers between two.
    pub fn clip(&mut self, x: Str, (low, high): (f32, f32), y: Str) {
        let (low, high) = (self.float(low), self.float(high));
        self.node("", "Clip", vec![x, low, high], vec![y], vec![]);
    }
}

/// Reads an operator.
pub fn read(emit: &mut Emit, operator: &Operator<'_>) -> Result<(), Trouble> {
    let read = match operator.builtin.name {
        "ABS" | "CEIL" | "COS" | "EXP" | "FLOOR" | "LOG" | "NEG" | "RELU" | "ROUND" | "LOGISTIC" | "SIGN"
        | "SIN" | "SQRT" | "TANH" | "HARD_SWISH" | "LOGICAL_NOT" | "ELU" | "PRELU" | "MAXIMUM"
        | "MINIMUM" | "POW" | "LOGICAL_AND" | "LOGICAL_OR" | "EQUAL" | "LESS" | "LESS_EQUAL" | "GREATER"
        | "GREATER_EQUAL" | "SELECT_V2" | "RANGE" => elements::plain,
        "ADD" | "SUB" | "MUL" | "DIV" => elements::arithmetic,
        "RELU6" | "RELU_N1_TO_1" | "RELU_0_TO_1" => elements::clip,
        "RSQRT" | "SQUARE" | "SQUARED_DIFFERENCE" | "NOT_EQUAL" => elements::composed,
        "FLOOR_MOD" => elements::modulo,
        "LEAKY_RELU" | "GELU" | "SOFTMAX" | "LOG_SOFTMAX" => elements::with_settings,
        "CAST" | "DEQUANTIZE" => elements::cast,
        "QUANTIZE" => elements::quantize,
        "CUMSUM" => elements::cumsum,
        "CONV_2D" => layers::conv,
        "DEPTHWISE_CONV_2D" => layers::depthwise_conv,
        "TRANSPOSE_CONV" => layers::transpose_conv,
        "MAX_POOL_2D" | "AVERAGE_POOL_2D" => layers::pool,
        "FULLY_CONNECTED" => layers::fully_connected,
        "BATCH_MATMUL" => layers::batch_matmul,
        "RESIZE_BILINEAR" | "RESIZE_NEAREST_NEIGHBOR" => layers::resize,
        "MEAN" | "SUM" | "REDUCE_MAX" | "REDUCE_MIN" | "REDUCE_PROD" => layers::reduce,
        "ARG_MAX" | "ARG_MIN" => layers::arg_extreme,
        "TOPK_V2" => layers::top_k,
        "RESHAPE" => places::reshape,
        "SQUEEZE" => places::squeeze,
        "EXPAND_DIMS" => places::expand_dims,
        "TRANSPOSE" => places::transpose,
        "CONCATENATION" => places::concatenation,
        "PACK" => places::pack,
        "SPLIT" | "SPLIT_V" => places::split,
        "PAD" | "PADV2" | "MIRROR_PAD" => places::pad,
        "SLICE" => places::slice,
        "STRIDED_SLICE" => places::strided_slice,
        "TILE" | "BROADCAST_TO" | "FILL" => places::repeated,
        "GATHER" | "GATHER_ND" => places::gather,
        "SHAPE" => places::shape,
        name => return Err(name.into()),
    };
    read(emit, operator)?;
    emit.quantize();
    Ok(())
}
