#include "prelude.cuh"

// Inclusive scan within a block of 256.
DEV u32 block_scan(u32 v) {
    __shared__ u32 warps[8];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int o = 1; o < 32; o <<= 1) {
        u32 left = __shfl_up_sync(ALL, v, o);
        if (lane >= o) v += left;
    }
    if (lane == 31) warps[warp] = v;
    __syncthreads();
    u32 before = 0;
    for (int i = 0; i < warp; i++) before += warps[i];
    return v + before;
}

KERNEL scan_blocks(const u32* x, u32* y, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    u32 v = block_scan(i < n ? x[i] : 0);
    if (i < n) y[i] = v;
}

// One pass over all blocks: each waits for the nearest one before it whose whole prefix is known (decoupled look-back).
// A word of `state` is 0, or a sum with 1 << 32 (this block alone) or 2 << 32 (all up to this block).
KERNEL scan_lookback(const u32* x, u32* y, u64* state, u32* ticket, int n) {
    __shared__ u32 number, offset;
    if (threadIdx.x == 0) number = atomicAdd(ticket, 1);
    __syncthreads();
    int block = number, i = block * 256 + threadIdx.x;
    u32 v = block_scan(i < n ? x[i] : 0);
    if (threadIdx.x == 255) {
        u32 before = 0;
        if (block > 0) {
            atomicExch(&state[block], 1ull << 32 | v);
            for (int p = block - 1; p >= 0;) {
                u64 s = atomicAdd(&state[p], 0ull);
                if (s >> 32 == 0) continue;
                before += (u32)s;
                if (s >> 32 == 2) break;
                p--;
            }
        }
        atomicExch(&state[block], 2ull << 32 | (before + v));
        offset = before;
    }
    __syncthreads();
    if (i < n) y[i] = v + offset;
}
