//! What users asked for in advance, with the numbers that answer it.

use onnxforge::passes;
use onnxforge::passes::fuse::fuse_matmul_add_3d;
use onnxforge_figures::statistics::pearson;
use serde::Serialize;

use super::{kinds, reduction, time};
use crate::corpus::{Corpus, Studied};

/// A question that was asked in advance, with the number that answers it.
#[derive(Clone, Debug, Serialize)]
pub struct Gate {
    pub question: &'static str,
    /// Nothing where the study does not tell.
    pub answer: Option<bool>,
    pub number: String,
}

/// The passes that users asked for, by the names that they gave; others go beyond that. A test holds that each of them exists.
const NAMED: [&str; 18] = [
    "eliminate_dead_nodes",
    "eliminate_identity_ops",
    "eliminate_unused_initializers",
    "eliminate_duplicate_constants",
    "eliminate_redundant_transposes",
    "eliminate_noop_transposes",
    "eliminate_noop_reshapes",
    "eliminate_expand_identity",
    "fold_constants",
    "fold_cast_chains",
    "simplify_shape_chains",
    "fuse_conv_batchnorm",
    "fuse_conv_relu",
    "fuse_matmul_add",
    "fuse_matmul_add_3d",
    "fuse_attention_qkv",
    "cleanup_attention",
    "decompose_layernorm",
];

/// Whether it is an encoder of text.
fn is_text_encoder(model: &Studied) -> bool {
    model.class() == "transformer" && model.takes("tokens")
}

/// A number for each model that has it, the least and the greatest of them in words.
fn spread(corpus: &Corpus, of: impl Fn(&Studied) -> Option<f64>) -> Option<([f64; 2], String)> {
    let mut found: Vec<(f64, &str)> =
        corpus.models.iter().filter_map(|model| Some((of(model)?, model.name.as_str()))).collect();
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (least, most) = (found.first()?, found.last()?);
    let text = match found.len() {
        1 => format!("{:.1} % ({})", most.0, most.1),
        _ => format!("{:.1} % ({}) to {:.1} % ({})", least.0, least.1, most.0, most.1),
    };
    Some(([least.0, most.0], text))
}

/// All of them.
pub fn all(corpus: &Corpus) -> Vec<Gate> {
    let gate = |question, answer, number| Gate { question, answer, number };
    let percent = |question, found: Option<([f64; 2], String)>, is_met: &dyn Fn([f64; 2]) -> bool| match found
    {
        Some((bounds, text)) => gate(question, Some(is_met(bounds)), text),
        None => gate(question, None, "no such model".to_owned()),
    };
    let compared: Vec<&Studied> =
        corpus.models.iter().filter(|model| model.report("optimize").is_some()).collect();
    let verified = compared.iter().filter(|model| {
        let verdict = model.verdict("optimize");
        verdict.starts_with("identical") || verdict == "rounding"
    });
    let verified = verified.count();
    let timed: Vec<&Studied> = corpus.models.iter().filter(|model| model.report("bench").is_some()).collect();
    let measured = !timed.is_empty();
    let vision: Vec<&str> =
        timed.iter().filter(|model| model.class() == "vision").map(|model| model.name.as_str()).collect();
    let attributed = corpus.models.iter().filter(|model| model.report("attribute").is_some()).count();
    let tried = super::passes::of_all(corpus).len();
    let silent = super::passes::silent(corpus);
    let beyond = |model: &Studied| -> Vec<String> {
        let fired = model.passes("optimize");
        fired
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .filter(|name| !NAMED.contains(&name.as_str()))
            .collect()
    };
    let language: Vec<&&Studied> = compared.iter().filter(|model| model.class() == "llm").collect();
    let least_beyond = language.iter().map(|model| (beyond(model).len(), &model.name)).min();
    let pairs = time::pairs(corpus);
    let (right, labelled) = kinds::score(corpus);
    let declared = passes::all().count();
    let is_proved = |text: String| ["**Proof**", "**Bound**"].iter().any(|head| text.contains(head));
    let proved = passes::all().filter(|pass| is_proved(pass.text())).count();
    vec![
        percent(
            "more than 10 % fewer nodes on some model",
            spread(corpus, |model| Some(reduction(model.nodes()?))),
            &|[_, most]| most > 10.0,
        ),
        percent(
            "more than 5 % fewer nodes on encoders of text from the 3-D product alone",
            spread(corpus, |model| {
                let nodes = |place: &str| model.number(fuse_matmul_add_3d::PASS.name, place);
                let counts = [nodes("/before/all_nodes")?, nodes("/after/all_nodes")?];
                is_text_encoder(model).then(|| reduction(counts))
            }),
            &|[least, _]| least > 5.0,
        ),
        percent(
            "15 % fewer nodes or more on encoders of text",
            spread(corpus, |model| model.nodes().filter(|_| is_text_encoder(model)).map(reduction)),
            &|[least, _]| least >= 15.0,
        ),
        gate(
            "a pass beyond the named ones fires on every language model",
            least_beyond.map(|(count, _)| count > 0),
            least_beyond.map_or_else(
                || "no such model".to_owned(),
                |(count, name)| format!("{count} passes or more ({name})"),
            ),
        ),
        gate("vision models are measured", measured.then_some(!vision.is_empty()), vision.join(", ")),
        gate(
            "results are the same on every model",
            Some(verified == compared.len() && !compared.is_empty()),
            format!("{verified} of {}", compared.len()),
        ),
        gate(
            "latency on 8 models or more",
            measured.then_some(timed.len() >= 8),
            format!("{} models", timed.len()),
        ),
        gate(
            "attribution of 17 passes or more on 16 models or more, no blanks",
            Some(tried >= 17 && attributed >= 16 && attributed == compared.len()),
            format!("{tried} passes × {attributed} models"),
        ),
        gate(
            "every pass has a written proof or bound",
            Some(proved == declared),
            format!("{proved} of {declared} passes"),
        ),
        gate(
            "the correlation of nodes and time is measured",
            measured.then_some(pairs.len() >= 3),
            pearson(&pairs).map_or_else(
                || "too few models".to_owned(),
                |found| format!("{found:.2} on {} models", pairs.len()),
            ),
        ),
        gate(
            "8 models or more are classified right",
            (labelled > 0).then_some(right >= 8 && right == labelled),
            if labelled > 0 { format!("{right} of {labelled}") } else { "no labels were given".to_owned() },
        ),
        gate(
            "every pass that removes nothing anywhere is explained",
            Some(silent.iter().all(|(_, why)| why.is_known)),
            format!("{} passes", silent.len()),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_passes_exist() {
        let unknown: Vec<_> = NAMED.into_iter().filter(|name| passes::find(name).is_none()).collect();
        assert!(unknown.is_empty(), "no passes have these names: {unknown:?}");
    }
}
