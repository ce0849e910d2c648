//! `cublasStatus_t`.

use crate::runtime::{Code, Error};

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) i32);

pub(crate) const NOT_INITIALIZED: Status = Status(1);
pub(crate) const ALLOC_FAILED: Status = Status(3);
pub(crate) const INVALID_VALUE: Status = Status(7);
pub(crate) const ARCH_MISMATCH: Status = Status(8);
pub(crate) const EXECUTION_FAILED: Status = Status(13);
pub(crate) const INTERNAL_ERROR: Status = Status(14);
pub(crate) const NOT_SUPPORTED: Status = Status(15);

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        match error.code {
            Code::OUT_OF_MEMORY => ALLOC_FAILED,
            Code::NOT_INITIALIZED | Code::INVALID_CONTEXT => NOT_INITIALIZED,
            Code::INVALID_VALUE | Code::INVALID_HANDLE => INVALID_VALUE,
            _ => EXECUTION_FAILED,
        }
    }
}

/// Name and description.
pub(crate) fn names(status: i32) -> (&'static std::ffi::CStr, &'static std::ffi::CStr) {
    match status {
        0 => (c"CUBLAS_STATUS_SUCCESS", c"success"),
        1 => (c"CUBLAS_STATUS_NOT_INITIALIZED", c"the library was not initialized"),
        3 => (c"CUBLAS_STATUS_ALLOC_FAILED", c"the resource allocation failed"),
        7 => (c"CUBLAS_STATUS_INVALID_VALUE", c"an invalid value was used as an argument"),
        8 => (c"CUBLAS_STATUS_ARCH_MISMATCH", c"an absent device architectural feature is required"),
        11 => (c"CUBLAS_STATUS_MAPPING_ERROR", c"an access to GPU memory space failed"),
        13 => (c"CUBLAS_STATUS_EXECUTION_FAILED", c"the GPU program failed to execute"),
        14 => (c"CUBLAS_STATUS_INTERNAL_ERROR", c"an internal operation failed"),
        15 => (c"CUBLAS_STATUS_NOT_SUPPORTED", c"the functionality requested is not supported"),
        16 => (c"CUBLAS_STATUS_LICENSE_ERROR", c"an error was detected when checking the license"),
        _ => (c"CUBLAS_STATUS_UNKNOWN", c"unknown status"),
    }
}
