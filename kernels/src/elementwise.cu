// Sums, products and functions of single elements.
//
// One thread an element, in a loop over the grid. Cost: 12 bytes and one operation an element for two full operands, 8 bytes for
// one; broadcasts read the smaller operand from cache. The output may be one of the inputs: each element is read before it is
// written, by the same thread. Counts are below 2^31 and without a sign: the last turn's step would pass the end of an `int`.

DEVICE u32 place(u32 i, u32 cols, u32 rows_of, u32 cols_of) {
    u32 row = rows_of == 1u ? 0u : i / cols, col = cols_of == 1u ? 0u : i % cols;
    return row * cols_of + col;
}

KERNEL add(TRACED const float* x, const float* y, float* out, u32 n) {
    after_the_last();
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = x[i] + y[i];
}

KERNEL mul(TRACED const float* x, const float* y, float* out, u32 n) {
    after_the_last();
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = x[i] * y[i];
}

// Rows and columns of either side may be one.
KERNEL add_broadcast(TRACED const float* x, int x_rows, int x_cols, const float* y, int y_rows, int y_cols, float* out, u32 n, int cols) {
    after_the_last();
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        out[i] = x[place(i, cols, x_rows, x_cols)] + y[place(i, cols, y_rows, y_cols)];
}

KERNEL mul_broadcast(TRACED const float* x, int x_rows, int x_cols, const float* y, int y_rows, int y_cols, float* out, u32 n, int cols) {
    after_the_last();
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        out[i] = x[place(i, cols, x_rows, x_cols)] * y[place(i, cols, y_rows, y_cols)];
}

KERNEL activate(TRACED const float* x, float* out, u32 n, int f) {
    after_the_last();
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = activation(f, x[i]);
}

// f(gate) * up
KERNEL gated(TRACED const float* gate, const float* up, float* out, u32 n, int f) {
    after_the_last();
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        out[i] = activation(f, gate[i]) * up[i];
}
