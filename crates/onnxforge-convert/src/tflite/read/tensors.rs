//! The tensors of a file.

use std::collections::HashSet;

use onnxforge_ir::DType;
use onnxforge_proto::Str;
use onnxforge_proto::blob::Blob;

use super::ReadError;
use crate::tflite::flatbuffer::view::{Damage, Table};
use crate::tflite::graph::Quantization;
use crate::tflite::schema;

/// No operator takes tensors of more axes.
const MOST_AXES: usize = 32;

/// A tensor.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Its name, which no other has.
    pub name: Str,
    /// Its element type.
    pub dtype: DType,
    /// Its sizes; -1 for one that is not known.
    pub signature: Vec<i32>,
    /// Its elements, if it is a constant.
    pub data: Option<Blob>,
    /// The real numbers that its integers stand for, if they do.
    pub quantization: Option<Quantization>,
}

/// All of them.
#[derive(Debug)]
pub struct Tensors {
    all: Vec<Tensor>,
    names: HashSet<Str>,
}

impl Tensors {
    /// The tensors of a graph, under the names that the signature gives inputs and outputs.
    pub fn of(
        graph: &Table<'_>,
        buffers: &[Table<'_>],
        signature: Option<&Table<'_>>,
        bytes: &Blob,
    ) -> Result<Self, ReadError> {
        let tables = graph.tables(0)?;
        let mut names: Vec<Option<String>> = vec![None; tables.len()];
        for side in [0, 1] {
            let maps = signature.map(|signature| signature.tables(side)).transpose()?;
            for map in maps.unwrap_or_default() {
                if let Some(name) = names.get_mut(map.index(1)?) {
                    *name = map.text(0)?;
                }
            }
        }
        let mut found = Self { all: Vec::with_capacity(tables.len()), names: HashSet::new() };
        // Names that users know go first.
        let taken: Vec<Option<Str>> =
            names.into_iter().map(|name| name.map(|name| found.fresh(&name))).collect();
        for (table, taken) in tables.iter().zip(taken) {
            let name = match taken {
                Some(name) => name,
                None => found.fresh(&table.text(3)?.unwrap_or_default()),
            };
            let tensor = tensor(table, name, buffers, bytes)?;
            found.all.push(tensor);
        }
        Ok(found)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// One of them, which must be there.
    pub fn get(&self, index: usize) -> &Tensor {
        &self.all[index]
    }

    /// A name like this that nothing has.
    pub fn fresh(&mut self, name: &str) -> Str {
        let base = if name.is_empty() { "tensor" } else { name };
        let mut candidate: Str = base.into();
        let mut count = self.names.len();
        while !self.names.insert(candidate.clone()) {
            candidate = format!("{base}/{count}").as_str().into();
            count += 1;
        }
        candidate
    }
}

fn tensor(table: &Table<'_>, name: Str, buffers: &[Table<'_>], bytes: &Blob) -> Result<Tensor, ReadError> {
    let code = table.byte(1)?;
    let dtype = schema::type_of(code).ok_or_else(|| ReadError::Other(format!("elements of type {code}")))?;
    let shape = table.ints(0)?.unwrap_or_default();
    if shape.len() > MOST_AXES {
        return Err(table.wrong("a tensor of too many axes").into());
    }
    let signature =
        table.ints(7)?.filter(|signature| signature.len() == shape.len()).unwrap_or_else(|| shape.clone());
    if table.flag(5)? || table.table(6)?.is_some() {
        return Err(ReadError::Other("variables or sparse tensors".to_owned()));
    }
    let quantization = match table.table(4)? {
        Some(given) => quantization(&given, dtype, &signature)?,
        None => None,
    };
    let data = match table.index(2)? {
        0 => None,
        index => {
            let buffer =
                buffers.get(index).ok_or_else(|| table.wrong("a tensor of a buffer that is not there"))?;
            data(buffer, bytes)?
        }
    };
    if let Some(data) = &data {
        let count =
            shape.iter().try_fold(1usize, |count, &size| count.checked_mul(usize::try_from(size).ok()?));
        if count.and_then(|count| dtype.byte_len(count)) != Some(data.len()) {
            return Err(table.wrong("a constant whose bytes are not those of its shape").into());
        }
    }
    Ok(Tensor { name, dtype, signature, data, quantization })
}

/// What the integers of a tensor stand for; floats have no such thing, whatever stands there.
fn quantization(
    table: &Table<'_>,
    dtype: DType,
    signature: &[i32],
) -> Result<Option<Quantization>, ReadError> {
    let scales = table.floats(2)?.unwrap_or_default();
    if scales.is_empty() || !matches!(dtype, DType::I8 | DType::U8 | DType::I16 | DType::I32) {
        return Ok(None);
    }
    let mut zeros = table.longs(3)?.unwrap_or_default();
    if zeros.is_empty() {
        zeros = vec![0; scales.len()];
    }
    let axis = table.int(6, 0)?;
    let size = usize::try_from(axis).ok().and_then(|axis| signature.get(axis)).copied();
    let is_along =
        scales.len() == 1 || size.and_then(|size| usize::try_from(size).ok()) == Some(scales.len());
    if !is_along || zeros.len() != scales.len() {
        return Err(table.wrong("scales that do not fit their tensor").into());
    }
    Ok(Some(Quantization { scales, zeros, axis }))
}

/// The bytes of a buffer, which lie in the FlatBuffer or behind it.
fn data(buffer: &Table<'_>, bytes: &Blob) -> Result<Option<Blob>, Damage> {
    let (offset, size) = (buffer.long(1)?, buffer.long(2)?);
    let range = match buffer.bytes(0)? {
        Some(range) => range,
        None if offset > 1 => {
            let (Ok(start), Ok(size)) = (usize::try_from(offset), usize::try_from(size)) else {
                return Err(buffer.wrong("a buffer beyond all files"));
            };
            start..start.saturating_add(size)
        }
        None => return Ok(None),
    };
    bytes.slice(range).map(Some).ok_or_else(|| buffer.wrong("a buffer that ends beyond the file"))
}
