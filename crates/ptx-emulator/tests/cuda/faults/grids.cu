#include "prelude.cuh"

// Blocks and kernels that do not wait for one another as they should.

// Neighbouring blocks write one element both.
KERNEL overlap(const float* x, float* y, int n) {
    int first = blockIdx.x * 64, end = first + 64 + PLANTED;
    for (int i = first + threadIdx.x; i < min(end, n); i += 32) y[i] = x[i];   // FOUND
}

// The last block adds what the others stored; without the fence nothing says that it is there.
KERNEL last_block(const float* x, float* parts, u32* tickets, float* y) {
    __shared__ bool last;
    parts[blockIdx.x * 32 + threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];   // FOUND OTHER
#if !PLANTED
    __threadfence();
#endif
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(tickets, 1) == gridDim.x - 1;
#if !PLANTED
        __threadfence();
#endif
    }
    __syncthreads();
    if (!last) return;
    float v = 0.f;
    for (int i = 0; i < gridDim.x; i++) v += parts[i * 32 + threadIdx.x];   // FOUND OTHER
    y[threadIdx.x] = v;
}

// Blocks that wait for all others; launched as an ordinary grid, not all of them are there.
KERNEL grid_barrier(u32* arrived, float* y) {
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1);
        while (*(volatile u32*)arrived < gridDim.x) { }   // FOUND
    }
    __syncthreads();
    y[blockIdx.x * blockDim.x + threadIdx.x] = *(volatile u32*)arrived;
}

KERNEL fill(float* x, float v) { x[threadIdx.x] = v; }   // OTHER
KERNEL twice(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x] * 2.f; }   // FOUND

#if __CUDA_ARCH__ >= 900
KERNEL first(float* x) {
    dependents_launch();
    x[threadIdx.x] = threadIdx.x;   // OTHER
}
KERNEL second(const float* x, float* y) {
#if !PLANTED
    dependency_wait();
#endif
    y[threadIdx.x] = x[threadIdx.x] + 1.f;   // FOUND
}
#endif
