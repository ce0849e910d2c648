#include "prelude.cuh"

// The eight largest of a row, in order; of equals the first. A value and its index make one number that can be compared.
DEV u64 ranked(float v, u32 index) {
    u32 u = __float_as_uint(v);
    u = u >> 31 ? ~u : u | 0x80000000u;
    return (u64)u << 32 | ~index;
}
DEV u64 warp_max64(u64 v) {
    for (int o = 16; o > 0; o >>= 1) { u64 w = __shfl_xor_sync(ALL, v, o); if (w > v) v = w; }
    return v;
}
KERNEL top8(const float* x, u32* indices, int n) {
    __shared__ u64 best[32];
    const float* row = x + (size_t)blockIdx.x * n;
    u64 below = ~0ull;
    for (int k = 0; k < 8; k++) {
        u64 mine = 0;
        for (int i = threadIdx.x; i < n; i += blockDim.x) {
            u64 r = ranked(row[i], i);
            if (r < below && r > mine) mine = r;
        }
        mine = warp_max64(mine);
        if ((threadIdx.x & 31) == 0) best[threadIdx.x >> 5] = mine;
        __syncthreads();
        u64 v = (threadIdx.x & 31) < blockDim.x >> 5 ? best[threadIdx.x & 31] : 0;
        below = warp_max64(v);
        if (threadIdx.x == 0) indices[blockIdx.x * 8 + k] = ~(u32)below;
        __syncthreads();
    }
}

// Sorts 512 numbers of a block: every pair whose distance is a power of two is put in order in turn.
KERNEL bitonic512(u32* x) {
    __shared__ u32 s[512];
    int t = threadIdx.x;
    s[t] = x[t]; s[t + 256] = x[t + 256];
    for (int size = 2; size <= 512; size *= 2)
        for (int step = size / 2; step > 0; step /= 2) {
            __syncthreads();
            int i = 2 * t - (t & (step - 1)), j = i + step;
            bool up = (i & size) == 0;
            u32 a = s[i], b = s[j];
            if (a > b == up) { s[i] = b; s[j] = a; }
        }
    __syncthreads();
    x[t] = s[t]; x[t + 256] = s[t + 256];
}

// Counts bytes: in shared memory by atomics, then once for each block in global memory.
KERNEL histogram(const u8* x, u32* counts, int n) {
    __shared__ u32 local[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[x[i]], 1);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) if (local[i]) atomicAdd(&counts[i], local[i]);
}

// Radix sort of 1024 keys with their values in one block of 128: four bits at a time, stable.
KERNEL radix1024(u32* keys, u32* values) {
    __shared__ u16 count[16 * 128];
    __shared__ u32 sk[1024], sv[1024];
    __shared__ u32 digits[16];
    int t = threadIdx.x;
    for (int i = t; i < 1024; i += 128) { sk[i] = keys[i]; sv[i] = values[i]; }
    for (int shift = 0; shift < 32; shift += 4) {
        for (int i = t; i < 16 * 128; i += 128) count[i] = 0;
        __syncthreads();
        u32 k[8], v[8];
        for (int i = 0; i < 8; i++) {
            k[i] = sk[t * 8 + i]; v[i] = sv[t * 8 + i];
            count[(k[i] >> shift & 15) * 128 + t]++;
        }
        __syncthreads();
        if (t < 16) {
            u32 sum = 0;
            for (int i = 0; i < 128; i++) { u32 c = count[t * 128 + i]; count[t * 128 + i] = sum; sum += c; }
            digits[t] = sum;
        }
        __syncthreads();
        for (int i = 0; i < 8; i++) {
            u32 d = k[i] >> shift & 15, start = 0;
            for (int e = 0; e < d; e++) start += digits[e];
            u32 to = start + count[d * 128 + t]++;
            sk[to] = k[i]; sv[to] = v[i];
        }
        __syncthreads();
    }
    for (int i = t; i < 1024; i += 128) { keys[i] = sk[i]; values[i] = sv[i]; }
}
