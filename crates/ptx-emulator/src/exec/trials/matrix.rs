//! `mma` in all its forms, `ldmatrix`, `stmatrix`, `movmatrix`.

use super::{Trial, load_word, noise, store_word};
use crate::exec::matrix::tests::{a_at, b_at, c_at, random, value, width};
use crate::fault::Kind;

/// Registers `{%r10, %r11, …}` of a fragment.
fn fragment(class: &str, first: usize, count: usize) -> String {
    let names: Vec<String> = (first..first + count).map(|n| format!("%{class}{n}")).collect();
    format!("{{{}}}", names.join(", "))
}

/// Runs one form on random fragments and compares with a product in f64.
fn check(text: &str) {
    let words: Vec<&str> = text.split('.').collect();
    let shape = words[3];
    let types: Vec<&str> = words[6..]
        .iter()
        .copied()
        .filter(|word| !matches!(*word, "satfinite" | "xor" | "and" | "popc"))
        .collect();
    let k: usize = shape.split('k').nth(1).unwrap().parse().unwrap();
    let m = if shape.starts_with("m16") { 16 } else { 8 };
    let counts = [m / 4, m * k / 32, k / 4, m / 4];
    let class = if types[0] == "f64" { "d" } else { "r" };
    let container = if class == "d" { 64 } else { 32 };
    let mut state = 77 + k as u64;
    let mut matrices = [vec![vec![0f64; k]; m], vec![vec![0f64; 8]; k], vec![vec![0f64; 8]; m]];
    let mut buffers = Vec::new();
    let mut body = String::new();
    let mut operands = vec![String::new()];
    let mut first = 10;
    let d_registers = counts[0] * width(types[0]) / container;
    operands[0] = fragment(class, first, d_registers);
    let d_first = first;
    first += d_registers;
    for operand in 1..4 {
        let bits = width(types[operand]);
        let registers = counts[operand] * bits / container;
        let mut content = vec![0u64; registers * 32];
        for lane in 0..32 {
            for i in 0..counts[operand] {
                let element = random(types[operand], &mut state);
                content[i * bits / container * 32 + lane] |= element << (i * bits % container);
                let (row, column) = match operand {
                    1 => a_at(shape, bits, lane, i),
                    2 => b_at(shape, bits, lane, i),
                    _ => c_at(lane, i),
                };
                matrices[operand - 1][row][column] = value(types[operand], element);
            }
        }
        for register in 0..registers {
            let (p, name) = (operand - 1, first + register);
            if class == "d" {
                body += &format!(
                    "    mad.wide.u32 %l90, %tid, 8, %p{p};\n    ld.global.f64 %d{name}, [%l90+{}];\n",
                    register * 256
                );
            } else {
                body += &load_word(&format!("%r{name}"), p, register * 32);
            }
        }
        let bytes: Vec<u8> =
            content.iter().flat_map(|word| word.to_le_bytes()[..container / 8].to_vec()).collect();
        buffers.push(bytes);
        operands.push(fragment(class, first, registers));
        first += registers;
    }
    body += &format!("    {text} {};\n", operands.join(", "));
    for register in 0..d_registers {
        if class == "d" {
            body += &format!(
                "    mad.wide.u32 %l90, %tid, 8, %p3;\n    st.global.f64 [%l90+{}], %d{};\n",
                register * 256,
                d_first + register
            );
        } else {
            body += &store_word(&format!("%r{}", d_first + register), 3, register * 32);
        }
    }
    let trial = buffers.iter().fold(Trial::new(32, &body), |trial, bytes| trial.with(bytes));
    let trial = trial.with_room((d_registers * 32 * container / 8) as u64);
    trial.run().unwrap_or_else(|fault| panic!("{fault}"));
    let given = trial.bytes(3);
    let bits = width(types[0]);
    for lane in 0..32 {
        for i in 0..counts[0] {
            let at = (i * bits / container * 32 + lane) * container / 8 + i * bits % container / 8;
            let mut element = [0; 8];
            element[..bits / 8].copy_from_slice(&given[at..at + bits / 8]);
            let given = value(types[0], u64::from_le_bytes(element));
            let (row, column) = c_at(lane, i);
            let product: f64 = (0..k)
                .map(|x| match text.contains(".xor.") {
                    true => f64::from(u8::from(matrices[0][row][x] != matrices[1][x][column])),
                    false => matrices[0][row][x] * matrices[1][x][column],
                })
                .sum();
            let exact = product + matrices[2][row][column];
            let room = match types[0] {
                "f64" => 1e-14,
                "f32" => 1e-5,
                "f16" => 2e-3,
                _ => 0.0,
            };
            assert!(
                (given - exact).abs() <= room * exact.abs().max(k as f64 / 2.0),
                "{text}: {given} for {exact}"
            );
        }
    }
}

#[test]
fn products_in_kernels() {
    for text in [
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
        "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32",
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
        "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32",
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
        "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64",
        "mma.sync.aligned.m8n8k16.row.col.s32.s8.u8.s32",
        "mma.sync.aligned.m16n8k16.row.col.satfinite.s32.s8.s8.s32",
        "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32",
        "mma.sync.aligned.m8n8k32.row.col.s32.s4.s4.s32",
        "mma.sync.aligned.m16n8k64.row.col.s32.u4.s4.s32",
        "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc",
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32",
    ] {
        check(text);
    }
}

#[test]
fn a_product_without_all_lanes() {
    let product = "    mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%r7}, {%r1, %r2, %r3, %r4};\n";
    Trial::new(16, product).fails(Kind::WrongMask, "needs all 32 lanes");
}

/// The four products of `mma.m8n8k4` with f16, by the manual's tables.
#[test]
fn four_small_products() {
    for (layout_a, layout_b) in [("row", "row"), ("row", "col"), ("col", "row"), ("col", "col")] {
        for (d, c) in [("f32", "f32"), ("f16", "f16"), ("f32", "f16"), ("f16", "f32")] {
            let mut state = 5;
            let mut a = [[[0f64; 4]; 8]; 4];
            let mut b = [[[0f64; 8]; 4]; 4];
            let mut sums = [[[0f64; 8]; 8]; 4];
            let mut content = [vec![0u32; 64], vec![0; 64], vec![0; if c == "f16" { 128 } else { 256 }]];
            let sum_at = |ty: &str, lane: usize, i: usize| {
                let upper = if lane < 16 { 0 } else { 4 };
                if ty == "f16" {
                    (lane % 4 + upper, i)
                } else {
                    ((lane & 1) + (i & 2) + upper, (i & 4) + (lane & 2) + (i & 1))
                }
            };
            for lane in 0..32 {
                let (product, upper) = (lane % 16 / 4, if lane < 16 { 0 } else { 4 });
                for i in 0..4 {
                    let element = random("f16", &mut state);
                    content[0][i / 2 * 32 + lane] |= (element as u32) << (i % 2 * 16);
                    let (row, column) =
                        if layout_a == "row" { (lane % 4 + upper, i) } else { (i + upper, lane % 4) };
                    a[product][row][column] = value("f16", element);
                    let element = random("f16", &mut state);
                    content[1][i / 2 * 32 + lane] |= (element as u32) << (i % 2 * 16);
                    let (row, column) =
                        if layout_b == "row" { (lane % 4, i + upper) } else { (i, lane % 4 + upper) };
                    b[product][row][column] = value("f16", element);
                }
                for i in 0..8 {
                    let element = random(c, &mut state);
                    let bits = i * width(c);
                    content[2][bits / 32 * 32 + lane] |= (element as u32) << (bits % 32);
                    let (row, column) = sum_at(c, lane, i);
                    sums[product][row][column] = value(c, element);
                }
            }
            let (c_count, d_count) = (content[2].len() / 32, if d == "f16" { 4 } else { 8 });
            let mut body = String::new();
            for (p, (first, count)) in [(20, 2), (22, 2), (30, c_count)].into_iter().enumerate() {
                for n in 0..count {
                    body += &load_word(&format!("%r{}", first + n), p, n * 32);
                }
            }
            body += &format!(
                "    mma.sync.aligned.m8n8k4.{layout_a}.{layout_b}.{d}.f16.f16.{c} {}, {}, {}, {};\n",
                fragment("r", 1, d_count),
                fragment("r", 20, 2),
                fragment("r", 22, 2),
                fragment("r", 30, c_count)
            );
            for n in 0..d_count {
                body += &store_word(&format!("%r{}", 1 + n), 3, n * 32);
            }
            let trial =
                content.iter().fold(Trial::new(32, &body).arch(70), |trial, words| trial.with_words(words));
            let given = trial.with_room(d_count as u64 * 128).result(3);
            for lane in 0..32 {
                for i in 0..8 {
                    let bits = i * width(d);
                    let given = value(d, u64::from(given[bits / 32 * 32 + lane] >> (bits % 32)));
                    let ((row, column), product) = (sum_at(d, lane, i), lane % 16 / 4);
                    let exact = sums[product][row][column]
                        + (0..4).map(|k| a[product][row][k] * b[product][k][column]).sum::<f64>();
                    assert!(
                        (given - exact).abs() < 4e-3 * exact.abs().max(2.0),
                        "{layout_a} {layout_b} {d} {c}"
                    );
                }
            }
        }
    }
}

/// PTX that copies 512 words of buffer 0 to shared memory, with 32 threads.
fn fill() -> String {
    let mut body = "    mad.wide.u32 %l1, %tid, 64, %p0;\n    mov.u32 %r90, shared;\n    mad.lo.u32 %r91, %tid, 64, %r90;\n".to_owned();
    for n in 0..16 {
        body +=
            &format!("    ld.global.b32 %r92, [%l1+{}];\n    st.shared.b32 [%r91+{}], %r92;\n", n * 4, n * 4);
    }
    body + "    bar.sync 0;\n"
}

#[test]
fn matrices_from_shared_memory() {
    let content = noise(12, 512);
    let half = |row: usize, column: usize| content[row * 4 + column / 2] >> (column % 2 * 16) & 0xffff;
    // Lane `l` gives row `5 l mod 128`: no order that a wrong program could have by accident.
    for (count, transposed, generic) in [
        (1, false, false),
        (2, false, true),
        (4, false, false),
        (1, true, true),
        (2, true, false),
        (4, true, true),
    ] {
        let names: Vec<String> = (1..=count).map(|n| format!("%r{n}")).collect();
        let body = fill()
            + "    mul.lo.u32 %r10, %tid, 5;\n    and.b32 %r10, %r10, 127;\n    mad.lo.u32 %r11, %r10, 16, %r90;\n    cvt.u64.u32 %l2, \
               %r11;\n    cvta.shared.u64 %l3, %l2;\n"
            + &format!(
                "    ldmatrix.sync.aligned.m8n8.x{count}{}{}.b16 {{{}}}, [{}];\n",
                if transposed { ".trans" } else { "" },
                if generic { "" } else { ".shared" },
                names.join(", "),
                if generic { "%l3" } else { "%r11" }
            )
            + &(0..count).map(|n| store_word(&names[n], 1, n * 32)).collect::<String>();
        let given = Trial::new(32, &body).with_words(&content).with_room(count as u64 * 128).result(1);
        for n in 0..count {
            for lane in 0..32 {
                let (g, t) = (lane / 4, lane % 4 * 2);
                let at = |row: usize, column: usize| half((n * 8 + row) * 5 % 128, column);
                let pair = if transposed { [at(t, g), at(t + 1, g)] } else { [at(g, t), at(g, t + 1)] };
                assert_eq!(given[n * 32 + lane], pair[0] | pair[1] << 16, "x{count} {transposed} {n} {lane}");
            }
        }
    }
}

#[test]
fn matrices_to_shared_memory_and_across() {
    let content = noise(13, 128);
    for transposed in [false, true] {
        let mut body = (0..4).map(|n| load_word(&format!("%r{}", n + 1), 0, n * 32)).collect::<String>();
        body += "    mov.u32 %r90, shared;\n    mad.lo.u32 %r11, %tid, 16, %r90;\n";
        body += &format!(
            "    stmatrix.sync.aligned.m8n8.x4{}.shared.b16 [%r11], {{%r1, %r2, %r3, %r4}};\n    bar.sync 0;\n",
            if transposed { ".trans" } else { "" }
        );
        body += "    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r5, %r6, %r7, %r8}, [%r11];\n";
        for n in 0..4 {
            body += &store_word(&format!("%r{}", n + 5), 1, n * 32);
            body += &format!("    movmatrix.sync.aligned.m8n8.trans.b16 %r20, %r{};\n", n + 1);
            body += &store_word("%r20", 2, n * 32);
        }
        let trial = Trial::new(32, &body).with_words(&content).with_room(512).with_room(512);
        let given = trial.result(1);
        if transposed {
            assert_eq!(given, trial.words(2), "stored by columns is moved across");
        } else {
            assert_eq!(given, content);
        }
    }
}

#[test]
fn matrices_at_wrong_addresses() {
    let at = |address: &str| {
        format!(
            "    mov.u32 %r90, shared;\n    {address}\n    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r1}}, [%r11];\n"
        )
    };
    let odd = fill() + &at("mad.lo.u32 %r11, %tid, 8, %r90;");
    Trial::new(32, &odd).with_words(&noise(1, 512)).fails(Kind::Misaligned, "16");
    let far = fill() + &at("mad.lo.u32 %r11, %tid, 16384, %r90;");
    Trial::new(32, &far).with_words(&noise(1, 512)).fails(Kind::OutOfBounds, "shared memory");
    let unwritten = at("mad.lo.u32 %r11, %tid, 16, %r90;");
    Trial::new(32, &unwritten).fails(Kind::Unwritten, "shared memory");
    let global = "    ldmatrix.sync.aligned.m8n8.x1.b16 {%r1}, [%p0];\n";
    Trial::new(32, global).with_words(&noise(1, 512)).fails(Kind::OutOfBounds, "not in shared memory");
}
