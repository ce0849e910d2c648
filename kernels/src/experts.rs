//! The modules for mixtures of experts.

use crate::int8::{DIRECT, STREAM};
use crate::{FEW, FORMATS, GRIDS, HALF, MATRIX, PRELUDE, Source, TILE, TILE_MMA};

const GATING: (&str, &str) = file!("gating.cu");

/// Choosing experts.
pub const ROUTE: Source =
    Source { name: "route", files: &[PRELUDE, file!("route.cu")], kernels: &["route"], samples: &[&[]] };

/// Rows through their experts.
pub const EXPERTS: Source = Source {
    name: "experts",
    files: &[PRELUDE, FORMATS, GRIDS, FEW, GATING, file!("experts.cu")],
    kernels: &["experts_up", "experts_down"],
    samples: &[
        &[("FORMAT", "q4_k"), ("UP", "q4_k"), ("DOWN", "q6_k"), ("VECTOR", "1")],
        &[("FORMAT", "mxfp4"), ("UP", "mxfp4"), ("DOWN", "mxfp4"), ("VECTOR", "1")],
        &[("FORMAT", "f32"), ("UP", "f32"), ("DOWN", "f32"), ("VECTOR", "0")],
        &[("FORMAT", "q4_k"), ("DOWN", "q6_k"), ("VECTOR", "1")],
    ],
};

/// Rows through their experts in integers, few rows.
pub const EXPERTS_INT8: Source = Source {
    name: "experts_int8",
    files: packed![STREAM, DIRECT, GATING, file!("experts_int8.cu")],
    kernels: &["experts_up_int8", "experts_down_int8"],
    samples: &[
        &[("FORMAT", "q4_k"), ("UP", "q4_k"), ("DOWN", "q6_k"), ("ROWS", "1")],
        &[("FORMAT", "q8_0"), ("UP", "q4_k"), ("DOWN", "q8_0"), ("ROWS", "1")],
        &[("FORMAT", "mxfp4"), ("UP", "mxfp4"), ("DOWN", "mxfp4"), ("ROWS", "1")],
        &[("FORMAT", "q4_k"), ("DOWN", "q6_k"), ("ROWS", "1")],
        &[("FORMAT", "q8_0"), ("DOWN", "q8_0"), ("ROWS", "1")],
    ],
};

/// Choices of experts in the experts' order, and sums of what came of them.
pub const GROUP: Source = Source {
    name: "group",
    files: &[PRELUDE, file!("group.cu")],
    kernels: &["group", "combine"],
    samples: &[&[]],
};

/// Defines of experts in single precision: the formats, whether rows are whole eights, the activation. Without the second format nothing is gated.
macro_rules! many {
    ($format:literal, $down:literal, $vector:literal, $function:literal) => {
        [("FORMAT", $format), ("DOWN", $down), ("VECTOR", $vector), ("FUNCTION", $function)]
    };
    ($format:literal, $up:literal, $down:literal, $vector:literal, $function:literal) => {
        [("FORMAT", $format), ("UP", $up), ("DOWN", $down), ("VECTOR", $vector), ("FUNCTION", $function)]
    };
}

/// Rows through their experts in single precision, many rows.
pub const EXPERTS_MANY: Source = Source {
    name: "experts_many",
    files: &[PRELUDE, FORMATS, GRIDS, FEW, TILE, GATING, file!("experts_many.cu")],
    kernels: &["experts_up_many", "experts_down_many"],
    samples: &[
        &many!("q4_k", "q4_k", "q6_k", "1", "0"),
        &many!("f32", "f32", "f32", "0", "1"),
        &many!("bf16", "q3_k", "q5_1", "1", "2"),
        &many!("mxfp4", "mxfp4", "mxfp4", "1", "0"),
        &many!("q4_k", "q6_k", "1", "8"),
        &many!("f32", "f32", "0", "8"),
    ],
};

/// Defines of a tile with both weights: the tile's, the second format, and the activation.
macro_rules! up {
    ($format:literal, $up:literal, $vector:literal, $half:literal, $down:literal, $across:literal, $nt:literal, $step:literal,
     $raw:literal, $pitch:literal, $function:literal) => {
        [
            ("FORMAT", $format),
            ("UP", $up),
            ("VECTOR", $vector),
            ("HALF", $half),
            ("DOWN", $down),
            ("ACROSS", $across),
            ("MT", "2"),
            ("NT", $nt),
            ("STEP", $step),
            ("RAW", $raw),
            ("PITCH", $pitch),
            ("FUNCTION", $function),
        ]
    };
}

/// Rows through the gates of their experts, or on their way up where nothing is gated, by tensor cores.
pub const EXPERTS_UP_MMA: Source = Source {
    name: "experts_up_mma",
    files: &[PRELUDE, FORMATS, GRIDS, FEW, MATRIX, HALF, TILE_MMA, GATING, file!("experts_up_mma.cu")],
    kernels: &["experts_up_mma"],
    samples: &[
        &up!("q4_k", "q4_k", "1", "bf16", "4", "1", "16", "64", "256", "144", "0"),
        &up!("q4_k", "q6_k", "1", "bf16", "4", "1", "16", "64", "256", "240", "0"),
        &up!("mxfp4", "mxfp4", "1", "bf16", "4", "1", "16", "64", "64", "80", "0"),
        &up!("f16", "f16", "1", "bf16", "4", "1", "16", "64", "64", "144", "1"),
        &up!("q8_0", "q8_0", "1", "f16", "4", "1", "8", "64", "64", "112", "2"),
        &up!("f32", "f32", "0", "bf16", "4", "1", "8", "64", "64", "272", "0"),
        &up!("q3_k", "q3_k", "1", "f16", "2", "1", "8", "64", "256", "144", "0"),
        &up!("q4_k", "q4_k", "1", "bf16", "1", "4", "2", "128", "256", "144", "0"),
        &up!("q6_k", "q6_k", "1", "f16", "1", "4", "2", "128", "256", "240", "0"),
        &mma!("q4_k", "1", "bf16", "4", "1", "2", "16", "64", "256", "144", "FUNCTION" = "8"),
        &mma!("q8_0", "1", "f16", "4", "1", "2", "8", "64", "64", "112", "FUNCTION" = "8"),
        &mma!("q6_k", "1", "bf16", "1", "4", "2", "2", "128", "256", "240", "FUNCTION" = "8"),
    ],
};

/// What experts made of their rows, back to the width of those, by tensor cores.
pub const EXPERTS_DOWN_MMA: Source = Source {
    name: "experts_down_mma",
    files: &[PRELUDE, FORMATS, GRIDS, FEW, MATRIX, HALF, TILE_MMA, file!("experts_down_mma.cu")],
    kernels: &["experts_down_mma"],
    samples: &[
        &mma!("q6_k", "1", "bf16", "4", "1", "2", "16", "64", "256", "240"),
        &mma!("q4_k", "1", "bf16", "4", "1", "2", "16", "64", "256", "144"),
        &mma!("mxfp4", "1", "bf16", "4", "1", "2", "16", "64", "64", "80"),
        &mma!("f16", "1", "bf16", "4", "1", "2", "16", "64", "64", "144"),
        &mma!("q8_0", "1", "f16", "4", "2", "1", "8", "64", "64", "112"),
        &mma!("q3_k", "1", "f16", "4", "1", "1", "8", "64", "256", "144"),
        &mma!("q6_k", "1", "bf16", "2", "4", "1", "2", "128", "256", "240"),
        &mma!("f32", "0", "f16", "2", "4", "1", "2", "128", "128", "528"),
    ],
};
