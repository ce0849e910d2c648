// x · wᵀ for many rows of x: tiles of 64 rows by 64 outputs, in single precision (`tile.cu`).
//
// Cost: every weight is read and decoded once for 64 rows, every x once for 64 outputs. Defines: FORMAT, VECTOR.

KERNEL __launch_bounds__(256) linear_many(TRACED const float* x, const u8* w, float* y, int n, int out, int cols, u64 row_bytes) {
    after_the_last();
    __shared__ __align__(16) Panel xs, ws;
    int first_out = blockIdx.x * TILE, first_row = blockIdx.y * TILE;
    const u8* x_row = (const u8*)(x + (u64)min(first_row + fetched(), n - 1) * cols);
    const u8* w_row = w + (u64)min(first_out + fetched(), out - 1) * row_bytes;
    float acc[4][4];
    clear(acc);
    for (int k = 0; k < cols; k += DEEP) {
        float a[8], b[8];
        fetch<f32>(x_row, k + eight(), cols, a);
        fetch<FORMAT>(w_row, k + eight(), cols, b);
        __syncthreads();
        put(xs, a);
        put(ws, b);
        __syncthreads();
        multiply(xs, ws, acc);
    }
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int c = 0; c < 4; c++)
            if (first_row + down() + r < n && first_out + across() + c < out)
                y[(u64)(first_row + down() + r) * out + first_out + across() + c] = acc[r][c];
}
