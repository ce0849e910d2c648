// f(x · gateᵀ) · (x · upᵀ) for packed weights and few rows of 8-bit activations: a warp for each output (`stream.cu`,
// `direct.cu`).
//
// The rows of both weights go side by side if they are of one format, so that activations are read once, else one after the other.
// Cost: the bytes of both packed weights once for ROWS rows; neither product is written. Defines: FORMAT and UP, packed ones; ROWS.

KERNEL linear_gated_int8(TRACED const u8* codes, const uint2* scales, const u8* gate, u64 gate_bytes, const u8* up, u64 up_bytes, float* y,
                         int n, int out, int cols, int f) {
    typedef CODES(FORMAT) A;
    typedef CODES(UP) B;
    enum { SAME = Same<A, B>::is };
    typedef Reader<A, 1 + SAME>::type S;
    typedef Reader<B, 1>::type T;
    enum { AREA = SAME || (int)S::AREA > (int)T::AREA ? (int)S::AREA : (int)T::AREA };
    __shared__ __align__(16) u8 area[WARPS * AREA];
    int r = blockIdx.x * WARPS + warp(), first = blockIdx.y * ROWS;
    S s;
    s.area = area + warp() * AREA;
    s.cols = r < out ? cols : 0;
    s.line(0, gate, gate_bytes, r, out);
    if (SAME) s.line(SAME, up, up_bytes, r, out);
    s.begin();
    after_the_last();
    if (r >= out) return;
    float acc[1 + SAME][ROWS], other[1][ROWS];
    s.products(codes, scales, first, n, acc);
    if (!SAME) {
        T t;
        t.area = s.area;
        t.cols = cols;
        t.line(0, up, up_bytes, r, out);
        t.begin();
        t.products(codes, scales, first, n, other);
    }
#pragma unroll
    for (int m = 0; m < ROWS; m++) {
        float g = warp_sum(acc[0][m]), u = warp_sum(SAME ? acc[SAME][m] : other[0][m]);
        if (lane() == 0 && first + m < n) y[(u64)(first + m) * out + r] = activation(f, g) * u;
    }
}
