// Activations rounded to 8 bits, for products with packed weights: once for all blocks and all weights that multiply them.
//
// The scales are those of `rounding.cu`. Eight threads take a group of 32, four elements each, so that both sides are read and written in
// order. Cost: 4 bytes read and 1.25 written an element, some 6 operations. What norms give comes rounded (`norm.cu`).

// x [n, cols], n * cols / 4 = `words`, a multiple of eight -> codes [n, cols], groups [n, cols / 32]. Where the weight's columns are in another
// order (act-order), `order` says which element each is, and four bytes more an element are read; else it is null.
KERNEL codes(TRACED const float* x, const u32* order, u32* to, uint2* groups, u64 words, int cols) {
    after_the_last();
    u64 step = (u64)gridDim.x * blockDim.x;
    // Whole warps go on or stop: threads past the end give zeros to shuffles and store nothing.
    for (u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x - lane(); first < words; first += step) {
        u64 i = first + lane();
        bool there = i < words;
        float v[1][4] = {}, (&e)[4] = v[0];
        if (there && order) {
            u64 quads = (u64)cols / 4;
            const float* from = x + i / quads * cols;
            uint4 k = ((const uint4*)order)[i % quads];
            e[0] = from[k.x], e[1] = from[k.y], e[2] = from[k.z], e[3] = from[k.w];
        } else if (there) {
            float4 v = ((const float4*)x)[i];
            e[0] = v.x, e[1] = v.y, e[2] = v.z, e[3] = v.w;
        }
        round_quads(v, {there}, {i}, to, groups);
    }
}
