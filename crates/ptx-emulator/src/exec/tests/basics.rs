//! Addresses, divergence, calls, spaces.

use super::{Bench, words};
use crate::fault::Kind;

/// The start of most kernels: `%out` is the address of the thread's word in the first argument, `%i` the thread's number.
pub(super) const THREAD: &str = ".reg .u64 %out, %base; .reg .u32 %i, %t, %b, %n;
     ld.param.u64 %base, [out]; cvta.to.global.u64 %base, %base;
     mov.u32 %t, %tid.x; mov.u32 %b, %ctaid.x; mov.u32 %n, %ntid.x;
     mad.lo.s32 %i, %b, %n, %t;
     mad.wide.u32 %out, %i, 4, %base;";

/// A kernel with one argument whose body goes on after [`THREAD`].
pub(super) fn kernel(body: &str) -> Bench {
    Bench::new(".param .u64 out", &format!("{THREAD}\n{body}\nret;"))
}

#[test]
fn each_thread_writes_its_number() {
    let mut bench = kernel("st.global.u32 [%out], %i;");
    let out = bench.fresh(40 * 7);
    bench.succeeds(7, 40);
    assert!(words(&out).into_iter().eq(0..280));
}

#[test]
fn results_do_not_depend_on_seed_or_workers() {
    for (seed, workers) in [(0, 1), (1, 2), (9, 4)] {
        let mut bench = kernel("mul.lo.u32 %i, %i, %i; st.global.u32 [%out], %i;");
        (bench.environment.seed, bench.environment.workers) = (seed, workers);
        let out = bench.fresh(32 * 500);
        bench.succeeds(500, 32);
        assert!(words(&out).into_iter().eq((0..16000u32).map(|i| i * i)));
    }
}

#[test]
fn lanes_diverge_and_come_together() {
    // The number of steps to 1 of the Collatz sequence: as many paths as lanes.
    let mut bench = kernel(
        ".reg .u32 %x, %c, %r; .reg .pred %p;
         add.u32 %x, %i, 1; mov.u32 %c, 0;
     LOOP: setp.eq.u32 %p, %x, 1;
         @%p bra DONE;
         and.b32 %r, %x, 1;
         setp.eq.u32 %p, %r, 0;
         @%p bra EVEN;
         mad.lo.u32 %x, %x, 3, 1;
         bra NEXT;
     EVEN: shr.u32 %x, %x, 1;
     NEXT: add.u32 %c, %c, 1;
         bra LOOP;
     DONE: activemask.b32 %r;
         shr.u32 %r, %r, 31;
         mad.lo.u32 %c, %r, 1000, %c;
         st.global.u32 [%out], %c;",
    );
    let out = bench.fresh(64);
    bench.succeeds(2, 32);
    let steps = |mut x: u32| {
        let mut count = 0;
        while x != 1 {
            x = if x.is_multiple_of(2) { x / 2 } else { 3 * x + 1 };
            count += 1;
        }
        // Every lane adds 1000: at the end of the loop all 32 were together again.
        count + 1000
    };
    assert!(words(&out).into_iter().eq((1..65).map(steps)));
}

#[test]
fn functions_are_inlined_with_parameters_in_memory_and_in_registers() {
    let text = format!(
        ".func (.param .b32 result) square(.param .b32 x)
         {{ .reg .u32 %r<3>; ld.param.u32 %r1, [x]; mul.lo.u32 %r2, %r1, %r1; st.param.b32 [result], %r2; ret; }}
         .func (.reg .u32 %y) plus(.reg .u32 %x, .reg .u32 %z)
         {{ .reg .pred %p; setp.gt.u32 %p, %x, 100; add.u32 %y, %x, %z; @%p ret; add.u32 %y, %y, 1; ret; }}
         .visible .entry k(.param .u64 out) {{ {THREAD}
         .reg .u32 %r; .reg .pred %q;
         {{ .param .b32 a; .param .b32 r; st.param.b32 [a], %i; call.uni (r), square, (a); ld.param.b32 %r, [r]; }}
         call (%r), plus, (%r, 7);
         setp.lt.u32 %q, %i, 4;
         @%q call (%r), plus, (%r, 1000);
         st.global.u32 [%out], %r; ret; }}"
    );
    let mut bench = Bench::module(&text);
    let out = bench.fresh(32);
    bench.succeeds(1, 32);
    let plus = |x: u32, z: u32| x + z + u32::from(x <= 100);
    let expected = (0..32u32).map(|i| {
        let r = plus(i * i, 7);
        if i < 4 { plus(r, 1000) } else { r }
    });
    assert!(words(&out).into_iter().eq(expected));
}

#[test]
fn an_indexed_branch_goes_everywhere() {
    let mut bench = kernel(
        ".reg .u32 %r; and.b32 %r, %i, 3;
     targets: .branchtargets A, B, C, D;
         brx.idx %r, targets;
     A: mov.u32 %r, 10; bra END;
     B: mov.u32 %r, 20; bra END;
     C: mov.u32 %r, 30; bra END;
     D: mov.u32 %r, 40;
     END: st.global.u32 [%out], %r;",
    );
    let out = bench.fresh(32);
    bench.succeeds(1, 32);
    assert!(words(&out).into_iter().eq((0..32).map(|i| 10 * (i % 4 + 1))));
}

#[test]
fn local_memory_is_each_threads_own() {
    let mut bench = kernel(
        ".local .align 8 .b8 frame[64]; .reg .u64 %l, %g, %a, %w; .reg .u32 %r, %o, %x, %y;
         mov.u64 %l, frame; cvta.local.u64 %g, %l;
         st.local.v2.u32 [%l], {%i, 5};
         st.local.u8 [%l+9], %i;
         and.b32 %o, %i, 7; mad.wide.u32 %a, %o, 4, %g;
         st.u32 [%a+16], %i;
         ld.local.u64 %w, [%l]; shr.u64 %w, %w, 32; cvt.u32.u64 %r, %w;
         ld.u8 %x, [%g+9];
         mad.wide.u32 %a, %o, 4, %l; ld.local.u32 %y, [%a+16];
         mad.lo.u32 %r, %x, 100, %r; mad.lo.u32 %r, %y, 100000, %r;
         st.global.u32 [%out], %r;",
    );
    let out = bench.fresh(32);
    bench.succeeds(1, 32);
    assert!(words(&out).into_iter().eq((0..32).map(|i| 5 + 100 * i + 100_000 * i)));
}

#[test]
fn parameters_have_addresses() {
    let mut bench = Bench::new(
        ".param .u64 out, .param .align 8 .b8 s[16]",
        &format!(
            "{THREAD} .reg .u64 %p, %q; .reg .u32 %a, %c; .reg .pred %is;
             mov.b64 %p, s; cvta.param.u64 %q, %p;
             and.b32 %a, %i, 1; mad.wide.u32 %q, %a, 4, %q;
             ld.u32 %a, [%q+8]; ld.param.u32 %c, [s+4];
             isspacep.param %is, %q;
             @!%is mov.u32 %a, 0;
             add.u32 %a, %a, %c; st.global.u32 [%out], %a; ret;"
        ),
    );
    let out = bench.fresh(32);
    for word in [1u64 << 32, 3 << 32 | 20] {
        bench.argument(word);
    }
    bench.succeeds(1, 32);
    assert!(words(&out).into_iter().eq((0..32).map(|i| if i % 2 == 0 { 21 } else { 4 })));
}

#[test]
fn variables_of_the_module_are_found() {
    let text = format!(
        ".const .align 4 .u32 table[4] = {{7, 8, 9, 10}}; .global .u32 counter;
         .visible .entry k(.param .u64 out) {{ {THREAD} .reg .u64 %a; .reg .u32 %r, %s;
         and.b32 %r, %i, 3; mov.u64 %a, table; mad.wide.u32 %a, %r, 4, %a; ld.const.u32 %r, [%a];
         ld.const.u32 %s, [table+4]; add.u32 %r, %r, %s;
         red.global.add.u32 [counter], 1;
         st.global.u32 [%out], %r; ret; }}"
    );
    let mut bench = Bench::module(&text);
    let out = bench.fresh(64);
    bench.succeeds(2, 32);
    assert!(words(&out).into_iter().eq((0..64).map(|i| 15 + i % 4)));
}

#[test]
fn values_are_extended_and_cut() {
    let mut bench = Bench::new(
        ".param .u64 out, .param .u64 in",
        &format!(
            "{THREAD} .reg .u64 %a, %w; .reg .s32 %r; .reg .u16 %h; .reg .s64 %l;
             ld.param.u64 %a, [in];
             ld.global.s8 %r, [%a+3]; ld.global.u16 %h, [%a+2]; ld.global.s8 %l, [%a+1];
             cvt.u32.u64 %t, %l; add.u32 %t, %t, %r; cvt.u32.u16 %n, %h; add.u32 %t, %t, %n;
             mul.wide.u32 %w, %i, 4; add.u64 %w, %w, %a; ld.global.s32 %l, [%w]; shr.u64 %l, %l, 32; cvt.u32.u64 %b, %l;
             add.u32 %t, %t, %b; st.global.u8 [%out], %l; st.global.u32 [%out], %t; ret;"
        ),
    );
    let out = bench.fresh(32);
    bench.buffer(&[0xff80_8001; 32]);
    bench.succeeds(1, 32);
    let expected = (-1i32 as u32).wrapping_add(0xff80).wrapping_add(-128i32 as u32).wrapping_add(0xffff_ffff);
    assert_eq!(words(&out), vec![expected; 32]);
}

#[test]
fn vectors_move_in_one_access() {
    let mut bench = Bench::new(
        ".param .u64 out, .param .u64 in",
        ".reg .u64 %o, %a, %x<2>; .reg .u32 %t, %v<4>; .reg .v4 .u32 %w; .reg .pred %p;
         ld.param.u64 %o, [out]; ld.param.u64 %a, [in]; mov.u32 %t, %tid.x;
         mad.wide.u32 %a, %t, 16, %a; mad.wide.u32 %o, %t, 16, %o;
         ld.global.v4.u32 {%v0, %v1, %v2, %v3}, [%a];
         ld.global.v4.u32 %w, [%a];
         ld.global.nc.L1::no_allocate.L2::128B.v2.u64 {%x0, %x1}, [%a];
         add.u32 %v0, %v0, %w.w;
         st.global.v4.u32 [%o], {%v3, %v2, %v1, %v0};
         setp.lt.u32 %p, %t, 5;
         @%p st.global.v2.u64 [%o], {%x1, %x0};
         ret;",
    );
    let out = bench.fresh(128);
    let input: Vec<u32> = (0..128).map(|i| i * 3).collect();
    bench.buffer(&input);
    bench.succeeds(1, 32);
    let expected: Vec<u32> = input
        .chunks(4)
        .enumerate()
        .flat_map(|(t, v)| if t < 5 { [v[2], v[3], v[0], v[1]] } else { [v[3], v[2], v[1], v[0] + v[3]] })
        .collect();
    assert_eq!(words(&out), expected);
}

#[test]
fn what_is_not_known_is_refused_by_line() {
    for (body, what) in [
        ("ld.global.wild.u32 %i, [%base];", "wild"),
        ("bra NOWHERE;", "NOWHERE"),
        ("mov.u32 %i, %unheard;", "%unheard"),
        ("call other, ();", "other"),
        ("atom.global.add.b16 %i, [%base], 1;", "atomic add of .b16"),
        ("frobnicate.u32 %i, %i;", "not supported"),
    ] {
        let text = format!(
            ".version 8.4\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 out) {{ {THREAD}\n{body}\nret; }}"
        );
        let module = crate::ptx::parse(&text).expect("well-formed");
        let error = crate::lower::lower(&module, "k", &|_| None).expect_err("it is unknown").to_string();
        assert!(error.contains(what) && error.contains("line 9"), "{error}");
    }
}

#[test]
fn recursion_is_refused() {
    let text = ".version 8.4\n.target sm_90\n.address_size 64\n.func f() { call f, (); ret; } .visible .entry k() { call f, (); ret; }";
    let module = crate::ptx::parse(text).expect("well-formed");
    let error = crate::lower::lower(&module, "k", &|_| None).expect_err("recursion").to_string();
    assert!(error.contains("calls itself"), "{error}");
}

#[test]
fn traps_and_assertions_are_faults() {
    let mut bench = kernel(".reg .pred %p; setp.eq.u32 %p, %i, 37; @%p trap;");
    bench.fresh(64);
    let fault = bench.fails(2, 32, Kind::Trap);
    let site = fault.site.expect("somebody trapped");
    assert_eq!((site.block, site.thread), ([1, 0, 0], 5));

    let text = format!(
        ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);
         .global .align 1 .b8 what[6] = {{120, 32, 60, 32, 51, 0}}; .global .align 1 .b8 file[5] = {{97, 46, 99, 117, 0}};
         .visible .entry k(.param .u64 out) {{ {THREAD} .reg .u64 %a;
         {{ .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;
         mov.u64 %a, what; cvta.global.u64 %a, %a; st.param.b64 [a], %a;
         mov.u64 %a, file; cvta.global.u64 %a, %a; st.param.b64 [b], %a; st.param.b64 [d], %a;
         st.param.b32 [c], 12; st.param.b64 [e], 1;
         call.uni __assertfail, (a, b, c, d, e); }} ret; }}"
    );
    let mut bench = Bench::module(&text);
    bench.fresh(32);
    let fault = bench.fails(1, 32, Kind::Assertion);
    assert!(fault.message.contains("a.cu:12") && fault.message.contains("x < 3"), "{fault}");
}
