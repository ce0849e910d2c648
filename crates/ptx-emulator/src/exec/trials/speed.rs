//! How fast tiles go through the machine. Run with
//! `cargo test -p ptx-emulator --lib trials::speed -- --ignored --nocapture --test-threads 1`.
#![allow(clippy::print_stderr)]

use super::{Trial, noise};

/// Time of the processor that this process used: others may be using it too.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |n: usize| fields.get(n).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// Runs a kernel with and without checks and prints its rate.
fn measure(name: &str, threads: u32, body: &str, products: f64) {
    let mut seconds = [0.0; 2];
    for (checked, seconds) in [false, true].into_iter().zip(&mut seconds) {
        // Halves between 0.5 and 2 of either kind: numbers too small to be normal would be measured, otherwise.
        let words: Vec<u32> = noise(5, 65536).iter().map(|word| word & 0x807f_807f | 0x3f00_3f00).collect();
        let mut trial = Trial::new(threads, body).with_words(&words);
        trial.checked = checked;
        trial.limit = 1 << 40;
        let start = cpu_seconds();
        trial.run().unwrap_or_else(|fault| panic!("{fault}"));
        *seconds = cpu_seconds() - start;
    }
    let rates = seconds.map(|seconds| products / seconds / 1e9);
    eprintln!(
        "{name}: {:.2} GMAC/s, checked {:.2} ({:.1} times as long)",
        rates[0],
        rates[1],
        seconds[1] / seconds[0]
    );
}

/// Nothing but products.
#[test]
#[ignore = "a measurement"]
fn products() {
    for (form, counts, products) in [
        ("m16n8k16.row.col.f32.bf16.bf16.f32", [4, 4, 2], 2048.0),
        ("m16n8k16.row.col.f32.f16.f16.f32", [4, 4, 2], 2048.0),
        ("m16n8k16.row.col.f16.f16.f16.f16", [2, 4, 2], 2048.0),
        ("m16n8k16.row.col.s32.s8.s8.s32", [4, 2, 1], 2048.0),
        ("m16n8k32.row.col.s32.s8.s8.s32", [4, 4, 2], 4096.0),
        ("m16n8k8.row.col.f32.tf32.tf32.f32", [4, 4, 2], 1024.0),
    ] {
        let names = |first: usize, count: usize| {
            let names: Vec<String> = (first..first + count).map(|n| format!("%r{n}")).collect();
            format!("{{{}}}", names.join(", "))
        };
        let mut body = String::new();
        for n in 1..80 {
            body += &format!("    mov.u32 %r{n}, 0;\n");
        }
        body += "loop:\n";
        for n in 0..8 {
            let d = names(10 + n * 4, counts[0]);
            body += &format!(
                "    mma.sync.aligned.{form} {d}, {}, {}, {d};\n",
                names(50, counts[1]),
                names(60, counts[2])
            );
        }
        body += "    add.u32 %r1, %r1, 1;\n    setp.lt.u32 %q1, %r1, 5000;\n    @%q1 bra loop;\n";
        measure(form, 64, &body, products * 8.0 * 5000.0 * 2.0);
    }
}

/// Tiles of 64 by 64 by 32 bf16 in two stages: `cp.async`, `ldmatrix`, `mma`, as a GEMM has them.
#[test]
#[ignore = "a measurement"]
fn tiles() {
    let issue = "    cp.async.cg.shared.global [%r20], [%l1], 16;\n    cp.async.cg.shared.global [%r20+2048], [%l1+2048], 16;\n    \
                 cp.async.cg.shared.global [%r20+4096], [%l1+4096], 16;\n    cp.async.cg.shared.global [%r20+6144], [%l1+6144], 16;\n    \
                 cp.async.commit_group;\n    xor.b32 %r20, %r20, 8192;\n";
    let mut body = String::new();
    for n in 1..90 {
        body += &format!("    mov.u32 %r{n}, 0;\n");
    }
    body += "    mov.u32 %r2, shared;\n    mad.lo.u32 %r20, %tid, 16, %r2;\n    mad.wide.u32 %l1, %tid, 16, %p0;\n    shr.u32 %r3, %tid, 5;\n    \
             mad.lo.u32 %r21, %r3, 1024, %r2;\n    mad.lo.u32 %r21, %lane, 16, %r21;\n    mad.lo.u32 %r22, %lane, 16, %r2;\n";
    body += issue;
    body += "loop:\n";
    body += issue;
    body += "    cp.async.wait_group 1;\n    bar.sync 0;\n";
    for k in 0..2 {
        body += &format!(
            "    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r50, %r51, %r52, %r53}}, [%r21+{}];\n",
            k * 512
        );
        for n in 0..4 {
            body += &format!(
                "    ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{%r60, %r61, %r62, %r63}}, [%r22+{}];\n",
                4096 + k * 2048 + n * 512
            );
            for half in 0..2 {
                let d = 70 + half * 4;
                let d = format!("{{%r{}, %r{}, %r{}, %r{}}}", d, d + 1, d + 2, d + 3);
                body += &format!(
                    "    mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {d}, {{%r50, %r51, %r52, %r53}}, {{%r6{}, %r6{}}}, {d};\n",
                    half * 2,
                    half * 2 + 1
                );
            }
        }
    }
    body += "    xor.b32 %r21, %r21, 8192;\n    xor.b32 %r22, %r22, 8192;\n    bar.sync 0;\n    add.u32 %r1, %r1, 1;\n    setp.lt.u32 %q1, %r1, \
             2000;\n    @%q1 bra loop;\n    cp.async.wait_all;\n";
    measure("tiles of 64 by 64 by 32", 128, &body, 2000.0 * 4.0 * 16.0 * 2048.0);
}
