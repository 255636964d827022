//! Why a rule did not fire.

use onnxforge_ir::{EditError, Trust, ValueId};
use onnxforge_ops::OpError;

/// The answer of a rule that does not fire.
#[derive(Clone, Debug)]
pub struct Skip {
    /// `None`: there is nothing here that the rule is about.
    pub reason: Option<Reason>,
    /// The value that stands in the way.
    pub culprit: Option<ValueId>,
}

/// Why something that a rule is about stays as it is.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Reason {
    /// A value between the nodes of the pattern has other readers, or is an output.
    #[error("a value in between is read elsewhere")]
    ReadElsewhere,
    /// Something must be a constant and is none, or one that a caller may override.
    #[error("it is not a constant")]
    NotConstant,
    /// A shape or rank is not known well enough.
    #[error("the shape is not known well enough")]
    UnknownShape,
    /// An element type is not known.
    #[error("the element type is not known")]
    UnknownType,
    /// The element type is not one that the rule covers.
    #[error("the rule does not cover this element type")]
    Type,
    /// An attribute has a value that the rule does not cover, or refers to the caller of a function.
    #[error("the rule does not cover this value of attribute {0}")]
    Attribute(&'static str),
    /// An operand does not run along the right axis.
    #[error("the operand does not fit: it would be broadcast in another way")]
    Broadcast,
    /// The result would have another element type.
    #[error("the result would have another element type")]
    TypeChanges,
    /// The result would have another shape, or it cannot be proved that it has the same.
    #[error("it is not proved that the result has the same shape")]
    ShapeChanges,
    /// The change gives an argument for types and shapes that its pass does not declare.
    #[error("its pass does not declare that it trusts {}", .0.name())]
    Undeclared(Trust),
    /// An operator is not there in the model's operator set, or has no such inputs or attributes.
    #[error("operator set {opset} has no {op} like that; a newer one may")]
    Opset {
        /// The operator.
        op: String,
        /// The version that holds.
        opset: i64,
    },
    /// The node draws random numbers.
    #[error("its result is random")]
    Random,
    /// The node works in training mode.
    #[error("it is in training mode")]
    Training,
    /// A quantized weight would be stored in full.
    #[error("it would store a quantized weight in full")]
    Dequantizes,
    /// The constants would grow beyond the budget.
    #[error("it would add {0} bytes, more than the budget has left")]
    Growth(u64),
    /// Results may change, and only changes that keep every bit are made.
    #[error("it may change bits of the result")]
    NotExact,
    /// A stored operand may be packed, and then be added up in another order.
    #[error("runtimes pack stored operands of a product, which may change bits of the result")]
    Packed,
    /// Only a part of the model may change, and the change would be seen at a node outside of it.
    #[error("a node outside of the chosen modules would change")]
    Outside,
    /// It would take too long.
    #[error("computing it would take too long")]
    Time,
    /// The evaluator has no answer.
    #[error("{0}")]
    Evaluation(OpError),
    /// The edit was refused.
    #[error("{0}")]
    Edit(EditError),
    /// It would take more nodes than there are.
    #[error("it would take more nodes")]
    MoreNodes,
    /// A reason that only one rule has.
    #[error("{0}")]
    Rule(&'static str),
}

impl Skip {
    /// There is nothing here that the rule is about.
    pub const NOT_HERE: Self = Self { reason: None, culprit: None };

    /// The reason, with the value that stands in the way.
    pub fn at(reason: Reason, culprit: ValueId) -> Self {
        Self { reason: Some(reason), culprit: Some(culprit) }
    }

    /// A reason that only one rule has.
    pub fn because(reason: &'static str) -> Self {
        Reason::Rule(reason).into()
    }
}

impl From<Reason> for Skip {
    fn from(reason: Reason) -> Self {
        Self { reason: Some(reason), culprit: None }
    }
}
