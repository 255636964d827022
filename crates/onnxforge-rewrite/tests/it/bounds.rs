//! The rounding analysis of `docs/accuracy.md`, carried out on the numbers of a run.
//!
//! Every value has a scale, element by element, and a share of it that rounding may take: the roundings on the longest way to it, each
//! with the unit of its type. An edit adds what it promises at the values that it redefines, and what reads them hands that on.

use std::collections::HashMap;

use onnxforge_ir::{Accuracy, DType, Model, Node, ValueId};
use onnxforge_ops::apply::{self, NoBodies, Settings};
use onnxforge_ops::call::Call;
use onnxforge_ops::eval::{Options, Session};
use onnxforge_ops::eval_call::Memory;
use onnxforge_ops::{Array, Value};

/// A step, as a share of the scale, over which functions are taken to be straight.
const STEP: f64 = 1e-5;
/// Roundings that an elementary function of a runtime's library may be worth: two units in the last place.
const ELEMENTARY: f64 = 4.0;
/// Roundings of a formula that is one operator, sums not counted.
const FORMULA: f64 = 8.0;

/// Sums of products of their float inputs.
const LINEAR: [&str; 14] = [
    "Add",
    "Sub",
    "Sum",
    "Mean",
    "Mul",
    "MatMul",
    "Gemm",
    "Conv",
    "ConvTranspose",
    "Einsum",
    "ReduceSum",
    "ReduceMean",
    "AveragePool",
    "GlobalAveragePool",
];
/// Operators that choose among numbers, or change a sign.
const CHOICES: [&str; 14] = [
    "Relu",
    "Abs",
    "Neg",
    "Max",
    "Min",
    "Clip",
    "Sign",
    "ReduceMax",
    "ReduceMin",
    "MaxPool",
    "GlobalMaxPool",
    "Floor",
    "Ceil",
    "Round",
];
/// Functions that are rounded once.
const ROUNDED: [&str; 5] = ["Div", "Sqrt", "Reciprocal", "LeakyRelu", "PRelu"];
const LIBRARY: [&str; 7] = ["Exp", "Log", "Erf", "Tanh", "Sin", "Cos", "Pow"];

/// What is known of a value.
#[derive(Clone)]
struct Known {
    scale: Vec<f64>,
    share: f64,
}

/// The values of a run, by their ids.
type Values = HashMap<ValueId, Value>;

/// Whether what `model` gives, which `original` became, is as far from the run of `original` in 64 bits as rounding and the edits'
/// promises allow: in 64 bits by the promises alone, in the declared types by the roundings of `original` besides.
pub fn check(original: &Model, model: &Model, inputs: &HashMap<String, Value>) -> Result<(), String> {
    let [wide, narrow] = [true, false].map(|wide| values(original, inputs, wide));
    let charges = charges(original, model);
    let exact = |dtype: DType| dtype.epsilon().map_or(0.0, |_| f64::EPSILON / 2.0);
    let declared = |dtype: DType| dtype.epsilon().unwrap_or(0.0) / 2.0;
    let analyses = [
        ("in 64 bits", true, analyse(original, &wide, &narrow, &exact, &charges)?),
        ("as declared", false, analyse(original, &wide, &narrow, &declared, &charges)?),
    ];
    let ports = |model: &Model| -> Vec<ValueId> {
        model.scope(model.main()).outputs().iter().map(|port| port.value).collect()
    };
    for (name, is_wide, known) in analyses {
        let found = run(model, inputs, is_wide, &ports(model));
        for (id, found) in ports(original).into_iter().zip(found) {
            let known = known.get(&id).cloned().unwrap_or_else(|| leaf(&wide[&id]));
            within([&wide[&id], &narrow[&id]], &found, &known, is_wide)
                .map_err(|why| format!("{} {name}: {why}", original.value(id).name()))?;
        }
    }
    Ok(())
}

fn run(model: &Model, inputs: &HashMap<String, Value>, wide: bool, wanted: &[ValueId]) -> Vec<Value> {
    let session = Session::new(model, Options { wide, ..Options::default() });
    session.run_values(inputs, wanted).unwrap_or_else(|error| panic!("{error}"))
}

/// All values of a model's graph.
fn values(model: &Model, inputs: &HashMap<String, Value>, wide: bool) -> Values {
    let ports = model.scope(model.main()).outputs().iter().map(|port| port.value);
    let nodes = model.nodes_in(model.main());
    let mut ids: Vec<ValueId> = nodes
        .flat_map(|(_, node)| node.inputs().iter().chain(node.outputs()).flatten().copied())
        .chain(ports)
        .collect();
    ids.sort_unstable();
    ids.dedup();
    let values = run(model, inputs, wide, &ids);
    ids.into_iter().zip(values).collect()
}

/// The units in the last place that the edits promise, at the values of `original` that they redefine.
fn charges(original: &Model, model: &Model) -> HashMap<ValueId, f64> {
    let mut charges: HashMap<ValueId, f64> = HashMap::new();
    for entry in &model.journal()[original.journal().len()..] {
        let Accuracy::Rounding { ulps } = entry.accuracy else { continue };
        for &id in &entry.redefined {
            *charges.entry(id).or_default() += ulps;
        }
    }
    charges
}

fn numbers(value: &Value) -> Vec<f64> {
    value.array().ok().and_then(|array| array.to_f64s().ok()).unwrap_or_default()
}

fn is_float(value: &Value) -> bool {
    value.array().is_ok_and(|array| array.dtype().epsilon().is_some())
}

/// A value that is taken as it is. What is infinite is so exactly.
fn leaf(value: &Value) -> Known {
    let scale = numbers(value).iter().map(|x| if x.is_finite() { x.abs() } else { 0.0 }).collect();
    Known { scale, share: 0.0 }
}

/// The scales and shares of what the nodes of the graph compute.
fn analyse(
    model: &Model,
    wide: &Values,
    narrow: &Values,
    unit: &dyn Fn(DType) -> f64,
    charges: &HashMap<ValueId, f64>,
) -> Result<HashMap<ValueId, Known>, String> {
    let mut known: HashMap<ValueId, Known> = HashMap::new();
    for (_, node) in model.nodes_in(model.main()) {
        let opset = model.opset(node.scope(), &node.op().domain);
        let call = apply::call(node, opset, None).ok_or_else(|| format!("{} is not analysed", node.op()))?;
        let operands: Vec<Option<(Value, Known)>> = node
            .inputs()
            .iter()
            .map(|input| {
                let value = wide[input.as_ref()?].clone();
                let known = known.get(input.as_ref()?).cloned().unwrap_or_else(|| leaf(&value));
                Some((value, known))
            })
            .collect();
        let step = Step { call, node, operands };
        let outputs: Vec<ValueId> = node.outputs().iter().flatten().copied().collect();
        let scales = step.scales(&outputs.iter().map(|id| wide[id].clone()).collect::<Vec<_>>())?;
        for (&id, (scale, terms)) in outputs.iter().zip(scales) {
            let dtype = narrow[&id].array().map_or(DType::F32, Array::dtype);
            let charge = charges.get(&id).copied().unwrap_or(0.0) * dtype.epsilon().unwrap_or(0.0);
            let share = step.inherited() + step.roundings(terms, dtype) * unit(dtype) + charge;
            let mut of = leaf(&wide[&id]);
            if is_float(&wide[&id]) {
                of.scale.iter_mut().zip(scale).for_each(|(own, scale)| *own = own.max(scale));
                of.share = share;
            }
            known.insert(id, of);
        }
    }
    match charges.keys().find(|id| !known.contains_key(id)) {
        Some(id) => Err(format!("an edit redefined {id:?}, which the original does not compute")),
        None => Ok(known),
    }
}

/// A node with what is known of its inputs.
struct Step<'a> {
    call: Call<'a>,
    node: &'a Node,
    operands: Vec<Option<(Value, Known)>>,
}

impl Step<'_> {
    fn is(&self, names: &[&str]) -> bool {
        names.contains(&self.call.def.name)
    }

    fn moves(&self) -> bool {
        self.call.def.layout_only
            || self.is(&["Concat", "Where", "Identity", "Pad", "Tile", "Expand", "Dropout"])
    }

    /// The inputs whose elements count, rather than say how.
    fn data(&self) -> Vec<usize> {
        let is_data = |&slot: &usize| {
            let Some((value, _)) = &self.operands[slot] else { return false };
            is_float(value) && (!self.moves() || slot == 0 || self.is(&["Concat", "Where"]))
        };
        (0..self.operands.len()).filter(is_data).collect()
    }

    fn evaluate(&self, replaced: &[(usize, Vec<f64>)]) -> Result<Vec<Value>, String> {
        let mut inputs: Vec<Option<Value>> =
            self.operands.iter().map(|operand| Some(operand.as_ref()?.0.clone())).collect();
        for (slot, numbers) in replaced {
            let shape = inputs[*slot].as_ref().unwrap().array().unwrap().shape().to_vec();
            inputs[*slot] = Some(Array::new(shape, numbers.clone()).unwrap().into());
        }
        let memory = Memory::new(1 << 30);
        let settings = Settings { memory: &memory, scopes: &NoBodies, wide: true, seed: 0 };
        apply::evaluate(self.call, inputs, settings).map_err(|error| format!("{}: {error}", self.node.op()))
    }

    fn known(&self, slot: usize) -> &Known {
        &self.operands[slot].as_ref().unwrap().1
    }

    /// The scale of each output, and how many terms each of its elements is a sum of.
    fn scales(&self, results: &[Value]) -> Result<Vec<(Vec<f64>, f64)>, String> {
        let data = self.data();
        if self.moves() || self.is(&LINEAR) {
            let at = |number: &dyn Fn(usize, f64) -> f64| {
                let replaced = data.iter().map(|&slot| {
                    let scale = &self.known(slot).scale;
                    (slot, scale.iter().map(|&scale| number(slot, scale * self.sign(slot))).collect())
                });
                self.evaluate(&replaced.collect::<Vec<_>>())
            };
            let scales = at(&|_, scale| scale)?;
            let terms = match self.is(&LINEAR) {
                true => self.terms(&at(&|slot, _| self.sign(slot))?),
                false => 0.0,
            };
            return Ok(scales.iter().map(|scale| (numbers(scale), terms)).collect());
        }
        let mut found: Vec<(Vec<f64>, f64)> =
            results.iter().map(|result| (vec![0.0; numbers(result).len()], 0.0)).collect();
        for &slot in &data {
            let (x, scale) = (numbers(&self.operands[slot].as_ref().unwrap().0), &self.known(slot).scale);
            // Elementwise functions see all elements of an input at once.
            let groups: Vec<Vec<usize>> = match self.call.def.elementwise {
                true => vec![(0..x.len()).collect()],
                false => (0..x.len()).map(|index| vec![index]).collect(),
            };
            let mut terms: Vec<Vec<f64>> = found.iter().map(|(scale, _)| vec![0.0; scale.len()]).collect();
            for group in groups {
                let stepped = |by: f64| {
                    let mut x = x.clone();
                    group.iter().for_each(|&index| x[index] += by * scale[index]);
                    self.evaluate(&[(slot, x)])
                };
                let (above, below) = (stepped(STEP)?, stepped(-STEP)?);
                for (output, (scale, _)) in found.iter_mut().enumerate() {
                    let (above, below) = (numbers(&above[output]), numbers(&below[output]));
                    // What decides about a shape is no number that is rounded.
                    if above.len() != scale.len() || below.len() != scale.len() {
                        continue;
                    }
                    for (index, scale) in scale.iter_mut().enumerate() {
                        let slope = (above[index] - below[index]).abs() / (2.0 * STEP);
                        *scale += if slope.is_finite() { slope } else { 0.0 };
                        terms[output][index] += f64::from(u8::from(slope > 0.0));
                    }
                }
            }
            for ((_, most), terms) in found.iter_mut().zip(terms) {
                *most = terms.into_iter().fold(*most, f64::max);
            }
        }
        Ok(found)
    }

    /// What makes the sum of all terms one of magnitudes.
    fn sign(&self, slot: usize) -> f64 {
        let factor = |name: &str| f64::from(self.call.float_or(name, 1.0).unwrap_or(1.0)).signum();
        match (self.call.def.name, slot) {
            ("Sub", 1) => -1.0,
            ("Gemm", 0) => factor("alpha"),
            ("Gemm", 2) => factor("beta"),
            _ => 1.0,
        }
    }

    /// How many roundings a sum has, given what it makes of ones.
    fn terms(&self, ones: &[Value]) -> f64 {
        let elements = |value: &Value| numbers(value).len() as f64;
        let x = self.operands[0].as_ref().map_or(1.0, |(value, _)| elements(value));
        match self.call.def.name {
            "Add" | "Sub" | "Mul" => 1.0,
            "Sum" | "Mean" => self.operands.len() as f64,
            "ReduceMean" | "GlobalAveragePool" => x / elements(&ones[0]).max(1.0) + 1.0,
            "AveragePool" => {
                self.call.ints("kernel_shape").unwrap_or_default().iter().product::<i64>() as f64 + 1.0
            }
            "Gemm" => {
                let shape = self.operands[0].as_ref().unwrap().0.array().unwrap().shape();
                shape[usize::from(!self.call.flag("transA").unwrap_or(false))] as f64 + 3.0
            }
            _ => numbers(&ones[0]).into_iter().fold(0.0, f64::max),
        }
    }

    /// The share that the inputs bring along: factors each theirs, terms of a sum the largest.
    fn inherited(&self) -> f64 {
        let share = |slot: &usize| self.known(*slot).share;
        let data = self.data();
        if self.is(&["Mul", "MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum"]) {
            let (factors, rest): (Vec<usize>, Vec<usize>) = data.iter().partition(|&&slot| slot < 2);
            return rest.iter().map(share).fold(factors.iter().map(share).sum(), f64::max);
        }
        data.iter().map(share).fold(0.0, f64::max)
    }

    fn roundings(&self, terms: f64, dtype: DType) -> f64 {
        let was = self.operands.first().and_then(|x| Some(x.as_ref()?.0.array().ok()?.dtype()));
        match self.call.def.name {
            _ if self.is(&LINEAR) => terms,
            _ if self.moves() || self.is(&CHOICES) => 0.0,
            "Cast" | "CastLike" => f64::from(u8::from(was.is_some_and(|was| was != dtype))),
            _ if self.is(&ROUNDED) => 1.0,
            _ if self.is(&LIBRARY) => ELEMENTARY,
            _ if self.call.def.elementwise => FORMULA,
            _ => terms + FORMULA,
        }
    }
}

/// Whether a result is within its share of the scale around what 64 bits give.
fn within([wide, narrow]: [&Value; 2], found: &Value, known: &Known, is_wide: bool) -> Result<(), String> {
    let (Ok(expected), Ok(array)) = (wide.array(), found.array()) else { return Ok(()) };
    if expected.shape() != array.shape()
        || !is_wide && Some(array.dtype()) != narrow.array().ok().map(Array::dtype)
    {
        return Err(format!("{:?} became {} {:?}", expected.shape(), array.dtype(), array.shape()));
    }
    let (numbers64, before, after) = (numbers(wide), numbers(narrow), numbers(found));
    let least = if array.dtype() == DType::F16 { 2f64.powi(-24) } else { f64::from(f32::MIN_POSITIVE) };
    for (index, (&exact, &after)) in numbers64.iter().zip(&after).enumerate() {
        let before = if is_wide { exact } else { before[index] };
        let same = before == after || before.is_nan() && after.is_nan();
        // Terms of higher order included: γ = d·u / (1 − d·u).
        let gamma = if known.share < 0.5 { known.share / (1.0 - known.share) } else { f64::MAX };
        let allowed = if known.share == 0.0 { 0.0 } else { gamma * known.scale[index] + least };
        let off = (exact - after).abs();
        let is_close = off <= allowed;
        if !same && !is_close {
            return Err(format!("{after:e} is {off:e} off {exact:e}, of {allowed:e} (was {before:e})"));
        }
    }
    Ok(())
}
