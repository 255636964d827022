//! The archive: arrays by name, stored as they are or deflated.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, Write};

use zip::result::ZipError;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::NpzError;
use super::npy::{read_npy, write_npy};
use crate::array::Array;

/// Every array of an archive by name. All of them together may take no more than `limit` bytes.
pub fn read(file: impl Read + Seek, limit: u64) -> Result<BTreeMap<String, Array>, NpzError> {
    let mut archive = ZipArchive::new(file).map_err(broken)?;
    let (mut arrays, mut left) = (BTreeMap::new(), limit);
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(broken)?;
        let name = entry.name().strip_suffix(".npy").unwrap_or(entry.name()).to_owned();
        let array = read_npy(&mut entry, left)
            .map_err(|why| NpzError::Entry { entry: name.clone(), why: why.to_string() })?;
        left = left.saturating_sub(array.byte_len());
        arrays.insert(name, array);
    }
    Ok(arrays)
}

/// Writes arrays under their names, uncompressed, as `numpy.savez` does.
pub fn write(out: impl Write, arrays: &[(&str, &Array)]) -> Result<(), NpzError> {
    let mut archive = ZipWriter::new_stream(out);
    for (name, array) in arrays {
        let large = array.byte_len() >= u64::from(u32::MAX) / 2;
        let options =
            SimpleFileOptions::default().compression_method(CompressionMethod::Stored).large_file(large);
        let failed =
            |why: &dyn std::fmt::Display| NpzError::Write { entry: (*name).to_owned(), why: why.to_string() };
        archive.start_file(format!("{name}.npy"), options).map_err(|why| failed(&why))?;
        write_npy(&mut archive, array).map_err(|why| failed(&why))?;
    }
    archive.finish().map_err(io::Error::other)?;
    Ok(())
}

fn broken(error: ZipError) -> NpzError {
    NpzError::Archive(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use half::f16;
    use num_complex::Complex;

    use super::*;
    use onnxforge_proto::blob::Blob;

    fn round_trip(array: &Array) -> Array {
        let mut file = Vec::new();
        write(&mut file, &[("x", array)]).unwrap();
        let mut arrays = read(Cursor::new(file), 1 << 20).unwrap();
        arrays.remove("x").unwrap()
    }

    #[test]
    fn arrays_come_back() {
        let arrays = [
            Array::new([2, 3], vec![1f32, -0.0, f32::NAN, f32::INFINITY, 1e-40, 5.0]).unwrap(),
            Array::vector(vec![1i64, -2]),
            Array::scalar(true),
            Array::new([0, 4], Vec::<f64>::new()).unwrap(),
            Array::vector(vec![f16::from_f32(0.5)]),
            Array::vector(vec![Complex::new(1f32, 2.0)]),
            Array::strings([2], vec![Blob::from("häß".as_bytes()), Blob::default()]).unwrap(),
        ];
        for array in arrays {
            let back = round_trip(&array);
            assert!(back.to_tensor().unwrap().same_bits(&array.to_tensor().unwrap()), "{back:?} {array:?}");
        }
    }

    #[test]
    fn what_is_no_archive_is_refused() {
        assert!(read(Cursor::new(b"no archive".to_vec()), 1).is_err());
    }
}
