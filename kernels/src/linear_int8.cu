// x · wᵀ for packed weights and few rows of 8-bit activations: a warp for OUTS outputs (`stream.cu`, `direct.cu`).
//
// Up to three weights of one input in a launch, as queries, keys and values are: the blocks of the first, then those of the second and the
// third, each weight with a format of its own. By itself a narrow weight takes less time than its launch. Cost: the packed weights' bytes
// once for ROWS rows, those rows from cache once for OUTS outputs. Defines: FORMAT, a packed one, and FORMAT2 and FORMAT3 where there
// are so many weights; ROWS; OUTS, which changes no bits.

#ifndef FORMAT2
#define FORMAT2 FORMAT
#endif
#ifndef FORMAT3
#define FORMAT3 FORMAT2
#endif

// A weight and where its products go.
struct Product {
    const u8* w;
    u64 row_bytes;
    float* y;
    int out;
    METHOD int blocks() const { return (out + OUTS * WARPS - 1) / (OUTS * WARPS); }
};

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
    typedef CODES(FORMAT) A;
    typedef CODES(FORMAT2) B;
    typedef CODES(FORMAT3) C;
    enum { OF_A = Reader<A, OUTS>::type::AREA, OF_B = Reader<B, OUTS>::type::AREA, OF_C = Reader<C, OUTS>::type::AREA };
    enum { OF_AB = (int)OF_A > (int)OF_B ? (int)OF_A : (int)OF_B, AREA = (int)OF_AB > (int)OF_C ? (int)OF_AB : (int)OF_C };
    __shared__ __align__(16) u8 area[WARPS * AREA];
    Product p = {w, row_bytes, y, out};
    int block = blockIdx.x, which = 0;
    // Without a second weight this is nothing.
    if (block >= p.blocks()) {
        block -= p.blocks();
        p = Product{w2, row_bytes2, y2, out2};
        which = 1;
        if (block >= p.blocks()) {
            block -= p.blocks();
            p = Product{w3, row_bytes3, y3, out3};
            which = 2;
        }
    }
    if (which == 2 && !Same<B, C>::is && !Same<A, C>::is) return outputs<C>(PASS_TRACED area, p, block, codes, scales, n, cols);
    if ((which == 1 && !Same<A, B>::is) || (which == 2 && Same<B, C>::is && !Same<A, C>::is))
        return outputs<B>(PASS_TRACED area, p, block, codes, scales, n, cols);
    outputs<A>(PASS_TRACED area, p, block, codes, scales, n, cols);
}
