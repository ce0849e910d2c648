//! Registers that share rows against registers with rows of their own: programs drawn at random end with the same registers.
//!
//! Loops, branches that part a warp, guards, registers that nothing wrote, copies of copies and calls; the definition is the same
//! lowering without sharing and without leaving copies out.

use super::{Bench, words};
use crate::lower::finish::PLAIN;

/// Registers of each class.
const COUNT: u32 = 14;

struct Random(u64);

impl Random {
    fn below(&mut self, below: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32 % below
    }
}

/// One instruction on random registers. Their numbers are drawn from a few at a time, so that values are used again.
fn instruction(random: &mut Random) -> String {
    let mut r = |class: &str| format!("%{class}{}", random.below(COUNT));
    let (d, a, b, c) = (r("r"), r("r"), r("r"), r("r"));
    let (x, y, z) = (r("l"), r("l"), r("l"));
    let (p, q) = (r("p"), r("p"));
    let guard = match random.below(8) {
        0 => format!("@{p} "),
        1 => format!("@!{p} "),
        _ => String::new(),
    };
    let n = random.below(32);
    let what = match random.below(20) {
        0..4 => format!("mov.b32 {d}, {a}"),
        4 => format!("mov.b64 {x}, {y}"),
        5 => format!("mov.u32 {d}, {n}"),
        6 => format!("mov.u32 {d}, %tid.x"),
        7 => format!("mov.pred {p}, {q}"),
        8 => format!("mad.lo.u32 {d}, {a}, {b}, {c}"),
        9 => format!("add.u64 {x}, {y}, {z}"),
        10 => format!("xor.b32 {d}, {a}, {b}"),
        11 => format!("setp.lt.u32 {p}|{q}, {a}, {b}"),
        12 => format!("selp.b32 {d}, {a}, {b}, {p}"),
        13 => format!("mov.b64 {{{d}, {a}}}, {x}"),
        14 => format!("mov.b64 {x}, {{{a}, {b}}}"),
        15 => format!("cvt.u64.u32 {x}, {a}"),
        16 => format!("and.b32 {d}, {a}, {n}"),
        17 => format!("ld.global.v2.u32 {{{d}, {}}}, [%base]", if c == d { a } else { c }),
        18 => format!("ld.global.u64 {x}, [%base+8]"),
        _ => format!("cvta.global.u64 {x}, {y}"),
    };
    format!("{guard}{what};\n")
}

/// Instructions, branches forward and loops of three rounds.
fn piece(random: &mut Random, depth: u32, labels: &mut u32) -> String {
    let mut text = String::new();
    for _ in 0..random.below(6) + 2 {
        *labels += 1;
        let label = *labels;
        match random.below(10) {
            0 if depth > 0 => {
                let inner = piece(random, depth - 1, labels);
                let p = random.below(COUNT);
                text += &format!("@%p{p} bra L{label};\n{inner}L{label}:\n");
            }
            1 if depth > 0 => {
                let (then, other) = (piece(random, depth - 1, labels), piece(random, depth - 1, labels));
                let p = random.below(COUNT);
                text += &format!("@!%p{p} bra L{label};\n{then}bra M{label};\nL{label}:\n{other}M{label}:\n");
            }
            2 if depth > 0 => {
                let inner = piece(random, depth - 1, labels);
                text += &format!(
                    "mov.u32 %n{depth}, 0;\nL{label}:\n{inner}add.u32 %n{depth}, %n{depth}, 1;
                     setp.lt.u32 %k{depth}, %n{depth}, 3;\n@%k{depth} bra L{label};\n"
                );
            }
            _ => (0..random.below(8)).for_each(|_| text += &instruction(random)),
        }
    }
    text
}

/// A kernel that stores all its registers in the end; a thread has 4 * COUNT words.
fn program(seed: u64) -> String {
    let mut random = Random(seed);
    let mut labels = 0;
    let mut text = format!(
        ".reg .u32 %r<{COUNT}>, %n<4>, %at; .reg .u64 %l<{COUNT}>, %base, %out; .reg .pred %p<{COUNT}>, %k<4>;
         ld.param.u64 %base, [out]; mov.u32 %at, %tid.x; mad.wide.u32 %out, %at, {}, %base;\n",
        16 * COUNT
    );
    for seeded in 0..COUNT / 2 {
        text += &format!("mul.lo.u32 %r{seeded}, %at, {};\n", random.below(1 << 20));
        text += &format!("and.b32 %n0, %at, {}; setp.eq.u32 %p{seeded}, %n0, 0;\n", random.below(32));
    }
    text += &piece(&mut random, 3, &mut labels);
    for n in 0..COUNT {
        text += &format!(
            "st.global.u32 [%out+{}], %r{n};\nst.global.u64 [%out+{}], %l{n};\n",
            16 * n,
            16 * n + 8
        );
        text += &format!("selp.u32 %r{n}, 1, 0, %p{n};\nst.global.u32 [%out+{}], %r{n};\n", 16 * n + 4);
    }
    text + "ret;"
}

fn ran(text: &str, plain: bool) -> (Vec<u32>, [u32; 3]) {
    PLAIN.set(plain);
    let mut bench = Bench::new(".param .u64 out", text);
    PLAIN.set(false);
    let out = bench.buffer(&vec![7; (32 * 4 * COUNT) as usize]);
    bench.environment.checks.memory = false;
    bench.succeeds(1, 32);
    (words(&out), bench.variables())
}

#[test]
fn random_programs_give_the_same_with_and_without_sharing() {
    let mut fewer = 0;
    for seed in 0..400 {
        let text = program(seed);
        let ((shared, rows), (own, all)) = (ran(&text, false), ran(&text, true));
        assert_eq!(shared, own, "seed {seed}:\n{text}");
        fewer += u32::from(rows[0] < all[0]);
    }
    assert!(fewer > 0, "some of them share");
}

#[test]
fn copies_and_temporaries_take_no_rows() {
    let body: String = (0..50)
        .map(|n| {
            format!(".reg .u32 %a{n}, %b{n}; mov.b32 %a{n}, %x; add.u32 %b{n}, %a{n}, {n}; xor.b32 %s, %s, %b{n};\n")
        })
        .collect();
    let text = format!(
        ".reg .u32 %x, %s; .reg .u64 %base; mov.u32 %x, %tid.x; mov.u32 %s, 0;\n{body}
         ld.param.u64 %base, [out]; mad.wide.u32 %base, %x, 4, %base; st.global.u32 [%base], %s; ret;"
    );
    let mut bench = Bench::new(".param .u64 out", &text);
    let out = bench.fresh(32);
    bench.succeeds(1, 32);
    let expected = (0..32u32).map(|x| (0..50).fold(0, |s, n| s ^ (x + n)));
    assert!(words(&out).into_iter().eq(expected));
    assert_eq!(bench.variables(), [2, 1, 1]);
}

#[test]
fn copies_in_code_that_is_never_reached_are_no_trap() {
    let bench = Bench::new(
        "",
        ".reg .u32 %a, %b; .reg .pred %p;
         bra END;
     LOOP: mov.u32 %a, %b; mov.u32 %b, %a; setp.eq.u32 %p, %a, %b; @%p bra LOOP;
     END: ret;",
    );
    bench.succeeds(1, 32);
}
