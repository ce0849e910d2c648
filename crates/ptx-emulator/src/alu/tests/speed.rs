//! How long a row takes; by hand: `cargo test --release -p ptx-emulator --lib speed -- --ignored --nocapture`.

use super::*;

#[test]
#[ignore = "a measurement"]
fn nanoseconds_a_row() {
    let list = [
        "add.s32",
        "add.s64",
        "mul.lo.s32",
        "mad.lo.s32",
        "mad.wide.u32",
        "mul.wide.s32",
        "mul.hi.u32",
        "and.b32",
        "shl.b32",
        "shr.s32",
        "shf.l.wrap.b32",
        "lop3.b32",
        "prmt.b32",
        "bfe.u32",
        "popc.b32",
        "clz.b32",
        "dp4a.s32.s32",
        "add.f32",
        "mul.ftz.f32",
        "fma.rn.f32",
        "fma.rn.ftz.f32",
        "fma.rn.f64",
        "div.rn.f32",
        "max.f32",
        "add.f16",
        "fma.rn.f16x2",
        "add.f16x2",
        "mul.f16x2",
        "fma.rn.bf16x2",
        "fma.rn.bf16",
        "max.f16x2",
        "cvt.f32.f16",
        "cvt.rn.f16.f32",
        "cvt.rn.f16x2.f32",
        "cvt.rn.bf16x2.f32",
        "cvt.f32.bf16",
        "cvt.rn.f32.s32",
        "cvt.rn.f32.u32",
        "cvt.rni.s32.f32",
        "cvt.rzi.s32.f32",
        "cvt.rzi.u32.f32",
        "cvt.rni.s8.f32",
        "cvt.s32.s8",
        "cvt.s64.s32",
        "cvt.u32.u64",
        "cvt.u16.u32",
        "setp.lt.s32",
        "setp.lt.s64",
        "setp.lt.f32",
        "setp.neu.f32",
        "setp.gt.f16",
        "selp.b32",
        "selp.b64",
        "mov.u32",
        "mov.b64",
        "ex2.approx.ftz.f32",
        "lg2.approx.f32",
        "rcp.approx.ftz.f32",
        "rsqrt.approx.f32",
        "sin.approx.f32",
        "tanh.approx.f32",
        "div.approx.f32",
        "div.u32",
        "div.s64",
        "add.rz.f32",
        "cvt.rz.f16.f32",
        "add.cc.u32",
    ];
    let mut lines = String::new();
    for text in list {
        let alu = find(text);
        let mut r = Registers::new(8, 8, 8);
        let mut step = Step::new(Action::Alu(alu.run));
        (step.flags, step.imm) = (alu.flags, if alu.immediate.is_some() { 0x78 } else { alu.imm });
        let float = text.contains("f32") || text.contains("f64");
        for (at, class) in alu.src.iter().enumerate() {
            let row = std::array::from_fn(|lane| {
                let x = 1.0 + lane as f64 / 64.0 + at as f64;
                match (class, float) {
                    (Class::Long, true) => x.to_bits(),
                    (_, true) => u64::from((x as f32).to_bits()),
                    _ => 0x3c01_3c07 + lane as u64 * 0x0101_0013 * (at as u64 + 1),
                }
            });
            put(&mut r, *class, at as Slot + 1, &row);
            step.src[at] = at as Slot + 1;
        }
        (step.dst, step.dst2) = (5, if alu.dst2.is_some() { 6 } else { NONE });
        let mut best = f64::INFINITY;
        for _ in 0..20 {
            let start = std::time::Instant::now();
            for _ in 0..20_000 {
                // SAFETY: the function was chosen for this processor by `lookup`.
                unsafe { (std::hint::black_box(alu.run))(&mut r, &step, ALL) };
            }
            best = best.min(start.elapsed().as_nanos() as f64 / 20_000.0);
        }
        lines += &format!("{best:8.1} ns  {text}\n");
    }
    std::fs::write(std::env::temp_dir().join("ptx-emulator-alu-speed.txt"), lines).unwrap();
}
