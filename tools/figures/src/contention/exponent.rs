//! Exponents of growth.

/// A power law `y = factor · xᵉ`, fitted by least squares to the logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exponent {
    pub factor: f64,
    pub exponent: f64,
    /// The part of the variance of `ln y` that the law explains, from 0 to 1.
    pub r_squared: f64,
}

impl Exponent {
    /// Fits the law to points with coordinates above zero; `None` if they have less than two
    /// different abscissas.
    pub fn fit(points: &[(f64, f64)]) -> Option<Self> {
        let logs: Vec<_> = points
            .iter()
            .map(|(x, y)| (libm::log(*x), libm::log(*y)))
            .collect();
        let count = logs.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| logs.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
            logs.iter().map(|point| of(point.0 - x, point.1 - y)).sum()
        };
        let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
        (xx > 0.0).then(|| Self {
            factor: libm::exp(y - xy / xx * x),
            exponent: xy / xx,
            r_squared: if yy > 0.0 { xy * xy / (xx * yy) } else { 1.0 },
        })
    }
}
