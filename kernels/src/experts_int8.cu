// Rows through their experts, few of them, in integers: packed weights and 8-bit activations, a warp for an output (`stream.cu`).
//
// `experts_up_int8` gives f(x · gateᵀ) · (x · upᵀ) for every choice of every row; `experts_down_int8` brings them back, weighted and
// summed in the order they were chosen. Cost: the packed bytes of three matrices for each choice of each row; 8 `dp4a` and some 40 other
// operations for 32 weights. Which rows of weights those are is known when the kernel before is done, so none is asked for earlier. Defines: FORMAT, UP, DOWN (packed ones), ROWS (1).

// x as codes [n, dim], of choices / k -> h [choices, hidden]; blocks: outputs, choices.
KERNEL experts_up_int8(const u8* codes, const uint2* scales, const u32* ids, int n, int k, const u8* gate, u64 gate_bytes,
                       const u8* up, u64 up_bytes, float* h, int dim, int hidden, int f) {
    after_the_last();
    typedef CODES(FORMAT) A;
    typedef CODES(UP) B;
    enum { SAME = Same<A, B>::is };
    typedef Stream<A, 1 + SAME> S;
    typedef Stream<B, 1> T;
    enum { AREA = SAME || (int)S::AREA > (int)T::AREA ? (int)S::AREA : (int)T::AREA };
    __shared__ __align__(16) u8 area[WARPS * AREA];
    int r = blockIdx.x * WARPS + warp(), row = blockIdx.y / k;
    if (r >= hidden) return;
    u64 expert = (u64)ids[blockIdx.y] * hidden;
    const u8 *gates = gate + expert * gate_bytes, *ups = up + expert * up_bytes;
    S s;
    s.area = area + warp() * AREA;
    s.cols = dim;
    s.line(0, gates, gate_bytes, r, hidden);
    if (SAME) s.line(SAME, ups, up_bytes, r, hidden);
    s.begin();
    float acc[1 + SAME][ROWS], other[1][ROWS];
    s.products(codes, scales, row, n, acc);
    if (!SAME) {
        T t;
        t.area = s.area;
        t.cols = dim;
        t.line(0, ups, up_bytes, r, hidden);
        t.begin();
        t.products(codes, scales, row, n, other);
    }
    float g = warp_sum(acc[0][0]), u = warp_sum(SAME ? acc[SAME][0] : other[0][0]);
    if (lane() == 0) h[(u64)blockIdx.y * hidden + r] = activation(f, g) * u;
}

// h as codes [n, k, hidden] -> y [n, dim]; blocks: outputs, rows.
KERNEL experts_down_int8(const u8* codes, const uint2* scales, const u32* ids, const float* weights, int n, int k, const u8* down,
                         u64 down_bytes, float* y, int dim, int hidden) {
    after_the_last();
    typedef Stream<CODES(DOWN), 1> S;
    __shared__ __align__(16) u8 area[WARPS * S::AREA];
    int r = blockIdx.x * WARPS + warp();
    if (r >= dim) return;
    S s;
    s.area = area + warp() * S::AREA;
    s.cols = hidden;
    float sum = 0.0f;
    for (int i = 0; i < k; i++) {
        int choice = blockIdx.y * k + i;
        s.line(0, down + (u64)ids[choice] * dim * down_bytes, down_bytes, r, dim);
        s.begin();
        float acc[1][ROWS];
        s.products(codes, scales, choice, n * k, acc);
        sum = fmaf(weights[choice], warp_sum(acc[0][0]), sum);
    }
    if (lane() == 0) y[(u64)blockIdx.y * dim + r] = sum;
}
