#include "prelude.cuh"

// y (n) = W (n × k) · x, k split over blocks. Float sums are never added in the order of arrival: the parts are stored, and
// somebody adds them in the order of the blocks.
DEV float part(const float* w, const float* x, int k) {
    int from = blockIdx.x * 64, row = blockIdx.y * blockDim.x + threadIdx.x;
    float v = 0.f;
    for (int i = from; i < min(k, from + 64); i++) v = fmaf(w[(size_t)row * k + i], x[i], v);
    return v;
}

// The last block to arrive adds.
KERNEL split_last(const float* w, const float* x, float* parts, u32* tickets, float* y, int n, int k) {
    __shared__ bool last;
    int row = blockIdx.y * blockDim.x + threadIdx.x;
    parts[(size_t)blockIdx.x * n + row] = part(w, x, k);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(&tickets[blockIdx.y], 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!last) return;
    float v = 0.f;
    for (int i = 0; i < gridDim.x; i++) v += parts[(size_t)i * n + row];
    y[row] = v;
    if (threadIdx.x == 0) tickets[blockIdx.y] = 0;
}

// All blocks are there at once (cooperative launch) and wait for one another.
DEV void grid_barrier(u32* arrived) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        u32 all = gridDim.x * gridDim.y, goal = (atomicAdd(arrived, 1) / all + 1) * all;
        while (*(volatile u32*)arrived < goal) { }
        __threadfence();
    }
    __syncthreads();
}

KERNEL split_barrier(const float* w, const float* x, float* parts, u32* arrived, float* y, int n, int k) {
    int row = blockIdx.y * blockDim.x + threadIdx.x;
    parts[(size_t)blockIdx.x * n + row] = part(w, x, k);
    grid_barrier(arrived);
    if (blockIdx.x == 0) {
        float v = 0.f;
        for (int i = 0; i < gridDim.x; i++) v += parts[(size_t)i * n + row];
        y[row] = v;
    }
    grid_barrier(arrived);
    // Everybody sees what block 0 made.
    if (blockIdx.x == gridDim.x - 1) y[n + row] = y[row] * 2.f;
}
