#include "prelude.cuh"

// What the lanes of a warp say to one another. `out` has 16 rows of 32.
KERNEL votes(const u32* x, u32* out) {
    u32 t = threadIdx.x, v = x[t];
    out[0 * 32 + t] = __ballot_sync(ALL, v & 1);
    out[1 * 32 + t] = __any_sync(ALL, v == 7);
    out[2 * 32 + t] = __all_sync(ALL, v < 100);
    out[3 * 32 + t] = __shfl_sync(ALL, v, (t * 3) & 31);
    out[4 * 32 + t] = __shfl_up_sync(ALL, v, 3, 8);
    out[5 * 32 + t] = __shfl_down_sync(ALL, v, 5, 16);
    out[6 * 32 + t] = __shfl_xor_sync(ALL, v, 9);
    out[7 * 32 + t] = __shfl_sync(ALL, v, 1, 4);
    u32 mine = 0;
    if (t < 20) mine = __ballot_sync(0xfffff, v & 2);
    out[8 * 32 + t] = mine;
    out[9 * 32 + t] = t & 4 ? __activemask() : ~__activemask();
    u32 lane, below;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
    out[10 * 32 + t] = lane * 1000 + __popc(below);
    u64 wide = __shfl_xor_sync(ALL, (u64)v << 36 | t, 1);
    out[11 * 32 + t] = (u32)(wide >> 33) ^ (u32)wide;
#if __CUDA_ARCH__ >= 700
    int same;
    out[12 * 32 + t] = __match_any_sync(ALL, v & 3);
    out[13 * 32 + t] = __match_all_sync(ALL, v >> 8, &same) + same;
#else
    out[12 * 32 + t] = out[13 * 32 + t] = 0;
#endif
#if __CUDA_ARCH__ >= 800
    out[14 * 32 + t] = __reduce_add_sync(ALL, v);
    out[15 * 32 + t] = __reduce_max_sync(ALL, v) ^ __reduce_xor_sync(ALL, v);
#else
    out[14 * 32 + t] = out[15 * 32 + t] = 0;
#endif
}

// Lanes that go their own ways and meet again: loops of different lengths, early ends, a switch.
DEV u32 collatz(u32 n) { u32 steps = 0; while (n != 1) { n = n & 1 ? 3 * n + 1 : n / 2; steps++; } return steps; }
KERNEL ways(const u32* x, u32* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    u32 v = x[i], r = 0;
    switch (v % 9) {
        case 0: r = collatz(v + 1); break;
        case 1: for (u32 k = 0; k < v % 17; k++) { if (k == 11) break; if (k & 1) continue; r += k * v; } break;
        case 2: r = v / 3; break;
        case 3: r = v * 5;   // and on
        case 4: r += 4; break;
        case 5: r = __popc(v); break;
        case 6: { u32 a = v, b = 18; while (b) { u32 c = a % b; a = b; b = c; } r = a; break; }
        case 7: r = ~v; break;
        default: do { r += v & 15; v >>= 4; } while (v);
    }
    out[i] = r;
    if (i & 1) { out[i] += 1; if (i & 2) return; out[i] += 10; }
    out[i] += 100;
}

// A function that stays a function.
static __device__ __noinline__ float horner(const float* c, int n, float x) {
    float v = 0.f;
    for (int i = 0; i < n; i++) v = fmaf(v, x, c[i]);
    return v;
}
__constant__ float coefficients[5] = {1.f, -2.f, 0.5f, 3.f, -1.f};
__device__ int calls;
KERNEL polynomial(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float local[5];
    for (int k = 0; k < 5; k++) local[(k + i) % 5] = coefficients[k];
    float a = horner(coefficients, 5, x[i]), b = horner(local, 5, x[i]);
    y[i] = i % 5 ? a + b : a - b;
    atomicAdd(&calls, 2);
}

// Arguments of every size, a structure among them, and a pointer that is shared or global by the thread.
struct Shape { u8 kind; u16 rows; int columns; double scale; u64 strides[3]; };
KERNEL arguments(u8 a, u16 b, i8 c, Shape s, const int* x, double* out) {
    __shared__ int kept[32];
    kept[threadIdx.x] = 1000 + threadIdx.x;
    __syncwarp();
    const int* from = threadIdx.x & 1 ? kept : x;
    out[threadIdx.x] = s.scale * (a + b + c + s.kind + s.rows + s.columns) + s.strides[threadIdx.x % 3] + from[31 - threadIdx.x];
}
