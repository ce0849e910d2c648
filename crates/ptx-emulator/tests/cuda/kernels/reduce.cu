#include "prelude.cuh"

// Halves the block again and again in shared memory.
KERNEL sum_tree(const float* x, float* y, int n) {
    extern __shared__ float part[];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    part[t] = i < n ? x[i] : 0.f;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (t < half) part[t] += part[t + half];
        __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = part[0];
}

KERNEL sum_shuffle(const float* x, float* y, int n) {
    float v = 0.f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += x[i];
    v = block_sum(v);
    if (threadIdx.x == 0) y[blockIdx.x] = v;
}

// Whole numbers may be added in any order.
KERNEL count_all(const int* x, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int v = i < n ? x[i] : 0;
    atomicAdd(&out[0], v);
    atomicMax(&out[1], v);
    atomicMin(&out[2], v);
    atomicXor(&out[3], v);
    bool odd = v & 1;
    u32 ballot = __ballot_sync(ALL, odd);
    if ((threadIdx.x & 31) == 0) atomicAdd(&out[4], __popc(ballot));
    int odds = __syncthreads_count(odd);
    if (threadIdx.x == 0) atomicAdd(&out[5], odds);
}

KERNEL sum_doubles(const double* x, double* y, int n) {
    double v = 0;
    for (int i = threadIdx.x; i < n; i += 32) v += x[i];
    for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(ALL, v, o);
    if (threadIdx.x == 0) *y = v;
}
