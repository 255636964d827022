//! Classical machine learning, the domain ai.onnx.ml: features, labels, linear models, support vectors and trees.
//!
//! Where the standard leaves scores and ties open, the results are those of ONNX Runtime; where it contradicts the standard
//! or leaves memory unwritten, evaluation refuses.

mod features;
mod labels;
mod linear;
mod maps;
mod scores;
mod svm;
mod trees;

use super::Array;
use super::call::Call;
use super::def::{Category, OpDef};
use super::error::{OpError, invalid};
use super::eval_call::Eval;
use super::infer_call::{Infer, same_as_input};
use super::kernel::number::Float;
use onnxforge_ir::DType;
use onnxforge_ir::dim::Dim;

const ML: &str = "ai.onnx.ml";

/// The operators of this family.
pub static OPS: &[OpDef] = &[
    OpDef::new("ArrayFeatureExtractor", Category::Indexing, features::infer_extractor, features::extractor)
        .of(ML)
        .layout_only(),
    OpDef::new("Binarizer", Category::Logic, same_as_input, features::binarizer).of(ML).elementwise(),
    OpDef::new("CastMap", Category::Conversion, maps::infer_cast, maps::cast).of(ML),
    OpDef::new("CategoryMapper", Category::Conversion, labels::infer_mapper, labels::mapper)
        .of(ML)
        .elementwise(),
    OpDef::new("DictVectorizer", Category::Conversion, maps::infer_vectorizer, maps::vectorizer).of(ML),
    OpDef::new("FeatureVectorizer", Category::Manipulation, features::infer_vectorizer, features::vectorizer)
        .of(ML),
    OpDef::new("Imputer", Category::Manipulation, same_as_input, features::imputer).of(ML),
    OpDef::new("LabelEncoder", Category::Conversion, labels::infer_encoder, labels::encoder)
        .of(ML)
        .elementwise(),
    OpDef::new("LinearClassifier", Category::NeuralLayer, linear::infer_classifier, linear::classifier)
        .of(ML),
    OpDef::new("LinearRegressor", Category::NeuralLayer, linear::infer_regressor, linear::regressor).of(ML),
    OpDef::new("Normalizer", Category::Math, same_shape, features::normalizer).of(ML),
    OpDef::new("OneHotEncoder", Category::Conversion, features::infer_one_hot, features::one_hot).of(ML),
    OpDef::new("SVMClassifier", Category::NeuralLayer, svm::infer_classifier, svm::classifier).of(ML),
    OpDef::new("SVMRegressor", Category::NeuralLayer, svm::infer_regressor, svm::regressor).of(ML),
    OpDef::new("Scaler", Category::Math, same_shape, features::scaler).of(ML),
    OpDef::new("TreeEnsemble", Category::NeuralLayer, trees::infer_regressor, trees::ensemble)
        .of(ML)
        .widening(),
    OpDef::new("TreeEnsembleClassifier", Category::NeuralLayer, trees::infer_classifier, trees::classifier)
        .of(ML),
    OpDef::new("TreeEnsembleRegressor", Category::NeuralLayer, trees::infer_regressor, trees::regressor)
        .of(ML),
    OpDef::new("ZipMap", Category::Conversion, maps::infer_zip, maps::zip).of(ML),
];

/// Output 0 has the shape of input 0.
fn same_shape(cx: &mut Infer<'_>) -> Result<(), OpError> {
    if let Some(shape) = cx.shape(0) {
        cx.set_shape(0, shape.to_vec());
    }
    Ok(())
}

/// How many examples input 0 holds, if its rank is known: a vector is one example.
fn example_count(cx: &Infer<'_>) -> Result<Option<Dim>, OpError> {
    match cx.shape(0) {
        Some([_]) => Ok(Some(Dim::ONE)),
        Some([examples, _]) => Ok(Some(examples.clone())),
        Some(shape) => invalid(format!("examples with {} axes", shape.len())),
        None => Ok(None),
    }
}

/// Output `index` has `width` columns for each example.
fn set_scores(cx: &mut Infer<'_>, index: usize, width: Option<usize>) -> Result<(), OpError> {
    if let Some(examples) = example_count(cx)? {
        let width = cx.or_fresh(width.map(|width| Dim::from(width as i64)));
        cx.set_shape(index, vec![examples, width]);
    }
    Ok(())
}

/// Examples, one per row.
struct Examples<T> {
    count: usize,
    features: usize,
    data: Vec<T>,
}

impl<T: Float> Examples<T> {
    /// The examples in a matrix, or the one in a vector.
    fn new(cx: &Eval<'_>, x: &Array) -> Result<Self, OpError> {
        let (count, features) = match *x.shape() {
            [features] => (1, features),
            [count, features] => (count, features),
            _ => return invalid(format!("examples of shape {:?}", x.shape())),
        };
        cx.reserve::<[f64; 2]>(x.len())?;
        Ok(Self { count, features, data: super::quant::floats(x)? })
    }

    fn row(&self, index: usize) -> &[T] {
        &self.data[index * self.features..][..self.features]
    }
}

/// Numbers that an attribute gives as floats.
fn floats_attr<T: Float>(call: &Call<'_>, name: &str) -> Result<Vec<T>, OpError> {
    Ok(call.floats_or(name, Vec::new())?.into_iter().map(|value| T::from_f64(value.into())).collect())
}

/// The result of a computation in `T` that is declared as 32-bit floats.
fn as_declared<T: Float>(cx: &Eval<'_>, shape: &[usize], data: Vec<T>) -> Result<Array, OpError> {
    if cx.wide || T::DTYPE == DType::F32 {
        return Array::new(shape, data);
    }
    Array::new(shape, data.into_iter().map(|value| value.to_f64() as f32).collect::<Vec<f32>>())
}
