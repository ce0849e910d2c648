// Rows through their experts, many of them: the tiles of `group.cu`, in single precision (`tile.cu`).
//
// `experts_up_many` gives f(x · gateᵀ) · (x · upᵀ) for the choices in their order, with rows of x found through it; both weights meet
// the same panel of x, and neither product is written. `experts_down_many` brings them back, each to its choice's place. Cost: every
// weight of an expert is read and decoded once for each tile of its rows, x once for 64 outputs; eights of rows that a tile does not
// have cost no operations. Defines: FORMAT, DOWN (formats of gate and down), UP (format of up; without it, `gate` is up), VECTOR,
// FUNCTION (the activation's number).

// x [n, dim], of choices `order` / k -> h [choices, hidden], in the order; blocks: outputs, tiles.
KERNEL __launch_bounds__(256)
    experts_up_many(TRACED const float* x, const u32* order, const int4* tiles, int k, const u8* gate, u64 gate_bytes, const u8* up,
                    u64 up_bytes, float* h, int dim, int hidden, const float* gate_bias, const float* up_bias, float limit) {
    after_the_last();
    __shared__ __align__(16) Panel xs, gs, us;
    int4 tile = tiles[blockIdx.y];
    if (tile.z == 0) return;
    int first_out = blockIdx.x * TILE;
    const u8* x_row = (const u8*)(x + (u64)(order[tile.y + min(fetched(), tile.z - 1)] / k) * dim);
    u64 row = (u64)tile.x * hidden + min(first_out + fetched(), hidden - 1);
    const u8 *gate_row = gate + row * gate_bytes, *up_row = up + row * up_bytes;
    float g[4][4], u[4][4];
    clear(g);
    clear(u);
    for (int i = 0; i < dim; i += DEEP) {
        float a[8], b[8], c[8];
        fetch<f32>(x_row, i + eight(), dim, a);
        fetch<FORMAT>(gate_row, i + eight(), dim, b);
        if (GATED) fetch<UP>(up_row, i + eight(), dim, c);
        __syncthreads();
        put(xs, a);
        put(gs, b);
        if (GATED) put(us, c);
        __syncthreads();
        // A warp has eight rows.
        if (8 * warp() < tile.z) {
            multiply(xs, gs, g);
            if (GATED) multiply(xs, us, u);
        }
    }
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            int o = first_out + across() + c;
            if (down() + r < tile.z && o < hidden)
                h[(u64)(tile.y + down() + r) * hidden + o] =
                    gating(FUNCTION, g[r][c], u[r][c], gate_bias, up_bias, limit, (u64)tile.x * hidden + o);
        }
}

// h [choices, hidden], in the order -> parts [choices, dim]; blocks: outputs, tiles.
KERNEL __launch_bounds__(256) experts_down_many(TRACED const float* h, const u32* order, const int4* tiles, const u8* w, u64 row_bytes,
                                                float* parts, int dim, int hidden, const float* bias) {
    after_the_last();
    __shared__ __align__(16) Panel hs, ws;
    int4 tile = tiles[blockIdx.y];
    if (tile.z == 0) return;
    int first_out = blockIdx.x * TILE;
    const u8* h_row = (const u8*)(h + (u64)(tile.y + min(fetched(), tile.z - 1)) * hidden);
    const u8* w_row = w + ((u64)tile.x * dim + min(first_out + fetched(), dim - 1)) * row_bytes;
    float acc[4][4];
    clear(acc);
    for (int i = 0; i < hidden; i += DEEP) {
        float a[8], b[8];
        fetch<f32>(h_row, i + eight(), hidden, a);
        fetch<DOWN>(w_row, i + eight(), hidden, b);
        __syncthreads();
        put(hs, a);
        put(ws, b);
        __syncthreads();
        if (8 * warp() < tile.z) multiply(hs, ws, acc);
    }
#pragma unroll
    for (int r = 0; r < 4; r++) {
        if (down() + r >= tile.z) continue;
        float* to = parts + (u64)order[tile.y + down() + r] * dim + first_out + across();
#pragma unroll
        for (int c = 0; c < 4; c++) {
            int o = first_out + across() + c;
            if (o < dim) to[c] = bias ? acc[r][c] + bias[(u64)tile.x * dim + o] : acc[r][c];
        }
    }
}
