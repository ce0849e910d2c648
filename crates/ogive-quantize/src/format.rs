//! Formats as users name them: of a whole file, and of one tensor.
//!
//! The names and the numbers under `general.file_type` are llama.cpp's, so that files and habits carry over. One name is
//! not: `mxfp4` packs every matrix so, where llama.cpp's `mxfp4_moe` packs experts and nothing else.

use crate::{Error, Result};
use gguf_file::GgmlType;
use ogive_tensor::{Format, format_by_name};

/// A format of a whole file. Compared by its name.
#[derive(Debug)]
pub struct FileFormat {
    /// The name, in lower case: `q4_k_m`.
    pub name: &'static str,
    /// What matrices get where nothing else is said.
    pub base: GgmlType,
    /// The number under `general.file_type`.
    pub file_type: u32,
}

impl PartialEq for FileFormat {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for FileFormat {}

const fn format(name: &'static str, base: GgmlType, file_type: u32) -> FileFormat {
    FileFormat { name, base, file_type }
}

/// All formats that can be written, the largest first.
pub static FILE_FORMATS: &[FileFormat] = &[
    format("f32", GgmlType::F32, 0),
    format("f16", GgmlType::F16, 1),
    format("bf16", GgmlType::BF16, 32),
    format("q8_0", GgmlType::Q8_0, 7),
    format("q6_k", GgmlType::Q6_K, 18),
    format("q5_1", GgmlType::Q5_1, 9),
    format("q5_k_m", GgmlType::Q5_K, 17),
    format("q5_0", GgmlType::Q5_0, 8),
    format("q5_k_s", GgmlType::Q5_K, 16),
    format("q4_1", GgmlType::Q4_1, 3),
    format("q4_k_m", GgmlType::Q4_K, 15),
    format("q4_0", GgmlType::Q4_0, 2),
    format("q4_k_s", GgmlType::Q4_K, 14),
    format("iq4_nl", GgmlType::IQ4_NL, 25),
    format("iq4_xs", GgmlType::IQ4_XS, 30),
    format("nvfp4", GgmlType::NVFP4, 39),
    format("mxfp4_moe", GgmlType::MXFP4, 38),
    format("mxfp4", GgmlType::MXFP4, 38),
    format("q3_k_l", GgmlType::Q3_K, 13),
    format("q3_k_m", GgmlType::Q3_K, 12),
    format("iq3_m", GgmlType::IQ3_S, 27),
    format("q3_k_s", GgmlType::Q3_K, 11),
    format("iq3_s", GgmlType::IQ3_S, 26),
    format("iq3_xs", GgmlType::IQ3_S, 22),
    format("iq3_xxs", GgmlType::IQ3_XXS, 23),
    format("q2_k", GgmlType::Q2_K, 10),
    format("q2_k_s", GgmlType::Q2_K, 21),
    format("iq2_m", GgmlType::IQ2_S, 29),
    // The name says more than the type.
    format("iq2_s", GgmlType::IQ2_XS, 28),
    format("iq2_xs", GgmlType::IQ2_XS, 20),
    format("iq2_xxs", GgmlType::IQ2_XXS, 19),
    format("tq2_0", GgmlType::TQ2_0, 37),
    format("iq1_m", GgmlType::IQ1_M, 31),
    format("tq1_0", GgmlType::TQ1_0, 36),
    format("iq1_s", GgmlType::IQ1_S, 24),
];

/// Shorter names of the middle sizes, as in llama.cpp.
const ALIASES: [(&str, &str); 3] = [("q3_k", "q3_k_m"), ("q4_k", "q4_k_m"), ("q5_k", "q5_k_m")];

impl FileFormat {
    /// The format called `name`, in any case.
    ///
    /// # Errors
    /// If there is none; the message lists all.
    pub fn find(name: &str) -> Result<&'static Self> {
        let full =
            ALIASES.iter().find(|(short, _)| short.eq_ignore_ascii_case(name)).map_or(name, |(_, f)| f);
        FILE_FORMATS.iter().find(|f| f.name.eq_ignore_ascii_case(full)).ok_or_else(|| {
            let known: Vec<&str> = FILE_FORMATS.iter().map(|f| f.name).collect();
            Error::UnknownFormat { name: name.to_owned(), known: known.join(", ") }
        })
    }

    /// Whether matrices are packed in blocks, so that mixing types by tensor means something.
    pub(crate) fn is_packed(&self) -> bool {
        !self.base.is_plain()
    }
}

/// The element type called `name`, in any case, if it can be written.
///
/// # Errors
/// If there is none that can be; the message lists all that can.
pub fn tensor_type(name: &str) -> Result<GgmlType> {
    let writable = |t: &&GgmlType| encoder(**t).is_some();
    let found = GgmlType::ALL.iter().filter(writable).find(|t| t.name().eq_ignore_ascii_case(name));
    found.copied().ok_or_else(|| {
        let known: Vec<String> =
            GgmlType::ALL.iter().filter(writable).map(|t| t.name().to_lowercase()).collect();
        Error::UnknownFormat { name: name.to_owned(), known: known.join(", ") }
    })
}

/// Whether llama.cpp packs a tensor so by importances only, in a file of this format: without them so few bits would be spent where they help little.
/// Source: `tensor_requires_imatrix` of its quantiser.
pub(crate) fn wants_importance(format: &FileFormat, ty: GgmlType, tensor: &str) -> bool {
    use GgmlType::{IQ1_M, IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_XXS, Q2_K};
    let few = match ty {
        IQ3_XXS | IQ2_XXS | IQ2_XS | IQ2_S | IQ1_M | IQ1_S => true,
        Q2_K => format.name == "q2_k_s",
        _ => false,
    };
    few && !["token_embd.weight", "per_layer_token_embd.weight", "output.weight"].contains(&tensor)
}

/// Whether elements are whole numbers: lists and tables, which are no weights and are not packed.
pub(crate) fn is_integer(ty: GgmlType) -> bool {
    matches!(ty, GgmlType::I8 | GgmlType::I16 | GgmlType::I32 | GgmlType::I64)
}

/// How elements of the type are decoded, if they can be.
pub(crate) fn decoder(ty: GgmlType) -> Option<&'static Format> {
    format_by_name(ty.name())
}

/// How elements of the type are encoded, if they can be.
pub(crate) fn encoder(ty: GgmlType) -> Option<&'static Format> {
    decoder(ty).filter(|f| f.encode.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_can_be_written_and_found() {
        for f in FILE_FORMATS {
            assert_eq!(FileFormat::find(&f.name.to_uppercase()).unwrap(), f);
            assert!(encoder(f.base).is_some(), "{f:?}");
        }
        assert_eq!(FileFormat::find("Q4_K").unwrap().name, "q4_k_m");
        let e = FileFormat::find("q9").unwrap_err().to_string();
        assert!(e.contains("`q9`") && e.contains("q4_k_m, q4_0"), "{e}");
        assert_eq!(tensor_type("iq4_xs").unwrap(), GgmlType::IQ4_XS);
        let e = tensor_type("q8_k").unwrap_err().to_string();
        assert!(e.contains("mxfp4") && !e.contains("i32"), "{e}");
    }
}
