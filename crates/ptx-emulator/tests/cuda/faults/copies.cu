#include "prelude.cuh"

// Copies that have not arrived, and barriers told the wrong thing.

KERNEL missing_wait(const float* x, float* y) {
    __shared__ __align__(16) float s[256];
    copy16(&s[threadIdx.x * 4], x + threadIdx.x * 4);
    copy_commit();
#if !PLANTED
    copy_wait<0>();
#endif
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x * 4];   // FOUND
}

// Waits for the group before the one it needs.
KERNEL wrong_group(const float* x, float* y) {
    __shared__ __align__(16) float s[2][256];
    copy16(&s[0][threadIdx.x * 4], x + threadIdx.x * 4);
    copy_commit();
    copy16(&s[1][threadIdx.x * 4], x + 256 + threadIdx.x * 4);
    copy_commit();
    copy_wait<PLANTED>();
    __syncthreads();
    y[threadIdx.x] = s[0][threadIdx.x * 4] + s[1][threadIdx.x * 4];   // FOUND
}

// Each thread has waited for its own copies only; it reads another's.
KERNEL wait_without_barrier(const float* x, float* y) {
    __shared__ __align__(16) float s[256];
    for (int i = 0; i < 4; i++) s[threadIdx.x * 4 + i] = 0.f;
    __syncthreads();
    copy16(&s[threadIdx.x * 4], x + threadIdx.x * 4);   // FOUND OTHER
    copy_wait_all();
#if !PLANTED
    __syncthreads();
#endif
    y[threadIdx.x] = s[(63 - threadIdx.x) * 4];      // FOUND OTHER
}

// The barrier orders what came before it; the wait, which brings the bytes, comes after. The second warp reads what the first one copied, which has
// waited for it by then.
KERNEL barrier_before_wait(const float* x, float* y) {
    __shared__ __align__(16) float s[256];
    copy16(&s[threadIdx.x * 4], x + threadIdx.x * 4);   // FOUND OTHER
    copy_commit();
#if PLANTED
    __syncthreads();
#endif
    copy_wait<0>();
#if !PLANTED
    __syncthreads();
#endif
    y[threadIdx.x] = s[(threadIdx.x & 31) * 4];      // FOUND OTHER
}

// The same within a warp.
KERNEL syncwarp_before_wait(const float* x, float* y) {
    __shared__ __align__(16) float s[256];
    copy16(&s[threadIdx.x * 4], x + threadIdx.x * 4);   // FOUND OTHER
    copy_commit();
#if PLANTED
    __syncwarp();
#endif
    copy_wait<0>();
#if !PLANTED
    __syncwarp();
#endif
    y[threadIdx.x] = s[(threadIdx.x ^ 1) * 4];       // FOUND OTHER
}

// The source is written over while copies still read it.
KERNEL source_under_way(float* x, float* y) {
    __shared__ __align__(16) float s[256];
    copy16(&s[threadIdx.x * 4], x + threadIdx.x * 4);   // FOUND OTHER
    copy_commit();
#if !PLANTED
    copy_wait<0>();
#endif
    __syncthreads();
    x[(63 - threadIdx.x) * 4] = 2.f;                 // FOUND OTHER
    copy_wait<0>();
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x * 4];
}

#if __CUDA_ARCH__ >= 900
DEV void fetch(float* s, u64* full, const float* x, int expected) {
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        fence_async_shared();
        mbarrier_expect(full, expected);
        copy_bulk(s, x, 1024, full);
    }
    __syncthreads();
}

// The parity of a phase that has not begun counts as passed.
KERNEL wrong_parity(const float* x, float* y) {
    __shared__ __align__(128) float s[256];
    __shared__ __align__(8) u64 full;
    fetch(s, &full, x, 1024);
    mbarrier_wait(&full, PLANTED);
    y[threadIdx.x] = s[threadIdx.x];   // FOUND
}

// More bytes announced than come: the wait never ends.
KERNEL wrong_bytes(const float* x, float* y) {
    __shared__ __align__(128) float s[256];
    __shared__ __align__(8) u64 full;
    fetch(s, &full, x, 1024 + PLANTED * 64);
    mbarrier_wait(&full, 0);
    y[threadIdx.x] = s[threadIdx.x];
}

// One arrival more expected than there are.
KERNEL wrong_count(const float* x, float* y) {
    __shared__ float s[64];
    __shared__ __align__(8) u64 m;
    if (threadIdx.x == 0) mbarrier_init(&m, 64 + PLANTED);
    __syncthreads();
    s[threadIdx.x] = x[threadIdx.x];
    mbarrier_arrive(&m);
    mbarrier_wait(&m, 0);
    y[threadIdx.x] = s[63 - threadIdx.x];
}

KERNEL bulk_unaligned(const float* x, float* y) {
    __shared__ __align__(128) float s[260];
    __shared__ __align__(8) u64 full;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        fence_async_shared();
        mbarrier_expect(&full, 1024);
        copy_bulk(s + PLANTED, x, 1024, &full);   // FOUND
    }
    __syncthreads();
    mbarrier_wait(&full, 0);
    y[threadIdx.x] = s[threadIdx.x];
}
#endif
