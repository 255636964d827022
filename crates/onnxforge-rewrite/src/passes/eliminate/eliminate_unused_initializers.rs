//! eliminate_unused_initializers: constants that nothing reads go away.
//!
//! **Matches** constants of any scope without a reader. A read from a body counts, and so do annotations that name them.
//! **Accuracy** `BitExact`.
//! **Proof** Nothing reads them.
//! **Never** defaults of inputs: they belong to the interface.

use crate::passes::pass;
use crate::{Skipped, Workbench};
use onnxforge_ir::{Accuracy, ValueId};

pass!(eliminate_unused_initializers { stage: Canonicalize, accuracy: Accuracy::BitExact, run });

fn run(bench: &mut Workbench<'_>, _: &mut Vec<Skipped>) -> usize {
    let constants = bench.model.scopes().flat_map(|(scope, _)| bench.model.constants_in(scope));
    let unread =
        |id: &ValueId| bench.model.value(*id).uses().is_empty() && !bench.model.value(*id).is_pinned();
    let unused: Vec<ValueId> = constants.map(|(id, _)| id).filter(unread).collect();
    if unused.is_empty() || bench.is_spent() {
        return 0;
    }
    let mut change = bench.cx(PASS.author(), "unread", Accuracy::BitExact).change(&[]);
    unused.into_iter().for_each(|id| change.drop_constant(id));
    usize::from(bench.commit(change).is_ok())
}
