// x · wᵀ for many rows of x: tiles of 64 rows by 64 outputs, in single precision.
//
// 256 threads fetch 32 inputs of 64 rows of both sides into shared memory, decoding the weight, and each sums a 4 by 4 part.
// Cost: every weight is read and decoded once for 64 rows, every x once for 64 outputs; 2 operations a weight and row, 8 bytes
// of shared memory for 4 of them. Sums run along the input in order. Defines: FORMAT, VECTOR.

#define TILE 64
#define DEEP 32

KERNEL __launch_bounds__(256) linear_many(const float* x, const u8* w, float* y, int n, int out, int cols, u64 row_bytes) {
    after_the_last();
    __shared__ __align__(16) float xs[DEEP][TILE + 4];
    __shared__ __align__(16) float ws[DEEP][TILE + 4];
    int first_out = blockIdx.x * TILE, first_row = blockIdx.y * TILE;
    int fetched = threadIdx.x / 4, part = 8 * (threadIdx.x % 4);
    int across = 4 * (threadIdx.x % 16), down = 4 * (threadIdx.x / 16);
    const float* x_row = x + (u64)min(first_row + fetched, n - 1) * cols;
    const u8* w_row = w + (u64)min(first_out + fetched, out - 1) * row_bytes;
    float acc[4][4];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) acc[i][j] = 0.0f;

    for (int k = 0; k < cols; k += DEEP) {
        float a[8], b[8];
#pragma unroll
        for (int j = 0; j < 8; j++) a[j] = b[j] = 0.0f;
        if (k + part < cols) {
            f32::read8((const u8*)x_row, k + part, cols, a);
            FORMAT::read8(w_row, k + part, cols, b);
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < 8; j++) {
            xs[part + j][fetched] = a[j];
            ws[part + j][fetched] = b[j];
        }
        __syncthreads();
#pragma unroll 8
        for (int j = 0; j < DEEP; j++) {
            float4 p = *(const float4*)&xs[j][down], q = *(const float4*)&ws[j][across];
            float ps[4] = {p.x, p.y, p.z, p.w}, qs[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
            for (int r = 0; r < 4; r++)
#pragma unroll
                for (int c = 0; c < 4; c++) acc[r][c] = fmaf(ps[r], qs[c], acc[r][c]);
        }
    }
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int c = 0; c < 4; c++)
            if (first_row + down + r < n && first_out + across + c < out)
                y[(u64)(first_row + down + r) * out + first_out + across + c] = acc[r][c];
}
