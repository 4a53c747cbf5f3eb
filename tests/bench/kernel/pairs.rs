//! Measuring two things alternately: A B, B A, A B, …, so that what drifts on the machine meets both, and neighbours
//! that are the same thing tell how far noise alone moves a ratio.

use crate::report::Ratio;

/// One of two things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arm {
    /// The governor is attached.
    Attached,
    /// It is not.
    Detached,
}

/// The order of `pairs` pairs.
pub(crate) fn order(pairs: usize) -> impl Iterator<Item = Arm> {
    (0..pairs).flat_map(|pair| match pair % 2 {
        0 => [Arm::Attached, Arm::Detached],
        _ => [Arm::Detached, Arm::Attached],
    })
}

/// One kind of measurement, in the [`order`] it was taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series(Vec<(Arm, f64)>);

impl Series {
    /// Adds the next measurement.
    pub(crate) fn push(&mut self, arm: Arm, value: f64) {
        self.0.push((arm, value));
    }

    /// Median of one arm.
    pub(crate) fn of(&self, arm: Arm) -> f64 {
        median(self.0.iter().filter(|(of, _)| *of == arm).map(|(_, value)| *value).collect())
    }

    /// Attached by detached, pair by pair.
    pub(crate) fn ratio(&self) -> Ratio {
        let pairs = self.0.as_chunks::<2>().0;
        let ratios: Vec<f64> = pairs.iter().map(|[one, other]| attached_by_detached(*one, *other)).collect();
        // The second of a pair and the first of the next are the same arm.
        let same = self.0.get(1..).unwrap_or_default().as_chunks::<2>().0;
        let controls: Vec<f64> = same.iter().map(|[(_, one), (_, other)]| one / other).collect();
        let (low, high) = interval(ratios.clone());
        Ratio { median: median(ratios), low, high, control: (!controls.is_empty()).then(|| median(controls)) }
    }
}

fn attached_by_detached((arm, one): (Arm, f64), (_, other): (Arm, f64)) -> f64 {
    match arm {
        Arm::Attached => one / other,
        Arm::Detached => other / one,
    }
}

/// The middle value; of an even number the mean of the two in the middle; not a number for none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.len() % 2, values.get(middle)) {
        (_, None) => f64::NAN,
        (1, Some(value)) => *value,
        (_, Some(value)) => f64::midpoint(values[middle - 1], *value),
    }
}

/// The 95 % confidence interval of the median, by order statistics: it assumes nothing about the distribution.
fn interval(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let count = values.len();
    // The number of values below the median is binomial; its normal approximation is close from 10 values on.
    let spread = (1..).take_while(|n| n * n * 100 < count * 96).count();
    let low = (count / 2).saturating_sub(spread);
    let high = (count.div_ceil(2) + spread).min(count.saturating_sub(1));
    (values.get(low).copied().unwrap_or(f64::NAN), values.get(high).copied().unwrap_or(f64::NAN))
}
