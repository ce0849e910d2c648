#include "prelude.cuh"

// Steps whose order shows in the result.
KERNEL fill(float* x, float v, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = v; }
KERNEL scale_add(float* x, float a, float b, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = x[i] * a + b; }
KERNEL add(const float* x, const float* y, float* z, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) z[i] = x[i] + y[i]; }
// Reads its factor on the device: a graph need not be made again for another.
KERNEL scale_by(float* x, const float* a, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= *a; }
KERNEL fail(float* x) { if (threadIdx.x == 3) x[1 << 28] = 1.f; }
