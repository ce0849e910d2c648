//! GPU kernels of Ogive, as strings: CUDA C++ that NVRTC compiles for the device found, at first use.
//!
//! A crate of its own, because Cargo publishes no files from outside a crate, and because a program of another kind may want the
//! kernels without the backend. No toolkit headers: half precision and its like are inline PTX in `prelude.cu`, so NVRTC alone,
//! from 11.8 on, compiles everything. A kernel takes pointers and knows nothing of the host. Shapes that a model fixes (head
//! size, weight format) are defines, so that a kernel is specialised for the model that is loaded; each file says which.
//!
//! Each source stands for one module; [`Source::text`] is what the compiler gets.

/// A module's source: the files it is made of, in order, and its kernels.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Source {
    /// What it is called: the last file's name.
    pub name: &'static str,
    /// Names and texts of its files.
    pub files: &'static [(&'static str, &'static str)],
    /// Kernels, by the names they are launched by.
    pub kernels: &'static [&'static str],
    /// Defines to compile it with where no model says: a few that between them cover its paths.
    pub samples: &'static [&'static [(&'static str, &'static str)]],
}

impl Source {
    /// The whole text; compiler messages name file and line of the parts.
    #[must_use]
    pub fn text(&self) -> String {
        let part = |(name, text): &(&str, &str)| format!("#line 1 \"{name}\"\n{text}");
        self.files.iter().map(part).collect::<Vec<_>>().join("\n")
    }

    /// The same without kernels but this one, so that a compiler makes no more than is wanted. Lines keep their numbers.
    #[must_use]
    pub fn text_of(&self, kernel: &str) -> String {
        let (text, begins) = (self.text(), format!("{kernel}("));
        let mut parts = text.split("\nKERNEL ");
        let mut kept = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            // A kernel ends at the first brace of a line.
            let (body, rest) = part.split_once("\n}\n").unwrap_or((part, ""));
            let head = body.split('{').next().unwrap_or_default();
            if head.split_whitespace().any(|word| word.starts_with(&begins)) {
                kept.extend(["\nKERNEL ", part]);
            } else {
                kept.extend(std::iter::repeat_n('\n', body.matches('\n').count() + 3));
                kept.push_str(rest);
            }
        }
        kept
    }
}

macro_rules! file {
    ($name:literal) => {
        ($name, include_str!($name))
    };
}

/// Defines of a tile, in the order of `tile_mma.cu`, and perhaps one more.
macro_rules! mma {
    ($format:literal, $vector:literal, $half:literal, $down:literal, $across:literal, $mt:literal, $nt:literal, $step:literal,
     $raw:literal, $pitch:literal $(, $more:literal = $value:literal)?) => {
        [
            ("FORMAT", $format),
            ("VECTOR", $vector),
            ("HALF", $half),
            ("DOWN", $down),
            ("ACROSS", $across),
            ("MT", $mt),
            ("NT", $nt),
            ("STEP", $step),
            ("RAW", $raw),
            ("PITCH", $pitch),
            $(($more, $value),)?
        ]
    };
}

/// The files of a module that multiplies packed weights in integers: what decodes their codes, then its own.
macro_rules! packed {
    ($($more:expr),+ $(,)?) => {
        &[
            crate::PRELUDE,
            crate::MATRIX,
            crate::FORMATS,
            crate::GRIDS,
            crate::FEW,
            crate::int8::PACKED,
            crate::int8::FEW_CODES,
            $($more),+
        ]
    };
}

mod attention;
mod experts;
mod int8;
mod recurrent;
pub use attention::{ATTEND, ATTEND_MMA, ATTEND_SPLIT};
pub use experts::{EXPERTS, EXPERTS_DOWN_MMA, EXPERTS_INT8, EXPERTS_MANY, EXPERTS_UP_MMA, GROUP, ROUTE};
use int8::ROUNDING;
pub use int8::{CODES, LINEAR_GATED_INT8, LINEAR_INT8, LINEAR_INT8_MMA, LINEAR_ONE};
pub use recurrent::{CAUSAL_CONV, LINEAR_ATTENTION, SELECTIVE_SCAN};

const PRELUDE: (&str, &str) = file!("prelude.cu");
const FORMATS: (&str, &str) = file!("formats.cu");
const GRIDS: (&str, &str) = file!("grids.cu");
const FEW: (&str, &str) = file!("few_bits.cu");
const STEP: (&str, &str) = file!("step.cu");
const PAGES: (&str, &str) = file!("pages.cu");
const MATRIX: (&str, &str) = file!("matrix.cu");
const HALF: (&str, &str) = file!("half.cu");
const QUADS: (&str, &str) = file!("quads.cu");
const TILE: (&str, &str) = file!("tile.cu");
const TILE_MMA: (&str, &str) = file!("tile_mma.cu");
const ROTATION: (&str, &str) = file!("rotation.cu");

/// Formats that kernels decode, by the names that weight files use.
pub const WEIGHT_FORMATS: [&str; 25] = [
    "f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k",
    "iq4_nl", "iq4_xs", "mxfp4", "iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "tq1_0",
    "tq2_0",
];

/// What kernels decode and no file has: blocks of a factor in single precision and 32 elements of FP8 (E4M3). No product of integers is made with it.
pub const F8_BLOCKS: &str = "f8_blocks";

/// The same of NVFP4: a factor before each block of 64 elements. Products of integers are made with it.
pub const NVFP4_BLOCKS: &str = "nvfp4_blocks";

/// Formats the cache may keep keys and values in.
pub const CACHE_FORMATS: [&str; 4] = ["f32", "f16", "bf16", "q8_0"];

/// Sums, products, functions of single elements.
pub const ELEMENTWISE: Source = Source {
    name: "elementwise",
    files: &[PRELUDE, file!("elementwise.cu")],
    kernels: &["add", "mul", "add_broadcast", "mul_broadcast", "activate", "xielu", "gated"],
    samples: &[&[]],
};

/// Norms and sums over the last dimension.
pub const NORM: Source = Source {
    name: "norm",
    files: &[PRELUDE, ROUNDING, QUADS, file!("norm.cu")],
    kernels: &["rms_norm", "add_rms_norm", "layer_norm", "sum"],
    samples: &[&[("VECTOR", "1")], &[("VECTOR", "0")]],
};

/// Operators that only move values.
pub const MOVES: Source = Source {
    name: "moves",
    files: &[PRELUDE, STEP, file!("moves.cu")],
    kernels: &["copy_runs", "permute_columns", "outputs", "read_state", "write_state"],
    samples: &[&[]],
};

/// Rows of a table.
pub const EMBED: Source = Source {
    name: "embed",
    files: &[PRELUDE, FORMATS, GRIDS, FEW, STEP, file!("embed.cu")],
    kernels: &["embed"],
    samples: &[
        &[("FORMAT", "q4_k"), ("VECTOR", "1"), ("KIND", "0")],
        &[("FORMAT", "f16"), ("VECTOR", "0"), ("KIND", "1")],
    ],
};

/// Products with weights, few rows.
pub const LINEAR_FEW: Source = Source {
    name: "linear_few",
    files: &[PRELUDE, FORMATS, GRIDS, FEW, file!("linear_few.cu")],
    kernels: &["linear_few", "linear_gated_few"],
    samples: &[
        &[("FORMAT", "f32"), ("VECTOR", "0"), ("ROWS", "8")],
        &[("FORMAT", "f32"), ("VECTOR", "1"), ("ROWS", "8")],
        &[("FORMAT", "f16"), ("VECTOR", "1"), ("ROWS", "8")],
        &[("FORMAT", "f16"), ("VECTOR", "1"), ("ROWS", "1")],
        &[("FORMAT", "q2_k"), ("VECTOR", "1"), ("ROWS", "4")],
        &[("FORMAT", "q3_k"), ("VECTOR", "1"), ("ROWS", "8")],
        &[("FORMAT", "q4_k"), ("VECTOR", "1"), ("ROWS", "1")],
        &[("FORMAT", "q6_k"), ("VECTOR", "1"), ("ROWS", "8")],
        &[("FORMAT", "q8_0"), ("VECTOR", "1"), ("ROWS", "1")],
        &[("FORMAT", "iq4_xs"), ("VECTOR", "1"), ("ROWS", "8")],
        &[("FORMAT", "mxfp4"), ("VECTOR", "1"), ("ROWS", "8")],
        &[("FORMAT", "f8_blocks"), ("VECTOR", "1"), ("ROWS", "8")],
        &[("FORMAT", "nvfp4_blocks"), ("VECTOR", "1"), ("ROWS", "8")],
    ],
};

/// Products with weights, many rows.
pub const LINEAR_MANY: Source = Source {
    name: "linear_many",
    files: &[PRELUDE, FORMATS, GRIDS, FEW, TILE, file!("linear_many.cu")],
    kernels: &["linear_many"],
    samples: &[
        &[("FORMAT", "bf16"), ("VECTOR", "0")],
        &[("FORMAT", "f32"), ("VECTOR", "1")],
        &[("FORMAT", "q4_0"), ("VECTOR", "1")],
        &[("FORMAT", "q4_1"), ("VECTOR", "1")],
        &[("FORMAT", "q5_0"), ("VECTOR", "1")],
        &[("FORMAT", "q5_1"), ("VECTOR", "1")],
        &[("FORMAT", "q5_k"), ("VECTOR", "1")],
        &[("FORMAT", "iq4_nl"), ("VECTOR", "1")],
    ],
};

/// Activations for products by tensor cores.
pub const HALVES: Source = Source {
    name: "halves",
    files: &[PRELUDE, MATRIX, HALF, QUADS, file!("halves.cu")],
    kernels: &["halves"],
    samples: &[
        &[("HALF", "bf16"), ("VECTOR", "1")],
        &[("HALF", "f16"), ("VECTOR", "1")],
        &[("HALF", "f16"), ("VECTOR", "0")],
        &[("HALF", "bf16"), ("VECTOR", "1"), ("ORDER", "1")],
    ],
};

/// A gated activation, with what products by tensor cores read of it.
pub const GATED_HALVES: Source = Source {
    name: "gated_halves",
    files: &[PRELUDE, MATRIX, HALF, QUADS, file!("gated_halves.cu")],
    kernels: &["gated_halves"],
    samples: &[
        &[("HALF", "bf16"), ("VECTOR", "1"), ("FUNCTION", "0")],
        &[("HALF", "f16"), ("VECTOR", "1"), ("FUNCTION", "2")],
        &[("HALF", "f16"), ("VECTOR", "0"), ("FUNCTION", "1")],
    ],
};

/// Packed weights as halves, for products by cuBLAS.
pub const UNPACK: Source = Source {
    name: "unpack",
    files: &[PRELUDE, FORMATS, GRIDS, FEW, MATRIX, HALF, file!("unpack.cu")],
    kernels: &["unpack"],
    samples: &[
        &[("FORMAT", "q4_k"), ("VECTOR", "1"), ("HALF", "bf16")],
        &[("FORMAT", "f32"), ("VECTOR", "1"), ("HALF", "bf16")],
        &[("FORMAT", "f16"), ("VECTOR", "1"), ("HALF", "bf16")],
        &[("FORMAT", "bf16"), ("VECTOR", "1"), ("HALF", "f16")],
        &[("FORMAT", "q4_0"), ("VECTOR", "1"), ("HALF", "bf16")],
        &[("FORMAT", "q4_1"), ("VECTOR", "1"), ("HALF", "bf16")],
        &[("FORMAT", "q5_0"), ("VECTOR", "1"), ("HALF", "bf16")],
        &[("FORMAT", "q5_1"), ("VECTOR", "1"), ("HALF", "bf16")],
        &[("FORMAT", "q8_0"), ("VECTOR", "1"), ("HALF", "bf16")],
        &[("FORMAT", "q2_k"), ("VECTOR", "1"), ("HALF", "bf16")],
        &[("FORMAT", "q3_k"), ("VECTOR", "1"), ("HALF", "bf16")],
        &[("FORMAT", "q5_k"), ("VECTOR", "1"), ("HALF", "bf16")],
        &[("FORMAT", "q6_k"), ("VECTOR", "1"), ("HALF", "bf16")],
        &[("FORMAT", "iq4_nl"), ("VECTOR", "1"), ("HALF", "bf16")],
        &[("FORMAT", "iq4_xs"), ("VECTOR", "1"), ("HALF", "bf16")],
        &[("FORMAT", "mxfp4"), ("VECTOR", "1"), ("HALF", "bf16")],
        &[("FORMAT", "f8_blocks"), ("VECTOR", "1"), ("HALF", "bf16")],
        &[("FORMAT", "nvfp4_blocks"), ("VECTOR", "1"), ("HALF", "bf16")],
        &[("FORMAT", "iq3_s"), ("VECTOR", "1"), ("HALF", "bf16")],
        &[("FORMAT", "q6_k"), ("VECTOR", "1"), ("HALF", "f16")],
        &[("FORMAT", "f16"), ("VECTOR", "0"), ("HALF", "f16")],
        &[("FORMAT", "f32"), ("VECTOR", "0"), ("HALF", "f16")],
    ],
};

/// Products with weights, by tensor cores.
pub const LINEAR_MMA: Source = Source {
    name: "linear_mma",
    files: &[PRELUDE, FORMATS, GRIDS, FEW, MATRIX, HALF, TILE_MMA, file!("linear_mma.cu")],
    kernels: &["linear_mma"],
    samples: &[
        &mma!("f32", "1", "bf16", "4", "1", "2", "16", "64", "64", "272"),
        &mma!("f16", "1", "bf16", "4", "1", "2", "16", "64", "64", "144"),
        &mma!("bf16", "1", "bf16", "4", "1", "2", "16", "64", "64", "144"),
        &mma!("q4_0", "1", "bf16", "4", "1", "2", "16", "64", "64", "80"),
        &mma!("q4_1", "1", "bf16", "4", "1", "2", "16", "64", "64", "80"),
        &mma!("q5_0", "1", "bf16", "4", "1", "2", "16", "64", "64", "80"),
        &mma!("q5_1", "1", "bf16", "4", "1", "2", "16", "64", "64", "80"),
        &mma!("q8_0", "1", "bf16", "4", "1", "2", "16", "64", "64", "112"),
        &mma!("q2_k", "1", "bf16", "4", "1", "2", "16", "64", "256", "112"),
        &mma!("q3_k", "1", "bf16", "4", "1", "2", "16", "64", "256", "144"),
        &mma!("q4_k", "1", "bf16", "4", "1", "2", "16", "64", "256", "144"),
        &mma!("q5_k", "1", "bf16", "4", "1", "2", "16", "64", "256", "176"),
        &mma!("q6_k", "1", "bf16", "4", "1", "2", "16", "64", "256", "240"),
        &mma!("iq4_nl", "1", "bf16", "4", "1", "2", "16", "64", "64", "80"),
        &mma!("iq4_xs", "1", "bf16", "4", "1", "2", "16", "64", "256", "176"),
        &mma!("mxfp4", "1", "bf16", "4", "1", "2", "16", "64", "64", "80"),
        &mma!("f8_blocks", "1", "bf16", "4", "1", "2", "16", "64", "64", "112"),
        &mma!("nvfp4_blocks", "1", "bf16", "4", "1", "2", "16", "64", "64", "80"),
        &mma!("iq3_s", "1", "bf16", "4", "1", "2", "16", "64", "256", "144"),
        &mma!("q4_k", "1", "f16", "4", "1", "1", "8", "64", "256", "144"),
        &mma!("q8_0", "1", "f16", "4", "1", "1", "8", "64", "64", "112"),
        &mma!("q6_k", "1", "f16", "4", "1", "1", "8", "64", "256", "240"),
        &mma!("q4_k", "1", "bf16", "2", "4", "1", "1", "128", "256", "144"),
        &mma!("q6_k", "1", "f16", "2", "4", "1", "1", "128", "256", "240"),
        &mma!("q8_0", "1", "bf16", "2", "4", "1", "1", "128", "128", "176"),
        &mma!("f16", "0", "f16", "2", "4", "1", "1", "128", "128", "272"),
        &mma!("q4_k", "1", "bf16", "4", "2", "1", "8", "64", "256", "144"),
        &mma!("q5_k", "1", "f16", "4", "2", "1", "8", "64", "256", "176"),
        &mma!("f32", "0", "bf16", "4", "2", "1", "8", "64", "64", "272"),
        &mma!("q4_k", "1", "bf16", "2", "4", "1", "4", "64", "256", "144"),
        &mma!("q6_k", "1", "f16", "2", "4", "1", "4", "64", "256", "240"),
        &mma!("q4_k", "1", "bf16", "2", "4", "1", "8", "64", "256", "144"),
        &mma!("q6_k", "1", "bf16", "2", "4", "1", "8", "64", "256", "240"),
        &mma!("f16", "1", "f16", "2", "4", "1", "8", "64", "64", "144"),
        &mma!("q4_k", "1", "f16", "2", "2", "1", "8", "64", "256", "144"),
        &mma!("q8_0", "1", "f16", "2", "2", "1", "8", "64", "64", "112"),
        &mma!("q6_k", "1", "bf16", "2", "2", "1", "8", "64", "256", "240"),
    ],
};

/// Rotary position embedding.
pub const ROPE: Source = Source {
    name: "rope",
    files: &[PRELUDE, STEP, ROTATION, file!("rope.cu")],
    kernels: &["rope"],
    samples: &[&[], &[("PLACES", "1")]],
};

/// Rotating queries and keys and storing keys and values, at once.
pub const ROPE_STORE: Source = Source {
    name: "rope_store",
    files: &[PRELUDE, FORMATS, STEP, PAGES, ROTATION, file!("rope_store.cu")],
    kernels: &["rope_store"],
    samples: &[&[("ELEMENT", "f16")], &[("ELEMENT", "f32")], &[("ELEMENT", "bf16")]],
};

/// Storing to the paged cache and reading it back.
pub const CACHE: Source = Source {
    name: "cache",
    files: &[PRELUDE, FORMATS, STEP, PAGES, file!("cache.cu")],
    kernels: &["store", "gather"],
    samples: &[
        &[("ELEMENT", "f32")],
        &[("ELEMENT", "f16")],
        &[("ELEMENT", "bf16")],
        &[("ELEMENT", "q8_0"), ("PACKED", "1")],
    ],
};

/// The largest elements of rows.
pub const BEST: Source =
    Source { name: "best", files: &[PRELUDE, file!("best.cu")], kernels: &["best"], samples: &[&[]] };

/// A trial of the instructions that fast kernels are made of; for tests.
pub const TRIAL: Source = Source {
    name: "trial",
    files: &[PRELUDE, MATRIX, file!("trial.cu")],
    kernels: &["trial"],
    samples: &[&[]],
};

/// What the memory gives, and numbers to multiply; for measuring.
pub const PROBE: Source = Source {
    name: "probe",
    files: &[PRELUDE, file!("probe.cu")],
    kernels: &["copy", "read", "scatter"],
    samples: &[&[]],
};

/// Every module.
pub const SOURCES: [&Source; 34] = [
    &ELEMENTWISE,
    &NORM,
    &MOVES,
    &EMBED,
    &LINEAR_FEW,
    &LINEAR_MANY,
    &HALVES,
    &GATED_HALVES,
    &UNPACK,
    &LINEAR_MMA,
    &CODES,
    &LINEAR_INT8,
    &LINEAR_INT8_MMA,
    &LINEAR_ONE,
    &LINEAR_GATED_INT8,
    &ROPE,
    &ROPE_STORE,
    &CACHE,
    &ATTEND,
    &ATTEND_SPLIT,
    &ATTEND_MMA,
    &CAUSAL_CONV,
    &SELECTIVE_SCAN,
    &LINEAR_ATTENTION,
    &ROUTE,
    &EXPERTS,
    &EXPERTS_INT8,
    &GROUP,
    &EXPERTS_MANY,
    &EXPERTS_UP_MMA,
    &EXPERTS_DOWN_MMA,
    &BEST,
    &TRIAL,
    &PROBE,
];

#[cfg(test)]
mod tests;
