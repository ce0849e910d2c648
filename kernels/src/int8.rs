//! The modules for products of packed weights with 8-bit activations. Those with one row, by blocks that stay, are for halves as well.

use crate::{PRELUDE, QUADS, Source};

pub(crate) const PACKED: (&str, &str) = file!("packed.cu");
pub(crate) const FEW_CODES: (&str, &str) = file!("few_codes.cu");
pub(crate) const ROUNDING: (&str, &str) = file!("rounding.cu");
pub(crate) const STREAM: (&str, &str) = file!("stream.cu");
pub(crate) const DIRECT: (&str, &str) = file!("direct.cu");
const PRODUCTS: (&str, &str) = file!("products.cu");

/// Activations for products of packed weights in integers.
pub const CODES: Source = Source {
    name: "codes",
    files: &[PRELUDE, ROUNDING, file!("codes.cu")],
    kernels: &["codes", "codes_in_tiles"],
    samples: &[&[]],
};

/// Defines of a product in integers: the format, rows, and outputs of a warp.
macro_rules! int8 {
    ($format:literal, $rows:literal, $outs:literal) => {
        [("FORMAT", $format), ("ROWS", $rows), ("OUTS", $outs)]
    };
}

/// Defines of such a product by tensor cores: the format, sixteens of outputs, eights of rows, bytes of a staged row.
macro_rules! int8_mma {
    ($format:literal, $mt:literal, $nt:literal, $pitch:literal) => {
        [("FORMAT", $format), ("MT", $mt), ("NT", $nt), ("PITCH", $pitch)]
    };
}

/// Products of packed weights with few rows of 8-bit activations.
pub const LINEAR_INT8: Source = Source {
    name: "linear_int8",
    files: packed![STREAM, DIRECT, PRODUCTS, file!("linear_int8.cu")],
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
        &int8!("nvfp4_blocks", "8", "2"),
        &int8!("iq1_m", "8", "2"),
        &int8!("iq3_xxs", "8", "2"),
        &int8!("tq1_0", "8", "2"),
        &int8!("q6_k", "1", "1"),
        &int8!("q8_0", "1", "1"),
        &int8!("q4_k", "4", "2"),
        &int8!("q4_k", "8", "1"),
        &int8!("q5_k", "1", "1"),
        &[("FORMAT", "q4_k"), ("FORMAT2", "q4_k"), ("FORMAT3", "q6_k"), ("ROWS", "1"), ("OUTS", "1")],
        &[("FORMAT", "q4_k"), ("FORMAT2", "q5_k"), ("FORMAT3", "q8_0"), ("ROWS", "8"), ("OUTS", "2")],
    ],
};

/// Defines of a product with one row: the format, warps of a block, bytes of a warp's weights in shared memory, what the row is,
/// and quads of it that a thread has at a time.
macro_rules! one {
    ($format:literal, $warps:literal, $area:literal, $input:literal, $held:literal) => {
        [
            ("FORMAT", $format),
            ("VECTOR", "1"),
            ("WARPS", $warps),
            ("AREA", $area),
            ("INPUT", $input),
            ("HELD", $held),
        ]
    };
}

/// Products of packed weights, or halves, with one row, by blocks that stay.
pub const LINEAR_ONE: Source = Source {
    name: "linear_one",
    files: packed![ROUNDING, QUADS, file!("one.cu"), PRODUCTS, file!("linear_one.cu")],
    kernels: &["linear_one", "linear_gated_one"],
    samples: &[
        &one!("q4_k", "16", "5760", "3", "4"),
        &one!("q4_k", "16", "5760", "1", "4"),
        &[
            ("FORMAT", "q4_k"),
            ("FORMAT2", "q4_k"),
            ("FORMAT3", "q6_k"),
            ("VECTOR", "1"),
            ("WARPS", "16"),
            ("AREA", "5760"),
            ("INPUT", "3"),
            ("HELD", "2"),
        ],
        &one!("f16", "16", "4096", "3", "4"),
        &one!("f16", "16", "5120", "1", "4"),
        &one!("bf16", "16", "4096", "2", "2"),
        &one!("q6_k", "16", "5760", "1", "4"),
        &one!("q6_k", "16", "6848", "3", "2"),
        &one!("q8_0", "16", "5760", "3", "3"),
        &one!("q5_k", "16", "5760", "2", "2"),
        &one!("q4_0", "8", "5760", "0", "1"),
        &one!("q4_1", "16", "5760", "0", "1"),
        &one!("q5_0", "16", "5760", "0", "1"),
        &one!("q5_1", "16", "5760", "0", "1"),
        &one!("q2_k", "16", "5760", "0", "1"),
        &one!("q3_k", "16", "5760", "0", "1"),
        &one!("iq4_nl", "16", "5760", "0", "1"),
        &one!("iq4_xs", "16", "5760", "0", "1"),
        &one!("mxfp4", "16", "5760", "0", "1"),
        &one!("nvfp4_blocks", "16", "5760", "0", "1"),
        &one!("iq1_s", "16", "5760", "0", "1"),
        &one!("iq2_xs", "16", "5760", "0", "1"),
        &one!("tq1_0", "16", "5760", "0", "1"),
    ],
};

/// Products of packed weights with some rows of 8-bit activations, by tensor cores.
pub const LINEAR_INT8_MMA: Source = Source {
    name: "linear_int8_mma",
    files: packed![PRODUCTS, file!("linear_int8_mma.cu")],
    kernels: &["linear_int8_mma"],
    samples: &[
        &int8_mma!("q4_k", "1", "1", "176"),
        &int8_mma!("q4_k", "1", "2", "176"),
        &int8_mma!("q4_k", "2", "4", "176"),
        &int8_mma!("q4_k", "2", "8", "176"),
        &int8_mma!("q6_k", "1", "1", "240"),
        &int8_mma!("q6_k", "1", "8", "240"),
        &int8_mma!("q6_k", "2", "8", "240"),
        &int8_mma!("q8_0", "2", "8", "304"),
        &int8_mma!("q8_0", "1", "2", "304"),
        &int8_mma!("q2_k", "2", "8", "112"),
        &int8_mma!("q3_k", "2", "8", "144"),
        &int8_mma!("q5_k", "2", "8", "208"),
        &int8_mma!("q4_0", "2", "8", "176"),
        &int8_mma!("q4_1", "2", "8", "208"),
        &int8_mma!("q5_0", "2", "8", "208"),
        &int8_mma!("q5_1", "2", "8", "240"),
        &int8_mma!("iq4_nl", "2", "8", "176"),
        &int8_mma!("iq4_xs", "2", "8", "176"),
        &int8_mma!("mxfp4", "2", "8", "176"),
        &int8_mma!("nvfp4_blocks", "2", "8", "208"),
        &int8_mma!("iq2_s", "2", "8", "112"),
        &int8_mma!("iq2_xxs", "2", "8", "112"),
        &int8_mma!("tq2_0", "2", "8", "112"),
        &int8_mma!("q4_k", "1", "4", "176"),
        &int8_mma!("q2_k", "1", "1", "112"),
        &int8_mma!("q2_k", "1", "2", "112"),
        &int8_mma!("q2_k", "1", "4", "112"),
        &[
            ("FORMAT", "q4_k"),
            ("FORMAT2", "q4_k"),
            ("FORMAT3", "q6_k"),
            ("MT", "1"),
            ("NT", "1"),
            ("PITCH", "240"),
        ],
        &[
            ("FORMAT", "q4_k"),
            ("FORMAT2", "q5_k"),
            ("FORMAT3", "q8_0"),
            ("MT", "2"),
            ("NT", "4"),
            ("PITCH", "304"),
        ],
    ],
};

/// Two such products at once, with a function of the one.
pub const LINEAR_GATED_INT8: Source = Source {
    name: "linear_gated_int8",
    files: packed![STREAM, DIRECT, file!("linear_gated_int8.cu")],
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
