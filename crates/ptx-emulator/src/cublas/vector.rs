//! Vectors: sums, scalings, and the product of a matrix and a vector.
//!
//! Sums are taken in double precision, in order: a reference is worth more here than the order in which a GPU would sum.

use super::element::{Element, Matrix, Number};
use super::gemm::{Compute, Scalar};
use crate::fault::Fault;
use crate::runtime::work::Reach;

/// A vector in device memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vector {
    pub(crate) address: u64,
    pub(crate) len: usize,
    /// Elements from one to the next; backwards if negative.
    pub(crate) step: i64,
    pub(crate) element: Element,
}

impl Vector {
    /// One row of a matrix whose columns are single elements.
    fn matrix(&self) -> Matrix {
        let ld = self.step.unsigned_abs() as i64;
        Matrix {
            address: self.address,
            element: self.element,
            rows: 1,
            columns: self.len,
            ld,
            name: "a vector",
        }
    }

    pub(crate) fn read<T: Number>(&self, memory: &Reach<'_>) -> Result<Vec<T>, Fault> {
        let mut values = self.matrix().read::<T>(memory)?;
        if self.step < 0 {
            values.reverse();
        }
        Ok(values)
    }

    pub(crate) fn write<T: Number>(&self, memory: &Reach<'_>, mut values: Vec<T>) -> Result<(), Fault> {
        if self.step < 0 {
            values.reverse();
        }
        self.matrix().write(memory, &values)
    }
}

/// What is done with vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduction {
    /// Sum of products.
    Dot,
    /// Root of the sum of squares.
    Norm,
    /// Sum of magnitudes.
    AbsoluteSum,
}

/// A sum over one or two vectors, written to `to`.
pub(crate) fn reduce(
    memory: &Reach<'_>,
    what: Reduction,
    x: Vector,
    y: Vector,
    to: u64,
) -> Result<(), Fault> {
    let values = x.read::<f64>(memory)?;
    let sum = match what {
        Reduction::Dot => values.iter().zip(y.read::<f64>(memory)?).map(|(x, y)| x * y).sum(),
        Reduction::Norm => values.iter().map(|x| x * x).sum::<f64>().sqrt(),
        Reduction::AbsoluteSum => values.iter().map(|x| x.abs()).sum::<f64>(),
    };
    Vector { address: to, len: 1, step: 1, element: x.element }.write(memory, vec![sum])
}

/// `y = alpha · x + y`.
pub(crate) fn axpy<T: Number>(
    memory: &Reach<'_>,
    alpha: Scalar,
    compute: Compute,
    x: Vector,
    y: Vector,
) -> Result<(), Fault> {
    let alpha: T = alpha.read(memory, compute)?;
    let sum =
        x.read::<T>(memory)?.into_iter().zip(y.read::<T>(memory)?).map(|(x, y)| x.fma(alpha, y)).collect();
    y.write(memory, sum)
}

/// `x = alpha · x`.
pub(crate) fn scale<T: Number>(
    memory: &Reach<'_>,
    alpha: Scalar,
    compute: Compute,
    x: Vector,
) -> Result<(), Fault> {
    let alpha: T = alpha.read(memory, compute)?;
    let scaled = x.read::<T>(memory)?.into_iter().map(|x| x.mul(alpha)).collect();
    x.write(memory, scaled)
}

/// `y = alpha · op(a) · x + beta · y`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gemv {
    pub(crate) a: Matrix,
    pub(crate) transposed: bool,
    pub(crate) x: Vector,
    pub(crate) y: Vector,
    pub(crate) alpha: Scalar,
    pub(crate) beta: Scalar,
    pub(crate) compute: Compute,
}

impl Gemv {
    pub(crate) fn run<T: Number>(&self, memory: &Reach<'_>) -> Result<(), Fault> {
        let alpha: T = self.alpha.read(memory, self.compute)?;
        let beta: T = self.beta.read(memory, self.compute)?;
        let a = self.a.read::<T>(memory)?;
        let x = self.x.read::<T>(memory)?;
        let mut sums = vec![T::default(); self.y.len];
        for (column, values) in a.chunks(self.a.rows.max(1)).enumerate() {
            for (row, value) in values.iter().enumerate() {
                let (to, from) = if self.transposed { (column, row) } else { (row, column) };
                if let (Some(sum), Some(x)) = (sums.get_mut(to), x.get(from)) {
                    *sum = value.fma(*x, *sum);
                }
            }
        }
        let result = if beta == T::default() {
            sums.into_iter().map(|sum| sum.mul(alpha)).collect()
        } else {
            let old = self.y.read::<T>(memory)?;
            sums.into_iter().zip(old).map(|(sum, old)| sum.fma(alpha, old.mul(beta))).collect()
        };
        self.y.write(memory, result)
    }
}
