//! Values of a program: their types, and the elements of constants.

use onnxforge_ir::DType;
use onnxforge_proto::Str;
use onnxforge_proto::blob::Blob;

use crate::coreml::schema::{Elem, Elements, TensorType, Value, ValueType};

/// The axes that a tensor may have; no runtime takes more than 5.
const MOST_AXES: usize = 8;
/// The elements of a list that is a parameter.
const LONGEST: usize = 64;

/// A value.
#[derive(Clone, Debug)]
pub struct Known {
    /// What it is called in the message.
    pub name: Str,
    pub elem: Elem,
    pub shape: Vec<Option<i64>>,
    /// Its elements, if it is a constant.
    pub data: Option<Blob>,
    /// Its text, if it is one.
    pub text: Option<Str>,
}

impl Known {
    /// Its element type in the message.
    pub fn dtype(&self) -> DType {
        self.elem.dtype().unwrap_or(DType::F32)
    }

    /// The numbers of a short constant.
    pub fn numbers(&self) -> Option<Vec<f64>> {
        let data = self.data.as_ref().filter(|data| data.len() <= 4 * LONGEST)?;
        Some(match self.elem {
            Elem::Bool | Elem::U8 => data.iter().map(|&byte| byte.into()).collect(),
            Elem::I8 => data.iter().map(|&byte| f64::from(byte as i8)).collect(),
            Elem::I32 => data.as_chunks().0.iter().map(|&it| i32::from_le_bytes(it).into()).collect(),
            Elem::F32 => data.as_chunks().0.iter().map(|&it| f32::from_le_bytes(it).into()).collect(),
            Elem::F16 => data.as_chunks().0.iter().map(|&it| half::f16::from_le_bytes(it).into()).collect(),
            _ => return None,
        })
    }

    /// The integers of a short constant.
    pub fn ints(&self) -> Option<Vec<i64>> {
        matches!(self.elem, Elem::I32 | Elem::Bool)
            .then(|| self.numbers())?
            .map(|all| all.into_iter().map(|number| number as i64).collect())
    }
}

/// The element type and the sizes of a type.
pub fn of_type(kind: Option<&ValueType>) -> Result<(Elem, Vec<Option<i64>>), String> {
    let tensor: &TensorType =
        kind.and_then(|kind| kind.tensor.as_deref()).ok_or("a value that is no tensor")?;
    let code = tensor.dtype.unwrap_or(0);
    let elem = Elem::of_code(code).ok_or_else(|| format!("elements of type {code}"))?;
    if tensor.dims.len() > MOST_AXES || tensor.rank.unwrap_or(0) != tensor.dims.len() as i64 {
        return Err("a tensor with another number of axes than it says".to_owned());
    }
    let size = |dim: &crate::coreml::schema::Dimension| match &dim.constant {
        Some(constant) => match constant.size.unwrap_or(0) {
            size @ 0.. => Ok(Some(size)),
            _ => Err("a tensor of a negative size".to_owned()),
        },
        None => Ok(None),
    };
    Ok((elem, tensor.dims.iter().map(size).collect::<Result<_, _>>()?))
}

/// A value that is written down; `weights` opens files of them.
pub fn of_value(
    value: &Value,
    name: Str,
    weights: &mut dyn FnMut(&Str) -> Result<Blob, String>,
) -> Result<Known, String> {
    let (elem, shape) = of_type(value.kind.as_deref())?;
    let sizes: Option<Vec<usize>> =
        shape.iter().map(|size| size.and_then(|size| usize::try_from(size).ok())).collect();
    let sizes = sizes.ok_or("a constant of unknown size")?;
    let count = sizes
        .iter()
        .try_fold(1usize, |count, &size| count.checked_mul(size))
        .ok_or("a constant that is too large")?;
    let known = |data, text| Known { name, elem, shape, data, text };
    if let Some(file) = &value.file {
        let length =
            elem.dtype().and_then(|dtype| dtype.byte_len(count)).ok_or("a constant that is too large")?;
        let weights = weights(&file.name.clone().unwrap_or_default())?;
        let data = crate::coreml::weights::find(&weights, file.offset.unwrap_or(0), elem, length)?;
        return Ok(known(Some(data), None));
    }
    let elements = value.immediate.as_deref().and_then(|value| value.tensor.as_deref());
    let elements = elements.ok_or("a constant without elements")?;
    if elem == Elem::Text {
        let text = elements.texts.as_ref().and_then(|texts| texts.values.first().cloned());
        return Ok(known(None, Some(text.ok_or("a text that is missing")?)));
    }
    let data = bytes(elem, elements);
    let length = elem.dtype().and_then(|dtype| dtype.byte_len(count));
    if length != Some(data.len()) {
        return Err("a constant whose elements are not those of its shape".to_owned());
    }
    Ok(known(Some(data), None))
}

/// The elements of a constant in the program itself.
fn bytes(elem: Elem, elements: &Elements) -> Blob {
    let ints = || elements.ints.as_ref().map(|it| &it.values.0[..]).unwrap_or_default();
    match elem {
        Elem::F32 => {
            let all = elements.floats.as_ref().map(|it| &it.values.0[..]).unwrap_or_default();
            all.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<u8>>().into()
        }
        Elem::I32 => ints().iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<u8>>().into(),
        Elem::I16 | Elem::U16 => {
            ints().iter().flat_map(|&it| (it as u16).to_le_bytes()).collect::<Vec<u8>>().into()
        }
        Elem::Bool => {
            let all = elements.bools.as_ref().map(|it| &it.values.0[..]).unwrap_or_default();
            all.iter().map(|&it| u8::from(it != 0)).collect::<Vec<u8>>().into()
        }
        _ => elements.bytes.as_ref().and_then(|it| it.values.clone()).unwrap_or_default(),
    }
}
