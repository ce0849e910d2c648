#include "prelude.cuh"

// One function for each row of the results, over the same arguments.
#define N_FLOAT 24
KERNEL floats(const float* x, const float* y, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float a = x[i], b = y[i];
    float r[N_FLOAT] = {
        sqrtf(fabsf(a)), rsqrtf(fabsf(a)), expf(a), logf(fabsf(a)), sinf(a), cosf(a), tanhf(a), erff(a),
        powf(fabsf(a), b * 0.1f), a / b, fmodf(a, b), floorf(a), ceilf(a), rintf(a), truncf(a), exp2f(a * 0.1f),
        log2f(fabsf(a)), __expf(a * 0.1f), __logf(fabsf(a)), __fdividef(a, b), atan2f(a, b), a / (1.f + __expf(-a)), fminf(a, b), copysignf(a, b),
    };
    for (int k = 0; k < N_FLOAT; k++) out[k * n + i] = r[k];
}

#define N_DOUBLE 8
KERNEL doubles(const double* x, const double* y, double* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double a = x[i], b = y[i];
    double r[N_DOUBLE] = {a / b, sqrt(fabs(a)), exp(a * 0.1), log(fabs(a)), sin(a), fma(a, b, a), floor(a), (double)(float)a};
    for (int k = 0; k < N_DOUBLE; k++) out[k * n + i] = r[k];
}

#define N_WHOLE 24
KERNEL wholes(const u32* x, const u32* y, u32* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    u32 a = x[i], b = y[i] | 1;
    int c = a, d = b;
    u64 w = (u64)a << 32 | b, v = (u64)b << 20 | a | 1;
    long long sw = w;
    u32 r[N_WHOLE] = {
        a / b, a % b, (u32)(c / (d >> 3 | 1)), (u32)(c % (d >> 3 | 1)), __umulhi(a, b), (u32)__mulhi(c, d), (u32)__clz(a), __brev(a),
        (u32)__ffs(a), __byte_perm(a, b, 0x3715), __funnelshift_l(a, b, a & 31), a >> (b & 31), (u32)(c >> (b & 31)), (u32)min(c, d), max(a, b), (u32)abs(c),
        (u32)(w / v), (u32)(w % v), (u32)(w * v >> 32), (u32)__clzll(w), (u32)(sw / (long long)v), (u32)(float)a, (u32)(int)(float)c, (u32)dot4(a, b, c),
    };
    for (int k = 0; k < N_WHOLE; k++) out[k * n + i] = r[k];
}
