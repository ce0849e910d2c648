#include "prelude.cuh"

// Blocks of 32 × 8 threads; the 33rd column keeps the banks apart.
KERNEL transpose(const float* x, float* y, int rows, int columns) {
    __shared__ float tile[32][33];
    int column = blockIdx.x * 32 + threadIdx.x;
    for (int i = threadIdx.y; i < 32; i += 8) {
        int row = blockIdx.y * 32 + i;
        if (row < rows && column < columns) tile[i][threadIdx.x] = x[row * columns + column];
    }
    __syncthreads();
    int row = blockIdx.y * 32 + threadIdx.x;
    for (int i = threadIdx.y; i < 32; i += 8) {
        column = blockIdx.x * 32 + i;
        if (row < rows && column < columns) y[column * rows + row] = tile[threadIdx.x][i];
    }
}

// Four by four in registers, by vectors.
KERNEL transpose4(const float4* x, float4* y, int rows, int columns) {
    int r = (blockIdx.y * blockDim.y + threadIdx.y) * 4, c = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows || c * 4 >= columns) return;
    float4 a = x[(r + 0) * columns / 4 + c], b = x[(r + 1) * columns / 4 + c];
    float4 d = x[(r + 2) * columns / 4 + c], e = x[(r + 3) * columns / 4 + c];
    y[(c * 4 + 0) * rows / 4 + r / 4] = make_float4(a.x, b.x, d.x, e.x);
    y[(c * 4 + 1) * rows / 4 + r / 4] = make_float4(a.y, b.y, d.y, e.y);
    y[(c * 4 + 2) * rows / 4 + r / 4] = make_float4(a.z, b.z, d.z, e.z);
    y[(c * 4 + 3) * rows / 4 + r / 4] = make_float4(a.w, b.w, d.w, e.w);
}
