//! One array: the `.npy` format.

use std::io::{self, Read, Write};

use crate::array::{Array, Buffer};
use onnxforge_ir::DType;
use onnxforge_ir::dtype::Kind;
use onnxforge_ir::tensor::{Tensor, element_count};
use onnxforge_proto::blob::Blob;

/// Longest header that is read; numpy's own limit is 10,000.
const MAX_HEADER: usize = 64 * 1024;
const MAGIC: &[u8] = b"\x93NUMPY";

fn broken(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

/// What the header of an `.npy` file says.
struct Header {
    descr: String,
    fortran: bool,
    shape: Vec<usize>,
}

/// The array in a file. Its elements may take no more than `limit` bytes.
pub fn read_npy(file: &mut impl Read, limit: u64) -> io::Result<Array> {
    let mut start = [0u8; 8];
    file.read_exact(&mut start)?;
    if !start.starts_with(MAGIC) {
        return Err(broken("it is not in the .npy format"));
    }
    let length = if start[6] == 1 {
        let mut length = [0u8; 2];
        file.read_exact(&mut length)?;
        usize::from(u16::from_le_bytes(length))
    } else {
        let mut length = [0u8; 4];
        file.read_exact(&mut length)?;
        u32::from_le_bytes(length) as usize
    };
    if length > MAX_HEADER {
        return Err(broken(format!("its header has {length} bytes")));
    }
    let mut text = vec![0u8; length];
    file.read_exact(&mut text)?;
    let text = String::from_utf8(text).map_err(|_| broken("its header is not text"))?;
    let header = parse_header(&text).ok_or_else(|| broken(format!("its header is {}", text.trim())))?;
    let element = element(&header.descr)?;
    let count = element_count(&header.shape).ok_or_else(|| broken("its shape is too large"))?;
    let needed = (count as u64).checked_mul(element.width as u64).filter(|&bytes| bytes <= limit);
    let needed = needed.ok_or_else(|| broken(format!("its shape {:?} is too large", header.shape)))?;
    let mut bytes = Vec::new();
    file.take(needed).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != needed {
        return Err(broken(format!("{needed} bytes of elements are announced, {} are there", bytes.len())));
    }
    let array = decode(&element, &header.shape, bytes)?;
    if header.fortran { from_fortran(&array, limit) } else { Ok(array) }
}

/// The header is a Python literal: `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`.
fn parse_header(text: &str) -> Option<Header> {
    let field = |name: &str| {
        let (_, rest) =
            text.split_once(&format!("'{name}'")).or_else(|| text.split_once(&format!("\"{name}\"")))?;
        Some(rest.trim_start().strip_prefix(':')?.trim_start())
    };
    let descr = field("descr")?;
    let quote = descr.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
    let descr = descr.get(1..)?.split(quote).next()?.to_owned();
    let fortran = field("fortran_order")?.starts_with("True");
    let shape = field("shape")?.strip_prefix('(')?.split(')').next()?;
    let sizes = shape.split(',').map(str::trim).filter(|size| !size.is_empty());
    let shape = sizes.map(|size| size.parse().ok()).collect::<Option<_>>()?;
    Some(Header { descr, fortran, shape })
}

/// How the elements of an array are stored.
struct Element {
    dtype: DType,
    /// Bytes per element in the file.
    width: usize,
    /// Strings are 32-bit code points, not bytes.
    unicode: bool,
    big_endian: bool,
}

fn element(descr: &str) -> io::Result<Element> {
    let refuse = || broken(format!("elements of numpy's type {descr:?} are not supported"));
    let (order, rest) = descr.split_at_checked(1).ok_or_else(refuse)?;
    let (kind, size) = rest.split_at_checked(1).ok_or_else(refuse)?;
    let size: usize = size.parse().map_err(|_| refuse())?;
    let dtype = match (kind, size) {
        // As numpy stores arrays of the package ml_dtypes: the only type of two bytes without a letter, and one of one byte.
        ("V", 2) => DType::BF16,
        ("f", 1) => DType::F8E5M2,
        ("f", 2) => DType::F16,
        ("f", 4) => DType::F32,
        ("f", 8) => DType::F64,
        ("i", 1) => DType::I8,
        ("i", 2) => DType::I16,
        ("i", 4) => DType::I32,
        ("i", 8) => DType::I64,
        ("u", 1) => DType::U8,
        ("u", 2) => DType::U16,
        ("u", 4) => DType::U32,
        ("u", 8) => DType::U64,
        ("b", 1) => DType::Bool,
        ("c", 8) => DType::C64,
        ("c", 16) => DType::C128,
        ("U" | "S", _) => DType::String,
        ("V", 1) => {
            let several =
                format!("elements of type {descr:?} are one of several small types; store them as float32");
            return Err(broken(several));
        }
        _ => return Err(refuse()),
    };
    let width = if kind == "U" { size.checked_mul(4).ok_or_else(refuse)? } else { size };
    Ok(Element { dtype, width, unicode: kind == "U", big_endian: order == ">" })
}

fn decode(element: &Element, shape: &[usize], mut bytes: Vec<u8>) -> io::Result<Array> {
    if element.dtype == DType::String {
        return decode_strings(element, shape, &bytes);
    }
    if element.big_endian {
        let part = if element.dtype.kind() == Kind::Complex { element.width / 2 } else { element.width };
        bytes.chunks_exact_mut(part.max(1)).for_each(<[u8]>::reverse);
    }
    let tensor = Tensor::from_bytes(element.dtype, shape, bytes).map_err(io::Error::other)?;
    Array::from_tensor(&tensor).map_err(io::Error::other)
}

/// numpy pads strings with zeros to the longest one; `U` holds 32-bit code points.
fn decode_strings(element: &Element, shape: &[usize], bytes: &[u8]) -> io::Result<Array> {
    let count = element_count(shape).unwrap_or(0);
    let text = |index: usize| -> io::Result<Blob> {
        let cell = bytes.get(index * element.width..(index + 1) * element.width).unwrap_or_default();
        if !element.unicode {
            let end = cell.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            return Ok(cell[..end].into());
        }
        let points = cell.chunks_exact(4).map(|point| {
            let point: [u8; 4] = point.try_into().unwrap_or_default();
            if element.big_endian { u32::from_be_bytes(point) } else { u32::from_le_bytes(point) }
        });
        let text: Option<String> = points.take_while(|&point| point != 0).map(char::from_u32).collect();
        text.map(|text| text.into_bytes().into()).ok_or_else(|| broken("a string is not Unicode"))
    };
    let strings = (0..count).map(text).collect::<io::Result<Vec<_>>>()?;
    Array::strings(shape, strings).map_err(io::Error::other)
}

/// The array whose elements were stored column by column.
fn from_fortran(array: &Array, limit: u64) -> io::Result<Array> {
    let mut reversed = array.shape().to_vec();
    reversed.reverse();
    let perm: Vec<usize> = (0..reversed.len()).rev().collect();
    let memory = crate::eval_call::Memory::new(limit);
    let transposed =
        array.reshaped(reversed).and_then(|array| crate::kernel::strided::transpose(&array, &perm, &memory));
    transposed.map_err(io::Error::other)
}

/// Writes an array.
pub fn write_npy(out: &mut impl Write, array: &Array) -> io::Result<()> {
    let (descr, bytes) = encode(array)?;
    let shape: Vec<String> = array.shape().iter().map(ToString::to_string).collect();
    let comma = if shape.len() == 1 { "," } else { "" };
    let mut header =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}{comma}), }}", shape.join(", "));
    // Magic, version, length and header end on a multiple of 64.
    let padding = 64 - (10 + header.len() + 1) % 64;
    header.extend(std::iter::repeat_n(' ', padding % 64));
    header.push('\n');
    out.write_all(MAGIC)?;
    out.write_all(&[1, 0])?;
    let length = u16::try_from(header.len()).map_err(|_| broken("a shape of too many axes"))?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    out.write_all(&bytes)
}

fn encode(array: &Array) -> io::Result<(String, Vec<u8>)> {
    let plain = |descr: &str| -> io::Result<(String, Vec<u8>)> {
        let tensor = array.to_tensor().map_err(io::Error::other)?;
        Ok((descr.to_owned(), tensor.bytes().map_err(io::Error::other)?.into_owned()))
    };
    match array.buffer() {
        Buffer::F32(_) => plain("<f4"),
        Buffer::F64(_) => plain("<f8"),
        Buffer::F16(_) => plain("<f2"),
        Buffer::I8(_) => plain("|i1"),
        Buffer::I16(_) => plain("<i2"),
        Buffer::I32(_) => plain("<i4"),
        Buffer::I64(_) => plain("<i8"),
        Buffer::U8(_) => plain("|u1"),
        Buffer::U16(_) => plain("<u2"),
        Buffer::U32(_) => plain("<u4"),
        Buffer::U64(_) => plain("<u8"),
        Buffer::Bool(_) => plain("|b1"),
        Buffer::C64(_) => plain("<c8"),
        Buffer::C128(_) => plain("<c16"),
        Buffer::Str(strings) => encode_strings(strings),
        Buffer::Code(_) if array.dtype().kind() != Kind::Float => {
            let values = array.to_i64s().map_err(io::Error::other)?;
            let descr = if array.dtype().kind() == Kind::Signed { "|i1" } else { "|u1" };
            Ok((descr.to_owned(), values.into_iter().map(|value| value as u8).collect()))
        }
        Buffer::BF16(_) | Buffer::Code(_) => {
            let values = array.to_f64s().map_err(io::Error::other)?;
            Ok((
                "<f4".to_owned(),
                values.into_iter().flat_map(|value| (value as f32).to_le_bytes()).collect(),
            ))
        }
    }
}

fn encode_strings(strings: &[Blob]) -> io::Result<(String, Vec<u8>)> {
    let texts = strings.iter().map(|bytes| std::str::from_utf8(bytes)).collect::<Result<Vec<_>, _>>();
    let texts = texts.map_err(|_| broken("a string is not UTF-8"))?;
    let width = texts.iter().map(|text| text.chars().count()).max().unwrap_or(0).max(1);
    let mut bytes = Vec::new();
    for text in texts {
        let points = text.chars().map(u32::from).chain(std::iter::repeat(0));
        points.take(width).for_each(|point| bytes.extend(point.to_le_bytes()));
    }
    Ok((format!("<U{width}"), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn npy(descr: &str, rest: &str, data: &[u8]) -> io::Result<Array> {
        let header = format!("{{'descr': {descr}, {rest}}}\n");
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1, 0]);
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        read_npy(&mut &bytes[..], 1 << 20)
    }

    #[test]
    fn other_layouts_are_read() {
        let columns = npy("'|u1'", "'fortran_order': True, 'shape': (2, 3), ", &[1, 4, 2, 5, 3, 6]).unwrap();
        assert_eq!(columns.slice::<u8>().unwrap(), [1, 2, 3, 4, 5, 6]);
        let big = npy("'>i2'", "'fortran_order': False, 'shape': (1,), ", &[1, 2]).unwrap();
        assert_eq!(big.slice::<i16>().unwrap(), [0x102]);
    }

    #[test]
    fn arrays_of_ml_dtypes_are_read_where_the_type_is_certain() {
        let one = npy("'<V2'", "'fortran_order': False, 'shape': (1,), ", &[0x80, 0x3f]).unwrap();
        assert_eq!((one.dtype(), one.to_f64s().unwrap()), (DType::BF16, vec![1.0]));
        let one = npy("'<f1'", "'fortran_order': False, 'shape': (1,), ", &[0x3c]).unwrap();
        assert_eq!((one.dtype(), one.to_f64s().unwrap()), (DType::F8E5M2, vec![1.0]));
        assert!(npy("'<V1'", "'fortran_order': False, 'shape': (1,), ", &[0]).is_err());
    }

    #[test]
    fn hostile_headers_are_refused() {
        for (descr, rest, data) in [
            ("'|O'", "'fortran_order': False, 'shape': (1,), ", &[0u8; 8][..]),
            ("'<f4'", "'fortran_order': False, 'shape': (18446744073709551615, 4), ", &[]),
            ("'<f4'", "'fortran_order': False, 'shape': (99999999999,), ", &[]),
            ("'<f4'", "'fortran_order': False, 'shape': (2,), ", &[0; 4]),
            ("'<f4'", "'fortran_order': False, 'shape': (-1,), ", &[]),
            ("'<U99999999999999999999'", "'fortran_order': False, 'shape': (1,), ", &[]),
            ("[('a', '<f4')]", "'fortran_order': False, 'shape': (1,), ", &[]),
            ("''", "", &[]),
        ] {
            assert!(npy(descr, rest, data).is_err(), "{descr} {rest}");
        }
    }
}
