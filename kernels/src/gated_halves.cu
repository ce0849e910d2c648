// f(gate) * up, and beside it the same rounded for tensor cores: many rows of it go to one more product, which reads halves.
//
// Cost: 8 bytes read and 6 written an element, where `gated` and then `halves` read 12 and write 6, in two launches. The bits are theirs. A thread
// has two quads of either operand on their way at once. The result may be one of the operands: each element is read before it is written, by the
// same thread. Defines: HALF; VECTOR, 1 where rows are whole quads; FUNCTION, the number of f.

// Quads of a thread.
enum { QUADS = 2 };

// [n, cols] -> [n, cols], and in HALF [n, padded], zeros past the end. Rows along y.
KERNEL gated_halves(TRACED const float* gate, const float* up, float* out, u16* to, int n, int cols, int padded) {
    after_the_last();
    int first = 4 * (int)(blockIdx.x * blockDim.x * QUADS + threadIdx.x), step = 4 * blockDim.x;
    for (u32 row = blockIdx.y; row < (u32)n; row += gridDim.y) {
        u64 at = (u64)row * cols;
        u16* own = to + (u64)row * padded;
        float g[QUADS][4], u[QUADS][4];
#pragma unroll
        for (int i = 0; i < QUADS; i++) fetch(gate + at, first + i * step, cols, g[i]);
#pragma unroll
        for (int i = 0; i < QUADS; i++) fetch(up + at, first + i * step, cols, u[i]);
#pragma unroll
        for (int i = 0; i < QUADS; i++) {
            int k = first + i * step;
            float v[4];
#pragma unroll
            for (int j = 0; j < 4; j++) v[j] = k + j < cols ? activation(FUNCTION, g[i][j]) * u[i][j] : 0.0f;
            keep(v, out + at, k, cols);
            if (k < padded) *(uint2*)(own + k) = make_uint2(pair(cut(v[0]), cut(v[1])), pair(cut(v[2]), cut(v[3])));
        }
    }
}
