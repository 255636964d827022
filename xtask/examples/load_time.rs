//! Prints the median time in milliseconds that loading a model takes: `load_time MODEL RUNS`.

#![allow(clippy::print_stdout)]

use std::path::PathBuf;
use std::time::Instant;

use onnxforge::io::{LoadOptions, load};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let (Some(model), Some(runs)) = (args.next(), args.next()) else {
        return Err("usage: load_time MODEL RUNS".into());
    };
    let model = PathBuf::from(model);
    let runs: usize = runs.to_string_lossy().parse()?;
    let mut times = Vec::new();
    // The first one only warms the page cache.
    for _ in 0..=runs.max(1) {
        let start = Instant::now();
        let loaded = load(&model, &LoadOptions::default())?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
        std::hint::black_box(&loaded);
    }
    let mut times = times.split_off(1);
    times.sort_by(f64::total_cmp);
    println!("{:.3}", times.get(times.len() / 2).copied().unwrap_or(f64::NAN));
    Ok(())
}
