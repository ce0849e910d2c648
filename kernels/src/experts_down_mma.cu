// What experts made of their rows, back to the width of those: the tiles of `group.cu` by tensor cores (`tile_mma.cu`).
//
// Results go to their choices' places, for `combine`. Cost: every weight of an expert is read and decoded once for each tile of its rows; eights
// of rows that a tile does not have cost nothing. Defines: those of the tile, without UP.

// h: halves [choices, filled], in the order -> parts [choices, dim]; blocks: outputs, tiles.
KERNEL __launch_bounds__(32 * DOWN * ACROSS, 2)
    experts_down_mma(TRACED const u16* h, const u32* order, const int4* tiles, const u8* w, u64 row_bytes, float* parts, int dim, int hidden,
                     int filled, const float* bias) {
    after_the_last();
#if HAS_TILE
    extern __shared__ __align__(16) u8 shared[];
    int4 part = tiles[blockIdx.y];
    if (part.z == 0) return;
    int first_out = (blockIdx.x * DOWN + warp() % DOWN) * OUTPUTS;
    Lines lines = {w, (u64)part.x * dim * row_bytes, row_bytes, first_out, dim};
    auto h_row = [&](int r) { return h + (u64)(part.y + min(r, part.z - 1)) * filled; };
    float acc[MT][NT][4];
    if (!tile(shared, h_row, (part.z + 7) / 8, lines, lines, hidden, acc)) return;
    // Read again: the product needs every register.
    part = tiles[blockIdx.y];
#pragma unroll
    for (int t = 0; t < NT; t++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int row = row_of(t, j);
            if (row >= part.z) continue;
            float* to = parts + (u64)order[part.y + row] * dim;
#pragma unroll
            for (int m = 0; m < MT; m++) {
                int o = first_out + output_of(m, j);
                if (o < dim) to[o] = bias ? acc[m][t][j] + bias[(u64)part.x * dim + o] : acc[m][t][j];
            }
        }
#else
    // No device without these instructions is asked.
    __trap();
#endif
}
