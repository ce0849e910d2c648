//! The modules for products of packed weights with 8-bit activations.

use crate::{FORMATS, MATRIX, PRELUDE, Source};

pub(crate) const PACKED: (&str, &str) = file!("packed.cu");
pub(crate) const ROUNDING: (&str, &str) = file!("rounding.cu");
pub(crate) const STREAM: (&str, &str) = file!("stream.cu");
const DIRECT: (&str, &str) = file!("direct.cu");

/// Activations for products of packed weights in integers.
pub const CODES: Source = Source {
    name: "codes",
    files: &[PRELUDE, ROUNDING, file!("codes.cu")],
    kernels: &["codes"],
    samples: &[&[]],
};

/// Defines of a product in integers: the format, rows, and outputs of a warp.
macro_rules! int8 {
    ($format:literal, $rows:literal, $outs:literal) => {
        [("FORMAT", $format), ("ROWS", $rows), ("OUTS", $outs)]
    };
}

/// Products of packed weights with few rows of 8-bit activations.
pub const LINEAR_INT8: Source = Source {
    name: "linear_int8",
    files: &[PRELUDE, MATRIX, FORMATS, PACKED, STREAM, DIRECT, file!("linear_int8.cu")],
    kernels: &["linear_int8"],
    samples: &[
        &int8!("q4_k", "1", "1"),
        &int8!("q4_0", "8", "2"),
        &int8!("q4_1", "8", "2"),
        &int8!("q5_0", "8", "2"),
        &int8!("q5_1", "8", "2"),
        &int8!("q8_0", "8", "2"),
        &int8!("q2_k", "8", "2"),
        &int8!("q3_k", "8", "2"),
        &int8!("q4_k", "8", "2"),
        &int8!("q5_k", "8", "2"),
        &int8!("q6_k", "8", "2"),
        &int8!("iq4_nl", "8", "2"),
        &int8!("iq4_xs", "8", "2"),
        &int8!("mxfp4", "8", "2"),
        &int8!("q6_k", "1", "1"),
        &int8!("q8_0", "1", "1"),
        &int8!("q4_k", "4", "2"),
        &int8!("q4_k", "8", "1"),
        &int8!("q5_k", "1", "1"),
        &[("FORMAT", "q4_k"), ("FORMAT2", "q4_k"), ("FORMAT3", "q6_k"), ("ROWS", "1"), ("OUTS", "1")],
        &[("FORMAT", "q4_k"), ("FORMAT2", "q5_k"), ("FORMAT3", "q8_0"), ("ROWS", "8"), ("OUTS", "2")],
    ],
};

/// Two such products at once, with a function of the one.
pub const LINEAR_GATED_INT8: Source = Source {
    name: "linear_gated_int8",
    files: &[PRELUDE, MATRIX, FORMATS, PACKED, STREAM, DIRECT, file!("linear_gated_int8.cu")],
    kernels: &["linear_gated_int8"],
    samples: &[
        &[("FORMAT", "q4_k"), ("UP", "q4_k"), ("ROWS", "1")],
        &[("FORMAT", "q4_k"), ("UP", "q6_k"), ("ROWS", "8")],
        &[("FORMAT", "q6_k"), ("UP", "q6_k"), ("ROWS", "4")],
        &[("FORMAT", "q2_k"), ("UP", "q2_k"), ("ROWS", "8")],
        &[("FORMAT", "q8_0"), ("UP", "q8_0"), ("ROWS", "8")],
        &[("FORMAT", "mxfp4"), ("UP", "mxfp4"), ("ROWS", "1")],
    ],
};
