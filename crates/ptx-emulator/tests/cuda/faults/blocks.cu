#include "prelude.cuh"

// Threads of a block that do not wait for one another as they should.

KERNEL dropped_barrier(const float* x, float* y) {
    __shared__ float s[256];
    s[threadIdx.x] = 0.f;   // so that it is not the missing value that is found
    __syncthreads();
    s[threadIdx.x] = x[threadIdx.x];         // FOUND OTHER
#if !PLANTED
    __syncthreads();
#endif
    y[threadIdx.x] = s[255 - threadIdx.x];   // FOUND OTHER
}

// The second round's writes meet the first round's reads.
KERNEL second_round(const float* x, float* y) {
    __shared__ float s[128];
    for (int i = 0; i < 2; i++) {
        s[threadIdx.x] = x[i * 128 + threadIdx.x];          // FOUND OTHER
        __syncthreads();
        y[i * 128 + threadIdx.x] = s[127 - threadIdx.x];    // FOUND OTHER
#if !PLANTED
        __syncthreads();
#endif
    }
}

KERNEL missing_syncwarp(const float* x, float* y) {
    __shared__ float s[32];
    s[threadIdx.x] = 0.f;
    __syncwarp();
    s[threadIdx.x] = x[threadIdx.x];       // FOUND OTHER
#if !PLANTED
    __syncwarp();
#endif
    y[threadIdx.x] = s[threadIdx.x ^ 1];   // FOUND OTHER
}

KERNEL divergent_barrier(const float* x, float* y) {
    float v = x[threadIdx.x];
#if PLANTED
    if (threadIdx.x < 48) __syncthreads();   // FOUND OTHER
    else { v += 1.f; __syncthreads(); }      // FOUND OTHER
#else
    if (threadIdx.x >= 48) v += 1.f;
    __syncthreads();
#endif
    y[threadIdx.x] = v;
}

// Half of the warp is not there.
KERNEL wrong_mask(const float* x, float* y) {
    float v = x[threadIdx.x];
    if (threadIdx.x & 16) v = __shfl_xor_sync(PLANTED ? ALL : 0xffff0000u, v, 1);   // FOUND
    y[threadIdx.x] = v;
}

// The named barrier is told of more threads than come.
KERNEL barrier_count(const float* x, float* y) {
    __shared__ float s[64];
    if (threadIdx.x < 64) {
        s[threadIdx.x] = x[threadIdx.x];
        bar_sync(1, PLANTED ? 96 : 64);   // FOUND
        y[threadIdx.x] = s[63 - threadIdx.x];
    }
}

// Not an atomic addition: the threads' sums overwrite one another.
KERNEL lost_update(const float* x, float* y) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
#if PLANTED
    sum += (int)x[threadIdx.x];   // FOUND
#else
    atomicAdd(&sum, (int)x[threadIdx.x]);
#endif
    __syncthreads();
    if (threadIdx.x == 0) y[0] = sum;
}
