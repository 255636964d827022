//! Random graphs that run: each node is tried before it is added, so that the generator needs no rules about shapes.

mod chains;
mod templates;

use std::collections::HashMap;
use std::fmt::Write;

use onnxforge_ir::io::load_bytes;
use onnxforge_ir::text;
use onnxforge_ir::{DType, Model};
use onnxforge_ops::eval::{Options, Session};
use onnxforge_ops::{Array, Value};
use onnxforge_proto::random::Random;
use onnxforge_proto::wire;

/// A value of the graph and what it is in the sample run.
#[derive(Clone)]
pub struct Known {
    /// Its name in the graph.
    pub name: String,
    /// What it is on the graph's inputs.
    pub array: Array,
}

/// A graph, inputs for it, and the size of each symbol in the inputs' shapes.
pub struct Graph {
    /// Where it comes from.
    pub seed: u64,
    /// The model in the ONNX notation.
    pub text: String,
    /// A value for each input.
    pub inputs: HashMap<String, Value>,
    /// The size of each symbol on these inputs.
    pub sizes: HashMap<String, i64>,
    /// Every value that a node computes.
    pub values: Vec<Known>,
}

/// The sizes that dimensions have; symbols stand for some of them.
const SIZES: [usize; 8] = [1, 2, 3, 4, 2, 3, 1, 0];

pub(crate) struct Builder {
    pub random: Random,
    lines: Vec<String>,
    inputs: Vec<(String, Known)>,
    pub pool: Vec<Known>,
    computed: usize,
    symbols: Vec<(String, usize)>,
}

impl Graph {
    /// The graph of this seed, of up to `nodes` nodes.
    pub fn random(seed: u64, nodes: usize) -> Self {
        let mut random = Random::new(seed);
        let symbols = ["a", "b", "c"].map(|name| {
            // Empty dimensions are rare: most operators do nothing interesting with them.
            let sizes = if random.below(8) == 0 { &SIZES[..] } else { &SIZES[..7] };
            (name.to_owned(), sizes[random.below(sizes.len() as u64) as usize])
        });
        let mut builder = Builder {
            random,
            lines: Vec::new(),
            inputs: Vec::new(),
            pool: Vec::new(),
            computed: 0,
            symbols: symbols.to_vec(),
        };
        for dtype in [DType::F32, DType::F32, DType::I64, DType::Bool] {
            builder.input(dtype);
        }
        let mut attempts = 0;
        while builder.computed < nodes && attempts < nodes * 20 {
            attempts += 1;
            templates::grow(&mut builder);
        }
        builder.finish(seed)
    }

    /// The model; every value that a node computes is an output.
    pub fn model(&self) -> Model {
        load(&self.text)
    }

    /// The same model with those values as outputs that no node reads: passes may change all others.
    pub fn model_of_ends(&self) -> Model {
        let mut message = text::parse(&self.text).unwrap();
        let graph = message.graph.as_mut().unwrap();
        let read: Vec<_> = graph.node.iter().flat_map(|node| node.input.iter().cloned()).collect();
        graph.output.retain(|port| !read.iter().any(|name| Some(name) == port.name.as_ref()));
        let mut bytes = Vec::new();
        wire::encode(&message).write_to(&mut bytes).unwrap();
        load_bytes(bytes, None, &Default::default()).unwrap()
    }

    /// The same model with numbers instead of symbols.
    pub fn model_of_sizes(&self) -> Model {
        let mut message = text::parse(&self.text).unwrap();
        for port in message.graph.as_mut().unwrap().input.iter_mut() {
            let ty = port.r#type.as_mut().unwrap().tensor_type.as_mut().unwrap();
            for dim in ty.shape.iter_mut().flat_map(|shape| shape.dim.iter_mut()) {
                if let Some(name) = dim.dim_param.take() {
                    dim.dim_value = Some(self.sizes[&*name]);
                }
            }
        }
        let mut bytes = Vec::new();
        wire::encode(&message).write_to(&mut bytes).unwrap();
        load_bytes(bytes, None, &Default::default()).unwrap()
    }

    /// The model as a file.
    pub fn bytes(&self) -> Vec<u8> {
        encoded(&self.text)
    }
}

fn encoded(text: &str) -> Vec<u8> {
    let message = text::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut bytes = Vec::new();
    wire::encode(&message).write_to(&mut bytes).unwrap();
    bytes
}

fn load(text: &str) -> Model {
    load_bytes(encoded(text), None, &Default::default()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn header() -> &'static str {
    "<ir_version: 10, opset_import: [\"\" : 21]>\n"
}

impl Builder {
    pub fn below(&mut self, limit: usize) -> usize {
        self.random.below(limit as u64) as usize
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    fn input(&mut self, dtype: DType) {
        let rank = *self.pick(&[0, 1, 2, 2, 3, 3, 4, 4]);
        let mut declared = Vec::new();
        let mut shape = Vec::new();
        for _ in 0..rank {
            if self.below(3) > 0 {
                let symbol = self.below(3);
                let (name, size) = self.symbols[symbol].clone();
                declared.push(name);
                shape.push(size);
            } else {
                let size = SIZES[self.below(7)];
                declared.push(size.to_string());
                shape.push(size);
            }
        }
        let name = format!("in{}", self.inputs.len());
        let array = self.array(dtype, &shape);
        let declaration = format!("{}[{}] {name}", dtype.name(), declared.join(","));
        let declaration = if rank == 0 { format!("{} {name}", dtype.name()) } else { declaration };
        let known = Known { name, array };
        self.pool.push(known.clone());
        self.inputs.push((declaration, known));
    }

    pub fn array(&mut self, dtype: DType, shape: &[usize]) -> Array {
        let count = shape.iter().product();
        match dtype {
            DType::F32 => {
                // Sixteenths: sums and products of a few are exact, so that comparisons do not depend on rounding.
                let values = (0..count).map(|_| (self.below(129) as f32 - 64.0) / 16.0).collect::<Vec<_>>();
                Array::new(shape, values).unwrap()
            }
            DType::I64 => {
                Array::new(shape, (0..count).map(|_| self.below(7) as i64 - 3).collect::<Vec<_>>()).unwrap()
            }
            DType::Bool => {
                Array::new(shape, (0..count).map(|_| self.below(2) == 0).collect::<Vec<_>>()).unwrap()
            }
            other => panic!("{other}"),
        }
    }

    /// A constant of the graph; its name.
    pub fn constant(&mut self, array: Array) -> String {
        let name = format!("c{}", self.lines.len());
        let literal = literal(&array);
        self.lines.push(format!("{name} = Constant <value = {literal}> ()"));
        self.pool.push(Known { name: name.clone(), array });
        name
    }

    pub fn ints(&mut self, values: &[i64]) -> String {
        self.constant(Array::vector(values.to_vec()))
    }

    /// A random value of a type, by name; `None` when there is none.
    pub fn value(&mut self, dtype: DType) -> Option<Known> {
        let fitting: Vec<usize> =
            (0..self.pool.len()).filter(|&i| self.pool[i].array.dtype() == dtype).collect();
        if fitting.is_empty() {
            return None;
        }
        // Later values more often: deep graphs find more than wide ones.
        let at = self.below(fitting.len()).max(self.below(fitting.len()));
        Some(self.pool[fitting[at]].clone())
    }

    /// Adds `outputs = call`, where the call reads `$name`s of the pool, if it runs and gives finite numbers.
    pub fn add(&mut self, call: &str, outputs: usize) -> Option<Vec<Known>> {
        let names: Vec<String> = (0..outputs).map(|i| format!("v{}_{i}", self.lines.len())).collect();
        let line = format!("{} = {call}", names.join(", "));
        let read: Vec<Known> = self.pool.iter().filter(|known| reads(call, &known.name)).cloned().collect();
        let mut text = header().to_owned();
        let ports: Vec<String> = read
            .iter()
            .map(|known| {
                let shape: Vec<String> = known.array.shape().iter().map(ToString::to_string).collect();
                let shape = if shape.is_empty() { String::new() } else { format!("[{}]", shape.join(",")) };
                format!("{}{shape} {}", known.array.dtype().name(), known.name)
            })
            .collect();
        // The element types of the outputs are not known yet; any will do for our evaluator.
        let results: Vec<String> = names.iter().map(|name| format!("float[] {name}")).collect();
        write!(text, "g ({}) => ({}) {{ {line} }}", ports.join(", "), results.join(", ")).unwrap();
        let model = load(&text);
        let inputs = read.iter().map(|known| (known.name.clone(), known.array.clone().into())).collect();
        let options = Options { memory: 1 << 20, ..Options::default() };
        let values = Session::new(&model, options).run(&inputs).ok()?;
        let mut found = Vec::new();
        for (name, (_, value)) in names.iter().zip(values) {
            let Value::Tensor(array) = value else { return None };
            let finite = array.to_f64s().ok()?.iter().all(|x| x.is_finite() && x.abs() < 1e6);
            if array.len() > 4096 || !finite {
                return None;
            }
            found.push(Known { name: name.clone(), array });
        }
        self.lines.push(line);
        self.computed += 1;
        self.pool.extend(found.iter().cloned());
        Some(found)
    }

    fn finish(self, seed: u64) -> Graph {
        let inputs: Vec<String> = self.inputs.iter().map(|(declaration, _)| declaration.clone()).collect();
        let values: Vec<Known> =
            self.pool.iter().filter(|known| known.name.starts_with('v')).cloned().collect();
        let outputs: Vec<String> =
            values.iter().map(|known| format!("{}[] {}", known.array.dtype().name(), known.name)).collect();
        let mut text = header().to_owned();
        writeln!(text, "g ({}) => ({}) {{", inputs.join(", "), outputs.join(", ")).unwrap();
        self.lines.iter().for_each(|line| writeln!(text, "  {line}").unwrap());
        text.push_str("}\n");
        Graph {
            seed,
            text,
            inputs: self.inputs.into_iter().map(|(_, known)| (known.name, known.array.into())).collect(),
            sizes: self.symbols.into_iter().map(|(name, size)| (name, size as i64)).collect(),
            values,
        }
    }
}

/// Whether a call mentions a value.
fn reads(call: &str, name: &str) -> bool {
    call.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| word == name)
}

fn literal(array: &Array) -> String {
    let shape: Vec<String> = array.shape().iter().map(ToString::to_string).collect();
    let shape = if shape.is_empty() { String::new() } else { format!("[{}]", shape.join(",")) };
    let values: Vec<String> = match array.dtype() {
        DType::F32 => array.to_f64s().unwrap().iter().map(|x| format!("{x:?}")).collect(),
        _ => array.to_i64s().unwrap().iter().map(ToString::to_string).collect(),
    };
    format!("{}{shape} {{{}}}", array.dtype().name(), values.join(", "))
}
