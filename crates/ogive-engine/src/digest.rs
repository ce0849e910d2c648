//! A running hash of bytes: the checksum of saved sessions, and what models are told apart by.
//!
//! Not a cryptographic one: it finds damage and mix-ups, not forgery, and costs less than reading the bytes. Every word
//! enters by a step that is one-to-one, so that no change within one word can go unseen.

/// A hash of bytes that come piece by piece; where they are cut does not matter.
///
/// Part of the format of saved sessions, so it never changes. Words of 8 bytes in little endian, the last one filled up with
/// zeros, then the number of bytes as one more word: each is xored in, the sum multiplied by 0x9e3779b97f4a7c15, rotated by
/// 29 bits and multiplied by 0xc2b2ae3d27d4eb4f. It begins with 0xcbf29ce484222325 and ends with MurmurHash3's finish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    hash: u64,
    len: u64,
    /// The bytes of an incomplete word.
    rest: [u8; 8],
}

impl Default for Digest {
    fn default() -> Self {
        Self::new()
    }
}

impl Digest {
    /// Of no bytes yet.
    pub fn new() -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, len: 0, rest: [0; 8] }
    }

    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> u64 {
        let mut digest = Self::new();
        digest.push(bytes);
        digest.value()
    }

    /// Takes more bytes.
    pub fn push(&mut self, mut bytes: &[u8]) {
        let held = (self.len % 8) as usize;
        self.len = self.len.wrapping_add(bytes.len() as u64);
        if held > 0 {
            let (head, tail) = bytes.split_at(bytes.len().min(8 - held));
            self.rest[held..held + head.len()].copy_from_slice(head);
            bytes = tail;
            if held + head.len() < 8 {
                return;
            }
            self.hash = step(self.hash, self.rest);
        }
        let (words, rest) = bytes.as_chunks::<8>();
        self.hash = words.iter().fold(self.hash, |hash, word| step(hash, *word));
        self.rest = [0; 8];
        self.rest[..rest.len()].copy_from_slice(rest);
    }

    /// The hash of what has come so far.
    pub fn value(&self) -> u64 {
        let hash = if self.len.is_multiple_of(8) { self.hash } else { step(self.hash, self.rest) };
        let hash = step(hash, self.len.to_le_bytes());
        let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        hash ^ (hash >> 33)
    }
}

fn step(hash: u64, word: [u8; 8]) -> u64 {
    let hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash.rotate_left(29).wrapping_mul(0xc2b2_ae3d_27d4_eb4f)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn cuts_do_not_matter_and_every_bit_does() {
        let bytes: Vec<u8> = (0..100u32).map(|i| (i * 37 % 251) as u8).collect();
        let whole = Digest::of(&bytes);
        for cut in 0..=bytes.len() {
            for second in [cut, (cut + 3).min(bytes.len()), bytes.len()] {
                let mut digest = Digest::new();
                for part in [&bytes[..cut], &bytes[cut..second], &bytes[second..]] {
                    digest.push(part);
                }
                assert_eq!(digest.value(), whole, "{cut} {second}");
            }
        }
        let mut seen = BTreeSet::from([whole]);
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(seen.insert(Digest::of(&bad)), "{bit}");
        }
        for len in 0..bytes.len() {
            assert!(seen.insert(Digest::of(&bytes[..len])), "{len}");
        }
    }

    #[test]
    fn the_format_stays_what_it_is() {
        assert_eq!(Digest::of(b""), GOLDEN[0]);
        assert_eq!(Digest::of(b"ogive"), GOLDEN[1]);
        assert_eq!(Digest::of(b"a saved session"), GOLDEN[2]);
    }

    /// Computed by a second implementation, in Python, from the description above.
    const GOLDEN: [u64; 3] = [0xf839_8c77_8958_c517, 0x0f8c_aa41_f6dc_6854, 0x3eb1_44d4_a593_480a];
}
