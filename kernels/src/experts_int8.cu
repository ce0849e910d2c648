// Rows through their experts, few of them, in integers: packed weights and 8-bit activations, a warp for an output (`stream.cu`,
// `direct.cu`).
//
// `experts_up_int8` gives f(x · gateᵀ) · (x · upᵀ) for every choice of every row; `experts_down_int8` brings them back, weighted and
// summed in the order they were chosen. Cost: the packed bytes of two or three matrices for each choice of each row; 8 `dp4a` and some 40
// other operations for 32 weights. Which rows of weights those are is known when the kernel before is done, so none is asked for earlier.
// Defines: FORMAT, UP, DOWN (packed ones; without UP, `gate` is up), ROWS (1).

// x as codes [n, dim], of choices / k -> h [choices, hidden]; blocks: outputs, choices.
KERNEL experts_up_int8(TRACED const u8* codes, const uint2* scales, const u32* ids, int n, int k, const u8* gate, u64 gate_bytes,
                       const u8* up, u64 up_bytes, float* h, int dim, int hidden, int f, const float* gate_bias,
                       const float* up_bias, float limit) {
    after_the_last();
    typedef CODES(FORMAT) A;
    typedef CODES(UP) B;
    enum { SAME = GATED && Same<A, B>::is, OTHER = GATED && !SAME };
    typedef Reader<A, 1 + SAME>::type S;
    typedef Reader<B, 1>::type T;
    enum { AREA = !OTHER || (int)S::AREA > (int)T::AREA ? (int)S::AREA : (int)T::AREA };
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
    if (OTHER) {
        T t;
        t.area = s.area;
        t.cols = dim;
        t.line(0, ups, up_bytes, r, hidden);
        t.begin();
        t.products(codes, scales, row, n, other);
    }
    float g = warp_sum(acc[0][0]), u = GATED ? warp_sum(SAME ? acc[SAME][0] : other[0][0]) : 0.0f;
    if (lane() == 0) h[(u64)blockIdx.y * hidden + r] = gating(f, g, u, gate_bias, up_bias, limit, expert + r);
}

// h as codes [n, k, hidden] -> y [n, dim]; blocks: outputs, rows.
KERNEL experts_down_int8(TRACED const u8* codes, const uint2* scales, const u32* ids, const float* weights, int n, int k, const u8* down,
                         u64 down_bytes, float* y, int dim, int hidden, const float* bias) {
    after_the_last();
    typedef Stream<CODES(DOWN), 1> S;
    __shared__ __align__(16) u8 area[WARPS * S::AREA];
    int r = blockIdx.x * WARPS + warp();
    if (r >= dim) return;
    // Chunks of all choices are asked for as one sequence: each choice by itself would wait for its first. `ahead` is the choice that the
    // next one is of, `s` the one that is multiplied.
    S s, ahead;
    s.area = ahead.area = area + warp() * S::AREA;
    s.cols = ahead.cols = hidden;
    int first = blockIdx.y * k, asked = 0, chunk = 0;
    auto turn_to = [&](S& to, int i) { to.line(0, down + (u64)ids[first + i] * dim * down_bytes, down_bytes, r, dim); };
    auto next = [&](int turn) {
        if (asked == k) return copies_end();
        if (chunk == 0) turn_to(ahead, asked);
        ahead.ask(chunk, turn);
        if (++chunk == ahead.chunks()) chunk = 0, asked++;
    };
#pragma unroll
    for (int turn = 0; turn < S::STAGES - 1; turn++) next(turn);
    float sum = 0.0f;
    for (int i = 0; i < k; i++) {
        turn_to(s, i);
        float acc[1][ROWS];
        s.products(i * s.chunks(), next, codes, scales, first + i, n * k, acc);
        float v = warp_sum(acc[0][0]);
        if (bias) v += bias[(u64)ids[first + i] * dim + r];
        sum = fmaf(weights[first + i], v, sum);
    }
    if (lane() == 0) y[(u64)blockIdx.y * dim + r] = sum;
}
