// x · wᵀ for packed weights and few rows of 8-bit activations: a warp for OUTS outputs (`stream.cu`, `direct.cu`), of up to three weights
// (`products.cu`).
//
// Cost: the packed weights' bytes once for ROWS rows, those rows from cache once for OUTS outputs. Defines: those of the products; ROWS; OUTS, which
// changes no bits.

// Block `block` of a weight's.
template <class F> DEVICE void outputs(TRACED u8* area, const Product& p, int block, const u8* codes, const uint2* scales, int n, int cols) {
    typedef typename Reader<F, OUTS>::type S;
    int r = (block * WARPS + warp()) * OUTS, first = blockIdx.y * ROWS;
    S s;
    s.area = area + warp() * S::AREA;
    s.cols = r < p.out ? cols : 0;
#pragma unroll
    for (int o = 0; o < OUTS; o++) s.line(o, p.w, p.row_bytes, r + o, p.out);
    s.begin();
    after_the_last();
    if (r >= p.out) return;
    float acc[OUTS][ROWS];
    s.products(codes, scales, first, n, acc);
#pragma unroll
    for (int o = 0; o < OUTS; o++)
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
            float v = warp_sum(acc[o][m]);
            if (lane() == 0 && r + o < p.out && first + m < n) p.y[(u64)(first + m) * p.out + r + o] = v;
        }
}

KERNEL linear_int8(TRACED const u8* codes, const uint2* scales, int n, int cols, const u8* w, u64 row_bytes, float* y, int out,
                   const u8* w2, u64 row_bytes2, float* y2, int out2, const u8* w3, u64 row_bytes3, float* y3, int out3) {
    typedef Reader<First, OUTS>::type A;
    typedef Reader<Second, OUTS>::type B;
    typedef Reader<Third, OUTS>::type C;
    enum { OF_AB = (int)A::AREA > (int)B::AREA ? (int)A::AREA : (int)B::AREA, AREA = (int)OF_AB > (int)C::AREA ? (int)OF_AB : (int)C::AREA };
    __shared__ __align__(16) u8 area[WARPS * AREA];
    Product p = {w, row_bytes, y, out};
    int block = blockIdx.x, which = choose(p, {w2, row_bytes2, y2, out2}, {w3, row_bytes3, y3, out3}, OUTS * WARPS, block);
    if (HAS_THIRD && which == 2) return outputs<Third>(PASS_TRACED area, p, block, codes, scales, n, cols);
    if (HAS_SECOND && which == 1) return outputs<Second>(PASS_TRACED area, p, block, codes, scales, n, cols);
    outputs<First>(PASS_TRACED area, p, block, codes, scales, n, cols);
}
