//! Scales of charts: the range of an axis and its round labels.

#![expect(missing_docs, reason = "fields are named after what they hold")]

/// The values between the lower and the upper edge of a plot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueRange {
    pub low: f64,
    pub high: f64,
}

impl ValueRange {
    /// A range that differs enough for a scale, around the same middle.
    #[must_use]
    pub fn widened(self) -> Self {
        let size = self.low.abs().max(self.high.abs());
        if self.high - self.low > size * 1e-12 && self.high - self.low > 1e-290 {
            return self;
        }
        let by = if size < 1e-250 { 1.0 } else { size * 0.05 };
        Self { low: self.low - by, high: self.high + by }
    }

    /// A range with some room at both edges.
    #[must_use]
    pub fn padded(self) -> Self {
        let by = (self.high - self.low) * 0.04;
        Self { low: self.low - by, high: self.high + by }
    }

    /// Where a value lies: 0 at the lower edge, 1 at the upper one.
    pub fn share(self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// Whether a value is inside.
    pub fn holds(self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// Round values in a range with their labels, about `most` of them.
pub fn ticks(range: ValueRange, most: u32) -> Vec<(f64, String)> {
    let raw = (range.high - range.low) / f64::from(most);
    let unit = 10f64.powi(raw.log10().floor() as i32);
    let step = [1.0, 2.0, 5.0].map(|factor| factor * unit).into_iter().find(|step| *step >= raw).unwrap_or(10.0 * unit);
    let (first, last) = ((range.low / step).ceil() as i64, (range.high / step).floor() as i64);
    let label = |value: f64| {
        let exponent = |number: f64| number.abs().log10().floor();
        if value == 0.0 {
            return "0".to_owned();
        }
        if value.abs() >= 1e7 || step < 1e-5 {
            let digits = (exponent(value) - exponent(step)).clamp(0.0, 15.0) as usize;
            return format!("{value:.digits$e}");
        }
        let digits = (-exponent(step)).max(0.0) as usize;
        format!("{value:.digits$}")
    };
    (first..=last).take(most as usize + 2).map(|n| n as f64 * step).map(|value| (value, label(value))).collect()
}

/// The positions of rows that have a label: round ones, about eight.
pub fn positions(rows: usize) -> Vec<usize> {
    if rows < 2 {
        return (0..rows).collect();
    }
    let range = ValueRange { low: 0.0, high: (rows - 1) as f64 };
    let whole = ticks(range, 8).into_iter().filter(|(value, _)| (value - value.round()).abs() < 1e-9);
    whole.map(|(value, _)| value.round() as usize).filter(|position| *position < rows).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_round() {
        let labels =
            |low, high| ticks(ValueRange { low, high }, 5).into_iter().map(|(_, label)| label).collect::<Vec<_>>();
        assert_eq!(labels(0.0, 1.0), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(-7.0, 12.0), ["-5", "0", "5", "10"]);
        assert_eq!(positions(101), [0, 20, 40, 60, 80, 100]);
    }
}
