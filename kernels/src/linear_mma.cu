// x · wᵀ by tensor cores, for two rows of x and more (`tile_mma.cu`).
//
// Cost: the packed weight once for every 8 · NT rows, activations once for 16 · MT · DOWN outputs. `halves` rounds those once for all blocks;
// beyond the range of f16 they are cut to it. Defines: those of the tile, without UP.

// `x`: halves, [n, padded], padded a multiple of STEP; blocks: outputs, rows.
KERNEL __launch_bounds__(32 * DOWN * ACROSS, 2)
    linear_mma(TRACED const u16* x, const u8* w, float* y, int n, int out, int cols, int padded, u64 row_bytes) {
    after_the_last();
#if HAS_TILE
    extern __shared__ __align__(16) u8 shared[];
    int first_row = blockIdx.y * ROWS, first_out = (blockIdx.x * DOWN + warp() % DOWN) * OUTPUTS;
    Lines lines = {w, 0, row_bytes, first_out, out};
    auto x_row = [&](int r) { return x + (u64)min(first_row + r, n - 1) * padded; };
    float acc[MT][NT][4];
    if (!tile(shared, x_row, NT, lines, lines, cols, acc)) return;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int t = 0; t < NT; t++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                int row = first_row + row_of(t, j), o = first_out + output_of(m, j);
                if (row < n && o < out) y[(u64)row * out + o] = acc[m][t][j];
            }
#else
    // No device without these instructions is asked.
    __trap();
#endif
}
