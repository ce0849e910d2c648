//! What a tensor must go through where GGUF keeps it in another form: rows in another order, transposed, with one added.
//!
//! A change is made when the tensor is asked for, not when the file is opened, and what it makes belongs to the weight
//! alone: the mapped file stays as it is, and a model that is only looked at costs nothing.

use ogive_tensor::{Config, Error, F32, HostWeight, Result, WeightInfo};
use std::{fmt, sync::Arc};

type Info = Arc<dyn Fn(&[WeightInfo], &Config) -> Result<WeightInfo> + Send + Sync>;
type Apply = Arc<dyn Fn(&[HostWeight], &Config) -> Result<HostWeight> + Send + Sync>;

/// How a tensor is made of those in the file.
#[derive(Clone)]
pub struct Change {
    info: Info,
    apply: Apply,
    /// What undoes it.
    back: Option<(Info, Apply)>,
    of_outputs: OfOutputs,
}

/// What a change does to what is added to a matrix, output by output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum OfOutputs {
    /// More than that.
    #[default]
    Unknown,
    /// Nothing: what is added says itself which are outputs.
    Nothing,
    /// What it does to the matrix.
    Same,
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Change")
    }
}

impl Change {
    /// `apply` makes the weight, `info` says beforehand what its shape and format will be; both are given what the rule
    /// names, in its order, and the model's settings. The name is put in afterwards.
    pub fn new(
        info: impl Fn(&[WeightInfo], &Config) -> Result<WeightInfo> + Send + Sync + 'static,
        apply: impl Fn(&[HostWeight], &Config) -> Result<HostWeight> + Send + Sync + 'static,
    ) -> Self {
        Self { info: Arc::new(info), apply: Arc::new(apply), back: None, of_outputs: OfOutputs::Unknown }
    }

    /// The same with what undoes it, for writers of GGUF files.
    #[must_use]
    pub fn undone_by(self, back: Self) -> Self {
        Self { back: Some((back.info, back.apply)), ..self }
    }

    /// The change that undoes this one; `None` where it is not known.
    #[must_use]
    pub fn reversed(&self) -> Option<Self> {
        let (info, apply) = self.back.clone()?;
        let back = Some((Arc::clone(&self.info), Arc::clone(&self.apply)));
        Some(Self { info, apply, back, of_outputs: self.of_outputs })
    }

    /// A change to one tensor.
    pub(super) fn of_one(
        info: impl Fn(&WeightInfo) -> WeightInfo + Send + Sync + 'static,
        apply: impl Fn(&HostWeight, &Config) -> Result<HostWeight> + Send + Sync + 'static,
    ) -> Self {
        Self::new(
            move |of, _| of.first().map(&info).ok_or_else(none),
            move |of, config| apply(of.first().ok_or_else(none)?, config),
        )
    }

    /// Rows of query or key heads as Hugging Face has them. llama.cpp's converter interleaves the two halves of each head
    /// so that rotary pairs are neighbours; this undoes it. `heads` is the setting that says how many heads there are; where
    /// there is none, there are as many as of queries. Of a head that turns in part it is that part. Packed rows are copied, nothing is decoded.
    pub fn split_rotary_pairs(heads: &'static str) -> Self {
        let split =
            Self::rows_in_heads(heads, split_pairs).undone_by(Self::rows_in_heads(heads, join_halves));
        Self { of_outputs: OfOutputs::Same, ..split }
    }

    /// The same where whole heads are interleaved, whatever part of them turns.
    pub(super) fn split_whole_heads(heads: &'static str) -> Self {
        let whole = |order: fn(usize, usize, f32) -> Option<Vec<usize>>| {
            Self::rows_in_heads(heads, move |rows, heads, _| order(rows, heads, 1.0))
        };
        let split = whole(split_pairs).undone_by(whole(join_halves));
        Self { of_outputs: OfOutputs::Same, ..split }
    }

    /// Rows of queries, keys and values head after head, as GPT-NeoX has them, of which llama.cpp's converter puts all queries first, then all
    /// keys and all values; this undoes it.
    pub(super) fn head_by_head() -> Self {
        const HEADS: &str = "num_attention_heads";
        let apart = Self::rows_in_heads(HEADS, |rows, heads, _| thirds_by_head(rows, heads));
        let turns = apart.undone_by(Self::rows_in_heads(HEADS, |rows, heads, _| heads_by_third(rows, heads)));
        Self { of_outputs: OfOutputs::Same, ..turns }
    }

    /// What is added to the outputs of a matrix that is changed so, `[out, rank]`; `None` where the change is of more than outputs.
    pub(crate) fn of_outputs(&self, up: &HostWeight, config: &Config) -> Result<Option<HostWeight>> {
        Ok(match self.of_outputs {
            OfOutputs::Unknown => None,
            OfOutputs::Nothing => Some(up.clone()),
            OfOutputs::Same => Some(self.apply(std::slice::from_ref(up), config)?),
        })
    }

    /// Rows, or a bias's elements, in the order that `order` gives for so many rows and heads, and the part of a head that turns.
    fn rows_in_heads(
        heads: &'static str,
        order: impl Fn(usize, usize, f32) -> Option<Vec<usize>> + Send + Sync + 'static,
    ) -> Self {
        Self::of_one(WeightInfo::clone, move |w, config| {
            if w.bytes.is_empty() {
                // Its number of rows is bounded by nothing.
                return Ok(w.clone());
            }
            let vector = w.shape[0] == 1 && w.shape[1] == 1;
            let rows = if vector { w.shape[2] } else { w.shape[1] };
            let count = match config.opt_usize(heads)?.or(config.opt_usize("num_attention_heads")?) {
                Some(count) => count,
                None => config.usize(heads)?,
            };
            let part = config.f32_or("partial_rotary_factor", 1.0)?;
            let order = order(rows, count, part).ok_or_else(|| {
                Error::invalid(&w.name, format!("{rows} rows are not `{heads}` heads of even size"))
            })?;
            if vector { elements_in(w, &order) } else { w.reordered(&order) }
        })
    }

    /// The same by the settings below this key.
    pub(super) fn within(self, key: &'static str) -> Self {
        let below = |change: Self| {
            let other = change.clone();
            Self::new(
                move |of, config| other.info(of, &config.at(key)),
                move |of, config| change.apply(of, &config.at(key)),
            )
        };
        let back = self.reversed().map(below);
        let there = below(self);
        if let Some(back) = back { there.undone_by(back) } else { there }
    }

    /// This change and then another, of one tensor each.
    #[must_use]
    pub fn then(self, next: Self) -> Self {
        let back = next.reversed().zip(self.reversed());
        let (first, second) = (self.clone(), next.clone());
        let both = Self::new(
            move |of, config| second.info(&[first.info(of, config)?], config),
            move |of, config| next.apply(&[self.apply(of, config)?], config),
        );
        match back {
            Some((last, first)) => {
                let (one, other) = (last.clone(), first.clone());
                both.undone_by(Self::new(
                    move |of, config| other.info(&[one.info(of, config)?], config),
                    move |of, config| first.apply(&[last.apply(of, config)?], config),
                ))
            }
            None => both,
        }
    }

    /// One less, in single precision: GGUF keeps Gemma's norms as the factors themselves, Hugging Face as the factors less
    /// one. Adding one gives back the factor bit for bit: the factor is a rounded `1 + w`, so that the difference has a
    /// place in an f32 (both are multiples of the same power of two, and the difference is no larger).
    pub fn less_one() -> Self {
        let add = |what: f32| {
            Self::of_one(
                |w| WeightInfo::new(&*w.name, w.shape, &F32),
                move |w, _| {
                    let values: Vec<f32> = w.to_vec().into_iter().map(|v| v + what).collect();
                    HostWeight::from_f32(&*w.name, w.shape, &values)
                },
            )
        };
        add(-1.0).undone_by(add(1.0))
    }

    /// A convolution's taps for each channel, which Hugging Face has as `[channels, 1, taps]` and GGUF without the dimension between.
    pub(super) fn flat_taps() -> Self {
        let shape = |[a, b, c]: [usize; 3]| [1, a.saturating_mul(b), c];
        let keep = Self::of_one(WeightInfo::clone, |w, _| Ok(w.clone()));
        keep.undone_by(Self::of_one(
            move |w| WeightInfo::new(&*w.name, shape(w.shape), w.format),
            move |w, _| w.reshaped(shape(w.shape)),
        ))
    }

    /// Rows become columns, decoded: GPT-2's matrices are `[in, out]` in Hugging Face's files. Vectors stay.
    pub fn transposed() -> Self {
        let is_vector = |shape: [usize; 3]| shape[0] == 1 && shape[1] == 1;
        let turn = Self::of_one(
            move |w| match w.shape {
                shape if is_vector(shape) => w.clone(),
                [e, r, c] => WeightInfo::new(&*w.name, [e, c, r], &F32),
            },
            move |w, _| if is_vector(w.shape) { Ok(w.clone()) } else { w.transposed() },
        );
        Self { of_outputs: OfOutputs::Nothing, ..turn.clone().undone_by(turn) }
    }

    /// The logarithm of what is kept below 0, as decays of states are.
    pub(super) fn logarithm() -> Self {
        let each = |f: fn(f32) -> f32| {
            Self::of_one(
                |w| WeightInfo::new(&*w.name, w.shape, &F32),
                move |w, _| {
                    let values: Vec<f32> = w.to_vec().into_iter().map(f).collect();
                    HostWeight::from_f32(&*w.name, w.shape, &values)
                },
            )
        };
        each(|a| (-f64::from(a)).ln() as f32).undone_by(each(|log| -f64::from(log).exp() as f32))
    }

    /// A vector that GGUF keeps as a matrix with so many rows as the setting says, or with a row for each element.
    pub(super) fn flat(rows: Option<&'static str>) -> Self {
        let reshaped = |w: &HostWeight, shape| w.reshaped(shape);
        let vector = |[a, b, c]: [usize; 3]| [1, 1, a.saturating_mul(b).saturating_mul(c)];
        let matrix = move |name: &str, shape: [usize; 3], config: &Config| {
            let [.., len] = vector(shape);
            let rows = rows.map_or(Ok(len), |rows| config.usize(rows))?;
            let why = || Error::invalid(name, format!("{len} elements are not {rows} rows of one size"));
            if rows > 0 && len.is_multiple_of(rows) { Ok([1, rows, len / rows]) } else { Err(why()) }
        };
        Self::of_one(
            move |w| WeightInfo::new(&*w.name, vector(w.shape), w.format),
            move |w, _| reshaped(w, vector(w.shape)),
        )
        .undone_by(Self::new(
            move |of, config| {
                let w = of.first().ok_or_else(none)?;
                Ok(WeightInfo::new(&*w.name, matrix(&w.name, w.shape, config)?, w.format))
            },
            move |of, config| {
                let w = of.first().ok_or_else(none)?;
                reshaped(w, matrix(&w.name, w.shape, config)?)
            },
        ))
    }

    /// What the change would make of these, with the model's settings.
    ///
    /// # Errors
    /// If their number or shapes do not fit it.
    pub fn info(&self, of: &[WeightInfo], config: &Config) -> Result<WeightInfo> {
        (self.info)(of, config)
    }

    /// What the change makes of these, with the model's settings.
    ///
    /// # Errors
    /// If their number or shapes do not fit it, or a setting that it needs is missing or of a wrong type.
    pub fn apply(&self, of: &[HostWeight], config: &Config) -> Result<HostWeight> {
        (self.apply)(of, config)
    }
}

fn none() -> Error {
    Error::invalid("translation", "a change of one tensor was given none")
}

/// A vector's elements in another order.
pub(super) fn elements_in(w: &HostWeight, order: &[usize]) -> Result<HostWeight> {
    let w = if w.format.block_len == 1 && w.is_plain() { w.clone() } else { w.decoded()? };
    let column = HostWeight::new(&*w.name, [1, w.shape[2], 1], w.format, w.bytes)?.reordered(order)?;
    HostWeight::new(column.name, [1, 1, order.len()], column.format, column.bytes)
}

/// Where each row comes from, when neighbours become halves. `None` unless the rows are that many heads of even size.
fn split_pairs(rows: usize, heads: usize, part: f32) -> Option<Vec<usize>> {
    within_heads(rows, heads, part, |r, half| 2 * (r % half) + r / half)
}

/// Where each row comes from, when halves become neighbours.
fn join_halves(rows: usize, heads: usize, part: f32) -> Option<Vec<usize>> {
    within_heads(rows, heads, part, |r, half| r % 2 * half + r / 2)
}

/// The same for any order of what turns in a head, by a row's place there and half of how many there are.
fn within_heads(rows: usize, heads: usize, part: f32, from: fn(usize, usize) -> usize) -> Option<Vec<usize>> {
    let head = rows.checked_div(heads)?;
    let even = head.is_multiple_of(2) && head.checked_mul(heads)? == rows;
    // A count that was divided and rounded comes back.
    let half = (head as f64 * (f64::from(part) + f64::from(f32::EPSILON))) as usize / 2;
    let row = |r: usize| match r % head {
        place if place < 2 * half => r - place + from(place, half),
        _ => r,
    };
    (even && 2 * half <= head).then(|| (0..rows).map(row).collect())
}

/// Where each row comes from, when a third of all becomes a third of each head. `None` unless the rows are three parts of that many heads.
fn thirds_by_head(rows: usize, heads: usize) -> Option<Vec<usize>> {
    let dim = third_of_head(rows, heads)?;
    let row = |r: usize| (r / dim % 3 * heads + r / (3 * dim)) * dim + r % dim;
    Some((0..rows).map(row).collect())
}

/// Where each row comes from, when a third of each head becomes a third of all.
fn heads_by_third(rows: usize, heads: usize) -> Option<Vec<usize>> {
    let dim = third_of_head(rows, heads)?;
    let row = |r: usize| (r / dim % heads * 3 + r / (heads * dim)) * dim + r % dim;
    Some((0..rows).map(row).collect())
}

/// A third of a head's rows. `None` unless the rows are three parts of that many heads.
fn third_of_head(rows: usize, heads: usize) -> Option<usize> {
    let of_all = heads.checked_mul(3)?;
    rows.checked_div(of_all).filter(|_| rows.is_multiple_of(of_all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ogive_tensor::serde_json::json;

    #[test]
    fn pairs_become_halves_within_each_head() {
        let [split, join] = [split_pairs, join_halves].map(|f| move |rows, heads| f(rows, heads, 1.0));
        assert_eq!(split(8, 2).unwrap(), [0, 2, 1, 3, 4, 6, 5, 7]);
        assert_eq!(split(6, 1).unwrap(), [0, 2, 4, 1, 3, 5]);
        assert_eq!((split(6, 2), split(6, 0), split(0, 3)), (None, None, Some(vec![])));
        assert_eq!(join(8, 2).unwrap(), [0, 2, 1, 3, 4, 6, 5, 7]);
        assert_eq!(join(6, 1).unwrap(), [0, 3, 1, 4, 2, 5]);
        assert_eq!((join(6, 4), join(0, 1)), (None, Some(vec![])));
        // What does not turn stays.
        assert_eq!(split_pairs(12, 2, 0.7).unwrap(), [0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11]);
        assert_eq!(join_halves(8, 1, 0.75).unwrap(), [0, 3, 1, 4, 2, 5, 6, 7]);
        assert_eq!(
            (split_pairs(4, 1, 0.0), split_pairs(4, 1, 2.0), split_pairs(4, 1, f32::NAN)),
            (Some(vec![0, 1, 2, 3]), None, Some(vec![0, 1, 2, 3]))
        );
    }

    #[test]
    fn thirds_of_all_become_thirds_of_heads() {
        assert_eq!(thirds_by_head(12, 2).unwrap(), [0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11]);
        assert_eq!(heads_by_third(12, 2).unwrap(), [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]);
        assert_eq!((thirds_by_head(10, 2), heads_by_third(6, 0)), (None, None));
        assert_eq!((thirds_by_head(0, 2), thirds_by_head(6, usize::MAX)), (Some(vec![]), None));
    }

    #[test]
    fn what_can_be_undone_is() {
        let values: Vec<f32> = (0..48).map(|v| v as f32 * 0.37 - 5.0).collect();
        let config = Config(json!({"n": 2, "num_attention_heads": 2}));
        let by_head = Change::head_by_head();
        for change in [Change::split_rotary_pairs("n"), by_head, Change::less_one(), Change::transposed()] {
            for shape in [[1, 12, 4], [1, 1, 48]] {
                let w = HostWeight::from_f32("w", shape, &values).unwrap();
                let back = change.reversed().unwrap();
                let there = back.apply(std::slice::from_ref(&w), &config).unwrap();
                let info = back.info(&[WeightInfo::new("w", shape, w.format)], &config).unwrap();
                assert_eq!((there.shape, there.format), (info.shape, info.format));
                let again = change.apply(&[there], &config).unwrap();
                assert_eq!(again.shape, shape);
                assert!(again.to_vec().iter().zip(&values).all(|(a, b)| (a - b).abs() < 1e-6));
            }
        }
    }

    #[test]
    fn empty_tensors_cost_nothing_whatever_they_claim() {
        let empty = HostWeight::new("k", [1 << 40, 1 << 16, 0], &F32, Vec::new().into()).unwrap();
        let config = Config(json!({"n": 2}));
        assert_eq!(
            Change::split_rotary_pairs("n").apply(std::slice::from_ref(&empty), &config).unwrap().shape,
            empty.shape
        );
    }

    #[test]
    fn less_one_and_one_is_the_same_number() {
        let mut w = -1.5_f32;
        while w < 30.0 {
            let factor = 1.0 + w;
            assert_eq!((1.0 + (factor - 1.0)).to_bits(), factor.to_bits(), "{w}");
            w += 0.000_717;
        }
    }
}
