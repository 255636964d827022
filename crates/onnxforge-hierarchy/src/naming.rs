//! How exporters put scopes into the names of nodes.

use onnxforge_ir::Model;

/// How an exporter puts scopes into names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Naming {
    /// As PyTorch's older exporter.
    #[default]
    Torch,
    /// As TensorFlow.
    TensorFlow,
}

/// Functions of TensorFlow that add a level to the names of what they compute.
const FUNCTIONS: [&str; 24] = [
    "BiasAdd",
    "Cast",
    "Gelu",
    "PartitionedCall",
    "Relu6",
    "Shape",
    "Softmax",
    "SquaredDifference",
    "StatefulPartitionedCall",
    "Tensordot",
    "batchnorm",
    "cond",
    "convolution",
    "einsum",
    "l2_normalize",
    "moments",
    "normalize_moments",
    "ones_like",
    "scan",
    "separable_conv2d",
    "stack",
    "strided_slice",
    "while",
    "zeros_like",
];

impl Naming {
    /// How the exporter of a model does it.
    pub fn of(model: &Model) -> Self {
        match model.header().producer_name.as_deref() {
            Some("tf2onnx" | "keras2onnx") => Self::TensorFlow,
            _ => Self::Torch,
        }
    }

    /// The scope in the name of a node: everything before the last level. `None` for names without one, or with more in it than any has.
    pub fn scope(self, name: &str) -> Option<&str> {
        let scope = match self {
            Self::Torch => name.strip_prefix('/')?.rsplit_once('/').map_or("", |(scope, _)| scope),
            Self::TensorFlow => {
                let mut scope = name.rsplit_once('/')?.0;
                while let Some((around, level)) =
                    scope.rsplit_once('/').filter(|(_, level)| is_function(level))
                {
                    debug_assert!(!level.is_empty());
                    scope = around;
                }
                scope
            }
        };
        (scope.len() <= LONGEST && scope.matches('/').count() < MOST_LEVELS).then_some(scope)
    }
}

/// Whether a level is a function of TensorFlow, the first call or a later one.
fn is_function(level: &str) -> bool {
    FUNCTIONS.contains(&level) || without_call(level).is_some_and(|base| FUNCTIONS.contains(&base))
}

/// A longer scope is none.
const LONGEST: usize = 1 << 12;
/// A scope with more levels is none.
const MOST_LEVELS: usize = 1 << 7;
/// A level without the number of the call.
pub(super) fn without_call(level: &str) -> Option<&str> {
    let (base, call) = level.rsplit_once('_')?;
    (!base.is_empty() && !call.is_empty() && call.bytes().all(|byte| byte.is_ascii_digit())).then_some(base)
}
