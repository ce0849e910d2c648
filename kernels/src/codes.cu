// Activations rounded to 8 bits, for products with packed weights: once for all blocks and all weights that multiply them.
//
// The scales are those of `rounding.cu`. Eight threads take a group of 32, four elements each, so that both sides are read and written in
// order. Cost: 4 bytes read and 1.25 written an element, some 6 operations. What norms give comes rounded (`norm.cu`).

// x [n, cols], n * cols / 4 = `words`, a multiple of eight -> codes [n, cols], groups [n, cols / 32]. Where the weight's columns are in another
// order (act-order), `order` says which element each is, and four bytes more an element are read; else it is null.
KERNEL codes(TRACED const float* x, const u32* order, u32* to, uint2* groups, u32 words, int cols) {
    after_the_last();
    u32 step = gridDim.x * blockDim.x;
    // Whole warps go on or stop: threads past the end give zeros to shuffles and store nothing.
    for (u32 first = blockIdx.x * blockDim.x + threadIdx.x - lane(); first < words; first += step) {
        u32 i = first + lane();
        bool there = i < words;
        float v[1][4] = {}, (&e)[4] = v[0];
        if (there && order) {
            u32 quads = (u32)cols / 4;
            const float* from = x + (u64)(i / quads) * cols;
            uint4 k = ((const uint4*)order)[i % quads];
            e[0] = from[k.x], e[1] = from[k.y], e[2] = from[k.z], e[3] = from[k.w];
        } else if (there) {
            float4 v = ((const float4*)x)[i];
            e[0] = v.x, e[1] = v.y, e[2] = v.z, e[3] = v.w;
        }
        round_quads(v, {there}, 0u, {i}, 0u, Rounded(to, groups, 0u));
    }
}

// The same for products by tensor cores, in tiles (`rounding.cu`), with zeros in what of the last ones is past the rows or columns: of x, or where there
// is an `up` of f(x) · up, which goes to y.
KERNEL codes_in_tiles(TRACED const float* x, const u32* order, const float* up, float* y, u32* to, uint2* groups, int n, int cols, u32 pairs, int f) {
    after_the_last();
    Rounded rounded(to, groups, pairs);
    u32 words = 16 * pairs, all = (u32)(n + 7) / 8 * 8 * words, step = gridDim.x * blockDim.x;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < all; i += step) {
        u32 row = i / words, w = i % words;
        u64 at = (u64)row * cols + 4 * w;
        float v[1][4] = {}, (&e)[4] = v[0];
        if (row < n && 4 * w < cols && order) {
            uint4 k = ((const uint4*)order)[w];
            const float* from = x + (u64)row * cols;
            e[0] = from[k.x], e[1] = from[k.y], e[2] = from[k.z], e[3] = from[k.w];
        } else if (row < n && 4 * w < cols) {
            float4 v = *(const float4*)(x + at);
            e[0] = v.x, e[1] = v.y, e[2] = v.z, e[3] = v.w;
            if (up) {
                float4 u = *(const float4*)(up + at);
                e[0] = activation(f, e[0]) * u.x, e[1] = activation(f, e[1]) * u.y;
                e[2] = activation(f, e[2]) * u.z, e[3] = activation(f, e[3]) * u.w;
                *(float4*)(y + at) = make_float4(e[0], e[1], e[2], e[3]);
            }
        }
        round_quads(v, {true}, row, {w}, words, rounded);
    }
}
