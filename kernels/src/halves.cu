// Activations rounded for tensor cores: once for all blocks and all weights that multiply them.
//
// Cost: 4 bytes read and 2 written an element. A thread takes four neighbours at a time and has four such quads on their way, so that a warp's
// loads and stores are of whole lines and memory is busy while it waits. What is beyond the range of f16 is cut to it. Defines: HALF; VECTOR, 1
// where rows are whole quads; ORDER where the weight's columns are in another order (act-order): `order` says which element each is, and four
// bytes more an element are read.

// Quads of a thread.
enum { QUADS = 4 };

// Activations in HALF, zeros past the end: [n, cols] -> [n, padded], padded a multiple of four. Rows along y.
KERNEL halves(TRACED const float* x, const u32* order, u16* to, int n, int cols, int padded) {
    after_the_last();
    int first = 4 * (int)(blockIdx.x * blockDim.x * QUADS + threadIdx.x), step = 4 * blockDim.x;
    for (u32 row = blockIdx.y; row < (u32)n; row += gridDim.y) {
        const float* from = x + (u64)row * cols;
        u16* own = to + (u64)row * padded;
        float v[QUADS][4];
#pragma unroll
        for (int i = 0; i < QUADS; i++) {
            int k = first + i * step;
#if defined(ORDER)
#pragma unroll
            for (int j = 0; j < 4; j++) v[i][j] = k + j < cols ? from[order[k + j]] : 0.0f;
#else
            fetch(from, k, cols, v[i]);
#endif
        }
#pragma unroll
        for (int i = 0; i < QUADS; i++) {
            int k = first + i * step;
            if (k < padded) *(uint2*)(own + k) = make_uint2(pair(cut(v[i][0]), cut(v[i][1])), pair(cut(v[i][2]), cut(v[i][3])));
        }
    }
}
