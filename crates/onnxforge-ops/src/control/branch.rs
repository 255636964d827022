//! If.

use crate::error::OpError;
use crate::eval_call::Eval;
use crate::infer_call::Infer;
use crate::value::Value;

pub fn run_if(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let branch = if cx.array(0)?.to_i64()? != 0 { "then_branch" } else { "else_branch" };
    cx.body(cx.call.graph(branch)?, Vec::new())
}

/// What holds after both branches, or after the one that is surely taken; a branch that is never taken is not looked at.
pub fn infer_if(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let (then, otherwise) = (cx.call.graph("then_branch")?, cx.call.graph("else_branch")?);
    let facts = match cx.ints(0).as_deref() {
        Some([0]) => cx.body(otherwise, Vec::new())?,
        Some([_]) => cx.body(then, Vec::new())?,
        _ => {
            let (a, b) = (cx.body(then, Vec::new())?, cx.body(otherwise, Vec::new())?);
            a.iter().zip(&b).map(|(a, b)| a.join(b, cx.symbols)).collect()
        }
    };
    for (index, fact) in facts.into_iter().enumerate() {
        cx.set(index, fact);
    }
    Ok(())
}
