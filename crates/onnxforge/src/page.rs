//! One HTML page that shows the modules of a model.

use std::collections::BTreeMap;

use onnxforge_analysis::cost::at_sizes;
use onnxforge_analysis::profile::Profile;
use onnxforge_hierarchy::report::{Contents, Optimization, page};
use onnxforge_hierarchy::{Hierarchy, Policy, Tags};
use onnxforge_ir::Model;
use onnxforge_ops::infer::Inference;
use onnxforge_verify::named_dims;

/// The page of a model that people know as `file`. FLOPs are counted at these sizes of named dimensions, others are 1. `times` are those of its modules, where
/// they were measured.
pub fn page(
    file: &str,
    model: &Model,
    hierarchy: &Hierarchy,
    policy: &Policy,
    dims: &[(String, usize)],
    optimization: Option<Optimization>,
    times: Option<&Profile>,
) -> String {
    let facts = Inference::of(model);
    let mut sizes: BTreeMap<String, u64> = named_dims(model).into_iter().map(|name| (name, 1)).collect();
    sizes.extend(dims.iter().map(|(name, size)| (name.clone(), *size as u64)));
    let flops = at_sizes(model, &facts, &sizes.clone().into_iter().collect());
    let note: Vec<String> = sizes.iter().map(|(name, size)| format!("{name}={size}")).collect();
    let tags = Tags::new(hierarchy.table(), policy);
    let contents = Contents {
        model,
        file,
        hierarchy,
        tags: &tags,
        facts: &facts,
        flops: &|node| flops.get(&node).copied(),
        flops_note: (!note.is_empty()).then(|| format!("at {}", note.join(", "))),
        optimization,
        times: times.map(|profile| profile.modules.iter().map(|module| (module.self_ms.median, module.total_ms.median)).collect()),
    };
    page::page(&contents.data())
}
