//! The GEMMs of the C interface.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use super::element::Element;
use super::gemm::{Compute, Gemm, Operand, Place};
use super::handle::on;
use super::status::{INVALID_VALUE, NOT_SUPPORTED, Status};

/// `CUBLAS_OP_N`, `_T`, `_C`.
fn transposed(operation: c_int) -> Result<bool, Status> {
    match operation {
        0 => Ok(false),
        1 | 2 => Ok(true),
        _ => Err(INVALID_VALUE),
    }
}

/// A matrix of the call: where, type, leading dimension, transposition.
type Given = (Place, Result<Element, Status>, c_int, c_int);

fn operand((place, element, ld, operation): Given) -> Result<Operand, Status> {
    Ok(Operand { place, element: element?, ld: i64::from(ld), transposed: transposed(operation)? })
}

/// Checks and queues it.
fn gemm(
    name: &'static str,
    handle: u64,
    [m, n, k]: [c_int; 3],
    (alpha, beta): (*const c_void, *const c_void),
    (a, b, c): (Given, Given, Given),
    batch: c_int,
    compute: Result<Compute, Status>,
) -> c_int {
    on(name, handle, |machine, known| {
        let compute = compute?;
        let gemm = Gemm {
            m: m.into(),
            n: n.into(),
            k: k.into(),
            alpha: known.scalar(alpha, compute)?,
            beta: known.scalar(beta, compute)?,
            a: operand(a)?,
            b: operand(b)?,
            c: operand(c)?,
            batch: batch.into(),
            compute,
            threads: machine.settings().workers,
        };
        gemm.check(known.arch(machine)?)?;
        known.submit(machine, name, move |memory| gemm.run(memory))
    })
}

fn one(address: u64) -> Place {
    Place::Strided(address, 0)
}

macro_rules! typed {
    ($($plain:ident $strided:ident $batched:ident $element:ident $compute:ident;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $plain(
            handle: u64, ta: c_int, tb: c_int, m: c_int, n: c_int, k: c_int, alpha: *const c_void, a: u64, lda: c_int, b: u64, ldb: c_int,
            beta: *const c_void, c: u64, ldc: c_int,
        ) -> c_int {
            let e = || Ok(Element::$element);
            let all = ((one(a), e(), lda, ta), (one(b), e(), ldb, tb), (one(c), e(), ldc, 0));
            gemm(stringify!($plain), handle, [m, n, k], (alpha, beta), all, 1, Ok(Compute::$compute))
        }

        #[unsafe(no_mangle)]
        extern "C" fn $strided(
            handle: u64, ta: c_int, tb: c_int, m: c_int, n: c_int, k: c_int, alpha: *const c_void, a: u64, lda: c_int, sa: i64, b: u64,
            ldb: c_int, sb: i64, beta: *const c_void, c: u64, ldc: c_int, sc: i64, batch: c_int,
        ) -> c_int {
            let e = || Ok(Element::$element);
            let (a, b, c) = (Place::Strided(a, sa), Place::Strided(b, sb), Place::Strided(c, sc));
            let all = ((a, e(), lda, ta), (b, e(), ldb, tb), (c, e(), ldc, 0));
            gemm(stringify!($strided), handle, [m, n, k], (alpha, beta), all, batch, Ok(Compute::$compute))
        }

        #[unsafe(no_mangle)]
        extern "C" fn $batched(
            handle: u64, ta: c_int, tb: c_int, m: c_int, n: c_int, k: c_int, alpha: *const c_void, a: u64, lda: c_int, b: u64, ldb: c_int,
            beta: *const c_void, c: u64, ldc: c_int, batch: c_int,
        ) -> c_int {
            let e = || Ok(Element::$element);
            let all = ((Place::Array(a), e(), lda, ta), (Place::Array(b), e(), ldb, tb), (Place::Array(c), e(), ldc, 0));
            gemm(stringify!($batched), handle, [m, n, k], (alpha, beta), all, batch, Ok(Compute::$compute))
        }
    )*};
}

typed! {
    cublasSgemm_v2 cublasSgemmStridedBatched cublasSgemmBatched F32 F32;
    cublasDgemm_v2 cublasDgemmStridedBatched cublasDgemmBatched F64 F64;
    cublasHgemm cublasHgemmStridedBatched cublasHgemmBatched F16 F16;
}

#[unsafe(no_mangle)]
extern "C" fn cublasGemmEx(
    handle: u64,
    ta: c_int,
    tb: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const c_void,
    a: u64,
    a_type: c_int,
    lda: c_int,
    b: u64,
    b_type: c_int,
    ldb: c_int,
    beta: *const c_void,
    c: u64,
    c_type: c_int,
    ldc: c_int,
    compute: c_int,
    _algorithm: c_int,
) -> c_int {
    let e = Element::from_number;
    let all = ((one(a), e(a_type), lda, ta), (one(b), e(b_type), ldb, tb), (one(c), e(c_type), ldc, 0));
    gemm("cublasGemmEx", handle, [m, n, k], (alpha, beta), all, 1, Compute::from_number(compute))
}

#[unsafe(no_mangle)]
extern "C" fn cublasSgemmEx(
    handle: u64,
    ta: c_int,
    tb: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const c_void,
    a: u64,
    a_type: c_int,
    lda: c_int,
    b: u64,
    b_type: c_int,
    ldb: c_int,
    beta: *const c_void,
    c: u64,
    c_type: c_int,
    ldc: c_int,
) -> c_int {
    let e = Element::from_number;
    let all = ((one(a), e(a_type), lda, ta), (one(b), e(b_type), ldb, tb), (one(c), e(c_type), ldc, 0));
    gemm("cublasSgemmEx", handle, [m, n, k], (alpha, beta), all, 1, Ok(Compute::F32))
}

#[unsafe(no_mangle)]
extern "C" fn cublasGemmStridedBatchedEx(
    handle: u64,
    ta: c_int,
    tb: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const c_void,
    a: u64,
    a_type: c_int,
    lda: c_int,
    sa: i64,
    b: u64,
    b_type: c_int,
    ldb: c_int,
    sb: i64,
    beta: *const c_void,
    c: u64,
    c_type: c_int,
    ldc: c_int,
    sc: i64,
    batch: c_int,
    compute: c_int,
    _algorithm: c_int,
) -> c_int {
    let e = Element::from_number;
    let (a, b, c) = (Place::Strided(a, sa), Place::Strided(b, sb), Place::Strided(c, sc));
    let all = ((a, e(a_type), lda, ta), (b, e(b_type), ldb, tb), (c, e(c_type), ldc, 0));
    gemm(
        "cublasGemmStridedBatchedEx",
        handle,
        [m, n, k],
        (alpha, beta),
        all,
        batch,
        Compute::from_number(compute),
    )
}

#[unsafe(no_mangle)]
extern "C" fn cublasGemmBatchedEx(
    handle: u64,
    ta: c_int,
    tb: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const c_void,
    a: u64,
    a_type: c_int,
    lda: c_int,
    b: u64,
    b_type: c_int,
    ldb: c_int,
    beta: *const c_void,
    c: u64,
    c_type: c_int,
    ldc: c_int,
    batch: c_int,
    compute: c_int,
    _algorithm: c_int,
) -> c_int {
    let e = Element::from_number;
    let all = (
        (Place::Array(a), e(a_type), lda, ta),
        (Place::Array(b), e(b_type), ldb, tb),
        (Place::Array(c), e(c_type), ldc, 0),
    );
    gemm("cublasGemmBatchedEx", handle, [m, n, k], (alpha, beta), all, batch, Compute::from_number(compute))
}

/// Not emulated; takes no arguments because the caller removes them.
#[unsafe(no_mangle)]
extern "C" fn cublasGemmGroupedBatchedEx() -> c_int {
    NOT_SUPPORTED.0
}
