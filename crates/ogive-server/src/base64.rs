//! Base64 (RFC 4648), for images in messages and for vectors.
//!
//! Forty lines, and no dependency for them. Padding may be missing, as browsers take it; whatever else is wrong is refused.

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The text of these bytes.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * i)) as usize & 63];
            text.push(if i <= chunk.len() { letter.into() } else { '=' });
        }
    }
    text
}

/// The bytes of this text; `None` if it is no Base64.
#[cfg(any(feature = "vision", test))]
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text).as_bytes();
    let padded = digits.len() != text.len();
    if padded && !text.len().is_multiple_of(4) || digits.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for chunk in digits.chunks(4) {
        let mut bits = 0_u32;
        for letter in chunk {
            let digit = match letter {
                b'A'..=b'Z' => letter - b'A',
                b'a'..=b'z' => letter - b'a' + 26,
                b'0'..=b'9' => letter - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(digit);
        }
        bits <<= 6 * (4 - chunk.len());
        // Bits that are no byte's are zero in what anybody has encoded.
        let [_, out @ ..] = bits.to_be_bytes();
        let (whole, rest) = out.split_at_checked(chunk.len() - 1)?;
        if rest.iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend_from_slice(whole);
    }
    Some(bytes)
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
