// What kernels share. No toolkit header: NVRTC's wheels bring none, and inline PTX says exactly what is tested.
#pragma once

typedef signed char i8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef u16 half;
typedef u16 bfloat;

#define KERNEL extern "C" __global__ void
#define DEV static __device__ __forceinline__
#define ALL 0xffffffffu
#define INF __int_as_float(0x7f800000)

// ---- numbers of 16 bits
DEV float half_to_float(half h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
DEV half float_to_half(float f) { half h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; }
DEV u32 half2_fma(u32 a, u32 b, u32 c) { u32 d; asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c)); return d; }
DEV float bfloat_to_float(bfloat b) { return __uint_as_float((u32)b << 16); }
DEV bfloat float_to_bfloat(float f) {
#if __CUDA_ARCH__ >= 800
    bfloat b; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(b) : "f"(f)); return b;
#else
    u32 u = __float_as_uint(f);
    return (bfloat)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
#endif
}
DEV u32 pack(u16 low, u16 high) { return (u32)low | (u32)high << 16; }
DEV int dot4(int a, int b, int c) { int d; asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c)); return d; }

// ---- warps and blocks
DEV float warp_sum(float v) {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(ALL, v, o);
    return v;
}
DEV float warp_max(float v) {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(ALL, v, o));
    return v;
}
// All threads get the sum; blockDim.x is a multiple of 32.
DEV float block_sum(float v) {
    __shared__ float partial[32];
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    v = warp_sum(v);
    __syncthreads();
    if (lane == 0) partial[warp] = v;
    __syncthreads();
    return warp_sum(lane < (int)(blockDim.x >> 5) ? partial[lane] : 0.f);
}
DEV float block_max(float v) {
    __shared__ float partial[32];
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    v = warp_max(v);
    __syncthreads();
    if (lane == 0) partial[warp] = v;
    __syncthreads();
    return warp_max(lane < (int)(blockDim.x >> 5) ? partial[lane] : -INF);
}
DEV void bar_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(threads) : "memory"); }
DEV void bar_arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(threads) : "memory"); }

// ---- addresses
DEV u32 shared(const void* p) {
    u64 a; asm("cvta.to.shared.u64 %0, %1;" : "=l"(a) : "l"((u64)p)); return (u32)a;
}

// ---- copies that arrive later (sm_80)
DEV void copy16(void* s, const void* g) { asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(shared(s)), "l"(g) : "memory"); }
DEV void copy4(void* s, const void* g) { asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(shared(s)), "l"(g) : "memory"); }
// The rest of the 16 bytes becomes zero.
DEV void copy16_some(void* s, const void* g, int bytes) { asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(shared(s)), "l"(g), "r"(bytes) : "memory"); }
DEV void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEV void copy_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }
DEV void copy_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// ---- matrices
DEV void load_matrix4(u32 (&r)[4], const void* s) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared(s)) : "memory");
}
DEV void load_matrix2(u32 (&r)[2], const void* s) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(shared(s)) : "memory");
}
DEV void load_matrix2_transposed(u32 (&r)[2], const void* s) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(shared(s)) : "memory");
}
#define MMA(name, shape)                                                                                                  \
    DEV void name(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {                                                  \
        asm volatile("mma.sync.aligned." shape " {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"                      \
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); \
    }
MMA(mma_half, "m16n8k16.row.col.f32.f16.f16.f32")
MMA(mma_bfloat, "m16n8k16.row.col.f32.bf16.bf16.f32")
MMA(mma_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32")
DEV void mma_int8(int (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// ---- mbarriers and bulk copies (sm_90)
DEV void mbarrier_init(u64* m, u32 count) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(shared(m)), "r"(count) : "memory"); }
DEV void mbarrier_expect(u64* m, u32 bytes) { asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(shared(m)), "r"(bytes) : "memory"); }
DEV void mbarrier_arrive(u64* m) { asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" :: "r"(shared(m)) : "memory"); }
DEV bool mbarrier_try(u64* m, u32 parity) {
    u32 done;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(shared(m)), "r"(parity) : "memory");
    return done != 0;
}
DEV void mbarrier_wait(u64* m, u32 parity) { while (!mbarrier_try(m, parity)) { } }
DEV void copy_bulk(void* s, const void* g, u32 bytes, u64* m) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
        :: "r"(shared(s)), "l"(g), "r"(bytes), "r"(shared(m)) : "memory");
}
DEV void copy_bulk_out(void* g, const void* s, u32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" :: "l"(g), "r"(shared(s)), "r"(bytes) : "memory");
}
DEV void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N> DEV void bulk_wait() { asm volatile("cp.async.bulk.wait_group %0;" :: "n"(N) : "memory"); }
DEV void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- dependent launches (sm_90)
DEV void dependency_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
DEV void dependents_launch() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
