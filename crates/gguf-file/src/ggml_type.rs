//! The element types of ggml: number, name, and how many bytes a block of elements takes.
//!
//! Numbers and block sizes are ggml's (`enum ggml_type` in ggml.h, block structs in ggml-common.h). This crate knows no
//! more of a type than its size, and what to swap in big-endian files: decoding is another crate's work. An enum and not a
//! table of values, because a file format's list is closed until the format grows; numbers that are not in it stay readable
//! as [`TensorInfo::type_id`](crate::TensorInfo::type_id).

use std::fmt;

macro_rules! types {
    ($($(#[$doc:meta])* $variant:ident = $id:literal, $len:literal, $bytes:literal;)*) => {
        /// An element type of ggml. Elements come in blocks of [`block_len`](Self::block_len) along the fastest
        /// dimension, each of [`block_bytes`](Self::block_bytes); plain numbers are blocks of one.
        #[allow(non_camel_case_types, reason = "these are the names the field uses")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        #[repr(u32)]
        pub enum GgmlType { $($(#[$doc])* $variant = $id,)* }

        impl GgmlType {
            /// All known types, by number.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The type of that number, if it is known.
            #[must_use]
            pub const fn from_id(id: u32) -> Option<Self> {
                match id { $($id => Some(Self::$variant),)* _ => None }
            }

            /// ggml's name of the type, as in `Q4_K`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant),)* }
            }

            /// Elements in a block; 1 for plain numbers.
            #[must_use]
            pub const fn block_len(self) -> u64 {
                match self { $(Self::$variant => $len,)* }
            }

            /// Bytes of a block.
            #[must_use]
            pub const fn block_bytes(self) -> u64 {
                match self { $(Self::$variant => $bytes,)* }
            }
        }
    };
}

types! {
    /// IEEE 754 single precision.
    F32 = 0, 1, 4;
    /// IEEE 754 half precision.
    F16 = 1, 1, 2;
    /// 4 bits, a scale per 32.
    Q4_0 = 2, 32, 18;
    /// 4 bits, a scale and a minimum per 32.
    Q4_1 = 3, 32, 20;
    /// 5 bits, a scale per 32.
    Q5_0 = 6, 32, 22;
    /// 5 bits, a scale and a minimum per 32.
    Q5_1 = 7, 32, 24;
    /// 8 bits, a scale per 32.
    Q8_0 = 8, 32, 34;
    /// 8 bits, a scale and a sum per 32; for activations.
    Q8_1 = 9, 32, 36;
    /// 2 bits, nested scales over 256.
    Q2_K = 10, 256, 84;
    /// 3 bits, nested scales over 256.
    Q3_K = 11, 256, 110;
    /// 4 bits, nested scales over 256.
    Q4_K = 12, 256, 144;
    /// 5 bits, nested scales over 256.
    Q5_K = 13, 256, 176;
    /// 6 bits, nested scales over 256.
    Q6_K = 14, 256, 210;
    /// 8 bits, a scale and sums over 256; for activations.
    Q8_K = 15, 256, 292;
    /// About 2.06 bits, by codebook.
    IQ2_XXS = 16, 256, 66;
    /// About 2.31 bits, by codebook.
    IQ2_XS = 17, 256, 74;
    /// About 3.06 bits, by codebook.
    IQ3_XXS = 18, 256, 98;
    /// About 1.56 bits, by codebook.
    IQ1_S = 19, 256, 50;
    /// 4 bits through a table of 16 values, a scale per 32.
    IQ4_NL = 20, 32, 18;
    /// About 3.44 bits, by codebook.
    IQ3_S = 21, 256, 110;
    /// About 2.56 bits, by codebook.
    IQ2_S = 22, 256, 82;
    /// 4 bits through a table of 16 values, nested scales over 256.
    IQ4_XS = 23, 256, 136;
    /// Signed 8-bit integers.
    I8 = 24, 1, 1;
    /// Signed 16-bit integers.
    I16 = 25, 1, 2;
    /// Signed 32-bit integers.
    I32 = 26, 1, 4;
    /// Signed 64-bit integers.
    I64 = 27, 1, 8;
    /// IEEE 754 double precision.
    F64 = 28, 1, 8;
    /// About 1.75 bits, by codebook.
    IQ1_M = 29, 256, 56;
    /// The upper half of a single-precision number.
    BF16 = 30, 1, 2;
    /// Ternary, five values to a byte, a scale per 256.
    TQ1_0 = 34, 256, 54;
    /// Ternary, four values to a byte, a scale per 256.
    TQ2_0 = 35, 256, 66;
    /// OCP microscaling: E2M1 values, an E8M0 scale per 32.
    MXFP4 = 39, 32, 17;
    /// E2M1 values, an unsigned E4M3 scale per 16, four groups to a block.
    NVFP4 = 40, 64, 36;
    /// One bit, a scale per 128.
    Q1_0 = 41, 128, 18;
    /// 2 bits, a scale per 64.
    Q2_0 = 42, 64, 18;
}

impl GgmlType {
    /// The number that stands for the type in files.
    #[must_use]
    pub const fn id(self) -> u32 {
        self as u32
    }

    /// Whether elements are plain numbers, one to a block, which a byte swap converts from one byte order to the other.
    #[must_use]
    pub const fn is_plain(self) -> bool {
        self.block_len() == 1
    }

    /// Bytes of `elements` elements, or `None` if they are no whole number of blocks or too many to count.
    #[must_use]
    pub const fn bytes_for(self, elements: u64) -> Option<u64> {
        if !elements.is_multiple_of(self.block_len()) {
            return None;
        }
        (elements / self.block_len()).checked_mul(self.block_bytes())
    }

    /// What is known of a number that is no type: ggml has withdrawn some.
    pub(crate) fn hint(id: u32) -> &'static str {
        match id {
            4 | 5 => " (Q4_2 or Q4_3, which ggml has withdrawn)",
            31..=33 => {
                " (a Q4_0 layout repacked for one processor, which ggml has withdrawn; use a Q4_0 file)"
            }
            36..=38 => {
                " (an IQ4_NL layout repacked for one processor, which ggml has withdrawn; use an IQ4_NL file)"
            }
            _ => "",
        }
    }

    /// All names and numbers, for error messages.
    pub(crate) fn known() -> String {
        let names: Vec<String> = Self::ALL.iter().map(|t| format!("{} ({})", t.name(), t.id())).collect();
        names.join(", ")
    }
}

impl fmt::Display for GgmlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_names_and_sizes_agree() {
        for &t in GgmlType::ALL {
            assert_eq!(GgmlType::from_id(t.id()), Some(t));
            assert!(!t.name().is_empty() && t.block_bytes() > 0);
            // Bits per element, a check on typing errors: nothing is below 1 bit or above 64.
            let bits = t.block_bytes() as f64 * 8.0 / t.block_len() as f64;
            assert!((1.0..=64.0).contains(&bits), "{t}: {bits}");
        }
        assert_eq!(GgmlType::from_id(4), None);
        assert_eq!(GgmlType::from_id(u32::MAX), None);
    }

    #[test]
    fn sizes_refuse_part_blocks_and_overflow() {
        assert_eq!(GgmlType::Q4_K.bytes_for(512), Some(288));
        assert_eq!(GgmlType::Q4_K.bytes_for(500), None);
        assert_eq!(GgmlType::F32.bytes_for(u64::MAX), None);
        assert_eq!(GgmlType::F32.bytes_for(0), Some(0));
    }
}
