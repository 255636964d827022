//! What packages of Core ML let their users choose.

use onnxforge::formats::coreml::{About, Pixels, Settings, VERSIONS};

use super::values::size;

/// Floats of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Precision {
    /// As Apple's converter: float16, but for what does not fit.
    Float16,
    /// float32 throughout.
    Float32,
}

/// Options of `convert` for Core ML.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Core ML")]
pub struct CoreMl {
    /// First iOS version that runs the package: 15 to 18 [default: 17].
    #[arg(long, value_name = "N", value_parser = version)]
    ios: Option<u32>,
    /// Precision in which floats are computed [default: float16].
    #[arg(long, value_name = "TYPE")]
    precision: Option<Precision>,
    /// Sizes that a symbolic dimension may have [default: 1..1024].
    #[arg(long, value_name = "NAME=FROM..TO", value_parser = named_range)]
    range: Vec<(String, (usize, usize))>,
    /// List the shapes that an input may have, the default first.
    #[arg(long, value_name = "NAME=N,N,…;N,N,…", value_parser = named_shapes)]
    shapes: Vec<(String, Vec<Vec<usize>>)>,
    /// Make an input an image; the model gets pixel × SCALE + BIAS.
    #[arg(long, value_name = "NAME[=SCALE[,BIAS…]]", value_parser = named_pixels)]
    image: Vec<(String, Pixels)>,
    /// Author of the model.
    #[arg(long, value_name = "TEXT")]
    author: Option<String>,
    /// License of the model.
    #[arg(long, value_name = "TEXT")]
    license: Option<String>,
    /// What the model does.
    #[arg(long, value_name = "TEXT")]
    summary: Option<String>,
    /// Version of the model.
    #[arg(long, value_name = "TEXT")]
    model_version: Option<String>,
}

impl CoreMl {
    /// The option that was given first, if any was.
    pub fn given(&self) -> Option<&'static str> {
        let all = [
            ("--ios", self.ios.is_some()),
            ("--precision", self.precision.is_some()),
            ("--range", !self.range.is_empty()),
            ("--shapes", !self.shapes.is_empty()),
            ("--image", !self.image.is_empty()),
            ("--author", self.author.is_some()),
            ("--license", self.license.is_some()),
            ("--summary", self.summary.is_some()),
            ("--model-version", self.model_version.is_some()),
        ];
        all.into_iter().find(|option| option.1).map(|option| option.0)
    }

    /// What the package is to be.
    pub fn settings(&self) -> Settings {
        let default = Settings::default();
        Settings {
            ios: self.ios.unwrap_or(default.ios),
            half: self.precision != Some(Precision::Float32),
            ranges: self.range.iter().cloned().collect(),
            shapes: self.shapes.iter().cloned().collect(),
            images: self.image.iter().cloned().collect(),
            about: About {
                summary: self.summary.clone(),
                author: self.author.clone(),
                license: self.license.clone(),
                version: self.model_version.clone(),
            },
        }
    }
}

fn version(text: &str) -> Result<u32, String> {
    let version = text.parse().ok().filter(|version| VERSIONS.contains(version));
    version.ok_or_else(|| format!("a number from {} to {} is needed", VERSIONS.start(), VERSIONS.end()))
}

fn named_range(text: &str) -> Result<(String, (usize, usize)), String> {
    let wrong = "write NAME=FROM..TO, such as seq=1..512";
    let (name, range) = text.rsplit_once('=').ok_or(wrong)?;
    let (from, to) = range.split_once("..").ok_or(wrong)?;
    let (from, to) = (size(from)?, size(to)?);
    match (1..=to).contains(&from) {
        true => Ok((name.to_owned(), (from, to))),
        false => Err("a range goes from 1 or more up".to_owned()),
    }
}

fn named_shapes(text: &str) -> Result<(String, Vec<Vec<usize>>), String> {
    let (name, shapes) = text.rsplit_once('=').ok_or("write NAME=N,N,…;N,N,…")?;
    let shape = |shape: &str| shape.split([',', 'x']).map(size).collect();
    Ok((name.to_owned(), shapes.split(';').map(shape).collect::<Result<_, _>>()?))
}

fn named_pixels(text: &str) -> Result<(String, Pixels), String> {
    let Some((name, numbers)) = text.rsplit_once('=') else {
        return Ok((text.to_owned(), Pixels { scale: 1.0, bias: vec![0.0] }));
    };
    let number = |text: &str| text.parse::<f32>().map_err(|_| format!("{text:?} is no number"));
    let mut numbers = numbers.split(',').map(number).collect::<Result<Vec<_>, _>>()?;
    let scale = numbers.remove(0);
    if numbers.is_empty() {
        numbers.push(0.0);
    }
    Ok((name.to_owned(), Pixels { scale, bias: numbers }))
}
