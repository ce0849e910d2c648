//! Nonsense is refused and never a panic.
//!
//! Mutations are drawn from a fixed seed: truncations, changed bytes, tokens taken away, doubled and exchanged. Each text that is
//! still PTX goes on through the checker, and what the checker finds right through lowering. `PTX_EMU_MUTATIONS` draws more.

use ptx_emulator::lower::lower;
use ptx_emulator::ptx::{parse, verify};

/// A small generator; the quality of the numbers does not matter.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % bound.max(1)
    }
}

/// Words and signs with the blanks between them.
fn tokens(text: &str) -> Vec<&str> {
    text.split_inclusive(|c: char| c.is_whitespace() || ",;{}[]()<>.:|@+".contains(c)).collect()
}

const STRANGE: [&str; 24] = [
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ";",
    ",",
    "@",
    "%",
    "\"",
    "/*",
    "\0",
    "0f",
    "0x",
    "99999999999999999999",
    "-9223372036854775808",
    "\u{1F600}",
    "<4294967295>",
    ".v4",
    ".align 0",
    "::",
    "?",
    "_",
];

fn mutate(text: &str, random: &mut Random) -> String {
    let mut parts = tokens(text);
    for _ in 0..=random.below(4) {
        let at = random.below(parts.len());
        let other = random.below(parts.len());
        match random.below(7) {
            0 => parts.truncate(at),
            1 => drop(parts.remove(at.min(parts.len().saturating_sub(1)))),
            2 => parts.swap(at, other),
            3 => parts.insert(at, STRANGE[random.below(STRANGE.len())]),
            4 => parts.insert(at, parts[other]),
            5 => parts[at] = STRANGE[random.below(STRANGE.len())],
            _ => parts[at] = parts[other],
        }
        if parts.is_empty() {
            break;
        }
    }
    let mut bytes = parts.concat().into_bytes();
    if random.below(3) == 0 && !bytes.is_empty() {
        let at = random.below(bytes.len());
        bytes[at] ^= 1 << random.below(8);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn nonsense_is_no_panic() {
    let count = std::env::var("PTX_EMU_MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(3000);
    let mut random = Random(1);
    let text = include_str!("ptx/accepted.ptx");
    let mut read = 0;
    for _ in 0..count {
        let mutated = mutate(text, &mut random);
        if let Ok(module) = parse(&mutated) {
            read += 1;
            if verify(&module).is_ok() {
                for kernel in module.functions.iter().filter(|f| f.entry && f.body.is_some()) {
                    let _ = lower(&module, &kernel.name, &|_| Some(4096));
                }
            }
        }
    }
    // Some must still be PTX, or the mutations are too wild to reach the checker.
    assert!(read > count / 50, "{read} of {count}");
}
