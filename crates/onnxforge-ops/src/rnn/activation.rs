//! The functions that gates go through.

use crate::call::Call;
use crate::error::{OpError, invalid, unsupported};
use crate::kernel::number::Float;

/// A function with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Activation {
    function: Function,
    alpha: f32,
    beta: f32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Function {
    Relu,
    Tanh,
    Sigmoid,
    Affine,
    LeakyRelu,
    ThresholdedRelu,
    ScaledTanh,
    HardSigmoid,
    Elu,
    Softsign,
    Softplus,
}

use Function::{
    Affine, Elu, HardSigmoid, LeakyRelu, Relu, ScaledTanh, Sigmoid, Softplus, Softsign, Tanh, ThresholdedRelu,
};

/// Where a parameter comes from.
#[derive(Clone, Copy)]
enum Parameter {
    /// The function has no such parameter.
    Unused,
    /// The attribute, or the default of the operator of this name.
    Default(f32),
    /// The attribute; the standard has no default.
    Required,
}

use Parameter::{Default, Required, Unused};

impl Parameter {
    fn take(self, given: &mut impl Iterator<Item = f32>) -> Option<f32> {
        match self {
            Unused => Some(0.0),
            Default(default) => Some(given.next().unwrap_or(default)),
            Required => given.next(),
        }
    }
}

/// The functions by name, with their alpha and beta.
const FUNCTIONS: [(&str, Function, Parameter, Parameter); 11] = [
    ("Relu", Relu, Unused, Unused),
    ("Tanh", Tanh, Unused, Unused),
    ("Sigmoid", Sigmoid, Unused, Unused),
    ("Affine", Affine, Required, Required),
    ("LeakyRelu", LeakyRelu, Default(0.01), Unused),
    ("ThresholdedRelu", ThresholdedRelu, Default(1.0), Unused),
    ("ScaledTanh", ScaledTanh, Required, Required),
    ("HardSigmoid", HardSigmoid, Default(0.2), Default(0.5)),
    ("Elu", Elu, Default(1.0), Unused),
    ("Softsign", Softsign, Unused, Unused),
    ("Softplus", Softplus, Unused, Unused),
];

impl Activation {
    /// The functions of each direction: those of the attribute, or `defaults`.
    pub fn list(call: &Call<'_>, defaults: &[&str], directions: usize) -> Result<Vec<Vec<Self>>, OpError> {
        let given = match call.opt_byte_strings("activations")? {
            Some(_) => call.texts("activations")?,
            None => defaults.iter().map(|name| (*name).to_owned()).collect(),
        };
        let parameters = |name: &str| call.floats_or(name, Vec::new());
        let parameters = [parameters("activation_alpha")?, parameters("activation_beta")?];
        let names = Self::per_direction(given, defaults.len(), directions)?;
        Self::parse(&names, parameters, defaults.len())
    }

    /// `count` names for each direction; those of one direction also hold for two.
    fn per_direction(names: Vec<String>, count: usize, directions: usize) -> Result<Vec<String>, OpError> {
        match names.len() {
            given if given == count => Ok(names.iter().cycle().take(count * directions).cloned().collect()),
            given if given == 2 * count => Ok(names.into_iter().take(count * directions).collect()),
            given => invalid(format!("{given} activations, {count} are needed")),
        }
    }

    /// Each function takes the next parameters of the lists, if it has such parameters.
    fn parse(names: &[String], parameters: [Vec<f32>; 2], count: usize) -> Result<Vec<Vec<Self>>, OpError> {
        let [mut alphas, mut betas] = parameters.map(Vec::into_iter);
        let mut parsed = Vec::with_capacity(names.len());
        for name in names {
            let found = FUNCTIONS.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name));
            let Some(&(_, function, alpha, beta)) = found else {
                return invalid(format!("the activation {name:?}"));
            };
            let (Some(alpha), Some(beta)) = (alpha.take(&mut alphas), beta.take(&mut betas)) else {
                return unsupported(format!("{name} without alpha and beta"));
            };
            parsed.push(Self { function, alpha, beta });
        }
        Ok(parsed.chunks(count).map(<[Self]>::to_vec).collect())
    }

    /// The function of `x`.
    pub fn of<T: Float>(&self, x: T) -> T {
        let [alpha, beta] = [self.alpha, self.beta].map(|parameter| T::from_f64(parameter.into()));
        match self.function {
            Relu if x < T::ZERO => T::ZERO,
            Relu => x,
            Tanh => x.tanh(),
            Sigmoid => T::ONE / (T::ONE + (-x).exp()),
            Affine => alpha * x + beta,
            LeakyRelu if x < T::ZERO => alpha * x,
            LeakyRelu => x,
            ThresholdedRelu if x < alpha => T::ZERO,
            ThresholdedRelu => x,
            ScaledTanh => alpha * (beta * x).tanh(),
            HardSigmoid => num_traits::Float::min(num_traits::Float::max(alpha * x + beta, T::ZERO), T::ONE),
            Elu if x < T::ZERO => alpha * x.exp_m1(),
            Elu => x,
            Softsign => x / (T::ONE + num_traits::Float::abs(x)),
            Softplus if x > T::ZERO => x + (-x).exp().ln_1p(),
            Softplus => x.exp().ln_1p(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_go_to_the_functions_that_have_them() {
        let names = ["tanh", "LeakyRelu", "HardSigmoid", "Elu"].map(str::to_owned);
        let parsed = Activation::parse(&names, [vec![0.5, 0.25], vec![0.125]], 2).unwrap();
        let found: Vec<(f32, f32)> = parsed.concat().iter().map(|a| (a.alpha, a.beta)).collect();
        assert_eq!(found, [(0.0, 0.0), (0.5, 0.0), (0.25, 0.125), (1.0, 0.0)]);
        assert!(Activation::parse(&["Cosh".to_owned()], [vec![], vec![]], 1).is_err());
        assert!(Activation::parse(&["Affine".to_owned()], [vec![1.0], vec![]], 1).is_err());
        assert!(Activation::per_direction(vec!["Relu".to_owned(); 3], 2, 2).is_err());
        assert_eq!(Activation::per_direction(vec!["Relu".to_owned(); 2], 2, 2).unwrap().len(), 4);
    }

    #[test]
    fn softplus_neither_overflows_nor_vanishes() {
        let plus = Activation { function: Softplus, alpha: 0.0, beta: 0.0 };
        assert_eq!([plus.of(1000f64), plus.of(-1000.0)], [1000.0, 0.0]);
        assert_eq!(plus.of(-30f32), (-30f32).exp());
    }
}
