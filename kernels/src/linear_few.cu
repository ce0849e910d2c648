// x · wᵀ for few rows of x: a warp for each output, lanes along the input.
//
// Each weight is read and decoded once for up to ROWS rows of x, which come from cache. Cost: the packed weight's bytes once for
// every ROWS rows; 2 · ROWS operations a weight beside its decoding. A lane sums every 256th eight of the row, then the lanes
// are summed in a tree: an order set by the row's length. Defines: FORMAT, VECTOR, ROWS.

DEVICE void eight_of(const float* x, int i, int cols, float (&v)[8]) { f32::read8((const u8*)x, i, cols, v); }

KERNEL linear_few(const float* x, const u8* w, float* y, int n, int out, int cols, u64 row_bytes) {
    int r = blockIdx.x * warps() + warp(), first = blockIdx.y * ROWS;
    if (r >= out) return;
    const u8* row = w + (u64)r * row_bytes;
    float acc[ROWS];
#pragma unroll
    for (int m = 0; m < ROWS; m++) acc[m] = 0.0f;
    for (int i = 8 * lane(); i < cols; i += 256) {
        float a[8];
        FORMAT::read8(row, i, cols, a);
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
            // A row past the last repeats it, and is not written.
            float b[8];
            eight_of(x + (u64)min(first + m, n - 1) * cols, i, cols, b);
#pragma unroll
            for (int j = 0; j < 8; j++) acc[m] = fmaf(a[j], b[j], acc[m]);
        }
    }
#pragma unroll
    for (int m = 0; m < ROWS; m++) {
        float v = warp_sum(acc[m]);
        if (lane() == 0 && first + m < n) y[(u64)(first + m) * out + r] = v;
    }
}
