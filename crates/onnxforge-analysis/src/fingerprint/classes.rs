//! From features to a class.
//!
//! The class follows from two questions: what the model takes, and how it mixes places. How sure that is follows from how much of what one expects of
//! the class is there.

use super::Class;
use super::features::Features;
use super::inputs::Input;

/// What was concluded.
pub(super) struct Conclusion {
    pub class: Class,
    pub confidence: f64,
    pub reasons: Vec<String>,
}

/// What is expected of a class: whether it is there, and what is said then.
struct Sign(bool, String);

/// The inputs, in one look.
struct Takes {
    tokens: Option<(i64, i64)>,
    image: Option<i64>,
    wave: bool,
    spectrogram: Option<i64>,
    vectors: bool,
    features: bool,
}

impl Takes {
    fn of(inputs: &[Input]) -> Self {
        let mut takes = Self {
            tokens: None,
            image: None,
            wave: false,
            spectrogram: None,
            vectors: false,
            features: false,
        };
        for input in inputs {
            match *input {
                Input::Tokens { vocabulary, width } => {
                    takes.tokens = takes.tokens.max(Some((vocabulary, width)));
                }
                Input::Image { channels } => takes.image = Some(channels),
                Input::Wave => takes.wave = true,
                Input::Spectrogram { bins } => takes.spectrogram = Some(bins),
                Input::Vectors => takes.vectors = true,
                Input::Features => takes.features = true,
                Input::Cache | Input::Other => {}
            }
        }
        takes
    }

    fn sound(&self) -> bool {
        self.wave || self.spectrogram.is_some()
    }
}

/// Convolutions that see more than one place, from which on an image is worked on by convolutions, not only cut into patches.
const FEW: usize = 3;

/// The class of a model with these features.
pub(super) fn conclude(features: &Features) -> Conclusion {
    let takes = Takes::of(&features.inputs);
    let class = class(features, &takes);
    let signs = signs(class, features, &takes);
    let there = signs.iter().filter(|Sign(is, _)| *is).count();
    let share = if signs.is_empty() { 0.0 } else { there as f64 / signs.len() as f64 };
    let mut reasons: Vec<String> =
        signs.into_iter().filter(|Sign(is, _)| *is).map(|Sign(_, text)| text).collect();
    let against = against(class, features, &takes);
    let confidence = (0.37 + 0.6 * share - 0.15 * against.len() as f64).clamp(0.1, 1.0);
    reasons.extend(against.into_iter().map(|text| format!("but {text}")));
    Conclusion { class, confidence: (confidence * 100.0).round() / 100.0, reasons }
}

fn class(features: &Features, takes: &Takes) -> Class {
    let attends = features.attention > 0;
    let one_by_one = features.is_causal || features.caches > 0;
    if features.gives_wave || takes.sound() && takes.image.is_none() {
        return Class::Audio;
    }
    if takes.image.is_some() {
        return match (attends, features.spatial_convs >= FEW) {
            (false, _) => Class::Vision,
            (true, true) if takes.tokens.is_none() => Class::Hybrid,
            (true, _) => Class::Transformer,
        };
    }
    if takes.tokens.is_some() {
        return match attends {
            // What a decoder looks at besides its own text makes it half of something else.
            true if features.cross_attention > 0 => Class::Transformer,
            true if one_by_one
                && (features.scores_vocabulary || features.caches > 0 || features.has_output_per_token) =>
            {
                Class::Llm
            }
            true => Class::Transformer,
            // Without attention, only what is said next tells.
            false if features.scores_vocabulary => Class::Llm,
            false => Class::Other,
        };
    }
    match attends {
        true if features.caches > 0 && features.cross_attention == 0 => Class::Llm,
        true => Class::Transformer,
        false if features.spatial_convs >= FEW => Class::Vision,
        false => Class::Other,
    }
}

fn signs(class: Class, features: &Features, takes: &Takes) -> Vec<Sign> {
    let f = features;
    let several =
        |count: usize, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    let attention = || {
        let grouped =
            if f.grouped_attention > 0 { ", keys and values shared by groups of heads" } else { "" };
        Sign(
            f.attention > 0,
            format!("{}{grouped}", several(f.attention, "attention block", "attention blocks")),
        )
    };
    let convs = || {
        Sign(
            f.spatial_convs >= FEW,
            format!("{} convolutions along two axes or more, larger than one element", f.spatial_convs),
        )
    };
    let tokens = || {
        let (rows, width) = takes.tokens.unwrap_or_default();
        Sign(
            takes.tokens.is_some(),
            format!("integers choose rows of a table of {rows} × {width}: token ids"),
        )
    };
    let norms = || {
        let count = f.layer_norms + f.rms_norms;
        let kind = if f.rms_norms > f.layer_norms { "RMSNorm" } else { "LayerNorm" };
        Sign(count >= 2, format!("{count} × {kind}"))
    };
    let image =
        || Sign(takes.image.is_some(), format!("an image comes in ({} channels)", takes.image.unwrap_or(0)));
    let none = |text: &str| Sign(f.attention == 0, text.to_owned());
    match class {
        Class::Vision => vec![
            image(),
            convs(),
            none("no attention"),
            Sign(
                f.all_convs() > f.matmuls,
                format!(
                    "{}, {}",
                    several(f.all_convs(), "convolution", "convolutions"),
                    several(f.matmuls, "matmul with weights", "matmuls with weights")
                ),
            ),
        ],
        Class::Hybrid => vec![image(), convs(), attention(), norms()],
        Class::Transformer => vec![
            attention(),
            norms(),
            Sign(
                f.matmuls > f.all_convs(),
                format!(
                    "{}, {}",
                    several(f.matmuls, "matmul with weights", "matmuls with weights"),
                    several(f.all_convs(), "convolution", "convolutions")
                ),
            ),
            match (takes.tokens, takes.image) {
                (Some(_), _) => tokens(),
                (_, Some(channels)) => {
                    Sign(true, format!("an image ({channels} channels), cut into patches"))
                }
                _ => Sign(takes.vectors, "a sequence of vectors comes in".to_owned()),
            },
            match f.cross_attention {
                0 => Sign(!f.is_causal && f.caches == 0, "every position attends to every other".to_owned()),
                count => Sign(true, format!("{count} layers attend to the output of an encoder")),
            },
        ],
        Class::Llm => vec![
            match takes.tokens {
                Some(_) => tokens(),
                None => Sign(takes.vectors, "a sequence of vectors comes in".to_owned()),
            },
            attention(),
            match f.caches {
                0 => Sign(f.is_causal, "later positions are masked".to_owned()),
                count => Sign(true, format!("{count} inputs to which keys and values are appended")),
            },
            Sign(f.scores_vocabulary, "a score for each entry of the vocabulary comes out".to_owned()),
            Sign(
                norms().0 && (f.rms_norms == 0 || f.rotations > 0 || f.gates > 0),
                match (f.rotations, f.gates) {
                    (0, 0) => norms().1,
                    (0, gates) => format!("{}, {gates} × SwiGLU", norms().1),
                    (rotations, 0) => format!("{}, {rotations} rotations by position", norms().1),
                    (rotations, gates) => {
                        format!("{}, {rotations} rotations by position, {gates} × SwiGLU", norms().1)
                    }
                },
            ),
        ],
        Class::Audio => {
            let along = f.convs[0];
            let comes = match takes.spectrogram {
                _ if takes.wave => "a wave comes in: one channel, along time".to_owned(),
                Some(1) => "a plane without channels comes in, such as a spectrogram".to_owned(),
                Some(bins) => {
                    format!("{bins} channels come in that are convolved along time, such as a spectrogram")
                }
                None => "a wave comes out: one channel from a convolution along time".to_owned(),
            };
            vec![
                Sign(true, comes),
                match (along, f.convs[1]) {
                    (0, planes) => Sign(
                        planes > 0,
                        format!("{} along both axes", several(planes, "convolution", "convolutions")),
                    ),
                    (along, _) => Sign(
                        true,
                        format!("{} along one axis", several(along, "convolution", "convolutions")),
                    ),
                },
                Sign(
                    f.attention > 0 || f.recurrent > 0 || along >= FEW,
                    match (f.attention, f.recurrent) {
                        (0, 0) => "the rest are convolutions along time, too".to_owned(),
                        (0, recurrent) => several(recurrent, "recurrent layer", "recurrent layers"),
                        (blocks, _) => several(blocks, "attention block", "attention blocks"),
                    },
                ),
            ]
        }
        Class::Other => vec![
            none("no attention"),
            Sign(f.spatial_convs < FEW, "hardly any convolution".to_owned()),
            Sign(
                f.estimators > 0,
                format!("{} that are no networks", several(f.estimators, "operator", "operators")),
            ),
            Sign(
                f.recurrent > 0,
                format!(
                    "{} over numbers or tokens: sound, text or any other series",
                    several(f.recurrent, "recurrent layer", "recurrent layers")
                ),
            ),
            Sign(
                takes.features || takes.vectors,
                format!("numbers go straight into matmuls with weights ({})", f.matmuls),
            ),
        ],
    }
}

/// What one does not expect of the class.
fn against(class: Class, features: &Features, takes: &Takes) -> Vec<String> {
    let mut found = Vec::new();
    let mut note = |is: bool, text: &str| {
        if is {
            found.push(text.to_owned());
        }
    };
    match class {
        Class::Vision => note(takes.image.is_none(), "nothing that comes in looks like an image"),
        Class::Hybrid => {
            note(
                features.attention * 20 < features.spatial_convs,
                "there is far more convolution than attention",
            );
        }
        Class::Llm => {
            note(features.attention == 0, "there is no attention between tokens");
            note(takes.tokens.is_none(), "no token ids come in");
        }
        Class::Transformer => {
            note(features.is_causal && features.cross_attention == 0, "later positions are masked");
        }
        Class::Audio => {
            note(takes.tokens.is_some() && !features.gives_wave, "token ids come in, too");
            note(
                takes.spectrogram.is_some_and(|bins| bins > 1 && bins < 16),
                "so few channels may be another signal",
            );
        }
        Class::Other => {}
    }
    found
}
