// Softmax attention, a block for each row and head, in one pass over the context (Milakov and Gimelshein 2018,
// https://arxiv.org/abs/1805.02867).
//
// Four warps take chunks of 32 tokens in turn, chunks at multiples of 32. Within a chunk a lane has a token's score, by the whole
// dot product with the query in shared memory; then lanes are elements of the value and tokens are summed in order. A warp keeps
// its maximum, its sum and its part of the result; in the end the warps' parts are merged in their order. Cost: each head reads
// keys and values of its context once, 2 · (K_DIM + V_DIM) operations a token and head. Queries of a group of heads do not
// share what they read: `attend_split.cu` does that, for few rows and long contexts.
//
// Where a token's value is the beginning of its key, `v` is `k`. Defines: K_DIM, V_DIM, VECTOR, ELEMENT; PAGED if keys and values
// are in the cache and not rows laid end to end; CAUSAL.

DEVICE float scored(const float* q, const u8* key, int at, int cols) {
    float sum = 0.0f;
#if K_DIM % 8 == 0
#pragma unroll 2
    for (int i = 0; i < K_DIM; i += 8) {
        float v[8];
        ELEMENT::read8(key, at + i, cols, v);
#pragma unroll
        for (int j = 0; j < 8; j++) sum = fmaf(q[i + j], v[j], sum);
    }
#else
    for (int i = 0; i < K_DIM; i++) sum = fmaf(q[i], ELEMENT::at(key, at + i), sum);
#endif
    return sum;
}

KERNEL __launch_bounds__(32 * WARPS, 1)
    attend(const float* q, u8* k, u64 k_bytes, int k_cols, u8* v, u64 v_bytes, u32 block_len, u32 group, float* out, int heads,
           int kv_heads, float scale, u32 window, Edit first, Edit second, Edit third, u32 mask_width, const float* sinks,
           const u32* step) {
    __shared__ __align__(16) float query[K_DIM];
    __shared__ float part[WARPS][V_DIM];
    __shared__ float top[WARPS], sum[WARPS];
    Step s = {step};
    u32 row = blockIdx.y;
    int head = blockIdx.x, kv = head / (heads / kv_heads);
    float* to = out + ((u64)row * heads + head) * V_DIM;
    u32 owner = s.owner(row);
    if (owner == NOBODY) {
        for (int i = threadIdx.x; i < V_DIM; i += blockDim.x) to[i] = 0.0f;
        return;
    }
    Span span = s.span(owner);
    Sight sight = Sight::of(span, row, window);
    u32 here = sight.here, begin = sight.begin, end = sight.end;
    for (int i = threadIdx.x; i < K_DIM; i += blockDim.x) query[i] = q[((u64)row * heads + head) * K_DIM + i];
    __syncthreads();

#ifdef PAGED
    Pages keys = Pages::of(k, k_bytes, block_len, s, group, owner);
    Pages values = Pages::of(v, v_bytes, block_len, s, group, owner);
#define KEY(t) keys.row(t)
#define VALUE(t) values.row(t)
#else
#define KEY(t) (k + (u64)(span.context0 + (t)) * k_bytes)
#define VALUE(t) (v + (u64)(span.context0 + (t)) * v_bytes)
#endif

    float most = -INF, total = 0.0f, acc[MINE];
#pragma unroll
    for (int j = 0; j < MINE; j++) acc[j] = 0.0f;
    for (u32 chunk = begin / 32u * 32u + 32u * warp(); chunk < end; chunk += 32u * WARPS) {
        u32 t = chunk + lane();
        bool seen = t >= begin && t < end;
        float score = -INF;
        if (seen) {
            const u8* key = KEY(t);
            score = scale * (key ? scored(query, key, kv * K_DIM, k_cols) : 0.0f);
            score = edited(first, score, row, head, here, t, mask_width);
            score = edited(second, score, row, head, here, t, mask_width);
            score = edited(third, score, row, head, here, t, mask_width);
        }
        // A score that is no number must spoil the result, and no maximum finds it.
        bool spoilt = __any_sync(ALL, score != score);
        float higher = fmaxf(most, warp_max(score));
        if (higher == -INF && !spoilt) continue;
        float shrink = most == -INF ? 0.0f : expf(most - higher);
        float share = seen ? expf(score - higher) : 0.0f;
        most = higher;
        total = total * shrink + warp_sum(share);
#pragma unroll
        for (int j = 0; j < MINE; j++) acc[j] *= shrink;
        for (u32 i = 0; i < 32u && chunk + i < end; i++) {
            float weight = __shfl_sync(ALL, share, i);
            if (chunk + i < begin) continue;
            const u8* value = VALUE(chunk + i);
            if (!value) continue;
#pragma unroll
            for (int j = 0; j < MINE; j++) {
                int e = 32 * j + lane();
                if (V_DIM % 32 == 0 || e < V_DIM) acc[j] = fmaf(weight, ELEMENT::at(value, kv * V_DIM + e), acc[j]);
            }
        }
    }
#pragma unroll
    for (int j = 0; j < MINE; j++) {
        int e = 32 * j + lane();
        if (V_DIM % 32 == 0 || e < V_DIM) part[warp()][e] = acc[j];
    }
    if (lane() == 0) {
        top[warp()] = most;
        sum[warp()] = total;
    }
    __syncthreads();

    float highest = sinks ? sinks[head] : -INF, all = 0.0f;
    float sink = highest, factor[WARPS];
#pragma unroll
    for (int w = 0; w < WARPS; w++) highest = fmaxf(highest, top[w]);
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        factor[w] = top[w] == -INF && sum[w] == 0.0f ? 0.0f : expf(top[w] - highest);
        all += sum[w] * factor[w];
    }
    if (sinks && highest != -INF) all += expf(sink - highest);
    for (int i = threadIdx.x; i < V_DIM; i += blockDim.x) {
        float total_of = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) total_of = fmaf(part[w][i], factor[w], total_of);
        // A query that sees nothing gives zeros.
        to[i] = all == 0.0f ? 0.0f : total_of / all;
    }
}
