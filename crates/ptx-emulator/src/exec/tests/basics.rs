//! Addresses, divergence, calls.

use super::{Bench, words};

#[test]
fn each_thread_writes_its_number() {
    let mut bench = Bench::new(
        ".param .u64 out",
        ".reg .u64 %rd<4>; .reg .u32 %r<6>;
         ld.param.u64 %rd1, [out];
         cvta.to.global.u64 %rd1, %rd1;
         mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x;
         mad.lo.s32 %r4, %r2, %r3, %r1;
         mul.wide.u32 %rd2, %r4, 4;
         add.s64 %rd3, %rd1, %rd2;
         st.global.u32 [%rd3], %r4;
         ret;",
    );
    let out = bench.fresh(40 * 7);
    bench.succeeds(7, 40);
    assert!(words(&out).into_iter().eq(0..280));
}
