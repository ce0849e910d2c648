//! The vector functions of the C interface.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use super::element::{Element, Matrix};
use super::gemm::{Compute, Scalar};
use super::handle::on;
use super::status::{INVALID_VALUE, Status};
use super::vector::{Gemv, Reduction, Vector, axpy, reduce, scale};
use crate::runtime::{Stream, Transfer};

fn vector(address: u64, len: c_int, step: c_int, element: Element) -> Result<Vector, Status> {
    let len = usize::try_from(len).map_err(|_| INVALID_VALUE)?;
    if step == 0 {
        return Err(INVALID_VALUE);
    }
    Ok(Vector { address, len, step: step.into(), element })
}

/// A sum that goes to the host or to the device, as the handle says.
fn sum(
    name: &'static str,
    handle: u64,
    what: Reduction,
    x: Result<Vector, Status>,
    y: Result<Vector, Status>,
    to: u64,
) -> c_int {
    on(name, handle, |machine, known| {
        let (x, y) = (x?, y?);
        if to == 0 {
            return Err(INVALID_VALUE);
        }
        if !known.waits() {
            return known.submit(machine, name, move |memory| reduce(memory, what, x, y, to));
        }
        let bytes = x.element.size();
        let place = machine.allocate_scratch(known.context, bytes)?;
        let queued = known.submit(machine, name, move |memory| reduce(memory, what, x, y, place));
        let stream = Stream(known.stream);
        // SAFETY: the caller of the C interface promises that the result's place is his to write; the copy is waited for.
        let done = queued.and_then(|()| unsafe {
            Ok(machine.transfer(
                known.context,
                stream,
                &Transfer::line(to, false, place, true, bytes),
                true,
            )?)
        });
        machine.free_scratch(place);
        done
    })
}

macro_rules! typed {
    ($($axpy:ident $scal:ident $dot:ident $nrm2:ident $asum:ident $gemv:ident $type:ty, $element:ident;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $axpy(handle: u64, n: c_int, alpha: *const c_void, x: u64, x_step: c_int, y: u64, y_step: c_int) -> c_int {
            on(stringify!($axpy), handle, |machine, known| {
                let (e, compute) = (Element::$element, Compute::$element);
                let (x, y, alpha) = (vector(x, n, x_step, e)?, vector(y, n, y_step, e)?, known.scalar(alpha, compute)?);
                known.submit(machine, stringify!($axpy), move |memory| axpy::<$type>(memory, alpha, compute, x, y))
            })
        }

        #[unsafe(no_mangle)]
        extern "C" fn $scal(handle: u64, n: c_int, alpha: *const c_void, x: u64, step: c_int) -> c_int {
            on(stringify!($scal), handle, |machine, known| {
                let compute = Compute::$element;
                let (x, alpha) = (vector(x, n, step, Element::$element)?, known.scalar(alpha, compute)?);
                known.submit(machine, stringify!($scal), move |memory| scale::<$type>(memory, alpha, compute, x))
            })
        }

        #[unsafe(no_mangle)]
        extern "C" fn $dot(handle: u64, n: c_int, x: u64, x_step: c_int, y: u64, y_step: c_int, to: u64) -> c_int {
            let e = Element::$element;
            sum(stringify!($dot), handle, Reduction::Dot, vector(x, n, x_step, e), vector(y, n, y_step, e), to)
        }

        #[unsafe(no_mangle)]
        extern "C" fn $nrm2(handle: u64, n: c_int, x: u64, step: c_int, to: u64) -> c_int {
            let x = vector(x, n, step, Element::$element);
            sum(stringify!($nrm2), handle, Reduction::Norm, x, x, to)
        }

        #[unsafe(no_mangle)]
        extern "C" fn $asum(handle: u64, n: c_int, x: u64, step: c_int, to: u64) -> c_int {
            let x = vector(x, n, step, Element::$element);
            sum(stringify!($asum), handle, Reduction::AbsoluteSum, x, x, to)
        }

        #[unsafe(no_mangle)]
        extern "C" fn $gemv(
            handle: u64, operation: c_int, m: c_int, n: c_int, alpha: *const c_void, a: u64, lda: c_int, x: u64, x_step: c_int,
            beta: *const c_void, y: u64, y_step: c_int,
        ) -> c_int {
            on(stringify!($gemv), handle, |machine, known| {
                let (element, compute) = (Element::$element, Compute::$element);
                if m < 0 || n < 0 || lda < m.max(1) || !(0..=2).contains(&operation) {
                    return Err(INVALID_VALUE);
                }
                let transposed = operation != 0;
                let (to, from) = if transposed { (n, m) } else { (m, n) };
                let (alpha, beta): (Scalar, Scalar) = (known.scalar(alpha, compute)?, known.scalar(beta, compute)?);
                let gemv = Gemv {
                    a: Matrix { address: a, element, rows: m as usize, columns: n as usize, ld: lda.into(), name: "matrix A of a GEMV" },
                    transposed,
                    x: vector(x, from, x_step, element)?,
                    y: vector(y, to, y_step, element)?,
                    alpha,
                    beta,
                    compute,
                };
                known.submit(machine, stringify!($gemv), move |memory| gemv.run::<$type>(memory))
            })
        }
    )*};
}

typed! {
    cublasSaxpy_v2 cublasSscal_v2 cublasSdot_v2 cublasSnrm2_v2 cublasSasum_v2 cublasSgemv_v2 f32, F32;
    cublasDaxpy_v2 cublasDscal_v2 cublasDdot_v2 cublasDnrm2_v2 cublasDasum_v2 cublasDgemv_v2 f64, F64;
}
