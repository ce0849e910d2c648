//! GPT-2's spelling of bytes as printable characters, in which byte-level vocabularies and merges are written.
//!
//! Printable Latin-1 stands for itself; the other 68 bytes are the characters from U+0100 on, in order. Source: OpenAI's
//! GPT-2 `encoder.py` (`bytes_to_unicode`). Tables, because every byte of every text goes through here.

/// Whether `b` is written as the character of the same number.
const fn direct(b: u8) -> bool {
    matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
}

const CHARS: [char; 256] = {
    let mut table = ['\0'; 256];
    let (mut b, mut next) = (0, 0x100);
    while b < 256 {
        table[b] = if direct(b as u8) {
            b as u8 as char
        } else {
            next += 1;
            match char::from_u32(next - 1) {
                Some(c) => c,
                None => '\0',
            }
        };
        b += 1;
    }
    table
};

/// By character up to U+0143, the last one used: the byte, or 256.
const BYTES: [u16; 0x144] = {
    let mut table = [256; 0x144];
    let mut b = 0;
    while b < 256 {
        table[CHARS[b] as usize] = b as u16;
        b += 1;
    }
    table
};

/// The character that stands for a byte.
pub(crate) fn to_char(b: u8) -> char {
    CHARS[usize::from(b)]
}

/// The byte that a character stands for.
pub(crate) fn to_byte(c: char) -> Option<u8> {
    BYTES.get(c as usize).and_then(|&b| u8::try_from(b).ok())
}

/// The bytes that a token's text stands for, or `None` if one of its characters stands for none.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    text.chars().map(to_byte).collect()
}

/// Appends the spelling of `bytes` to `out`.
pub(crate) fn encode(bytes: &[u8], out: &mut String) {
    out.extend(bytes.iter().map(|&b| to_char(b)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_a_bijection_with_the_published_landmarks() {
        for b in 0..=255 {
            assert_eq!(to_byte(to_char(b)), Some(b));
        }
        for (b, c) in
            [(b' ', 'Ġ'), (b'\n', 'Ċ'), (0, 'Ā'), (b'A', 'A'), (0xad, 'Ń'), (0x7f, 'ġ'), (0xff, 'ÿ')]
        {
            assert_eq!(to_char(b), c);
        }
        assert_eq!([to_byte(' '), to_byte('\u{ad}'), to_byte('\u{144}'), to_byte('中')], [None; 4]);
        assert_eq!(decode("Ġthe"), Some(b" the".to_vec()));
        let mut text = String::new();
        encode("é\n".as_bytes(), &mut text);
        assert_eq!(text, "Ã©Ċ");
    }
}
