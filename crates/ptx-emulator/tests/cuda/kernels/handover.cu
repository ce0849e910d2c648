#include "prelude.cuh"

// Two warps make and two take, through two buffers: named barriers, where only one side waits.
KERNEL named(const float* x, float* y, int rounds) {
    __shared__ float buffer[2][64];
    int t = threadIdx.x & 63;
    bool maker = threadIdx.x < 64;
    for (int i = 0; i < rounds; i++) {
        int b = i & 1;
        if (maker) {
            if (i >= 2) bar_sync(3 + b, 128);          // taken?
            buffer[b][t] = x[i * 64 + t] * 2.f;
            bar_arrive(1 + b, 128);                    // made
        } else {
            bar_sync(1 + b, 128);
            y[i * 64 + t] = buffer[b][63 - t];
            if (i + 2 < rounds) bar_arrive(3 + b, 128);
        }
    }
}

#if __CUDA_ARCH__ >= 800
// cp.async that tells an mbarrier when it is done.
KERNEL async_arrive(const float4* x, float* y) {
    __shared__ __align__(16) float4 kept[64];
    __shared__ __align__(8) u64 full;
    int t = threadIdx.x;
    if (t == 0) mbarrier_init(&full, 64);
    __syncthreads();
    copy16(&kept[t], x + blockIdx.x * 64 + t);
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(shared(&full)) : "memory");
    u32 done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(shared(&full)) : "memory");
    float4 v = kept[63 - t];
    y[blockIdx.x * 64 + t] = v.x + v.y + v.z + v.w;
}

// An mbarrier as a barrier of the block, by tokens.
KERNEL token_barrier(const float* x, float* y) {
    __shared__ float s[96];
    __shared__ __align__(8) u64 m;
    int t = threadIdx.x;
    if (t == 0) mbarrier_init(&m, 96);
    __syncthreads();
    for (int i = 0; i < 3; i++) {
        s[t] = x[i * 96 + t];
        u64 token;
        u32 done = 0;
        asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(token) : "r"(shared(&m)) : "memory");
        while (!done)
            asm volatile("{ .reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(shared(&m)), "l"(token) : "memory");
        y[i * 96 + t] = s[95 - t];
        __syncthreads();
    }
}
#endif
