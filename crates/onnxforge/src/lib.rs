//! onnxforge: ONNX models, loaded without loss, held in a graph that is safe to edit, and saved at any size.
//!
//! # A tour
//!
//! Load a model, look at it, change it through the one door for changes, and save it:
//!
//! ```
//! use onnxforge::io::{LoadOptions, SaveOptions};
//! use onnxforge::ir::{Accuracy, Op, Rewrite};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let output = folder.path().join("cnn.onnx");
//! # let input = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/small_cnn.onnx");
//! let mut model = onnxforge::io::load(input.as_ref(), &LoadOptions::default())?;
//! let before = model.node_count();
//!
//! // Replace every Relu by a LeakyRelu: say which node is consumed, what takes its place,
//! // and which value gets the new definition. Names, readers and origins follow by themselves.
//! let relus: Vec<_> = model.nodes().filter(|(_, node)| node.op().is("Relu")).map(|(id, _)| id).collect();
//! for relu in relus {
//!     let (x, y) = (model.node(relu).input(0), model.node(relu).output(0));
//!     let mut rewrite = Rewrite::new("example", "leak", Accuracy::Approximate { rtol: 0.1, atol: 0.0 }, [relu]);
//!     let leaky = rewrite.node(Op::standard("LeakyRelu"), [x.into()], 1, vec![("alpha", 0.1f32).into()]);
//!     rewrite.redefine(y.ok_or("a Relu without result")?, leaky.output(0));
//!     model.commit(rewrite)?;
//! }
//! assert_eq!(model.node_count(), before);
//! assert!(model.journal().iter().all(|entry| &*entry.rule == "leak"));
//!
//! onnxforge::io::save(&model, &output, &SaveOptions::default())?;
//! # Ok(())
//! # }
//! ```
//!
//! # Layers
//!
//! Each module uses only those before it.
//!
//! | module | what it does |
//! |---|---|
//! | [`mmap`], [`blob`], [`progress`], [`cancel`], [`random`] | mapped files, shared byte ranges, reports about long work, its early end, random numbers |
//! | [`proto`] | bytes to messages and back |
//! | [`ir`] | the model in memory, and [`ir::edit`], the only way to change it |
//! | [`io`] | messages to models and back, external data, atomic files |
//! | [`text`] | the ONNX notation, both ways |
//! | [`ops`] | the operators: signatures, inference, evaluation |
//! | [`infer`] | what is known of every value of a model |
//! | [`eval`] | runs models |
//! | [`rewrite`] | the engine that applies rules and checks each change |
//! | [`passes`] | changes that make models smaller or faster |
//! | [`check`] | whether a model is valid |
//! | [`interface`] | other sizes, shapes and outputs |
//! | [`upgrade`] | newer operator sets |
//! | [`redact`] | models without weights, to share |
//! | [`runtime`] | ONNX Runtime, where it is installed |
//! | [`hierarchy`] | the PyTorch modules that nodes come from |
//! | [`verify`] | whether two models compute the same |
//! | [`analysis`] | what a model is made of, and what becomes of it |

pub mod analysis;
pub mod blob;
pub mod cancel;
pub mod check;
pub mod eval;
pub mod hierarchy;
pub mod infer;
pub mod interface;
pub mod io;
pub mod ir;
pub mod mmap;
pub mod ops;
pub mod passes;
pub mod progress;
pub mod proto;
pub mod random;
pub mod redact;
pub mod rewrite;
pub mod runtime;
pub mod text;
pub mod upgrade;
pub mod verify;
