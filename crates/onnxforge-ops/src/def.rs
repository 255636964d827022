//! The table of operators: what is known of each, its inference and its evaluation.

use super::error::OpError;
use super::eval_call::Eval;
use super::infer_call::Infer;
use super::value::Value;

/// Computes facts about the outputs from facts about the inputs. An error means that the call contradicts the operator's
/// definition; the outputs are then unknown.
pub type InferFn = fn(&mut Infer<'_>) -> Result<(), OpError>;

/// Computes the outputs, in order; outputs at the end that nobody wants may be left out.
pub type EvalFn = fn(&mut Eval<'_>) -> Result<Vec<Value>, OpError>;

/// What an operator is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Category {
    Math,
    Activation,
    NeuralLayer,
    Reduction,
    Indexing,
    Manipulation,
    Shape,
    Constant,
    Logic,
    Conversion,
    ControlFlow,
    Uncategorised,
}

/// What is known of an operator, whatever its version.
#[derive(Clone, Copy)]
pub struct OpDef {
    /// The domain; empty for ai.onnx.
    pub domain: &'static str,
    /// The name.
    pub name: &'static str,
    /// What it is for.
    pub category: Category,
    /// The first two inputs may change places, bit for bit.
    pub commutative: bool,
    /// Each output element depends only on the input elements at its place, after broadcasting.
    pub elementwise: bool,
    /// Reads only the shape of its first input, never the elements.
    pub shape_only: bool,
    /// Only moves elements of its first input, or leaves some out: no element is computed.
    pub layout_only: bool,
    /// Draws random numbers.
    pub random: bool,
    /// 16-bit floats are widened to 32 bits before it and rounded after it.
    pub widens: bool,
    /// Facts about the outputs.
    pub infer: InferFn,
    /// The outputs, or why there is no evaluation.
    pub eval: Result<EvalFn, &'static str>,
}

impl OpDef {
    /// An operator of the standard domain.
    pub const fn new(name: &'static str, category: Category, infer: InferFn, eval: EvalFn) -> Self {
        Self {
            domain: "",
            name,
            category,
            commutative: false,
            elementwise: false,
            shape_only: false,
            layout_only: false,
            random: false,
            widens: false,
            infer,
            eval: Ok(eval),
        }
    }

    /// An operator that cannot be evaluated; `reason` completes "X is not evaluated: ".
    pub const fn unevaluated(
        name: &'static str,
        category: Category,
        infer: InferFn,
        reason: &'static str,
    ) -> Self {
        Self { eval: Err(reason), ..Self::new(name, category, infer, nothing) }
    }

    /// The same in another domain.
    pub const fn of(self, domain: &'static str) -> Self {
        Self { domain, ..self }
    }

    /// The same, with inputs that may change places.
    pub const fn commutative(self) -> Self {
        Self { commutative: true, ..self }
    }

    /// The same, element by element.
    pub const fn elementwise(self) -> Self {
        Self { elementwise: true, ..self }
    }

    /// The same, of the first input's shape alone.
    pub const fn shape_only(self) -> Self {
        Self { shape_only: true, ..self }
    }

    /// The same, computing nothing.
    pub const fn layout_only(self) -> Self {
        Self { layout_only: true, ..self }
    }

    /// The same, with random results.
    pub const fn random(self) -> Self {
        Self { random: true, ..self }
    }

    /// The same, never seeing 16-bit floats: they come as 32-bit floats, and results of the same type variable are
    /// rounded back.
    pub const fn widening(self) -> Self {
        Self { widens: true, ..self }
    }
}

fn nothing(_: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    Ok(Vec::new())
}

impl std::fmt::Debug for OpDef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let dot = if self.domain.is_empty() { "" } else { "." };
        write!(f, "{}{dot}{}", self.domain, self.name)
    }
}
