//! Lists of integers that are attributes in old versions of an operator and inputs in new ones.

use crate::error::OpError;
use crate::eval_call::Eval;
use crate::infer_call::Infer;
use onnxforge_ir::dim::Dim;

/// A list of integers: the attribute `name` in versions before opset `since`, and input `input` from then on.
pub struct Parameter {
    /// The attribute.
    pub name: &'static str,
    /// The input.
    pub input: usize,
    /// The first opset in which it is an input.
    pub since: u32,
}

/// What inference knows of something that may be left out.
pub enum Given<T> {
    /// It is left out.
    Absent,
    /// It is given; nothing is known of it.
    Unknown,
    /// It is given and known.
    Known(T),
}

impl<T> Given<T> {
    /// The value, when it is known.
    pub fn known(self) -> Option<T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Absent | Self::Unknown => None,
        }
    }

    /// What `change` makes of the value; `None` makes it unknown.
    pub fn and_then<U>(self, change: impl FnOnce(T) -> Option<U>) -> Given<U> {
        match self {
            Self::Absent => Given::Absent,
            Self::Unknown => Given::Unknown,
            Self::Known(value) => change(value).map_or(Given::Unknown, Given::Known),
        }
    }
}

impl Parameter {
    /// The integers, if they are given.
    pub fn evaluate(&self, cx: &Eval<'_>) -> Result<Option<Vec<i64>>, OpError> {
        if cx.call.since() >= self.since { cx.ints(self.input) } else { cx.call.opt_ints(self.name) }
    }

    /// The integers as expressions.
    pub fn dims(&self, cx: &Infer<'_>) -> Result<Given<Vec<Dim>>, OpError> {
        if cx.call.since() >= self.since {
            return Ok(match cx.dims(self.input) {
                _ if !cx.has(self.input) => Given::Absent,
                Some(dims) => Given::Known(dims),
                None => Given::Unknown,
            });
        }
        let ints = cx.call.opt_ints(self.name)?;
        Ok(ints.map_or(Given::Absent, |ints| Given::Known(ints.into_iter().map(Dim::from).collect())))
    }

    /// The integers, when all are numbers.
    pub fn ints(&self, cx: &Infer<'_>) -> Result<Given<Vec<i64>>, OpError> {
        Ok(self.dims(cx)?.and_then(|dims| dims.iter().map(Dim::as_const).collect()))
    }

    /// How many integers there are, if they are given and that is known.
    pub fn count(&self, cx: &Infer<'_>) -> Result<Option<usize>, OpError> {
        if let Given::Known(dims) = self.dims(cx)? {
            return Ok(Some(dims.len()));
        }
        match cx.shape(self.input) {
            Some([count]) if cx.call.since() >= self.since => {
                Ok(count.as_const().and_then(|count| usize::try_from(count).ok()))
            }
            _ => Ok(None),
        }
    }
}
