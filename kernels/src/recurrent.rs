//! The modules of operators that carry a state along each sequence.

use crate::{PRELUDE, STEP, Source};

/// Depthwise convolution.
pub const CAUSAL_CONV: Source = Source {
    name: "causal_conv",
    files: &[PRELUDE, STEP, file!("causal_conv.cu")],
    kernels: &["causal_conv"],
    samples: &[
        &[("WIDTH", "4"), ("ROWS", "1")],
        &[("WIDTH", "4"), ("ROWS", "8")],
        &[("WIDTH", "3"), ("ROWS", "8")],
        &[("WIDTH", "1"), ("ROWS", "8")],
        &[("WIDTH", "32"), ("ROWS", "8")],
    ],
};

/// The scan of a selective state space.
pub const SELECTIVE_SCAN: Source = Source {
    name: "selective_scan",
    files: &[PRELUDE, STEP, file!("selective_scan.cu")],
    kernels: &["selective_scan"],
    samples: &[
        &[("M", "16"), ("LANES", "4")],
        &[("M", "1"), ("LANES", "1")],
        &[("M", "128"), ("LANES", "32")],
        &[("M", "250"), ("LANES", "32")],
        &[("M", "512"), ("LANES", "32")],
    ],
};

/// Linear attention that forgets, by the gated delta rule or without.
pub const LINEAR_ATTENTION: Source = Source {
    name: "linear_attention",
    files: &[PRELUDE, STEP, file!("linear_attention.cu")],
    kernels: &["linear_attention"],
    samples: &[
        &[("K_DIM", "128"), ("V_DIM", "128"), ("DELTA", "1")],
        &[("K_DIM", "64"), ("V_DIM", "64"), ("DELTA", "1")],
        &[("K_DIM", "192"), ("V_DIM", "128"), ("DELTA", "1")],
        &[("K_DIM", "256"), ("V_DIM", "256"), ("DELTA", "1")],
        &[("K_DIM", "5"), ("V_DIM", "3"), ("DELTA", "1")],
        &[("K_DIM", "128"), ("V_DIM", "64"), ("DELTA", "0")],
        &[("K_DIM", "256"), ("V_DIM", "64"), ("DELTA", "0")],
        &[("K_DIM", "5"), ("V_DIM", "3"), ("DELTA", "0")],
    ],
};
