//! Base64 (RFC 4648), for images in messages and for vectors.
//!
//! All padding may be missing, as browsers take it; whatever else is wrong is refused.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The text of these bytes.
pub(crate) fn encode(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// The bytes of this text; `None` if it is no Base64.
#[cfg(any(feature = "vision", test))]
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    // The library would take half of it as well.
    let padded = text.ends_with('=') && !text.len().is_multiple_of(4);
    BASE64.decode(text).ok().filter(|_| !padded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_standard() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).unwrap(), bytes.as_bytes(), "{text}");
            assert_eq!(
                decode(text.trim_end_matches('=')).unwrap(),
                bytes.as_bytes(),
                "{text} without padding"
            );
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)).unwrap(), all);
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in ["Z", "Zg=", "Zh==", "Zm9=", "Z===", "====", "=", "Zm9v=", "Zm 9", "Zm9v\n", "Zm9_", "é"]
        {
            assert_eq!(decode(text), None, "{text:?}");
        }
    }
}
