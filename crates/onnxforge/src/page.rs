//! One HTML page that shows the modules of a model.

use std::collections::BTreeMap;

use onnxforge_analysis::cost::at_sizes;
use onnxforge_analysis::profile::Profile;
use onnxforge_hierarchy::report::{Contents, Optimization, page};
use onnxforge_hierarchy::{Hierarchy, Policy, Tags};
use onnxforge_ir::Model;
use onnxforge_ops::infer::Inference;
use onnxforge_verify::named_dims;

/// What a page shows besides the model as it is.
#[derive(Clone, Debug, Default)]
pub struct Besides<'m> {
    /// What passes did.
    pub optimization: Option<Optimization>,
    /// The model before they did, which has the same modules.
    pub before: Option<(&'m Model, &'m Hierarchy)>,
    /// Times of the modules.
    pub times: Option<&'m Profile>,
}

/// The page of a model that people know as `file`. FLOPs are counted at these sizes of named dimensions, others are 1.
pub fn page(
    file: &str,
    model: &Model,
    hierarchy: &Hierarchy,
    policy: &Policy,
    dims: &[(String, usize)],
    besides: Besides<'_>,
) -> String {
    let facts = Inference::of(model);
    let mut sizes: BTreeMap<String, u64> = named_dims(model).into_iter().map(|name| (name, 1)).collect();
    sizes.extend(dims.iter().map(|(name, size)| (name.clone(), *size as u64)));
    let flops = at_sizes(model, &facts, &sizes.clone().into_iter().collect());
    let note: Vec<String> = sizes.iter().map(|(name, size)| format!("{name}={size}")).collect();
    let tags = Tags::new(hierarchy.table(), policy);
    let facts_before = besides.before.map(|(model, _)| Inference::of(model));
    let plain = |model, hierarchy, facts| Contents {
        model,
        file,
        hierarchy,
        tags: &tags,
        facts,
        flops: &|_| None,
        flops_note: None,
        optimization: None,
        before: None,
        times: None,
    };
    let before = besides.before.zip(facts_before.as_ref());
    let before = before.map(|((model, hierarchy), facts)| plain(model, hierarchy, facts));
    let times = |profile: &Profile| {
        profile.modules.iter().map(|module| (module.self_ms.median, module.total_ms.median)).collect()
    };
    let contents = Contents {
        flops: &|node| flops.get(&node).copied(),
        flops_note: (!note.is_empty()).then(|| format!("at {}", note.join(", "))),
        optimization: besides.optimization,
        before: before.as_ref(),
        times: besides.times.map(times),
        ..plain(model, hierarchy, &facts)
    };
    page::page(&contents.data())
}
