// Attention within one chunk of the context, by one block: what the kernels that attend share, so that they give the same bits.
//
// A chunk is CHUNK tokens from a multiple of CHUNK on, whatever the row's place, the step's other rows or the number of blocks.
// WARPS warps take groups of 32 tokens in turn; eight have one each, where what they make fits shared memory. A lane has a token's
// scores with HEADS queries that share a key head, so a key or a value is read and decoded once for all of them; then lanes are
// elements of the value and tokens are summed in order. A warp keeps its highest score, its sum and its part of the result (Milakov
// and Gimelshein 2018, https://arxiv.org/abs/1805.02867); the warps' parts are put together in their order, and chunks one after the
// other (`Running`). Every product and sum that two kernels must do alike is written as one instruction, so that no compiler
// contracts one of them and not the other.
//
// Defines: K_DIM, V_DIM, VECTOR, ELEMENT; HEADS, one unless said otherwise; PAGED if keys and values are in the cache and not rows laid
// end to end; CAUSAL; WARPS, four unless said otherwise; KIND1 to KIND3, the kinds of the options, none unless said otherwise.

#ifndef HEADS
#define HEADS 1
#endif
#ifndef KIND1
#define KIND1 0
#define KIND2 0
#define KIND3 0
#endif
#ifndef WARPS
#define WARPS 4
#endif
#define THREADS (32 * WARPS)
#define CHUNK 256u
#define MINE ((V_DIM + 31) / 32)
// Elements of the result that a thread puts together.
#define OWN ((HEADS * V_DIM + THREADS - 1) / THREADS)

// Addresses take more instructions and registers before 7.0.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 700
#define BEFORE_7 true
#else
#define BEFORE_7 false
#endif
// What needs registers for itself: blocks with a scale, elements of four bytes, two options that change a score, old instructions.
#define MANY_REGISTERS (ELEMENT::len > 1 || ELEMENT::bytes == 4 || (KIND1 && KIND2) || BEFORE_7)
// Blocks with a scale under values that are no whole ones of 32 need more still.
#define MORE_REGISTERS (ELEMENT::len > 1 && V_DIM % 32 != 0)
// Tokens whose values a lane has on their way at a time, in 8 to 32 registers, and eights of a key, in 16 or 32.
enum {
    AHEAD = MINE > 8 ? 1 : MINE > 4 ? 2 : MINE <= 2 ? 8 : MORE_REGISTERS ? 2 : MANY_REGISTERS ? 4 : 8,
    EIGHTS = HEADS > 2 && MANY_REGISTERS ? 2 : 4
};

// An option that changes a score; they are applied in the order they come.
struct Edit {
    int kind;  // 0 none, 1 soft cap, 2 slopes of heads, 3 mask
    float cap;
    const float* data;
};

DEVICE float edited(const Edit& e, float score, u32 row, int head, u32 here, u32 t, u32 width) {
    switch (e.kind) {
        case 1: return __fmul_rn(e.cap, tanhf(__fdiv_rn(score, e.cap)));
        case 2: return fmaf(-e.data[head], (float)(here > t ? here - t : t - here), score);
        case 3: return __fadd_rn(score, e.data[(u64)row * width + t]);
        default: return score;
    }
}

// The same of a kind that is known here: asked for each head and token, a choice costs more than what is chosen, and holds registers for
// what none of them reads.
template <int KIND> DEVICE float known(Edit e, float score, u32 row, int head, u32 here, u32 t, u32 width) {
    e.kind = KIND;
    return edited(e, score, row, head, here, t, width);
}

// What a row of the step sees of its sequence: tokens from `begin` to before `end`.
struct Sight {
    u32 here, begin, end;
    DEVICE Sight of(const Span& span, u32 row, u32 window) {
        Sight s;
        s.here = span.past + row - span.start;
        s.end = span.context();
#ifdef CAUSAL
        s.end = min(s.end, s.here + 1u);
#endif
        s.begin = s.here + 1u > window ? s.here + 1u - window : 0u;
        s.begin = min(s.begin, s.end);
        return s;
    }
    // Where the chunk of the first token begins.
    METHOD u32 first() const { return begin / CHUNK * CHUNK; }
    METHOD u32 chunks() const { return begin < end ? (end - 1u) / CHUNK - begin / CHUNK + 1u : 0u; }
};

// One side of the context, keys or values.
struct Side {
#ifdef PAGED
    Pages pages;
    METHOD const u8* row(u32 t) const { return pages.row(t); }
    METHOD const u8* start() const { return pages.base; }
    DEVICE Side of(u8* base, u64 bytes, u32 block_len, u32 group, const Step& s, u32 owner) {
        return Side{Pages::of(base, bytes, block_len, s, group, owner)};
    }
#else
    const u8* base;
    u64 bytes;
    METHOD const u8* row(u32 t) const { return base + (u64)t * bytes; }
    METHOD const u8* start() const { return base; }
    DEVICE Side of(u8* base, u64 bytes, u32, u32, const Step& s, u32 owner) {
        return Side{base + (u64)s.span(owner).context0 * bytes, bytes};
    }
#endif
};

// Whose scores a block computes, and how.
struct Heads {
    u32 row;
    int first, mine, kv;  // the first of its heads, how many there are, the key head they share
    float scale;
    Edit edits[3];
    u32 mask_width;
};

// What the warps of a block made of a chunk.
struct Warps {
    float value[WARPS][HEADS][V_DIM];
    float top[WARPS][HEADS], sum[WARPS][HEADS];
};

// Of chunks so far: the highest score, the sum of weights and one element of the sum of weighted values, not yet divided by it.
struct Running {
    float top, sum, value;
    METHOD void clear() { top = -INF; sum = value = 0.0f; }
    METHOD void add(float t, float s, float v) {
        float higher = fmaxf(top, t);
        float old = top == -INF && sum == 0.0f ? 0.0f : expf(__fsub_rn(top, higher));
        float now = t == -INF && s == 0.0f ? 0.0f : expf(__fsub_rn(t, higher));
        top = higher;
        sum = fmaf(s, now, __fmul_rn(sum, old));
        value = fmaf(v, now, __fmul_rn(value, old));
    }
    // Element `i % V_DIM` of head `i / V_DIM`.
    DEVICE Running of_warps(const Warps& warps, int i) {
        Running r;
        r.clear();
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            r.add(warps.top[w][i / V_DIM], warps.sum[w][i / V_DIM], warps.value[w][i / V_DIM][i % V_DIM]);
        return r;
    }
    // A query that sees nothing gives zeros.
    METHOD float result() const { return sum == 0.0f ? 0.0f : __fdiv_rn(value, sum); }
};

// A head's score that no value belongs to.
DEVICE void add_sink(Running& r, const float* sinks, int head) {
    if (sinks && sinks[head] != -INF) r.add(sinks[head], 1.0f, 0.0f);
}

// The block's queries; heads past the last repeat it, and are not written.
DEVICE void load_queries(float (&query)[HEADS][K_DIM], const float* q, const Heads& h, int heads) {
    for (int i = threadIdx.x; i < HEADS * K_DIM; i += THREADS)
        query[i / K_DIM][i % K_DIM] = q[((u64)h.row * heads + h.first + min(i / K_DIM, h.mine - 1)) * K_DIM + i % K_DIM];
}

// Products of a key with the block's queries.
DEVICE void scores_of(const float (&q)[HEADS][K_DIM], const u8* key, int at, int cols, float (&sum)[HEADS]) {
#pragma unroll
    for (int h = 0; h < HEADS; h++) sum[h] = 0.0f;
#if K_DIM % 8 == 0
#pragma unroll EIGHTS
    for (int i = 0; i < K_DIM; i += 8) {
        float v[8];
        ELEMENT::read8(key, at + i, cols, v);
#pragma unroll
        for (int h = 0; h < HEADS; h++)
#pragma unroll
            for (int j = 0; j < 8; j++) sum[h] = fmaf(q[h][i + j], v[j], sum[h]);
    }
#else
    for (int i = 0; i < K_DIM; i++) {
        float v = ELEMENT::at(key, at + i);
#pragma unroll
        for (int h = 0; h < HEADS; h++) sum[h] = fmaf(q[h][i], v, sum[h]);
    }
#endif
}

// What the block's heads see of the chunk at `chunk`, for each warp its part. A barrier must follow before `to` is read.
DEVICE void attend_chunk(const float (&query)[HEADS][K_DIM], const Side& keys, const Side& values, int k_cols, const Heads& h,
                         const Sight& sight, u32 chunk, Warps& to) {
    u32 begin = max(sight.begin, chunk), end = min(sight.end, chunk + CHUNK);
    float most[HEADS], total[HEADS], acc[HEADS][MINE];
#pragma unroll
    for (int m = 0; m < HEADS; m++) {
        most[m] = -INF;
        total[m] = 0.0f;
#pragma unroll
        for (int j = 0; j < MINE; j++) acc[m][j] = 0.0f;
    }
    for (u32 at = chunk + 32u * warp(); at < end; at += 32u * WARPS) {
        // The same for all lanes.
        if (at + 32u <= begin) continue;
        u32 t = at + lane();
        bool seen = t >= begin && t < end;
        float share[HEADS];
#pragma unroll
        for (int m = 0; m < HEADS; m++) share[m] = 0.0f;
        const u8* key = seen ? keys.row(t) : 0;
        if (key) scores_of(query, key, h.kv * K_DIM, k_cols, share);
#pragma unroll
        for (int m = 0; m < HEADS; m++) {
            float score = -INF;
            if (seen) {
                int head = h.first + min(m, h.mine - 1);
                score = __fmul_rn(h.scale, share[m]);
                score = known<KIND1>(h.edits[0], score, h.row, head, sight.here, t, h.mask_width);
                score = known<KIND2>(h.edits[1], score, h.row, head, sight.here, t, h.mask_width);
                score = known<KIND3>(h.edits[2], score, h.row, head, sight.here, t, h.mask_width);
            }
            // A score that is no number must spoil the result, and no maximum finds it.
            bool spoilt = __any_sync(ALL, score != score);
            float higher = fmaxf(most[m], warp_max(score));
            bool nothing = higher == -INF && !spoilt;
            float shrink = nothing ? 1.0f : most[m] == -INF ? 0.0f : expf(__fsub_rn(most[m], higher));
            share[m] = seen && !nothing ? expf(__fsub_rn(score, higher)) : 0.0f;
            most[m] = higher;
            total[m] = fmaf(total[m], shrink, warp_sum(share[m]));
#pragma unroll
            for (int j = 0; j < MINE; j++) acc[m][j] = __fmul_rn(acc[m][j], shrink);
        }
        // Every lane finds its own token's value, and loads of AHEAD tokens are on their way together: one after the other each would take
        // the memory's whole latency. Distances go round, as a pointer that was a number is no longer known to lead to global memory.
        const u64 nowhere = ~(u64)0;
        const u8* mine = seen ? values.row(t) : 0;
        u64 own = mine ? (u64)(mine - values.start()) : nowhere;
#pragma unroll 1
        for (u32 i = 0; i < 32u && at + i < end; i += AHEAD) {
            float x[AHEAD][MINE];
#pragma unroll
            for (int a = 0; a < AHEAD; a++) {
                u64 from = __shfl_sync(ALL, own, i + a);
#pragma unroll
                for (int j = 0; j < MINE; j++) {
                    int e = 32 * j + lane();
                    bool there = from != nowhere && (V_DIM % 32 == 0 || e < V_DIM);
                    x[a][j] = there ? ELEMENT::at(values.start() + from, h.kv * V_DIM + e) : 0.0f;
                }
            }
#pragma unroll
            for (int a = 0; a < AHEAD; a++)
#pragma unroll
                for (int m = 0; m < HEADS; m++) {
                    float weight = __shfl_sync(ALL, share[m], i + a);
#pragma unroll
                    for (int j = 0; j < MINE; j++) acc[m][j] = fmaf(weight, x[a][j], acc[m][j]);
                }
        }
    }
#pragma unroll
    for (int m = 0; m < HEADS; m++) {
#pragma unroll
        for (int j = 0; j < MINE; j++) {
            int e = 32 * j + lane();
            if (V_DIM % 32 == 0 || e < V_DIM) to.value[warp()][m][e] = acc[m][j];
        }
        if (lane() == 0) {
            to.top[warp()][m] = most[m];
            to.sum[warp()][m] = total[m];
        }
    }
}

// The heads of block `tile` of a row: of a key head's `heads / kv_heads` queries, HEADS from a multiple of HEADS on.
DEVICE Heads heads_of(u32 row, int tile, int heads, int kv_heads, float scale, const Edit& a, const Edit& b, const Edit& c,
                      u32 mask_width) {
    int shared_by = heads / kv_heads, tiles = (shared_by + HEADS - 1) / HEADS, within = tile % tiles * HEADS;
    Heads h;
    h.row = row;
    h.kv = tile / tiles;
    h.first = h.kv * shared_by + within;
    h.mine = min(HEADS, shared_by - within);
    h.scale = scale;
    h.edits[0] = a; h.edits[1] = b; h.edits[2] = c;
    h.mask_width = mask_width;
    return h;
}
