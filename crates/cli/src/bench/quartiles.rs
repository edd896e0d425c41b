//! Quartiles of samples, because the median of a noisy machine is steadier than the mean.

/// The three quartiles. A few outliers do not change quartiles, as they would change mean and
/// variance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quartiles {
    /// The value below which a quarter of the samples is.
    pub lower: f64,
    /// The value below which half of the samples are.
    pub median: f64,
    /// The value below which three quarters of the samples are.
    pub upper: f64,
}

impl Quartiles {
    /// Computes the quartiles of `samples` by linear interpolation; zero if there are none.
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = samples.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        Self {
            lower: quantile(&sorted, 0.25),
            median: quantile(&sorted, 0.5),
            upper: quantile(&sorted, 0.75),
        }
    }

    /// The interquartile range.
    pub fn range(&self) -> f64 {
        self.upper - self.lower
    }
}

fn quantile(sorted: &[f64], quantile: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let position = quantile * last as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    let part = position.fract();
    sorted[below] * (1.0 - part) + sorted[above] * part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_interpolated() {
        let quartiles = Quartiles::of([4.0, 1.0, 3.0, 2.0]);
        assert_eq!(
            quartiles,
            Quartiles {
                lower: 1.75,
                median: 2.5,
                upper: 3.25
            }
        );
        assert_eq!(quartiles.range(), 1.5);
        assert_eq!(
            Quartiles::of([7.0]),
            Quartiles {
                lower: 7.0,
                median: 7.0,
                upper: 7.0
            }
        );
        assert_eq!(Quartiles::of([]).median, 0.0);
    }
}
