// Attention within one chunk of the context, by one block: what the kernels that attend share, so that they give the same bits.
//
// A chunk is 64 tokens of what a row sees where that is no more than 2048, and else 256, from a multiple of that on, whatever the step's other
// rows or the number of blocks: a few rows of short contexts then keep a device busy, and long contexts have few parts. WARPS warps take groups
// of eight tokens in turn. Four lanes share a key, each with every fourth eight of it: a load of a warp is 64 bytes of f16 of eight rows, and all
// of a group's keys and values of 128 are on their way at once in 32 registers. Of a token's products with HEADS queries that share a key head
// each of the four lanes is left with a share; then lanes are elements of the value, neighbours where widths allow, and tokens are summed in
// order. So a key or a value is read and decoded once for all HEADS. A warp keeps its highest score, its sum and its part of the result (Milakov
// and Gimelshein 2018, https://arxiv.org/abs/1805.02867); the warps' parts are put together in their order with the highest of them known, and
// chunks one after the other (`Running`). Every product and sum that two kernels must do alike is written as one instruction, so that no compiler
// contracts one of them and not the other.
//
// Defines: K_DIM, V_DIM, VECTOR, ELEMENT; HEADS, one unless said otherwise; PAGED if keys and values are in the cache and not rows laid
// end to end; CAUSAL, and MUTUAL beside it if rows of the step see each other to both sides; AFTER, how many tokens behind its own place a row
// sees at most, if that is bounded; CHUNKED if `window` is the length of the chunks that
// sequences are cut into, of which a row sees its own; WARPS, four unless said otherwise; KIND1 to KIND3, the kinds of the options, none unless
// said otherwise.

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
#define MINE ((V_DIM + 31) / 32)
// Elements of the result that a thread puts together.
#define OWN ((HEADS * V_DIM + THREADS - 1) / THREADS)

// Tokens that a row sees, up to which its chunks are FINE, and else COARSE.
#define SHORT 2048u
#define FINE 64u
#define COARSE 256u

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
enum {
    // Tokens that a warp takes at a time, and lanes that share the key of each.
    TOKENS = 8,
    SHARE = 32 / TOKENS,
    // Heads of which a lane has its token's score, once the lanes' sums are put together.
    SCORES = HEADS > SHARE ? HEADS / SHARE : 1,
    // Neighbouring elements of a value that a lane reads at once.
    WIDE = !VECTOR ? 1 : V_DIM % 128 == 0 ? 4 : V_DIM % 64 == 0 ? 2 : 1,
    // Tokens whose values a lane has on their way at a time, in 8 to 32 registers, and eights of a key, in 16 or 32.
    AHEAD = MINE > 8 ? 1 : MINE > 4 ? 2 : MINE <= 2 ? 8 : MORE_REGISTERS || ELEMENT::bytes == 4 ? 2 : MANY_REGISTERS ? 4 : 8,
    EIGHTS = HEADS > 2 && ELEMENT::bytes == 4 ? 1 : HEADS > 2 && MANY_REGISTERS ? 2 : 4
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
    DEVICE Sight of(const Step& step, const Span& span, u32 row, u32 window) {
        Sight s;
        s.here = span.past + row - span.start;
        s.end = span.context();
#ifdef CAUSAL
#ifdef MUTUAL
        // A tile may have rows past the last.
        s.end = min(s.end, step.end(min(row, step.rows() - 1u)));
#else
        s.end = min(s.end, s.here + 1u);
#endif
#endif
#ifdef AFTER
        s.end = min(s.end, s.here + 1u + AFTER);
#endif
#ifdef CHUNKED
        s.begin = s.here - s.here % window;
#else
        s.begin = s.here + 1u > window ? s.here + 1u - window : 0u;
#endif
        s.begin = min(s.begin, s.end);
        return s;
    }
    // Tokens of a chunk: set by how many the row sees, and by nothing else in the step.
    METHOD u32 chunk() const { return end - begin <= SHORT ? FINE : COARSE; }
    // Where the chunk of the first token begins.
    METHOD u32 first() const { return begin / chunk() * chunk(); }
    METHOD u32 chunks() const { return begin < end ? (end - 1u) / chunk() - begin / chunk() + 1u : 0u; }
};

// A sequence's keys and values.
struct Context {
    const u8 *k, *v;
    u64 k_bytes, v_bytes;
#ifdef PAGED
    Pages pages;
    METHOD u64 place(u32 t) const { return pages.place(t); }
#else
    u64 before;
    METHOD u64 place(u32 t) const { return before + t; }
#endif
    DEVICE Context of(u8* k, u64 k_bytes, u8* v, u64 v_bytes, u32 block_len, u32 group, const Step& s, u32 owner) {
        Context c;
        c.k = k; c.k_bytes = k_bytes;
        c.v = v; c.v_bytes = v_bytes;
#ifdef PAGED
        c.pages = Pages::of(k, k_bytes, block_len, s, group, owner);
#else
        c.before = s.span(owner).context0;
#endif
        return c;
    }
    // The place of this lane's token of the group at `at`, if the row sees it in the chunk at `chunk`.
    METHOD u64 own(const Sight& sight, u32 chunk, u32 at) const {
        u32 t = at + lane() / SHARE;
        return t >= sight.begin && t < min(sight.end, chunk + sight.chunk()) ? place(t) : NOWHERE;
    }
    // The same of the first group that the warp takes of a chunk.
    METHOD u64 own(const Sight& sight, u32 chunk) const { return own(sight, chunk, chunk + TOKENS * warp()); }
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
struct __align__(16) Warps {
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
        int m = i / V_DIM, e = i % V_DIM;
        Running r;
        r.clear();
        // The highest first, so that no warp's factor waits for another's.
#pragma unroll
        for (int w = 0; w < WARPS; w++) r.top = fmaxf(r.top, warps.top[w][m]);
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            float top = warps.top[w][m], sum = warps.sum[w][m];
            float factor = top == -INF && sum == 0.0f ? 0.0f : expf(__fsub_rn(top, r.top));
            r.sum = fmaf(sum, factor, r.sum);
            r.value = fmaf(warps.value[w][m][e], factor, r.value);
        }
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
    float x[(HEADS * K_DIM + THREADS - 1) / THREADS];
#pragma unroll
    for (int n = 0; n < (HEADS * K_DIM + THREADS - 1) / THREADS; n++) {
        int i = min((int)(THREADS * n + threadIdx.x), HEADS * K_DIM - 1);
        x[n] = q[((u64)h.row * heads + h.first + min(i / K_DIM, h.mine - 1)) * K_DIM + i % K_DIM];
    }
#pragma unroll
    for (int n = 0; n < (HEADS * K_DIM + THREADS - 1) / THREADS; n++) {
        int i = THREADS * n + threadIdx.x;
        if (i < HEADS * K_DIM) query[i / K_DIM][i % K_DIM] = x[n];
    }
}

// A lane's part of the products of a key with the block's queries: each SHARE-th eight.
DEVICE void scores_of(const float (&q)[HEADS][K_DIM], const u8* key, int at, int cols, float (&sum)[HEADS]) {
    int part = lane() % SHARE;
#if K_DIM % 8 == 0
#pragma unroll EIGHTS
    for (int n = 0; n < (K_DIM / 8 + SHARE - 1) / SHARE; n++) {
        int i = 8 * (n * SHARE + part);
        if (K_DIM / 8 % SHARE != 0 && i >= K_DIM) break;
        float v[8];
        ELEMENT::read8(key, at + i, cols, v);
#pragma unroll
        for (int h = 0; h < HEADS; h++)
#pragma unroll
            for (int j = 0; j < 8; j++) sum[h] = fmaf(q[h][i + j], v[j], sum[h]);
    }
#else
    for (int i = part; i < K_DIM; i += SHARE) {
        float v = ELEMENT::at(key, at + i);
#pragma unroll
        for (int h = 0; h < HEADS; h++) sum[h] = fmaf(q[h][i], v, sum[h]);
    }
#endif
}

// Adds the sums of N heads of two lanes `apart` from each other: of several each lane keeps half, the lower one the first.
template <int N> DEVICE void fold(float (&sum)[HEADS], int apart) {
    if (N == 1) {
        sum[0] = __fadd_rn(sum[0], __shfl_xor_sync(ALL, sum[0], apart));
        return;
    }
    bool upper = (lane() & apart) != 0;
#pragma unroll
    for (int j = 0; j < N / 2; j++) {
        float kept = upper ? sum[j + N / 2] : sum[j], given = upper ? sum[j] : sum[j + N / 2];
        sum[j] = __fadd_rn(kept, __shfl_xor_sync(ALL, given, apart));
    }
}

// Element `j` of those of a value that a lane has.
DEVICE int element(int j) { return WIDE * (32 * (j / WIDE) + lane()) + j % WIDE; }

// A lane's elements of N values, as they lie.
template <int N> struct Values {
    ELEMENT::Some<WIDE> x[N][MINE / WIDE];
    // Those of tokens from `i` on of a group, of which each lane has its own token's distance from `v`.
    METHOD void load(const u8* v, u64 own, int i, int kv) {
#pragma unroll
        for (int a = 0; a < N; a++) {
            u64 from = __shfl_sync(ALL, own, SHARE * (i + a));
#pragma unroll
            for (int j = 0; j < MINE / WIDE; j++) {
                int e = element(WIDE * j);
                x[a][j].clear();
                if (from != NOWHERE && (V_DIM % 32 == 0 || e < V_DIM)) x[a][j].load(v + from, kv * V_DIM + e);
            }
        }
    }
    METHOD float at(int a, int j) const { return x[a][j / WIDE].at(j % WIDE); }
};

// What the block's heads see of the chunk at `chunk`, with N values of a lane on their way at a time, for each warp its part; `place` is `own`
// of it. A barrier must follow before `to` is read.
//
// Lane SHARE · t + part has a part of token t's key, then the score of token t with the heads from part · HEADS / SHARE on, then
// elements of all values. Every load of a group is on its way before the first is waited for, as far as registers go, and the next group's place.
template <int N>
DEVICE void attend_chunk(const float (&query)[HEADS][K_DIM], const Context& context, int k_cols, const Heads& h, const Sight& sight,
                         u32 chunk, u64 place, Warps& to) {
    u32 begin = max(sight.begin, chunk), end = min(sight.end, chunk + sight.chunk());
    int part = lane() % SHARE;
    float most[SCORES], total[SCORES], acc[HEADS][MINE];
#pragma unroll
    for (int s = 0; s < SCORES; s++) {
        most[s] = -INF;
        total[s] = 0.0f;
    }
#pragma unroll
    for (int m = 0; m < HEADS; m++)
#pragma unroll
        for (int j = 0; j < MINE; j++) acc[m][j] = 0.0f;
#pragma unroll 1
    for (u32 at = chunk + TOKENS * warp(); at < end; at += TOKENS * WARPS) {
        u64 here = place;
        place = context.own(sight, chunk, at + TOKENS * WARPS);
        // The same for all lanes.
        if (at + TOKENS <= begin) continue;
        u32 t = at + lane() / SHARE;
        bool seen = t >= begin && t < end;
        // Distances go round, as a pointer that was a number is no longer known to lead to global memory.
        u64 own = here == NOWHERE ? NOWHERE : here * context.v_bytes;
        float sum[HEADS], weight[SCORES], shrink[SCORES];
        Values<N> values;
        values.load(context.v, own, 0, h.kv);
#pragma unroll
        for (int m = 0; m < HEADS; m++) sum[m] = 0.0f;
        if (here != NOWHERE) scores_of(query, context.k + here * context.k_bytes, h.kv * K_DIM, k_cols, sum);
        fold<HEADS>(sum, 2);
        fold<(HEADS + 1) / 2>(sum, 1);
#pragma unroll
        for (int s = 0; s < SCORES; s++) {
            float score = -INF;
            if (seen) {
                int head = h.first + min(part * HEADS / SHARE + s, h.mine - 1);
                score = __fmul_rn(h.scale, sum[s]);
                score = known<KIND1>(h.edits[0], score, h.row, head, sight.here, t, h.mask_width);
                score = known<KIND2>(h.edits[1], score, h.row, head, sight.here, t, h.mask_width);
                score = known<KIND3>(h.edits[2], score, h.row, head, sight.here, t, h.mask_width);
            }
            // A score that is no number must spoil the result, and no maximum finds it.
            bool spoilt = (__ballot_sync(ALL, score != score) & 0x11111111u << part) != 0u;
            float higher = score;
#pragma unroll
            for (int o = SHARE; o < 32; o *= 2) higher = fmaxf(higher, __shfl_xor_sync(ALL, higher, o));
            higher = fmaxf(most[s], higher);
            bool nothing = higher == -INF && !spoilt;
            shrink[s] = nothing ? 1.0f : most[s] == -INF ? 0.0f : expf(__fsub_rn(most[s], higher));
            weight[s] = seen && !nothing ? expf(__fsub_rn(score, higher)) : 0.0f;
            float all = weight[s];
#pragma unroll
            for (int o = SHARE; o < 32; o *= 2) all += __shfl_xor_sync(ALL, all, o);
            most[s] = higher;
            total[s] = fmaf(total[s], shrink[s], all);
        }
#pragma unroll
        for (int m = 0; m < HEADS; m++) {
            float by = __shfl_sync(ALL, shrink[m % SCORES], m * SHARE / HEADS);
#pragma unroll
            for (int j = 0; j < MINE; j++) acc[m][j] = __fmul_rn(acc[m][j], by);
        }
#pragma unroll 1
        for (int i = 0;;) {
#pragma unroll
            for (int a = 0; a < N; a++) {
                float x[MINE];
#pragma unroll
                for (int j = 0; j < MINE; j++) x[j] = values.at(a, j);
#pragma unroll
                for (int m = 0; m < HEADS; m++) {
                    float by = __shfl_sync(ALL, weight[m % SCORES], SHARE * (i + a) + m * SHARE / HEADS);
#pragma unroll
                    for (int j = 0; j < MINE; j++) acc[m][j] = fmaf(by, x[j], acc[m][j]);
                }
            }
            i += N;
            if (i >= TOKENS) break;
            values.load(context.v, own, i, h.kv);
        }
    }
#pragma unroll
    for (int m = 0; m < HEADS; m++)
#pragma unroll
        for (int j = 0; j < MINE; j += WIDE) {
            float* kept = &to.value[warp()][m][element(j)];
            // Neighbours in one store: one after the other would meet in the same banks.
            if (WIDE == 4) *(float4*)kept = make_float4(acc[m][j], acc[m][j + 1 % WIDE], acc[m][j + 2 % WIDE], acc[m][j + 3 % WIDE]);
            else if (WIDE == 2) *(float2*)kept = make_float2(acc[m][j], acc[m][j + 1 % WIDE]);
            else if (V_DIM % 32 == 0 || element(j) < V_DIM) *kept = acc[m][j];
        }
    // The lanes of the first token; where there are fewer heads than they, one for each head.
    if (lane() < SHARE && lane() * HEADS % SHARE == 0) {
#pragma unroll
        for (int s = 0; s < SCORES; s++) {
            to.top[warp()][part * HEADS / SHARE + s] = most[s];
            to.sum[warp()][part * HEADS / SHARE + s] = total[s];
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
