//! How fast the machine is: GEMV and GEMM kernels of a PTX file, plain and checked.
//!
//! `cargo run --release --example speed -- llm.ptx [workers]`, where the file has `gemv_bf16(w, x, y, k, rows)`, `gemv_q8` and `gemm_mma(a, b, c, m, n, k)`.

#![allow(unsafe_code)]

use std::sync::Arc;
use std::time::Instant;

use ptx_emulator::check::Checks;
use ptx_emulator::exec::{Environment, Grid, Launch, Until};
use ptx_emulator::memory::{Memory, Place};

/// The inner loop of a tiled GEMM: a broadcast, a row, a product; a barrier every 32 steps.
const TILE: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry empty() { ret; }
.visible .entry tile(.param .u64 out)
{
    .reg .u64 %o; .reg .u32 %t, %w, %r, %k, %a, %b, %n; .reg .f32 %x, %y, %s; .reg .pred %p;
    .shared .align 16 .b8 rows[1024]; .shared .align 16 .b8 columns[4096];
    mov.u32 %t, %tid.x; shr.u32 %w, %t, 5; and.b32 %r, %t, 31;
    mov.u32 %a, rows; mad.lo.u32 %a, %t, 4, %a; cvt.rn.f32.u32 %x, %t; st.shared.f32 [%a], %x;
    mov.u32 %a, columns; mad.lo.u32 %a, %t, 16, %a; st.shared.v4.f32 [%a], {%x, %x, %x, %x};
    mov.f32 %s, 0f00000000; mov.u32 %n, 0;
OUTER:
    bar.sync 0;
    mov.u32 %a, rows; mad.lo.u32 %a, %w, 128, %a;
    mov.u32 %b, columns; mad.lo.u32 %b, %r, 4, %b;
    mov.u32 %k, 0;
INNER:
    ld.shared.f32 %x, [%a];
    ld.shared.f32 %y, [%b];
    fma.rn.f32 %s, %x, %y, %s;
    add.u32 %a, %a, 4; add.u32 %b, %b, 128; add.u32 %k, %k, 1;
    setp.lt.u32 %p, %k, 32; @%p bra INNER;
    bar.sync 0;
    add.u32 %n, %n, 1; setp.lt.u32 %p, %n, 64; @%p bra OUTER;
    ld.param.u64 %o, [out]; mov.u32 %k, %ctaid.x; mad.lo.u32 %k, %k, 256, %t; mad.wide.u32 %o, %k, 4, %o;
    st.global.f32 [%o], %s;
    ret;
}
";

/// Seconds that this process ran, where the system tells; else seconds. Other load on the machine counts less that way.
fn busy() -> f64 {
    let ticks = |text: String| {
        let fields: Vec<f64> = text.split_whitespace().filter_map(|field| field.parse().ok()).collect();
        fields.first().map(|nanoseconds| nanoseconds / 1e9)
    };
    let told = std::fs::read_to_string("/proc/self/schedstat").ok().and_then(ticks);
    told.unwrap_or_else(|| START.with(|start| start.elapsed().as_secs_f64()))
}

thread_local! {
    static START: Instant = Instant::now();
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let Some(path) = arguments.next() else {
        println!("usage: speed FILE.ptx [WORKERS]");
        return;
    };
    let workers = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(1);
    let text = std::fs::read_to_string(&path).expect("the file can be read");
    let module = ptx_emulator::ptx::parse(&text).expect("PTX");
    for memory in [false, true] {
        let checks = Checks { memory, ..Checks::default() };
        let device = Arc::new(if memory { Memory::tracking() } else { Memory::new() });
        let buffer = |bytes: u64| {
            let allocation = device.allocate(Place::Device(0), bytes).expect("memory");
            let words: Vec<u8> = (0..bytes).map(|i| if i % 2 == 0 { 0 } else { 0x3f }).collect();
            // SAFETY: the allocation has this many bytes and nobody else uses it yet.
            unsafe { std::ptr::copy_nonoverlapping(words.as_ptr(), allocation.host(), words.len()) };
            if let Some(written) = allocation.written() {
                written.mark(0, bytes);
            }
            allocation.start
        };
        let run = |module: &ptx_emulator::ptx::ast::Module,
                   kernel: &str,
                   grid: [u32; 3],
                   block: u32,
                   arguments: Vec<u8>| {
            let program = ptx_emulator::lower::lower(module, kernel, &|_| None).expect("a kernel");
            let mut environment = Environment::new(Arc::clone(&device));
            (environment.checks, environment.workers) = (checks, workers);
            let launch = Launch {
                program: Arc::new(program),
                grid,
                block: [block, 1, 1],
                dynamic_shared: 0,
                arguments,
                cooperative: false,
            };
            let mut best = f64::MAX;
            let mut steps = 0;
            for _ in 0..5 {
                let begin = busy();
                let mut grid = Grid::new(launch.clone(), environment.clone()).expect("a launch in order");
                grid.run(Until::End).expect("no fault");
                best = best.min(busy() - begin);
                steps = grid.executed();
            }
            (best, steps)
        };
        let bytes = |pointers: &[u64], numbers: &[u32]| {
            let mut all: Vec<u8> = pointers.iter().flat_map(|p| p.to_le_bytes()).collect();
            all.extend(numbers.iter().flat_map(|n| n.to_le_bytes()));
            all
        };
        let mode = if memory { "checked" } else { "plain" };
        let report = |what: &str, work: f64, (seconds, steps): (f64, u64)| {
            println!(
                "{mode:8} {what:10} {:8.1} M/s, {:6.1} ns a step",
                work / seconds / 1e6,
                seconds * 1e9 / steps as f64
            );
        };
        let (k, rows) = (4096u32, 2048u32);
        let arguments = bytes(
            &[buffer(u64::from(k * rows * 2)), buffer(u64::from(k * 2)), buffer(u64::from(rows * 4))],
            &[k, rows],
        );
        report(
            "gemv_bf16",
            f64::from(k) * f64::from(rows),
            run(&module, "gemv_bf16", [rows / 8, 1, 1], 256, arguments),
        );
        let blocks = k / 32;
        let arguments = bytes(
            &[
                buffer(u64::from(blocks * rows * 36)),
                buffer(u64::from(blocks * 36)),
                buffer(u64::from(rows * 4)),
            ],
            &[blocks, rows],
        );
        report(
            "gemv_q8",
            f64::from(k) * f64::from(rows),
            run(&module, "gemv_q8", [rows / 8, 1, 1], 256, arguments),
        );
        let own = ptx_emulator::ptx::parse(TILE).expect("PTX");
        let arguments = bytes(&[buffer(4 * 64 * 256)], &[]);
        report("shared sgemm", 64.0 * 256.0 * 2048.0, run(&own, "tile", [64, 1, 1], 256, arguments.clone()));
        let begin = busy();
        for _ in 0..1000 {
            run(&own, "empty", [1, 1, 1], 32, Vec::new());
        }
        println!(
            "{mode:8} launch     {:8.2} us (of one warp, with its lowering)",
            (busy() - begin) / 5e3 * 1e6
        );
        let (m, n, k) = (256u32, 256u32, 1024u32);
        let arguments = bytes(
            &[buffer(u64::from(m * k * 2)), buffer(u64::from(n * k * 2)), buffer(u64::from(m * n * 4))],
            &[m, n, k],
        );
        let work = f64::from(m) * f64::from(n) * f64::from(k);
        report("gemm_mma", work, run(&module, "gemm_mma", [n / 8, m / 16, 1], 32, arguments));
    }
}
