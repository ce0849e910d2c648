//! Linears that a file keeps in one matrix: one below the other, or in turns, a part of each for every head.
//!
//! Such a matrix is cut when it is loaded, and rows that come in turns are put in order then, packed as they are. Cutting what comes out of the
//! whole in every step would need no copy, but a product that gives queries, keys and values in turns has no operator behind it.

use crate::tensor::{Error, HostWeight, Result};
use crate::{Linear, Loader, LowRank, mlp::fixed};

impl Loader<'_> {
    /// Matrices that the file keeps one below the other as `name.weight` (and `name.bias`), cut into linears of so many
    /// outputs each. Packed rows are shared, not copied.
    ///
    /// # Errors
    /// If the matrix has not as many outputs as the parts together, or if there are not as many biases; else as
    /// [all that read](Self#errors).
    pub fn linear_parts(&self, name: &str, outputs: &[usize]) -> Result<Vec<Linear>> {
        self.cut(name, self.host(name)?, None, outputs)
    }

    /// The same of a matrix whose rows come in turns: `groups` times a part of each kind, of these sizes. Parts of one kind are put one below the
    /// other, kind by kind, and then cut.
    ///
    /// # Errors
    /// If the matrix has not as many outputs as all groups together; else as [`linear_parts`](Self::linear_parts).
    pub fn grouped_parts(
        &self,
        name: &str,
        groups: usize,
        parts: &[usize],
        outputs: &[usize],
    ) -> Result<Vec<Linear>> {
        let host = self.host(name)?;
        let group = parts.iter().try_fold(0usize, |sum, n| sum.checked_add(*n));
        // Where there are no bytes, nothing bounds the shape.
        let fits = group.and_then(|n| n.checked_mul(groups)) == Some(host.shape[1]);
        if host.shape[0] != 1 || !fits || host.bytes.is_empty() {
            let why = format!("{:?} is not {groups} groups of {parts:?} outputs", host.shape);
            return Err(Error::invalid(&host.name, format!("{why}; do weights and config belong together?")));
        }
        self.cut(name, host, Some(&kind_by_kind(groups, parts)), outputs)
    }

    /// Linears of so many outputs each: parts of the one matrix `fused`, or of a name each.
    ///
    /// # Errors
    /// If a linear has not as many outputs as are asked for; else as [`linear_parts`](Self::linear_parts) and [`linear`](Self::linear).
    pub fn linears<const N: usize>(
        &self,
        fused: &str,
        names: [&str; N],
        outputs: [usize; N],
    ) -> Result<[Linear; N]> {
        if let Some(parts) = self.optional(self.linear_parts(fused, &outputs))? {
            return fixed(fused, parts);
        }
        let linear = |(name, outputs): (&str, usize)| {
            let linear = self.linear(name)?;
            let found = linear.weight.shape()[1];
            if found == outputs {
                return Ok(linear);
            }
            let why = format!("{found} outputs, where the configured heads need {outputs}");
            Err(Error::invalid(&self.name(name), format!("{why}; do weights and config belong together?")))
        };
        fixed(names[0], names.into_iter().zip(outputs).map(linear).collect::<Result<_>>()?)
    }

    /// Cuts the matrix `host`, which is called `name`, with its biases and an adapter's update, whose rows are taken in this order.
    fn cut(
        &self,
        name: &str,
        host: HostWeight,
        order: Option<&[usize]>,
        outputs: &[usize],
    ) -> Result<Vec<Linear>> {
        let sum = outputs.iter().try_fold(0usize, |sum, n| sum.checked_add(*n));
        if host.shape[0] != 1 || sum != Some(host.shape[1]) {
            let why = format!(
                "{:?} is not made of parts with {outputs:?} outputs; do weights and config belong together?",
                host.shape
            );
            return Err(Error::invalid(&host.name, why));
        }
        let bias = match self.optional(self.tensor(&format!("{name}.bias")))? {
            Some(bias) if Some(bias.to_vec().len()) == sum => Some(bias.to_vec()),
            Some(bias) => {
                let why = format!("{:?} biases for {} outputs", bias.shape, host.shape[1]);
                return Err(Error::invalid(&bias.name, why));
            }
            None => None,
        };
        let update = self.update(name, host.shape)?;
        let in_order = |rows: HostWeight| match order {
            Some(order) => rows.reordered(order),
            None => Ok(rows),
        };
        let host = in_order(host)?;
        let bias = bias.map(|had| match order {
            Some(order) => order.iter().filter_map(|&row| had.get(row).copied()).collect(),
            None => had,
        });
        let update = update.map(|[down, up]| Ok::<_, Error>([down, in_order(up)?])).transpose()?;
        let down = update.as_ref().map(|[down, _]| self.weight(down)).transpose()?;
        let mut from = 0;
        let part = |n: &usize| {
            let rows = from..from + n;
            from = rows.end;
            let part =
                bias.as_ref().map(|b| self.backend().upload(&b[rows.clone()], [*n].into())).transpose()?;
            let update = match (&down, &update) {
                (Some(down), Some([_, up])) => {
                    Some(Box::new(LowRank { down: down.clone(), up: self.weight(&up.rows(rows.clone())?)? }))
                }
                _ => None,
            };
            Ok(Linear { update, ..Linear::new(self.weight(&host.rows(rows)?)?, part) })
        };
        outputs.iter().map(part).collect()
    }
}

/// Where each row comes from when parts of one kind are put one below the other.
fn kind_by_kind(groups: usize, parts: &[usize]) -> Vec<usize> {
    let group: usize = parts.iter().sum();
    let (mut order, mut from) = (Vec::with_capacity(groups * group), 0);
    for part in parts {
        let rows = from..from + part;
        (0..groups).for_each(|g| order.extend(rows.clone().map(|row| g * group + row)));
        from = rows.end;
    }
    order
}

#[cfg(test)]
mod tests {
    use super::kind_by_kind;

    #[test]
    fn parts_that_come_in_turns_are_put_one_below_the_other() {
        assert_eq!(kind_by_kind(2, &[2, 1, 1]), [0, 1, 4, 5, 2, 6, 3, 7]);
        assert_eq!(kind_by_kind(3, &[1, 1]), [0, 2, 4, 1, 3, 5]);
        assert_eq!((kind_by_kind(0, &[2]), kind_by_kind(2, &[0, 1])), (vec![], vec![0, 1]));
    }
}
