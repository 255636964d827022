//! What the fuzz targets share.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use onnxforge::Model;
use onnxforge::blob::Blob;
use onnxforge::proto::schema::ModelProto;
use onnxforge::proto::wire::{self, WireError};
use onnxforge::random::Random;
use onnxforge_testing::choices::Choices;
use onnxforge_testing::fields;
use onnxforge_testing::graphs::Graph;

/// Counts what is allocated.
pub struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn more(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Relaxed) + bytes;
    PEAK.fetch_max(live, Relaxed);
}

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        more(layout.size());
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        more(layout.size());
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both may be there at the same time.
        more(size);
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.realloc(place, layout, size) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(place, layout) }
    }
}

/// Memory that one byte of input may cost: an empty message has two bytes in a file and hundreds in memory, and a list
/// that grows is there twice.
const PER_BYTE: usize = 1024;
const BASE: usize = 1 << 20;

/// Runs `work` and panics where it used memory out of proportion to an input of `bytes` bytes.
pub fn bounded<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let result = work();
    let used = PEAK.load(Relaxed).saturating_sub(before);
    assert!(used <= BASE + PER_BYTE * bytes, "{used} bytes of memory for {bytes} bytes of input");
    result
}

/// Reads a model within these bounds: a sound one, or an error that says something.
pub fn reads_soundly<E: std::fmt::Display>(bytes: usize, read: impl FnOnce() -> Result<Model, E>) {
    match bounded(bytes, read) {
        Ok(model) => {
            if let Err(broken) = model.validate() {
                panic!("an invariant does not hold: {broken}");
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Decodes a model.
pub fn decode(bytes: &[u8]) -> Result<ModelProto, WireError> {
    wire::decode(&Blob::from(bytes))
}

/// Encodes a model.
pub fn encode(model: &ModelProto) -> Vec<u8> {
    let encoded = wire::encode(model);
    let announced = encoded.byte_len();
    let mut bytes = Vec::new();
    encoded.write_to(&mut bytes).expect("a vector takes everything");
    assert_eq!(announced, bytes.len() as u64, "the announced length is wrong");
    bytes
}

/// Whether two messages are the same, bit by bit: a NaN is not equal to itself.
pub fn same(a: &ModelProto, b: &ModelProto) -> bool {
    encode(a) == encode(b)
}

/// Nodes of a random graph.
const NODES: usize = 8;

/// Changes a model at a few fields, with every length around them right: bytes that are changed blindly are nearly always
/// refused before a pass sees them. Now and then a random graph that runs takes its place. The new size.
pub fn mutated(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let mut random = Random::new(seed.into());
    let made = match (random.below(64), fields::parse(&data[..size])) {
        (0, _) => Graph::random(seed.into(), NODES).bytes(),
        (1..8, _) | (_, None) => return libfuzzer_sys::fuzzer_mutate(data, size, max_size),
        (_, Some(mut tree)) => {
            let bytes: Vec<u8> = (0..64).map(|_| random.below(256) as u8).collect();
            let mut choices = Choices(bytes.iter());
            for _ in 0..=choices.below(3) {
                fields::mutate(&mut tree, &mut choices);
            }
            fields::encode(&tree)
        }
    };
    if made.len() > max_size {
        return libfuzzer_sys::fuzzer_mutate(data, size, max_size);
    }
    data[..made.len()].copy_from_slice(&made);
    made.len()
}
