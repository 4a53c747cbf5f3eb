//! Measuring things alternately: A B C, C B A, A B C, …, so that what drifts on the machine meets all of them, and
//! neighbours that are the same thing tell how far noise alone moves a ratio.

use crate::report::Ratio;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arm {
    /// The governor is attached.
    Attached,
    /// Programs that do nothing are attached, as many and to the same hooks.
    Empty,
    /// One such program on each hook.
    Single,
    /// Nothing is.
    Detached,
}

/// The order of `rounds` rounds over `arms`.
pub(crate) fn order<const ARMS: usize>(rounds: usize, arms: [Arm; ARMS]) -> impl Iterator<Item = Arm> {
    (0..rounds).flat_map(move |round| {
        let mut arms = arms;
        if !round.is_multiple_of(2) {
            arms.reverse();
        }
        arms
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
        median(self.all(arm).collect())
    }

    /// An arm by [`Arm::Detached`], round by round.
    pub(crate) fn ratio(&self, arm: Arm) -> Ratio {
        self.ratio_by(arm, Arm::Detached)
    }

    /// One arm by another, round by round.
    pub(crate) fn ratio_by(&self, arm: Arm, by: Arm) -> Ratio {
        let ratios: Vec<f64> = self.all(arm).zip(self.all(by)).map(|(one, other)| one / other).collect();
        // The last of a round and the first of the next are the same arm.
        let neighbours = self.0.array_windows().filter(|[(one, _), (other, _)]| one == other);
        let controls: Vec<f64> = neighbours.map(|[(_, one), (_, other)]| one / other).collect();
        let (low, high) = interval(ratios.clone());
        Ratio { median: median(ratios), low, high, control: (!controls.is_empty()).then(|| median(controls)) }
    }

    fn all(&self, arm: Arm) -> impl Iterator<Item = f64> {
        self.0.iter().filter(move |(of, _)| *of == arm).map(|(_, value)| *value)
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
