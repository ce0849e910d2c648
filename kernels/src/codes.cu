// Activations rounded to 8 bits, for products with packed weights: once for all blocks and all weights that multiply them.
//
// The scales are those of `rounding.cu`. Eight threads take a group of 32, four elements each, so that both sides are read and written in
// order. Cost: 4 bytes read and 1.25 written an element, some 6 operations. What norms give comes rounded (`norm.cu`).

// x [n, cols], n * cols / 4 = `words`, a multiple of eight -> codes [n, cols], groups [n, cols / 32]
KERNEL codes(const float* x, u32* to, uint2* groups, u64 words) {
    after_the_last();
    u64 step = (u64)gridDim.x * blockDim.x;
    // Whole warps go on or stop: threads past the end give zeros to shuffles and store nothing.
    for (u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x - lane(); first < words; first += step) {
        u64 i = first + lane();
        bool there = i < words;
        float4 v = there ? ((const float4*)x)[i] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        float e[4] = {v.x, v.y, v.z, v.w};
        u32 most = 0u;
#pragma unroll
        for (int j = 0; j < 4; j++) most = max(most, magnitude(e[j]));
#pragma unroll
        for (int o = 4; o > 0; o >>= 1) most = max(most, __shfl_xor_sync(ALL, most, o));
        Rounding r(most);
        u32 word = 0u;
        int sum = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int code = r.code(e[j]);
            word |= ((u32)code & 255u) << 8 * j;
            sum += code;
        }
        sum += __shfl_xor_sync(ALL, sum, 1);
        sum += __shfl_xor_sync(ALL, sum, 2);
        int all = sum + __shfl_xor_sync(ALL, sum, 4);
        if (!there) continue;
        to[i] = word;
        if (i % 8 == 0) groups[i / 8] = r.kept(sum, all);
    }
}
