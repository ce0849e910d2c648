//! Numbers for people.

use std::fmt::{self, Display};

/// Bytes in binary units, to three digits or so.
pub(crate) struct Bytes(pub(crate) u64);

impl Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.0 as f64;
        let mut unit = "bytes";
        for next in ["KiB", "MiB", "GiB", "TiB"] {
            if value < 1000.0 {
                break;
            }
            (value, unit) = (value / 1024.0, next);
        }
        let text = match unit {
            "bytes" => format!("{} bytes", self.0),
            _ if value < 10.0 => format!("{value:.2} {unit}"),
            _ => format!("{value:.1} {unit}"),
        };
        f.pad(&text)
    }
}

/// A count with its thousands apart.
pub(crate) struct Count(pub(crate) u64);

impl Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
        for (i, c) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                text.push(',');
            }
            text.push(c);
        }
        f.pad(&text)
    }
}

/// The middle of some measurements (of an even number, between the two in the middle), the least and the greatest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` without measurements.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (min, max, n) = (*values.first()?, *values.last()?, values.len());
        let median = (values.get((n - 1) / 2)? + values.get(n / 2)?) / 2.0;
        Some(Self { median, min, max })
    }
}

/// Columns as wide as what is in them: words to the left, and numbers, which begin with the third, to the right.
#[derive(Debug)]
pub(crate) struct Table<const N: usize>(Vec<[String; N]>);

impl<const N: usize> Table<N> {
    pub(crate) fn new(head: [&str; N]) -> Self {
        Self(vec![head.map(str::to_owned)])
    }

    pub(crate) fn row(&mut self, cells: [String; N]) {
        self.0.push(cells);
    }
}

impl<const N: usize> Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |c: usize| self.0.iter().map(|row| row[c].chars().count()).max().unwrap_or(0);
        for row in &self.0 {
            let mut line = String::new();
            for (c, cell) in row.iter().enumerate() {
                let width = width(c);
                line += &if c < 2 { format!("{cell:<width$}  ") } else { format!("{cell:>width$}  ") };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        let shown = [0, 999, 1000, 1024, 344_448, 1_054_464, 5 << 30].map(|n| Bytes(n).to_string());
        assert_eq!(
            shown,
            ["0 bytes", "999 bytes", "0.98 KiB", "1.00 KiB", "336.4 KiB", "1.01 MiB", "5.00 GiB"]
        );
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(|n| Count(n).to_string()),
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!(format!("[{:>6}][{:>9}]", Count(1000), Bytes(12)), "[ 1,000][ 12 bytes]");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest() {
        let mut table = Table::new(["name", "of", "n"]);
        table.row(["a".into(), "2 × 3".into(), "10".into()]);
        table.row(["longer".into(), String::new(), String::new()]);
        assert_eq!(table.to_string(), "name    of      n\na       2 × 3  10\nlonger\n");
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(Spread::of(vec![3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of(vec![4.0, 1.0, 2.0, 3.0]).map(|s| s.median), Some(2.5));
        assert_eq!(Spread::of(Vec::new()), None);
    }
}
