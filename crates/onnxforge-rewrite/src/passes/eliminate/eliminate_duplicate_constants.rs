//! eliminate_duplicate_constants: one copy of each equal tensor.
//!
//! **Matches** constants of one scope, of any element type, with the same type, shape and bytes.
//! **Accuracy** `BitExact`.
//! **Proof** They are the same bytes: −0 is told from +0, and each NaN from the others.
//! **Never** constants that callers may override, outputs, or values that annotations name.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};

use crate::passes::pass;
use crate::{Skipped, Workbench};
use onnxforge_ir::tensor::Data;
use onnxforge_ir::{Accuracy, ScopeId, Tensor, ValueId};

pass!(eliminate_duplicate_constants { stage: Canonicalize, accuracy: Accuracy::BitExact, run });

/// Bytes at either end of a tensor that the first comparison looks at.
const SAMPLE: usize = 4096;

fn run(bench: &mut Workbench<'_>, _: &mut Vec<Skipped>) -> usize {
    let mut edits = 0;
    let scopes: Vec<ScopeId> = bench.model.scopes().map(|(id, _)| id).collect();
    for scope in scopes {
        let constants: Vec<ValueId> = bench.model.constants_in(scope).map(|(id, _)| id).collect();
        let mut alike: HashMap<u64, Vec<ValueId>> = HashMap::new();
        for id in constants {
            let value = bench.model.value(id);
            let Some(tensor) = bench.model.constant(id) else { continue };
            if value.is_exposed() || value.uses().is_empty() || bench.is_spent() {
                continue;
            }
            let Some(hash) = sampled(tensor) else { continue };
            let candidates = alike.entry(hash).or_default();
            let same =
                |&&other: &&ValueId| bench.model.constant(other).is_some_and(|other| other.same_bits(tensor));
            match candidates.iter().find(same).copied() {
                Some(first) => {
                    let mut change = bench.cx(PASS.author(), "same_bits", Accuracy::BitExact).change(&[]);
                    change.replace(id, first);
                    edits += usize::from(bench.commit(change).is_ok());
                }
                None => candidates.push(id),
            }
        }
    }
    edits
}

/// A hash of type, shape and both ends; `None` where the bytes are not at hand.
fn sampled(tensor: &Tensor) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    hasher.write_i32(tensor.dtype().code());
    tensor.shape().iter().for_each(|&dim| hasher.write_usize(dim));
    match tensor.data() {
        Data::Bytes(bytes) => {
            hasher.write(bytes.get(..SAMPLE).unwrap_or(bytes));
            hasher.write(bytes.get(bytes.len().saturating_sub(SAMPLE)..).unwrap_or_default());
        }
        Data::Strings(strings) => strings.iter().for_each(|string| hasher.write(string)),
        Data::Splat(_) | Data::Lazy(_) | Data::Unavailable(_) => return None,
    }
    Some(hasher.finish())
}
