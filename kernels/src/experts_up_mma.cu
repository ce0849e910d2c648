// Rows through the gates of their experts by tensor cores: the tiles of `group.cu`, with both weights in one (`tile_mma.cu`).
//
// Gives f(x · gateᵀ) · (x · upᵀ) for the choices in their order, in HALF as `experts_down_mma` takes it; neither product is written.
// A warp's first sixteen outputs are the gate's, the second those of `up`; without UP, `gate` is up, and both are its. Cost: every weight of
// an expert is read and decoded once for each tile of its rows; eights of rows that a tile does not have cost nothing. Defines: those of
// the tile, with MT of 2; FUNCTION.

// x: halves [n, padded], of choices `order` / k -> h: halves [choices, filled], zeros from `hidden` on; blocks: outputs, tiles.
KERNEL __launch_bounds__(32 * DOWN * ACROSS, 2)
    experts_up_mma(TRACED const u16* x, const u32* order, const int4* tiles, int k, const u8* gate, u64 gate_bytes, const u8* up,
                   u64 up_bytes, u16* h, int dim, int padded, int hidden, int filled, const float* gate_bias,
                   const float* up_bias, float limit) {
    after_the_last();
#if HAS_TILE
    static_assert(MT == 2, "one sixteen of each weight");
    enum { SIXTEENS = GATED ? 1 : MT };
    extern __shared__ __align__(16) u8 shared[];
    int4 part = tiles[blockIdx.y];
    if (part.z == 0) return;
    int first_out = (blockIdx.x * DOWN + warp() % DOWN) * 16 * SIXTEENS;
    // Which rows of x the tile has; past the last, the last.
    u32* rows = (u32*)shared;
    for (int r = threadIdx.x; r < ROWS; r += 32 * DOWN * ACROSS) rows[r] = order[part.y + min(r, part.z - 1)] / (u32)k;
    __syncthreads();
    u64 expert = (u64)part.x * hidden;
    Lines gates = {gate, expert * gate_bytes, gate_bytes, first_out, hidden}, ups = {up, expert * up_bytes, up_bytes, first_out, hidden};
    auto x_row = [&](int r) { return x + (u64)rows[r] * padded; };
    float acc[MT][NT][4];
    if (!tile(shared + ROWS * 4, x_row, (part.z + 7) / 8, gates, ups, dim, acc)) return;
#pragma unroll
    for (int t = 0; t < NT; t++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int row = row_of(t, j);
#pragma unroll
            for (int m = 0; m < SIXTEENS; m++) {
                int o = first_out + output_of(m, j);
                float v = o < hidden ? gating(FUNCTION, acc[m][t][j], acc[1][t][j], gate_bias, up_bias, limit, expert + o) : 0.0f;
                if (row < part.z && o < filled) h[(u64)(part.y + row) * filled + o] = half_of(v);
            }
        }
#else
    // No device without these instructions is asked.
    __trap();
#endif
}
