#include "prelude.cuh"

// Softmax of a row in one pass over it: the maximum and the sum go along together.
KERNEL softmax_online(const float* x, float* y, int n) {
    const float* row = x + (size_t)blockIdx.x * n;
    float top = -INF, sum = 0.f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float v = row[i], next = fmaxf(top, v);
        sum = sum * __expf(top - next) + __expf(v - next);
        top = next;
    }
    float all = block_max(top);
    sum = block_sum(top == -INF ? 0.f : sum * __expf(top - all));
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[(size_t)blockIdx.x * n + i] = __expf(row[i] - all) / sum;
}

// Three passes, the row kept in dynamic shared memory.
KERNEL softmax_kept(const float* x, float* y, int n) {
    extern __shared__ float kept[];
    const float* row = x + (size_t)blockIdx.x * n;
    float top = -INF, sum = 0.f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) { kept[i] = row[i]; top = fmaxf(top, kept[i]); }
    top = block_max(top);
    for (int i = threadIdx.x; i < n; i += blockDim.x) { kept[i] = expf(kept[i] - top); sum += kept[i]; }
    sum = block_sum(sum);
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[(size_t)blockIdx.x * n + i] = kept[i] / sum;
}

KERNEL layer_norm(const float* x, const float* w, const float* b, float* y, int n, float eps) {
    const float* row = x + (size_t)blockIdx.x * n;
    float s = 0.f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) s += row[i];
    float mean = block_sum(s) / n;
    s = 0.f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) { float d = row[i] - mean; s += d * d; }
    float scale = rsqrtf(block_sum(s) / n + eps);
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[(size_t)blockIdx.x * n + i] = (row[i] - mean) * scale * w[i] + b[i];
}

KERNEL rms_norm_bfloat(const bfloat* x, const bfloat* w, bfloat* y, int n, float eps) {
    const bfloat* row = x + (size_t)blockIdx.x * n;
    float s = 0.f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) { float v = bfloat_to_float(row[i]); s += v * v; }
    float scale = rsqrtf(block_sum(s) / n + eps);
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        y[(size_t)blockIdx.x * n + i] = float_to_bfloat(bfloat_to_float(row[i]) * scale * bfloat_to_float(w[i]));
}

// Rotates pairs in place; large positions need the long reduction of the angle, which uses local memory.
KERNEL rope_half(half* x, const int* position, int width, float theta) {
    int i = threadIdx.x;
    if (i >= width / 2) return;
    float angle = (float)position[blockIdx.x] * powf(theta, -2.f * i / width), s, c;
    sincosf(angle, &s, &c);
    u32* pair = (u32*)(x + (size_t)blockIdx.x * width) + i;
    u32 v = *pair;
    float a = half_to_float((half)v), b = half_to_float((half)(v >> 16));
    *pair = pack(float_to_half(a * c - b * s), float_to_half(a * s + b * c));
}
