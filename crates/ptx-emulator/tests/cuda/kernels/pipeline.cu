#include "prelude.cuh"

#define STAGES 3
#define WORDS 256   // in a stage

// One warp fetches, four add: two barriers for each stage say that it is full and that it is free again.
KERNEL bulk_pipeline(const float* x, float* y, int stages) {
    __shared__ __align__(128) float buffer[STAGES][WORDS];
    __shared__ __align__(8) u64 full[STAGES], free_[STAGES];
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    x += (size_t)blockIdx.x * stages * WORDS;
    if (threadIdx.x == 0)
        for (int s = 0; s < STAGES; s++) { mbarrier_init(&full[s], 1); mbarrier_init(&free_[s], 4); }
    fence_async_shared();
    __syncthreads();
    if (warp == 4) {
        if (lane == 0)
            for (int i = 0; i < stages; i++) {
                int s = i % STAGES, turn = i / STAGES;
                mbarrier_wait(&free_[s], (turn & 1) ^ 1);
                mbarrier_expect(&full[s], WORDS * 4);
                copy_bulk(buffer[s], x + (size_t)i * WORDS, WORDS * 4, &full[s]);
            }
    } else {
        float sum = 0.f;
        for (int i = 0; i < stages; i++) {
            int s = i % STAGES, turn = i / STAGES;
            mbarrier_wait(&full[s], turn & 1);
            sum += buffer[s][threadIdx.x] + buffer[s][threadIdx.x + 128];
            __syncwarp();
            if (lane == 0) mbarrier_arrive(&free_[s]);
        }
        y[blockIdx.x * 128 + threadIdx.x] = sum;
    }
}

// In by bulk, out by bulk.
KERNEL bulk_double(const float* x, float* y) {
    __shared__ __align__(128) float buffer[WORDS];
    __shared__ __align__(8) u64 full;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        fence_async_shared();
        mbarrier_expect(&full, sizeof(buffer));
        copy_bulk(buffer, x + blockIdx.x * WORDS, sizeof(buffer), &full);
    }
    __syncthreads();
    mbarrier_wait(&full, 0);
    for (int i = threadIdx.x; i < WORDS; i += blockDim.x) buffer[i] *= 2.f;
    fence_async_shared();
    __syncthreads();
    if (threadIdx.x == 0) {
        copy_bulk_out(y + blockIdx.x * WORDS, buffer, sizeof(buffer));
        bulk_commit();
        bulk_wait<0>();
    }
}
