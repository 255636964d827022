//! Whether constants and attributes hold the same bits, without holding them in memory.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use onnxforge_ir::io::tensor::RECIPE_KEY;
use onnxforge_ir::node::SparseTensor;
use onnxforge_ir::tensor::{Data, Storage};
use onnxforge_ir::{AttrValue, Constant, Tensor, ValueId};

/// Tensors up to this many bytes are hashed whole, larger ones in pieces.
const WHOLE: usize = 64 * 1024;
/// Bytes of a piece.
const PIECE: usize = 4096;

/// What was compared already: weights are read once.
#[derive(Debug, Default)]
pub struct Contents(HashMap<(ValueId, ValueId), bool>);

impl Contents {
    /// Whether the constants that these values hold have the same type, shape and bits.
    pub fn same(&mut self, values: (ValueId, ValueId), a: &Constant, b: &Constant) -> bool {
        *self.0.entry(values).or_insert_with(|| same_constant(a, b))
    }
}

fn same_constant(a: &Constant, b: &Constant) -> bool {
    match (a, b) {
        (Constant::Dense(a), Constant::Dense(b)) => same_tensor(a, b),
        (Constant::Sparse(a), Constant::Sparse(b)) => same_sparse(a, b),
        _ => false,
    }
}

/// Whether two constants agree in everything but their elements.
pub fn same_form(a: &Constant, b: &Constant) -> bool {
    let tensor = |a: &Tensor, b: &Tensor| a.dtype() == b.dtype() && a.shape() == b.shape();
    match (a, b) {
        (Constant::Dense(a), Constant::Dense(b)) => tensor(a, b),
        (Constant::Sparse(a), Constant::Sparse(b)) => {
            tensor(&a.values, &b.values) && tensor(&a.indices, &b.indices) && a.dims == b.dims
        }
        _ => false,
    }
}

fn same_sparse(a: &SparseTensor, b: &SparseTensor) -> bool {
    a.dims == b.dims && same_tensor(&a.values, &b.values) && same_tensor(&a.indices, &b.indices)
}

/// Whether both have the same type, shape and bits; for elements that cannot be read, whether they should lie at the same place.
pub fn same_tensor(a: &Tensor, b: &Tensor) -> bool {
    match (a.data(), b.data()) {
        (Data::Unavailable(_), Data::Unavailable(_)) => {
            a.dtype() == b.dtype() && a.shape() == b.shape() && stand_in(a) == stand_in(b)
        }
        (Data::Bytes(x), Data::Bytes(y)) if !x.same_place(y) && x.len() == y.len() && x.len() > WHOLE => {
            // The first bytes tell most tensors apart.
            let differ = x.iter().zip(&y[..]).take(PIECE).any(|(x, y)| x != y);
            !differ && {
                x.will_read();
                y.will_read();
                a.same_bits(b)
            }
        }
        _ => a.same_bits(b),
    }
}

/// What stands for elements that cannot be read: where they should lie, and what is known of them.
fn stand_in(tensor: &Tensor) -> (Vec<(&str, &str)>, Option<&str>) {
    let entries = match tensor.storage() {
        Storage::External(entries) => entries.iter(),
        _ => [].iter(),
    };
    let place =
        entries.map(|e| (e.key.as_deref().unwrap_or_default(), e.value.as_deref().unwrap_or_default()));
    let recipe = tensor.notes().metadata.iter().find(|entry| entry.key.as_deref() == Some(RECIPE_KEY));
    (place.collect(), recipe.and_then(|entry| entry.value.as_deref()))
}

/// The hash of what `write` writes.
pub fn hash(write: impl FnOnce(&mut DefaultHasher)) -> u64 {
    let mut hasher = DefaultHasher::new();
    write(&mut hasher);
    hasher.finish()
}

/// Type, shape, and a part of the bits that is the same for the same tensors.
pub fn sketch(tensor: &Tensor, hasher: &mut DefaultHasher) {
    (tensor.dtype(), tensor.shape()).hash(hasher);
    match tensor.data() {
        Data::Strings(strings) => strings.iter().for_each(|text| text[..].hash(hasher)),
        Data::Unavailable(_) => stand_in(tensor).hash(hasher),
        _ => {
            let Ok(bytes) = tensor.bytes() else { return };
            if bytes.len() <= WHOLE {
                return bytes.hash(hasher);
            }
            let stride = bytes.len() / (WHOLE / PIECE);
            let pieces = (0..WHOLE / PIECE).filter_map(|i| bytes.get(i * stride..i * stride + PIECE));
            pieces.for_each(|piece| piece.hash(hasher));
        }
    }
}

/// The sketch of a constant.
pub fn sketch_constant(constant: &Constant, hasher: &mut DefaultHasher) {
    match constant {
        Constant::Dense(tensor) => sketch(tensor, hasher),
        Constant::Sparse(sparse) => sketch_sparse(sparse, hasher),
    }
}

fn sketch_sparse(sparse: &SparseTensor, hasher: &mut DefaultHasher) {
    sparse.dims.hash(hasher);
    sketch(&sparse.values, hasher);
    sketch(&sparse.indices, hasher);
}

/// The sketch of an attribute; bodies are left out.
pub fn sketch_attr(value: &AttrValue, hasher: &mut DefaultHasher) {
    std::mem::discriminant(value).hash(hasher);
    match value {
        AttrValue::Float(value) => value.to_bits().hash(hasher),
        AttrValue::Int(value) => value.hash(hasher),
        AttrValue::String(value) => value[..].hash(hasher),
        AttrValue::Tensor(tensor) => sketch(tensor, hasher),
        AttrValue::Sparse(sparse) => sketch_sparse(sparse, hasher),
        AttrValue::Type(ty) => onnxforge_ir::text::print_type(ty).hash(hasher),
        AttrValue::Floats(values) => values.iter().for_each(|value| value.to_bits().hash(hasher)),
        AttrValue::Ints(values) => values.hash(hasher),
        AttrValue::Strings(values) => values.iter().for_each(|value| value[..].hash(hasher)),
        AttrValue::Tensors(tensors) => tensors.iter().for_each(|tensor| sketch(tensor, hasher)),
        AttrValue::Sparses(sparses) => sparses.iter().for_each(|sparse| sketch_sparse(sparse, hasher)),
        AttrValue::Types(types) => {
            types.iter().for_each(|ty| onnxforge_ir::text::print_type(ty).hash(hasher));
        }
        AttrValue::Graph(_) => {}
        AttrValue::Graphs(scopes) => scopes.len().hash(hasher),
        AttrValue::Reference { name, kind } => (name, kind).hash(hasher),
    }
}

/// Whether attributes hold the same; of bodies only how many there are.
pub fn same_attr(a: &AttrValue, b: &AttrValue) -> bool {
    use AttrValue as V;
    fn all<T>(a: &[T], b: &[T], same: impl Fn(&T, &T) -> bool) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
    }
    let bits = |a: &f32, b: &f32| a.to_bits() == b.to_bits();
    match (a, b) {
        (V::Float(a), V::Float(b)) => bits(a, b),
        (V::Int(a), V::Int(b)) => a == b,
        (V::String(a), V::String(b)) => a == b,
        (V::Tensor(a), V::Tensor(b)) => same_tensor(a, b),
        (V::Graph(_), V::Graph(_)) => true,
        (V::Sparse(a), V::Sparse(b)) => same_sparse(a, b),
        (V::Type(a), V::Type(b)) => a == b,
        (V::Floats(a), V::Floats(b)) => all(a, b, bits),
        (V::Ints(a), V::Ints(b)) => a == b,
        (V::Strings(a), V::Strings(b)) => a == b,
        (V::Tensors(a), V::Tensors(b)) => all(a, b, same_tensor),
        (V::Graphs(a), V::Graphs(b)) => a.len() == b.len(),
        (V::Sparses(a), V::Sparses(b)) => all(a, b, same_sparse),
        (V::Types(a), V::Types(b)) => a == b,
        (V::Reference { name, kind }, V::Reference { name: other, kind: also }) => {
            name == other && kind == also
        }
        _ => false,
    }
}
