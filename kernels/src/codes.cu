// Activations rounded to 8 bits, for products with packed weights: once for all blocks and all weights that multiply them.
//
// A group of 32 elements has one scale, its largest magnitude / 127, and codes from -127 to 127 to nearest, ties to even. Eight threads
// take a group, four elements each, so that both sides are read and written in order. Cost: 4 bytes read and 1.25 written an element,
// some 6 operations. A group whose largest magnitude is below 2^-120 counts as zeros, as the inverse of its scale would overflow. One
// with an element that is no finite number has codes of zero and a scale that is no number: so is every product that reads it.

// What is kept of a group beside its codes: bits of the scale, and two sums of 16 bits, of the first sixteen codes below and of all
// 32 above. At most 32 * 127.
//
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
        // As bits: of magnitudes these are in the order of the numbers, with what is no number above infinity.
        u32 most = 0u;
#pragma unroll
        for (int j = 0; j < 4; j++) most = max(most, (u32)__float_as_int(e[j]) & 0x7fffffffu);
#pragma unroll
        for (int o = 4; o > 0; o >>= 1) most = max(most, __shfl_xor_sync(ALL, most, o));
        bool wrong = most >= 0x7f800000u, zeros = wrong || most < 7u << 23;
        float inverse = zeros ? 0.0f : __fdiv_rn(127.0f, __int_as_float((int)most));
        u32 word = 0u;
        int sum = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int code = zeros ? 0 : __float2int_rn(__fmul_rn(e[j], inverse));
            word |= ((u32)code & 255u) << 8 * j;
            sum += code;
        }
        sum += __shfl_xor_sync(ALL, sum, 1);
        sum += __shfl_xor_sync(ALL, sum, 2);
        int all = sum + __shfl_xor_sync(ALL, sum, 4);
        if (!there) continue;
        to[i] = word;
        if (i % 8 == 0) {
            float scale = zeros ? 0.0f : __fdiv_rn(__int_as_float((int)most), 127.0f);
            u32 bits = wrong ? 0x7fc00000u : (u32)__float_as_int(scale);
            groups[i / 8] = make_uint2(bits, ((u32)sum & 0xffffu) | (u32)all << 16);
        }
    }
}
