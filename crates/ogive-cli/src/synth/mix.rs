//! Which tensor gets which element type: llama.cpp's choice, so that figures hold for the files that people download.
//!
//! Source: `llama_tensor_get_type` of llama.cpp's quantiser. Its mixes spend bits where errors hurt most: on the head, and
//! on `attn_v` and `ffn_down` in the outer layers and every third of the others. Rows that 256 does not divide cannot be
//! K-quants and get the nearest of the older types.

use ogive::weights::gguf_file::GgmlType;

/// A format as users name it: of a whole file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileFormat {
    pub(crate) name: &'static str,
    /// What matrices get where nothing else is said.
    base: GgmlType,
    /// The number under `general.file_type`.
    pub(crate) file_type: u32,
    /// Whether some layers' `attn_v` and `ffn_down` get [`GgmlType::Q6_K`].
    mixed: bool,
}

const fn format(name: &'static str, base: GgmlType, file_type: u32, mixed: bool) -> FileFormat {
    FileFormat { name, base, file_type, mixed }
}

/// All formats that can be written.
pub(crate) const FORMATS: &[FileFormat] = &[
    format("f32", GgmlType::F32, 0, false),
    format("f16", GgmlType::F16, 1, false),
    format("bf16", GgmlType::BF16, 32, false),
    format("q8_0", GgmlType::Q8_0, 7, false),
    format("q6_k", GgmlType::Q6_K, 18, false),
    format("q5_k_m", GgmlType::Q5_K, 17, true),
    format("q4_k_m", GgmlType::Q4_K, 15, true),
    format("q4_0", GgmlType::Q4_0, 2, false),
];

/// What a matrix is for, as far as its type depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The head, or an embedding that is the head too.
    Head,
    /// `attn_v` or `ffn_down` of a layer, of so many.
    Sensitive { layer: usize, layers: usize },
    /// Any other matrix.
    Other,
}

/// The layers whose sensitive tensors get more bits.
fn more_bits(layer: usize, layers: usize) -> bool {
    let edge = layers / 8;
    layer < edge || layer >= 7 * layers / 8 || (layer - edge) % 3 == 2
}

impl FileFormat {
    /// The format called `name`, in any case.
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|f| f.name.eq_ignore_ascii_case(name))
    }

    /// The element type of a matrix whose rows have `cols` elements.
    pub(crate) fn type_of(&self, role: Role, cols: usize) -> GgmlType {
        let wanted = match role {
            // Plain numbers and 8 bits are good enough for a head.
            Role::Head if self.base.block_len() > 1 && self.base != GgmlType::Q8_0 => GgmlType::Q6_K,
            Role::Sensitive { layer, layers } if self.mixed && more_bits(layer, layers) => GgmlType::Q6_K,
            _ => self.base,
        };
        if (cols as u64).is_multiple_of(wanted.block_len()) {
            return wanted;
        }
        match wanted {
            GgmlType::Q4_K => GgmlType::Q5_0,
            GgmlType::Q5_K => GgmlType::Q5_1,
            GgmlType::Q6_K => GgmlType::Q8_0,
            _ => GgmlType::F16,
        }
    }
}
