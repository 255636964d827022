//! What the elements of an input are for, as the nodes tell that read them.

use crate::Array;
use crate::fact::Known;
use crate::infer::Inference;
use onnxforge_ir::dim::Dim;
use onnxforge_ir::dtype::Kind;
use onnxforge_ir::value::Use;
use onnxforge_ir::{AttrValue, DType, Model, Node, ValueId};
use onnxforge_proto::blob::Blob;

/// Most words and numbers that are listed.
const MOST: usize = 256;

/// What elements of an input are for.
#[derive(Clone, Debug, Default)]
pub struct Purpose {
    /// They select from so many.
    pub range: Option<i64>,
    /// They are lengths of up to this.
    pub length: Option<i64>,
    /// They say what counts: 0 or 1.
    pub is_mask: bool,
    /// They are sizes, axes or counts, of which few are possible.
    pub is_shape: bool,
    /// Words that the model knows.
    pub words: Vec<Blob>,
    /// Numbers at which the model does something else, in any column or in one of the last axis.
    pub levels: Vec<(Option<usize>, f64)>,
}

impl Purpose {
    /// Of an input of the model's graph.
    pub fn of(model: &Model, inference: &Inference, id: ValueId) -> Self {
        let range = tables(model, inference, id).iter().filter_map(Dim::as_const).min();
        let length = lengths(model, inference, id).iter().filter_map(Dim::as_const).min();
        let is_text = inference.tensor(id).is_some_and(|fact| fact.dtype == Some(DType::String));
        let words = if is_text { words(model, id) } else { Vec::new() };
        let behind = |affine| Behind { nodes: BEHIND, affine, is_moved: false };
        let of = |behind| if is_text { Vec::new() } else { levels(model, inference, id, behind) };
        let (levels, direct) = (of(behind(AFFINE)), of(behind(0)));
        let is_mask =
            is_mask(model, id) || !direct.is_empty() && direct.iter().all(|(_, x)| [0.0, 1.0].contains(x));
        Self { range, length, is_mask, is_shape: is_shape(model, id), words, levels }
    }

    /// The numbers at which the model does something else, for an element of this column.
    pub fn levels_at(&self, column: usize) -> impl Iterator<Item = f64> + Clone {
        let fits = move |at: &Option<usize>| at.is_none_or(|at| at == column);
        self.levels.iter().filter(move |(at, _)| fits(at)).map(|(_, level)| *level)
    }
}

/// The sizes of what the elements of a value select from, when it is used to select.
pub fn tables(model: &Model, inference: &Inference, id: ValueId) -> Vec<Dim> {
    let dim = |node: &Node, input: usize, axis: i64| {
        let shape = inference.shape(node.input(input)?)?;
        shape.get(crate::call::axis(axis, shape.len()).ok()?).cloned()
    };
    used(model, id, &|node, index| match (&*node.op().name, index) {
        ("Gather" | "GatherElements" | "ScatterElements", 1) => {
            dim(node, 0, node.attr_int("axis").unwrap_or(0)).into_iter().collect()
        }
        ("RoiAlign", 2) => dim(node, 0, 0).into_iter().collect(),
        // Each element of an index selects along an axis of its own.
        ("GatherND" | "ScatterND", 1) => {
            let dims = node.input(0).and_then(|table| inference.shape(table));
            dims.map(<[Dim]>::to_vec).unwrap_or_default()
        }
        _ => Vec::new(),
    })
}

/// The lengths that elements of a value are compared with, when they are lengths: of sequences, or of what is taken of an axis.
fn lengths(model: &Model, inference: &Inference, id: ValueId) -> Vec<Dim> {
    used(model, id, &|node, index| {
        let axis = match (&*node.op().name, index) {
            ("LSTM" | "GRU" | "RNN", 4) => Some(node.attr_int("layout").unwrap_or(0)),
            ("TopK", 1) => Some(node.attr_int("axis").unwrap_or(-1)),
            ("ReverseSequence", 1) => Some(node.attr_int("time_axis").unwrap_or(0)),
            _ => None,
        };
        let shape = node.input(0).and_then(|data| inference.shape(data));
        let dim = axis
            .zip(shape)
            .and_then(|(axis, shape)| shape.get(crate::call::axis(axis, shape.len()).ok()?).cloned());
        dim.into_iter().collect()
    })
}

/// Whether an input is called a mask, or is read as one: converted to a boolean, or subtracted from something.
fn is_mask(model: &Model, id: ValueId) -> bool {
    /// The element type in attributes of Cast.
    const BOOL: i64 = 9;
    let reads = |node: &Node, index: usize| match (&*node.op().name, index) {
        ("Cast", 0) => node.attr_int("to") == Some(BOOL),
        ("Sub", 1) | ("Not" | "Where", 0) => true,
        _ => false,
    };
    model.value(id).name().to_lowercase().contains("mask")
        || used(model, id, &|node, index| vec![reads(node, index)]).contains(&true)
}

/// Whether elements are sizes, axes or counts for some node.
fn is_shape(model: &Model, id: ValueId) -> bool {
    let reads = |node: &Node, index: usize| match &*node.op().name {
        "ConstantOfShape" | "Range" | "Loop" => true,
        "Reshape" | "Expand" | "Tile" | "Pad" | "OneHot" | "Split" | "Squeeze" | "Unsqueeze" => index == 1,
        "Slice" | "Resize" | "CenterCropPad" | "AffineGrid" => index > 0,
        _ => false,
    };
    used(model, id, &|node, index| vec![reads(node, index)]).contains(&true)
}

/// How many operators that put columns together or fill them are looked behind.
const BEHIND: usize = 3;
/// How many that add, multiply and the like.
const AFFINE: usize = 6;

/// How far numbers are looked for.
#[derive(Clone, Copy)]
struct Behind {
    nodes: usize,
    affine: usize,
    /// Something was added or multiplied, so that 0 is another number.
    is_moved: bool,
}

impl Behind {
    fn nodes(self) -> Option<Self> {
        self.nodes.checked_sub(1).map(|nodes| Self { nodes, ..self })
    }

    fn affine(self) -> Option<Self> {
        self.affine.checked_sub(1).map(|affine| Self { affine, is_moved: true, ..self })
    }
}

/// The numbers that an input must be so that, behind a constant that is added, multiplied and the like, it is one of `later`.
fn undone(inference: &Inference, node: &Node, index: usize, later: Vec<Level>) -> Vec<Level> {
    let other = 1 - index;
    let constants = constant(inference, node, other);
    let dims = node.input(other).and_then(|value| inference.shape(value)).unwrap_or_default();
    // One number for each column, or for other parts.
    let are_columns =
        constants.len() > 1 && dims.last().and_then(Dim::as_const) == Some(constants.len() as i64);
    let undo = |level: f64, c: f64| match (&*node.op().name, index) {
        ("Add", _) => level - c,
        ("Sub", 0) => level + c,
        ("Sub", _) => c - level,
        ("Mul", _) => level / c,
        ("Div", 0) => level * c,
        _ => c / level,
    };
    let pairs =
        later.into_iter().flat_map(|level| constants.iter().enumerate().map(move |pair| (level, pair)));
    let made = pairs.filter_map(|((column, level), (place, &c))| {
        let fits = !are_columns || column.is_none_or(|column| column == place);
        fits.then_some((if are_columns { Some(place) } else { column }, undo(level, c)))
    });
    made.filter(|(_, level)| level.abs() < LARGEST).collect()
}

/// Numbers from here on stand for infinity.
const LARGEST: f64 = 1e30;

/// The numbers at which an operator does something else by itself.
fn own(node: &Node, is_moved: bool) -> Vec<f64> {
    let attr = |name: &str, default: f64| attr_numbers(node, name).first().copied().unwrap_or(default);
    match &*node.op().name {
        "ThresholdedRelu" => vec![attr("alpha", 1.0)],
        "Shrink" => vec![attr("lambd", 0.5), -attr("lambd", 0.5)],
        "HardSigmoid" => {
            let (alpha, beta) = (attr("alpha", 0.2), attr("beta", 0.5));
            let ends = [-beta / alpha, (1.0 - beta) / alpha];
            ends.into_iter().filter(|end| end.is_finite()).collect()
        }
        "HardSwish" => vec![-3.0, 3.0],
        "Relu" | "LeakyRelu" | "PRelu" | "Elu" | "Selu" | "Celu" | "Abs" | "Sign" | "Floor" | "Ceil"
        | "Sigmoid" | "Tanh" | "Softplus" | "Erf"
            if is_moved =>
        {
            vec![0.0]
        }
        "Round" if is_moved => vec![0.0],
        "Round" => vec![0.5, 1.5, -0.5, 2.5],
        _ => Vec::new(),
    }
}

/// A number, in a column or in any.
type Level = (Option<usize>, f64);

/// The numbers that a value is compared with, the ends of what it is quantized to, and those that trees and encoders split at or know.
fn levels(model: &Model, inference: &Inference, id: ValueId, behind: Behind) -> Vec<Level> {
    let after = |node: &Node, behind: Option<Behind>| {
        let later = node.output(0).zip(behind);
        later.map(|(value, behind)| levels(model, inference, value, behind)).unwrap_or_default()
    };
    let mut found = used(model, id, &|node, index| match (&*node.op().name, index) {
        ("Add" | "Sub" | "Mul" | "Div", 0 | 1) if behind.affine > 0 => {
            match constant(inference, node, 1 - index) {
                constants if constants.is_empty() => Vec::new(),
                _ => undone(inference, node, index, after(node, behind.affine())),
            }
        }
        ("Neg", 0) if behind.affine > 0 => {
            after(node, behind.affine()).into_iter().map(|(column, level)| (column, -level)).collect()
        }
        // The number itself and what it takes to go round once more.
        ("Mod", 0) if behind.affine > 0 => anywhere(constant(inference, node, 1)),
        ("BitShift", 0) if behind.affine > 0 => anywhere(
            constant(inference, node, 1).into_iter().filter(|by| *by < 63.0).map(f64::exp2).collect(),
        ),
        ("Equal" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual", 0 | 1) => {
            anywhere(constant(inference, node, 1 - index))
        }
        ("Clip", 0) => {
            let of_attrs = ["min", "max"].into_iter().flat_map(|name| attr_numbers(node, name));
            let of_inputs = [1, 2].into_iter().flat_map(|place| constant(inference, node, place));
            anywhere(of_attrs.chain(of_inputs).collect())
        }
        ("Min" | "Max", _) => {
            anywhere((0..node.inputs().len()).flat_map(|place| constant(inference, node, place)).collect())
        }
        ("QuantizeLinear", 0) => anywhere(quantized(inference, node)),
        ("TreeEnsembleClassifier" | "TreeEnsembleRegressor" | "TreeEnsemble", 0) => splits(node),
        ("Binarizer", 0) => anywhere(attr_numbers(node, "threshold")),
        ("Scaler", 0) => {
            let later = if behind.affine > 0 { after(node, behind.affine()) } else { Vec::new() };
            let (offsets, scales) = (attr_numbers(node, "offset"), attr_numbers(node, "scale"));
            let at = |numbers: &[f64], column: usize| numbers.get(column % numbers.len().max(1)).copied();
            let columns = later.into_iter().flat_map(|(column, level)| {
                let columns = column.map_or(0..offsets.len().max(scales.len()), |column| column..column + 1);
                columns.map(move |column| (column, level))
            });
            let undone = columns.filter_map(|(column, level)| {
                Some((Some(column), level / at(&scales, column)? + at(&offsets, column)?))
            });
            scaled(node).into_iter().chain(undone.filter(|(_, level)| level.abs() < LARGEST)).collect()
        }
        ("Imputer" | "ArrayFeatureExtractor", 0) | ("Concat" | "FeatureVectorizer", _) => {
            let names = ["replaced_value_float", "replaced_value_int64"];
            let own = names.into_iter().flat_map(|name| attr_numbers(node, name));
            let later = after(node, behind.nodes());
            let is_moved = *node.op().name != *"Imputer";
            let later = later.into_iter().map(|(column, level)| (column.filter(|_| !is_moved), level));
            own.map(|level| (None, level)).chain(later).collect()
        }
        ("LabelEncoder" | "OneHotEncoder" | "CategoryMapper", 0) => {
            let names = ["keys_int64s", "keys_floats", "keys_tensor", "cats_int64s"];
            anywhere(names.into_iter().flat_map(|name| attr_numbers(node, name)).collect())
        }
        (_, 0) if behind.affine > 0 => anywhere(own(node, behind.is_moved)),
        _ => Vec::new(),
    });
    found.truncate(MOST);
    found
}

fn anywhere(numbers: Vec<f64>) -> Vec<(Option<usize>, f64)> {
    numbers.into_iter().map(|number| (None, number)).collect()
}

/// The elements of a small constant that a node takes.
fn constant(inference: &Inference, node: &Node, input: usize) -> Vec<f64> {
    /// Most elements of something that is read at all, and of which some are taken.
    const READ: usize = 1 << 14;
    const FEW: usize = 16;
    let fact = node.input(input).and_then(|value| inference.tensor(value));
    match fact.and_then(|fact| fact.value.as_ref()) {
        Some(Known::Array(array)) if array.len() <= READ => {
            let numbers = array.to_f64s().unwrap_or_default();
            let step = numbers.len().div_ceil(MOST).max(1);
            numbers.into_iter().step_by(step).collect()
        }
        Some(Known::Dims(dims)) if dims.len() <= FEW => {
            dims.iter().filter_map(Dim::as_const).map(|size| size as f64).collect()
        }
        _ => Vec::new(),
    }
}

/// The numbers of an attribute.
fn attr_numbers(node: &Node, name: &str) -> Vec<f64> {
    match node.attr(name) {
        Some(AttrValue::Float(number)) => vec![f64::from(*number)],
        Some(AttrValue::Int(number)) => vec![*number as f64],
        Some(AttrValue::Floats(numbers)) => numbers.iter().map(|&number| f64::from(number)).collect(),
        Some(AttrValue::Ints(numbers)) => numbers.iter().map(|&number| number as f64).collect(),
        Some(AttrValue::Tensor(tensor)) => {
            Array::from_tensor(tensor).and_then(|array| array.to_f64s()).unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

/// What a Scaler makes 0, 1 and −1, in the column where it does.
fn scaled(node: &Node) -> Vec<(Option<usize>, f64)> {
    let (offsets, scales) = (attr_numbers(node, "offset"), attr_numbers(node, "scale"));
    let columns = offsets.iter().zip(scales.iter().cycle()).enumerate();
    let of = |(column, (&offset, &scale)): (usize, (&f64, &f64))| {
        [0.0, 1.0, -1.0].map(|made| (Some(column), offset + made / scale)).into_iter()
    };
    columns.flat_map(of).filter(|(_, level)| level.is_finite()).collect()
}

/// Numbers evenly spread over what a QuantizeLinear with one scale can hold.
fn quantized(inference: &Inference, node: &Node) -> Vec<f64> {
    const STEPS: i32 = 8;
    let dtype = node.output(0).and_then(|value| inference.tensor(value)?.dtype);
    let [scale, zero] = [1, 2].map(|place| constant(inference, node, place));
    let is_code = |dtype: &DType| dtype.bits() <= 16 && matches!(dtype.kind(), Kind::Signed | Kind::Unsigned);
    let (Some(dtype), &[scale]) = (dtype.filter(is_code), scale.as_slice()) else { return Vec::new() };
    let zero = zero.first().copied().unwrap_or(0.0);
    let codes = f64::from(dtype.bits()).exp2() - 1.0;
    let lowest = if dtype.kind() == Kind::Signed { -(codes + 1.0) / 2.0 } else { 0.0 };
    (0..=STEPS).map(|step| (lowest + codes * f64::from(step) / f64::from(STEPS) - zero) * scale).collect()
}

/// Where the nodes of trees split, each in the column of its feature.
fn splits(node: &Node) -> Vec<(Option<usize>, f64)> {
    let features = node.attr_ints("nodes_featureids").unwrap_or_default();
    let names = ["nodes_values", "nodes_values_as_tensor", "nodes_splits"];
    let values: Vec<f64> = names.into_iter().flat_map(|name| attr_numbers(node, name)).collect();
    let leaves = match node.attr("nodes_modes") {
        Some(AttrValue::Strings(modes)) => modes.iter().map(|mode| **mode == *b"LEAF").collect(),
        _ => vec![false; values.len()],
    };
    // Of large forests, nodes of many trees rather than all of a few.
    let step = values.len().div_ceil(MOST).max(1);
    let inner = features.iter().zip(values).zip(leaves).filter(|(_, is_leaf)| !is_leaf);
    inner.step_by(step).map(|((&feature, value), _)| (usize::try_from(feature).ok(), value)).collect()
}

/// What is found at the uses of a value, and of what has the same elements.
fn used<T>(model: &Model, id: ValueId, found: &dyn Fn(&Node, usize) -> Vec<T>) -> Vec<T> {
    let uses = handed_on(model, id).into_iter().flat_map(|id| model.value(id).uses());
    let inputs = uses.filter_map(|used| match *used {
        Use::Input { node, index } => Some((node, index as usize)),
        Use::Output { .. } => None,
    });
    inputs.flat_map(|(node, index)| found(model.node(node), index)).collect()
}

/// The words that nodes which a text reaches have in their attributes and constants.
fn words(model: &Model, id: ValueId) -> Vec<Blob> {
    let (mut open, mut seen, mut words) = (vec![id], vec![id], Vec::new());
    while let Some(id) = open.pop() {
        for used in model.value(id).uses() {
            let Use::Input { node, .. } = *used else { continue };
            let node = model.node(node);
            for attr in node.attrs() {
                if let AttrValue::Strings(list) = &attr.value {
                    words.extend(list.iter().cloned());
                }
            }
            for constant in node.inputs().iter().flatten().filter_map(|&input| model.constant(input)) {
                words.extend(constant.strings().unwrap_or_default().iter().cloned());
            }
            for &output in node.outputs().iter().flatten() {
                let is_new = !seen.contains(&output);
                if is_new && words.is_empty() {
                    seen.push(output);
                    open.push(output);
                }
            }
        }
    }
    words.truncate(MOST);
    words
}

/// A value, and those that operators make of it which hand elements on as they are.
pub fn handed_on(model: &Model, id: ValueId) -> Vec<ValueId> {
    const PASSING: [&str; 9] =
        ["Identity", "Cast", "Unsqueeze", "Squeeze", "Reshape", "Transpose", "Slice", "Expand", "Flatten"];
    let (mut next, mut seen) = (0, vec![id]);
    while let Some(&id) = seen.get(next) {
        next += 1;
        for used in model.value(id).uses() {
            let Use::Input { node, index: 0 } = *used else { continue };
            let node = model.node(node);
            if PASSING.contains(&&*node.op().name) {
                let new = node.outputs().iter().flatten().copied();
                let new: Vec<ValueId> = new.filter(|output| !seen.contains(output)).collect();
                seen.extend(new);
            }
        }
    }
    seen
}
