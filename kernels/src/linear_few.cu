// x · wᵀ for few rows of x: a warp for each output, lanes along the input.
//
// Each weight is read and decoded once for up to ROWS rows of x, which come from cache. Cost: the packed weight's bytes once for
// every ROWS rows; 2 · ROWS operations a weight beside its decoding. A lane sums every 256th eight of the row, then the lanes
// are summed in a tree: an order set by the row's length. More rows are done in slices of ROWS where tiles would leave most of a device
// idle (`ops/linear.rs`), with the bits that each would have alone.
//
// `linear_gated_few` does two weights of one shape at once, so that x is read once and neither product is ever written. Defines:
// FORMAT, VECTOR, ROWS; UP, the format of the second weight.

#ifndef UP
#define UP FORMAT
#endif

DEVICE void eight_of(const float* x, int i, int cols, float (&v)[8]) { f32::read8((const u8*)x, i, cols, v); }

// A lane's part of the products of one weight row with ROWS rows of x; rows past the last repeat it.
template <class F>
DEVICE void partial(const u8* row, const float* x, int first, int n, int cols, float (&acc)[ROWS]) {
#pragma unroll
    for (int m = 0; m < ROWS; m++) acc[m] = 0.0f;
    // Plain numbers are little work, so four of a lane's loads are on their way at once; of several rows two, as each is of nine or of five
    // eights, and more registers would leave room for fewer warps.
#pragma unroll(F::len == 1 ? (ROWS == 1 ? 4 : 2) : 1)
    for (int i = 8 * lane(); i < cols; i += 256) {
        float a[8];
        F::read8(row, i, cols, a);
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
            float b[8];
            eight_of(x + (u64)min(first + m, n - 1) * cols, i, cols, b);
#pragma unroll
            for (int j = 0; j < 8; j++) acc[m] = fmaf(a[j], b[j], acc[m]);
        }
    }
}

KERNEL linear_few(TRACED const float* x, const u8* w, float* y, int n, int out, int cols, u64 row_bytes) {
    after_the_last();
    int r = blockIdx.x * warps() + warp(), first = blockIdx.y * ROWS;
    if (r >= out) return;
    float acc[ROWS];
    partial<FORMAT>(w + (u64)r * row_bytes, x, first, n, cols, acc);
#pragma unroll
    for (int m = 0; m < ROWS; m++) {
        float v = warp_sum(acc[m]);
        if (lane() == 0 && first + m < n) y[(u64)(first + m) * out + r] = v;
    }
}

// f(x · gateᵀ) · (x · upᵀ)
KERNEL linear_gated_few(TRACED const float* x, const u8* gate, u64 gate_bytes, const u8* up, u64 up_bytes, float* y, int n, int out,
                        int cols, int f) {
    after_the_last();
    int r = blockIdx.x * warps() + warp(), first = blockIdx.y * ROWS;
    if (r >= out) return;
    float g[ROWS], u[ROWS];
    partial<FORMAT>(gate + (u64)r * gate_bytes, x, first, n, cols, g);
    partial<UP>(up + (u64)r * up_bytes, x, first, n, cols, u);
#pragma unroll
    for (int m = 0; m < ROWS; m++) {
        float a = warp_sum(g[m]), b = warp_sum(u[m]);
        if (lane() == 0 && first + m < n) y[(u64)(first + m) * out + r] = activation(f, a) * b;
    }
}
