#include "prelude.cuh"

// Wrong uses of memory. PLANTED is 1 for the fault and 0 for its twin; FOUND marks the line that must be named.

KERNEL tail(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n + PLANTED) y[i] = x[i];   // FOUND
}

KERNEL misaligned(const float* x, float* y) {
    float4 v = *(const float4*)(x + threadIdx.x * 4 + PLANTED);   // FOUND
    y[threadIdx.x] = v.x + v.y + v.z + v.w;
}

KERNEL copy(const float* x, float* y) {
    y[threadIdx.x] = x[threadIdx.x];   // FOUND
}

KERNEL half_written(const float* x, float* y, float* kept) {
    if (threadIdx.x < 64 - 24 * PLANTED) kept[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = kept[63 - threadIdx.x];   // FOUND
}

KERNEL shared_unwritten(const float* x, float* y) {
    __shared__ float s[64];
    if (threadIdx.x != 17 || !PLANTED) s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[(threadIdx.x + 1) & 63];   // FOUND
}

KERNEL shared_overflow(const float* x, float* y) {
    extern __shared__ float s[];
    s[threadIdx.x + 4 * PLANTED] = x[threadIdx.x];   // FOUND
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x + 4 * PLANTED];
}

KERNEL null_pointer(const float* x, float* y, const float* extra) {
    float v = x[threadIdx.x];
    if (extra || PLANTED) v += extra[threadIdx.x];   // FOUND
    y[threadIdx.x] = v;
}

KERNEL negative(const float* x, float* y) {
    int i = threadIdx.x, before = PLANTED ? i - 1 : max(i - 1, 0);
    y[i] = x[i] - x[before];   // FOUND
}

KERNEL asserted(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (i >= n - PLANTED) asm volatile("trap;");   // FOUND
    y[i] = x[i];
}
