//! Special registers and what is printed.

use super::basics::{THREAD, kernel};
use super::{Bench, words};
use crate::exec::system::formatted;

#[test]
fn threads_know_where_they_are() {
    let mut bench = kernel(
        ".reg .u32 %a, %c; .reg .u64 %w; .reg .pred %p;
         mov.u32 %a, %laneid; mov.u32 %c, %warpid; mad.lo.u32 %a, %c, 100, %a;
         mov.u32 %c, %nwarpid; mad.lo.u32 %a, %c, 10000, %a;
         mov.u32 %c, %lanemask_lt; popc.b32 %c, %c; mad.lo.u32 %a, %c, 100000, %a;
         mov.u32 %c, %lanemask_ge; popc.b32 %c, %c; mad.lo.u32 %a, %c, 10000000, %a;
         mov.u32 %c, %envreg3; add.u32 %a, %a, %c; mov.u32 %c, %cluster_nctarank; add.u32 %a, %a, %c;
         mov.pred %p, %is_explicit_cluster; @%p add.u32 %a, %a, 1;
         cvt.u64.u32 %w, %nctaid.x; cvt.u32.u64 %c, %w; add.u32 %a, %a, %c;
         st.global.u32 [%out], %a;",
    );
    let out = bench.fresh(96);
    bench.succeeds(2, 48);
    let lane = |i: u32| i % 48 % 32;
    let expected = (0..96).map(|i| {
        lane(i) + 100 * (i % 48 / 32) + 20_000 + 100_000 * lane(i) + 10_000_000 * (32 - lane(i)) + 1 + 2
    });
    assert!(words(&out).into_iter().eq(expected));
}

#[test]
fn clocks_go_on() {
    let mut bench = kernel(
        ".reg .u64 %a, %c; .reg .u32 %r; .reg .pred %p;
         mov.u64 %a, %clock64; mov.u64 %c, %clock64; setp.gt.u64 %p, %c, %a; selp.u32 %r, 1, 0, %p;
         mov.u64 %a, %globaltimer; setp.gt.u64 %p, %a, 1000; @!%p mov.u32 %r, 0;
         nanosleep.u32 100; st.global.u32 [%out], %r;",
    );
    let out = bench.fresh(32);
    bench.succeeds(1, 32);
    assert_eq!(words(&out), vec![1; 32]);
}

#[test]
fn formats_are_those_of_c() {
    let one = |format: &str, value: u64| {
        let mut at = 0;
        let mut next = |_size: u64| {
            at += 1;
            Ok(if at == 1 { value } else { 0 })
        };
        formatted(format, &mut next, &mut |_| Ok("text".into())).expect("no fault").0
    };
    let float = |format: &str, value: f64| one(format, value.to_bits());
    assert_eq!(one("a%db", -5i32 as u32 as u64), "a-5b");
    assert_eq!(one("%5d|", 42), "   42|");
    assert_eq!(one("%-5d|", 42), "42   |");
    assert_eq!(one("%05d|", -42i32 as u32 as u64), "-0042|");
    assert_eq!(one("%+d %%", 42), "+42 %");
    assert_eq!(one("%.4u", 42), "0042");
    assert_eq!(one("%lld", -7i64 as u64), "-7");
    assert_eq!(one("%#x", 255), "0xff");
    assert_eq!(one("%08X", 0xbeef), "0000BEEF");
    assert_eq!(one("%c%%", 65), "A%");
    assert_eq!(one("%6.2s|", 0), "    te|");
    assert_eq!(one("%p", 4096), "0x1000");
    assert_eq!(float("%f", 1.5), "1.500000");
    assert_eq!(float("%8.3f|", -1.5), "  -1.500|");
    assert_eq!(float("%e", 12345.678), "1.234568e+04");
    assert_eq!(float("%g", 0.0001), "0.0001");
    assert_eq!(float("%g", 1e10), "1e+10");
    assert_eq!(float("%g", 100000.0), "100000");
    assert_eq!(float("%f", f64::INFINITY), "inf");
    assert_eq!(one("%", 1), "");
}

#[test]
fn a_kernel_prints_and_counts_its_arguments() {
    let text = format!(
        ".extern .func (.param .b32 n) vprintf(.param .b64 f, .param .b64 a);
         .global .align 1 .b8 format[14] = {{91, 37, 100, 32, 37, 115, 32, 37, 108, 108, 117, 93, 10, 0}};
         .global .align 1 .b8 name[3] = {{104, 105, 0}};
         .visible .entry k(.param .u64 out) {{ {THREAD} .reg .u64 %a, %l; .local .align 8 .b8 list[24];
         {{ .param .b64 f; .param .b64 a; .param .b32 r;
         mov.u64 %l, list; cvta.local.u64 %a, %l; st.local.u32 [list], %i; mov.u64 %l, name; st.local.u64 [list+8], %l;
         st.local.u64 [list+16], 12345678901;
         st.param.b64 [a], %a; mov.u64 %a, format; cvta.global.u64 %a, %a; st.param.b64 [f], %a;
         call.uni (r), vprintf, (f, a); ld.param.b32 %t, [r]; }}
         st.global.u32 [%out], %t; ret; }}"
    );
    let mut bench = Bench::module(&text);
    let out = bench.fresh(2);
    bench.succeeds(1, 2);
    assert_eq!(words(&out), [3, 3]);
}
