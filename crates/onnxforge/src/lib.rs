//! onnxforge makes ONNX models smaller, faster and understandable, and verifies that nothing changed.
//!
//! # A tour
//!
//! Load a model, optimize it, look at what was done, and save it. The result is compared with the original before you get it:
//!
//! ```
//! # fn main() -> Result<(), onnxforge::Error> {
//! # let folder = tempfile::tempdir().map_err(|_| ()).unwrap_or_else(|()| std::process::exit(1));
//! # let input = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/small_cnn.onnx");
//! # let output = folder.path().join("small.onnx");
//! use onnxforge::{Options, VerifyOptions};
//!
//! let model = onnxforge::load(input)?;
//! let optimized = onnxforge::optimize(model, &Options::default())?;
//! let report = &optimized.report;
//! assert!(report.after.nodes < report.before.nodes);
//! assert!(report.verification.global.is_some() && report.verification.reverted.is_empty());
//! optimized.save(&output)?;
//!
//! // Any two models can be compared, whatever tool made them.
//! let found = onnxforge::verify(&onnxforge::load(input)?, &onnxforge::load(&output)?, &VerifyOptions::default())?;
//! assert_ne!(found.report.verdict, onnxforge::verify::Verdict::Different);
//! # Ok(())
//! # }
//! ```
//!
//! [`Options`] fix sizes, convert to newer operators, select passes and say how to verify; [`upgrade()`], [`extract()`] and [`inspect()`]
//! are its siblings. Everything that commands of the command line do is a function like these.
//!
//! # Changing a model
//!
//! Models change through one door, which keeps names, consumers and origins right. Say which nodes are consumed, what takes their
//! place, and which value gets the new definition:
//!
//! ```
//! use onnxforge::ir::{Accuracy, Op, Rewrite};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let input = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/small_cnn.onnx");
//! let mut model = onnxforge::load(input)?;
//! let relus: Vec<_> = model.nodes().filter(|(_, node)| node.op().is("Relu")).map(|(id, _)| id).collect();
//! for relu in relus {
//!     let (x, y) = (model.node(relu).input(0), model.node(relu).output(0));
//!     let mut rewrite = Rewrite::new("example", "leak", Accuracy::Approximate { rtol: 0.1, atol: 0.0 }, [relu]);
//!     let leaky = rewrite.node(Op::standard("LeakyRelu"), [x.into()], 1, vec![("alpha", 0.1f32).into()]);
//!     rewrite.redefine(y.ok_or("a Relu without result")?, leaky.output(0));
//!     model.commit(rewrite)?;
//! }
//! assert!(model.journal().iter().all(|entry| &*entry.rule == "leak"));
//! # Ok(())
//! # }
//! ```
//!
//! # Layers
//!
//! This crate is the front door; behind it stand crates along the layers, each of which uses only those before it. Their modules are
//! re-exported here.
//!
//! | crate | modules | what it does |
//! |---|---|---|
//! | `onnxforge-proto` | [`proto`], [`blob`], [`mmap`], [`progress`], [`cancel`], [`random`] | bytes to messages and back, mapped files |
//! | `onnxforge-ir` | [`ir`], [`io`], [`text`], [`redact`] | the model in memory and the only way to change it; load, save, ONNX text |
//! | `onnxforge-ops` | [`ops`], [`infer`], [`eval`], [`check`] | the operators; shape inference, execution and checks of whole models |
//! | `onnxforge-rewrite` | [`rewrite`], [`passes`], [`mod@upgrade`], [`interface`] | rules and their driver, passes, newer operator sets, other sizes |
//! | `onnxforge-verify` | [`mod@verify`], [`runtime`], [`bench`] | whether models compute the same; ONNX Runtime |
//! | `onnxforge-convert` | [`formats`] | files of TensorFlow Lite and Core ML: writers and readers |
//! | `onnxforge-hierarchy` | [`hierarchy`] | the PyTorch modules that nodes come from |
//! | `onnxforge-analysis` | [`analysis`] | what a model is made of, and what becomes of it |

pub mod conversion;
mod error;
pub mod explain;
pub mod extraction;
pub mod float16;
pub mod kind;
pub mod loading;
pub mod opset;
pub mod optimize;
pub mod page;
pub mod profile;
pub mod selection;
pub mod trace;
pub mod verification;

pub use onnxforge_analysis as analysis;
pub use onnxforge_analysis::inspect::{Inspection, inspect};
pub use onnxforge_convert as formats;
pub use onnxforge_hierarchy as hierarchy;
pub use onnxforge_hierarchy::Hierarchy;
pub use onnxforge_ir as ir;
pub use onnxforge_ir::io::save;
pub use onnxforge_ir::{Model, io, redact, text};
pub use onnxforge_ops as ops;
pub use onnxforge_ops::{check, eval, infer};
pub use onnxforge_proto as proto;
pub use onnxforge_proto::{blob, cancel, mmap, progress, random};
pub use onnxforge_rewrite as rewrite;
pub use onnxforge_rewrite::upgrade::upgrade;
pub use onnxforge_rewrite::{interface, passes, upgrade};
pub use onnxforge_verify as verify;
pub use onnxforge_verify::{bench, runtime};

pub use self::conversion::{ConvertOptions, Converted, convert, convert_with};
pub use self::error::{Error, Invalid};
pub use self::explain::{Explanation, explain, explain_with};
pub use self::extraction::{ExtractOptions, Extracted, extract};
pub use self::float16::{Float16, Float16Options, float16, float16_with};
pub use self::loading::{load, load_valid, open};
pub use self::opset::Opset;
pub use self::optimize::{AccuracyMode, Optimized, Options, optimize, optimize_with};
pub use self::selection::Selection;
pub use self::verification::{Verified, VerifyOptions, verify, verify_with};
