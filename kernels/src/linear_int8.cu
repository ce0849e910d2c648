// x · wᵀ for packed weights and few rows of 8-bit activations: a warp for OUTS outputs (`stream.cu`).
//
// Cost: the packed weight's bytes once for ROWS rows, those rows from cache once for OUTS outputs. Defines: FORMAT, a packed one; ROWS;
// OUTS, which changes no bits.

KERNEL linear_int8(TRACED const u8* codes, const uint2* scales, const u8* w, float* y, int n, int out, int cols, u64 row_bytes) {
    typedef Stream<CODES(FORMAT), OUTS> S;
    __shared__ __align__(16) u8 area[WARPS * S::AREA];
    int r = (blockIdx.x * WARPS + warp()) * OUTS, first = blockIdx.y * ROWS;
    S s;
    s.area = area + warp() * S::AREA;
    s.cols = r < out ? cols : 0;
#pragma unroll
    for (int o = 0; o < OUTS; o++) s.line(o, w, row_bytes, r + o, out);
    s.begin();
    after_the_last();
    if (r >= out) return;
    float acc[OUTS][ROWS];
    s.products(codes, scales, first, n, acc);
#pragma unroll
    for (int o = 0; o < OUTS; o++)
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
            float v = warp_sum(acc[o][m]);
            if (lane() == 0 && r + o < out && first + m < n) y[(u64)(first + m) * out + r + o] = v;
        }
}
