#include "prelude.cuh"

// One warp for each row of W; x is read by all.
DEV int my_row() { return blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5); }

KERNEL gemv_bfloat(const bfloat* w, const bfloat* x, float* y, int k, int rows) {
    int row = my_row(), lane = threadIdx.x & 31;
    if (row >= rows) return;
    const uint4* wr = (const uint4*)(w + (size_t)row * k);
    const uint4* xr = (const uint4*)x;
    float sum = 0.f;
    auto two = [&](u32 a, u32 b) {
        sum = fmaf(__uint_as_float(a << 16), __uint_as_float(b << 16), sum);
        sum = fmaf(__uint_as_float(a & 0xffff0000u), __uint_as_float(b & 0xffff0000u), sum);
    };
    for (int i = lane; i < k / 8; i += 32) {
        uint4 a = wr[i], b = xr[i];
        two(a.x, b.x); two(a.y, b.y); two(a.z, b.z); two(a.w, b.w);
    }
    sum = warp_sum(sum);
    if (lane == 0) y[row] = sum;
}

// Two halves at once; the sums stay short, then go on in single precision.
KERNEL gemv_half2(const u32* w, const u32* x, float* y, int pairs, int rows) {
    int row = my_row(), lane = threadIdx.x & 31;
    if (row >= rows) return;
    float sum = 0.f;
    for (int i = lane; i < pairs; i += 128) {
        u32 two = 0;
        for (int j = i; j < min(pairs, i + 128); j += 32) two = half2_fma(w[(size_t)row * pairs + j], x[j], two);
        sum += half_to_float((half)two) + half_to_float((half)(two >> 16));
    }
    sum = warp_sum(sum);
    if (lane == 0) y[row] = sum;
}

// Blocks of 32 whole numbers with a scale in half precision, 36 bytes with two unused: for weights and activations.
struct Block8 { half scale, unused; i8 q[32]; };
KERNEL gemv_int8(const Block8* w, const Block8* x, float* y, int blocks, int rows) {
    int row = my_row(), lane = threadIdx.x & 31;
    if (row >= rows) return;
    float sum = 0.f;
    for (int b = lane >> 3; b < blocks; b += 4) {
        const Block8 &a = w[(size_t)row * blocks + b], &c = x[b];
        int d = dot4(*(const int*)(a.q + 4 * (lane & 7)), *(const int*)(c.q + 4 * (lane & 7)), 0);
        sum = fmaf((float)d, half_to_float(a.scale) * half_to_float(c.scale), sum);
    }
    sum = warp_sum(sum);
    if (lane == 0) y[row] = sum;
}

// Blocks of 32 numbers of four bits, low nibbles first (q4_0): 18 bytes, so nothing is aligned to more than two.
struct Block4 { half scale; u16 q[8]; };
KERNEL gemv_int4(const Block4* w, const float* x, float* y, int blocks, int rows) {
    int row = my_row(), lane = threadIdx.x & 31;
    if (row >= rows) return;
    float sum = 0.f;
    for (int b = lane; b < blocks; b += 32) {
        Block4 a = w[(size_t)row * blocks + b];
        float s = 0.f;
#pragma unroll
        for (int i = 0; i < 16; i++) {
            int byte = a.q[i / 2] >> (i % 2 * 8) & 255;
            s += (float)((byte & 15) - 8) * x[b * 32 + i] + (float)((byte >> 4) - 8) * x[b * 32 + 16 + i];
        }
        sum = fmaf(s, half_to_float(a.scale), sum);
    }
    sum = warp_sum(sum);
    if (lane == 0) y[row] = sum;
}
