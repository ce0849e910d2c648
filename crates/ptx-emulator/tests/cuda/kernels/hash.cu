#include "prelude.cuh"

#define EMPTY 0xffffffffffffffffull

DEV u32 place(u64 key, u32 slots) { key *= 0x9e3779b97f4a7c15ull; return (u32)(key >> 40) & (slots - 1); }

// Counts how often each key comes: open addressing, the slot belongs to whoever puts its key there first.
KERNEL count_keys(const u64* x, u64* keys, u32* counts, u32 slots, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    u64 key = x[i];
    for (u32 at = place(key, slots);; at = (at + 1) & (slots - 1)) {
        u64 there = atomicCAS(&keys[at], EMPTY, key);
        if (there == EMPTY || there == key) { atomicAdd(&counts[at], 1); return; }
    }
}

KERNEL look_up(const u64* x, const u64* keys, const u32* counts, u32* found, u32 slots, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    for (u32 at = place(x[i], slots);; at = (at + 1) & (slots - 1)) {
        if (keys[at] == x[i]) { found[i] = counts[at]; return; }
        if (keys[at] == EMPTY) { found[i] = 0; return; }
    }
}

// A lock that the lanes of a warp want all at once (sm_70: those who wait must let the one who has it go on).
KERNEL locked_sum(int* lock, u64* sum, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    while (atomicCAS(lock, 0, 1) != 0) { }
    __threadfence();
    *(volatile u64*)sum = *(volatile u64*)sum * 3 + 1;
    __threadfence();
    atomicExch(lock, 0);
}

// Every atomic on every kind of word.
KERNEL atomics(u32* w, int* s, u64* l, float* f, u32* old) {
    u32 t = threadIdx.x;
    atomicAdd(&w[0], t); atomicSub(&w[1], t); atomicAnd(&w[2], ~(1u << t)); atomicOr(&w[3], 1u << t); atomicXor(&w[4], t * 77);
    atomicMin(&w[5], t + 5); atomicMax(&w[6], t); old[t] = atomicInc(&w[7], 20); atomicDec(&w[8], 9);
    atomicMin(&s[0], 3 - (int)t); atomicMax(&s[1], (int)t - 100);
    atomicAdd(&l[0], (u64)t << 33); atomicMax(&l[1], (u64)t << 40); atomicMin(&l[2], ~(u64)t); atomicOr(&l[3], 1ull << (t + 20));
    atomicAdd(&f[0], (float)t);
    __shared__ u32 sum;
    if (t == 0) sum = 1000;
    __syncthreads();
    atomicAdd(&sum, t);
    __syncthreads();
    if (t == 0) w[9] = sum;
}
