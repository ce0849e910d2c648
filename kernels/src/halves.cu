// Activations rounded for tensor cores: once for all blocks and all weights that multiply them.
//
// Cost: 4 bytes read and 2 written an element, an eight a thread. What is beyond the range of f16 is cut to it. Where the weight's columns are
// in another order (act-order), `order` says which element each is, and four bytes more an element are read; else it is null. Defines:
// HALF.

// Activations in HALF, eight at a time, zeros past the end: [n, cols] -> [n, padded], padded a multiple of eight.
KERNEL halves(TRACED const float* x, const u32* order, u16* to, int n, int cols, int padded) {
    after_the_last();
    u64 eights = (u64)padded / 8, all = eights * n;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += (u64)gridDim.x * blockDim.x) {
        int k = 8 * (int)(i % eights);
        const float* from = x + i / eights * cols;
        float v[8];
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = k + j < cols ? from[order ? order[k + j] : (u32)(k + j)] : 0.0f;
        ((uint4*)to)[i] = halves_of(v);
    }
}
