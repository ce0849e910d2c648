//! GEMM: what is asked for, whether it can be had, and doing it.

use half::f16;

use super::element::{Element, Matrix, Number};
use super::multiply::{Factor, multiply};
use super::status::{ARCH_MISMATCH, INVALID_VALUE, NOT_SUPPORTED, Status};
use crate::fault::Fault;
use crate::runtime::copy;
use crate::runtime::work::Reach;

/// What sums are kept in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compute {
    F16,
    F32,
    F64,
    I32,
}

/// A factor of the sum: given by the host, or read when the operation runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scalar {
    /// The bits, as the compute type has them.
    Value([u8; 8]),
    Device(u64),
}

/// Where the matrices of a batch are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// The first, and elements from one to the next.
    Strided(u64, i64),
    /// An array of addresses in device memory.
    Array(u64),
}

/// A matrix of each batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    pub(crate) place: Place,
    pub(crate) element: Element,
    pub(crate) ld: i64,
    pub(crate) transposed: bool,
}

/// `c = alpha · op(a) · op(b) + beta · c`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gemm {
    pub(crate) m: i64,
    pub(crate) n: i64,
    pub(crate) k: i64,
    pub(crate) alpha: Scalar,
    pub(crate) beta: Scalar,
    pub(crate) a: Operand,
    pub(crate) b: Operand,
    pub(crate) c: Operand,
    pub(crate) batch: i64,
    pub(crate) compute: Compute,
    pub(crate) threads: usize,
}

impl Compute {
    /// `cublasComputeType_t`. The fast variants may round more; they do not here.
    pub(crate) fn from_number(number: i32) -> Result<Self, Status> {
        Ok(match number {
            64 | 65 => Self::F16,
            68 | 69 | 74 | 75 | 77 | 78 => Self::F32,
            70 | 71 => Self::F64,
            72 | 73 => Self::I32,
            _ => return Err(NOT_SUPPORTED),
        })
    }

    /// The type of alpha and beta.
    pub(crate) fn scalar(self) -> Element {
        match self {
            Self::F16 => Element::F16,
            Self::F32 => Element::F32,
            Self::F64 => Element::F64,
            Self::I32 => Element::I32,
        }
    }
}

impl Gemm {
    /// Shapes and types as the library demands them.
    pub(crate) fn check(&self, arch: u32) -> Result<(), Status> {
        let Self { m, n, k, .. } = *self;
        let rows = |transposed: bool, rows: i64, columns: i64| if transposed { columns } else { rows };
        let least = [
            (self.a.ld, rows(self.a.transposed, m, k)),
            (self.b.ld, rows(self.b.transposed, k, n)),
            (self.c.ld, m),
        ];
        if m < 0 || n < 0 || k < 0 || self.batch < 0 || least.iter().any(|(ld, rows)| *ld < (*rows).max(1)) {
            return Err(INVALID_VALUE);
        }
        use Element::{Bf16, F16, F32, F64, I8, I32};
        let known = match (self.compute, self.a.element, self.b.element, self.c.element) {
            (Compute::F16, F16, F16, F16) | (Compute::F64, F64, F64, F64) => true,
            (Compute::F32, F32, F32, F32) | (Compute::F32, F16 | I8 | Bf16, _, F32) => {
                self.a.element == self.b.element
            }
            (Compute::F32, F16, F16, F16) | (Compute::F32, Bf16, Bf16, Bf16) => true,
            // The tensor cores read four at a time.
            (Compute::I32, I8, I8, I32) => self.a.ld % 4 == 0 && self.b.ld % 4 == 0,
            _ => false,
        };
        if !known {
            return Err(NOT_SUPPORTED);
        }
        if self.a.element == Bf16 && arch < 80 {
            return Err(ARCH_MISMATCH);
        }
        Ok(())
    }

    /// Does it.
    pub(crate) fn run(&self, memory: &Reach<'_>) -> Result<(), Fault> {
        if self.m == 0 || self.n == 0 {
            return Ok(());
        }
        for index in 0..self.batch {
            match self.compute {
                Compute::F16 | Compute::F32 => self.one::<f32>(memory, index)?,
                Compute::F64 => self.one::<f64>(memory, index)?,
                Compute::I32 => self.one::<i32>(memory, index)?,
            }
        }
        Ok(())
    }

    fn one<T: Number>(&self, memory: &Reach<'_>, index: i64) -> Result<(), Fault> {
        let (m, n, k) = (self.m as usize, self.n as usize, self.k as usize);
        let matrix = |operand: &Operand, rows: usize, columns: usize, name| -> Result<Matrix, Fault> {
            let (rows, columns) = if operand.transposed { (columns, rows) } else { (rows, columns) };
            let address = operand.place.address(memory, index, operand.element)?;
            Ok(Matrix { address, element: operand.element, rows, columns, ld: operand.ld, name })
        };
        let alpha: T = self.alpha.read(memory, self.compute)?;
        let beta: T = self.beta.read(memory, self.compute)?;
        let (a, b) =
            (matrix(&self.a, m, k, "matrix A of a GEMM")?, matrix(&self.b, k, n, "matrix B of a GEMM")?);
        let c = matrix(&self.c, m, n, "matrix C of a GEMM")?;
        let (left, right) = (a.read::<T>(memory)?, b.read::<T>(memory)?);
        let left = Factor { data: &left, rows: a.rows, transposed: self.a.transposed };
        let right = Factor { data: &right, rows: b.rows, transposed: self.b.transposed };
        let mut product = if self.compute == Compute::F16 {
            in_halves(left, right, [m, n, k], self.threads)
        } else {
            multiply(left, right, [m, n, k], self.threads)
        };
        if beta == T::default() {
            // C is not read: it may hold anything.
            product.iter_mut().for_each(|value| *value = value.mul(alpha));
        } else {
            let old = c.read::<T>(memory)?;
            for (value, old) in product.iter_mut().zip(&old) {
                *value = value.fma(alpha, old.mul(beta));
            }
        }
        c.write(memory, &product)
    }
}

/// Steps of k after which a sum kept in halves is rounded: what one tensor-core instruction sums.
const HALF_STEP: usize = 16;

/// A product whose sums are kept in half precision.
fn in_halves<T: Number>(a: Factor<'_, T>, b: Factor<'_, T>, [m, n, k]: [usize; 3], threads: usize) -> Vec<T> {
    let mut sums = vec![T::default(); m * n];
    let round = |value: T| {
        let mut bytes = [0u8; 2];
        value.put(Element::F16, &mut bytes);
        T::from_bytes(Element::F16, &bytes)
    };
    let one = {
        let bytes = f16::ONE.to_le_bytes();
        T::from_bytes(Element::F16, &bytes)
    };
    for first in (0..k).step_by(HALF_STEP) {
        let step = HALF_STEP.min(k - first);
        // Rows of B and columns of A from `first` on.
        let a_at = if a.transposed { first } else { first * a.rows };
        let b_at = if b.transposed { first * b.rows } else { first };
        let part = multiply(
            Factor { data: a.data.get(a_at..).unwrap_or_default(), ..a },
            Factor { data: b.data.get(b_at..).unwrap_or_default(), ..b },
            [m, n, step],
            threads,
        );
        for (sum, part) in sums.iter_mut().zip(part) {
            *sum = round(part.fma(one, *sum));
        }
    }
    sums
}

impl Place {
    fn address(self, memory: &Reach<'_>, index: i64, element: Element) -> Result<u64, Fault> {
        match self {
            Self::Strided(first, stride) => {
                Ok(first.wrapping_add_signed(stride.wrapping_mul(index).wrapping_mul(element.size() as i64)))
            }
            Self::Array(list) => copy::read_word(memory.memory, list.wrapping_add(index as u64 * 8), true),
        }
    }
}

impl Scalar {
    pub(crate) fn read<T: Number>(self, memory: &Reach<'_>, compute: Compute) -> Result<T, Fault> {
        let element = compute.scalar();
        match self {
            Self::Value(bytes) => {
                Ok(T::from_bytes(element, bytes.get(..element.size() as usize).unwrap_or_default()))
            }
            Self::Device(address) => {
                let matrix = Matrix {
                    address,
                    element,
                    rows: 1,
                    columns: 1,
                    ld: 1,
                    name: "a factor in device memory",
                };
                Ok(matrix.read::<T>(memory)?.first().copied().unwrap_or_default())
            }
        }
    }
}
