// Attention of few rows over long contexts of the paged cache: the context is cut into chunks, blocks take a chunk each, and a second
// kernel puts them together (Dao et al. 2023, "Flash-Decoding", https://pytorch.org/blog/flash-decoding/).
//
// Chunks begin at multiples of CHUNK tokens, whatever the row's place or how many blocks there are, and are put together in their
// order: the same bits however long the longest context of a step is. A block does HEADS queries that share a key head, so a
// key or value is read and decoded once for all of them. Within a chunk it is as in `attend.cu`: warps take 32 tokens in turn, a lane
// a token's scores, then lanes are elements of the value. Cost: keys and values of the context once for HEADS heads,
// 2 · (K_DIM + V_DIM) operations a token and head, and 8 · (V_DIM + 2) bytes a chunk and head between the kernels.
//
// Defines: K_DIM, V_DIM, VECTOR, ELEMENT, HEADS; CAUSAL.

#define CHUNK 256u
// Of a chunk and head: the sum of weighted values, the highest score, the sum of weights.
#define PART (V_DIM + 2)

// Products of a key with HEADS queries.
DEVICE void scores_of(const float (*q)[K_DIM], const u8* key, int at, int cols, float (&sum)[HEADS]) {
#pragma unroll
    for (int h = 0; h < HEADS; h++) sum[h] = 0.0f;
#if K_DIM % 8 == 0
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

// Blocks: parts of key heads, chunks from the first that the row sees, rows.
KERNEL __launch_bounds__(32 * WARPS, 1)
    attend_part(const float* q, u8* k, u64 k_bytes, int k_cols, u8* v, u64 v_bytes, u32 block_len, u32 group, float* parts, int heads,
                int kv_heads, float scale, u32 window, Edit first, Edit second, Edit third, const u32* step) {
    __shared__ __align__(16) float query[HEADS][K_DIM];
    __shared__ float part[WARPS][HEADS][V_DIM];
    __shared__ float top[WARPS][HEADS], sum[WARPS][HEADS];
    Step s = {step};
    u32 row = blockIdx.z, owner = s.owner(row);
    if (owner == NOBODY) return;
    int share_of = heads / kv_heads, tiles = (share_of + HEADS - 1) / HEADS;
    int kv = blockIdx.x / tiles, within = blockIdx.x % tiles * HEADS, head0 = kv * share_of + within;
    int mine = min(HEADS, share_of - within);
    Sight sight = Sight::of(s.span(owner), row, window);
    u32 chunk = (sight.begin / CHUNK + blockIdx.y) * CHUNK;
    u32 begin = max(sight.begin, chunk), end = min(sight.end, chunk + CHUNK);
    if (begin >= end) return;
    // Heads past the last repeat it, and are not written.
    for (int i = threadIdx.x; i < HEADS * K_DIM; i += blockDim.x)
        query[i / K_DIM][i % K_DIM] = q[((u64)row * heads + head0 + min(i / K_DIM, mine - 1)) * K_DIM + i % K_DIM];
    __syncthreads();
    Pages keys = Pages::of(k, k_bytes, block_len, s, group, owner);
    Pages values = Pages::of(v, v_bytes, block_len, s, group, owner);

    float most[HEADS], total[HEADS], acc[HEADS][MINE];
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        most[h] = -INF;
        total[h] = 0.0f;
#pragma unroll
        for (int j = 0; j < MINE; j++) acc[h][j] = 0.0f;
    }
    for (u32 at = chunk + 32u * warp(); at < end; at += 32u * WARPS) {
        u32 t = at + lane();
        bool seen = t >= begin && t < end;
        float share[HEADS];
#pragma unroll
        for (int h = 0; h < HEADS; h++) share[h] = 0.0f;
        const u8* key = seen ? keys.row(t) : 0;
        if (key) scores_of(query, key, kv * K_DIM, k_cols, share);
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            float score = -INF;
            if (seen) {
                int head = head0 + min(h, mine - 1);
                score = edited(first, scale * share[h], row, head, sight.here, t, 0);
                score = edited(second, score, row, head, sight.here, t, 0);
                score = edited(third, score, row, head, sight.here, t, 0);
            }
            // A score that is no number must spoil the result, and no maximum finds it.
            bool spoilt = __any_sync(ALL, score != score);
            float higher = fmaxf(most[h], warp_max(score));
            bool nothing = higher == -INF && !spoilt;
            float shrink = most[h] == -INF ? 0.0f : expf(most[h] - higher);
            share[h] = seen && !nothing ? expf(score - higher) : 0.0f;
            most[h] = higher;
            total[h] = nothing ? total[h] : total[h] * shrink + warp_sum(share[h]);
#pragma unroll
            for (int j = 0; j < MINE; j++) acc[h][j] *= nothing ? 1.0f : shrink;
        }
        for (u32 i = 0; i < 32u && at + i < end; i++) {
            const u8* value = at + i < begin ? 0 : values.row(at + i);
            if (!value) continue;
            float weight[HEADS];
#pragma unroll
            for (int h = 0; h < HEADS; h++) weight[h] = __shfl_sync(ALL, share[h], i);
#pragma unroll
            for (int j = 0; j < MINE; j++) {
                int e = 32 * j + lane();
                if (V_DIM % 32 == 0 || e < V_DIM) {
                    float x = ELEMENT::at(value, kv * V_DIM + e);
#pragma unroll
                    for (int h = 0; h < HEADS; h++) acc[h][j] = fmaf(weight[h], x, acc[h][j]);
                }
            }
        }
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
#pragma unroll
        for (int j = 0; j < MINE; j++) {
            int e = 32 * j + lane();
            if (V_DIM % 32 == 0 || e < V_DIM) part[warp()][h][e] = acc[h][j];
        }
        if (lane() == 0) {
            top[warp()][h] = most[h];
            sum[warp()][h] = total[h];
        }
    }
    __syncthreads();
    // The warps' parts in their order; a chunk's part is not yet divided by its sum.
    for (int i = threadIdx.x; i < mine * V_DIM; i += blockDim.x) {
        int h = i / V_DIM, e = i % V_DIM;
        float highest = -INF, all = 0.0f, value = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) highest = fmaxf(highest, top[w][h]);
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            float factor = top[w][h] == -INF && sum[w][h] == 0.0f ? 0.0f : expf(top[w][h] - highest);
            all += sum[w][h] * factor;
            value = fmaf(part[w][h][e], factor, value);
        }
        float* to = parts + (((u64)row * heads + head0 + h) * gridDim.y + blockIdx.y) * PART;
        to[e] = value;
        if (e == 0) {
            to[V_DIM] = highest;
            to[V_DIM + 1] = all;
        }
    }
}

// A block for each head and row.
KERNEL attend_join(const float* parts, float* out, int heads, int chunks, u32 window, const float* sinks, const u32* step) {
    __shared__ float factor[128], weight[128];
    Step s = {step};
    u32 row = blockIdx.y, owner = s.owner(row);
    int head = blockIdx.x;
    float* to = out + ((u64)row * heads + head) * V_DIM;
    Sight sight = {0u, 0u, 0u};
    if (owner != NOBODY) sight = Sight::of(s.span(owner), row, window);
    int count = sight.begin < sight.end ? (int)((sight.end - 1u) / CHUNK - sight.begin / CHUNK + 1u) : 0;
    const float* from = parts + ((u64)row * heads + head) * chunks * PART;
    float sink = owner != NOBODY && sinks ? sinks[head] : -INF, highest = sink;
    for (int c = 0; c < count; c++) highest = fmaxf(highest, from[c * PART + V_DIM]);
    float all = 0.0f, acc[(V_DIM + 127) / 128];
#pragma unroll
    for (int j = 0; j < (V_DIM + 127) / 128; j++) acc[j] = 0.0f;
    for (int tile = 0; tile < count; tile += 128) {
        int c = tile + threadIdx.x;
        __syncthreads();
        if (c < count) {
            float top = from[c * PART + V_DIM], sum = from[c * PART + V_DIM + 1];
            factor[threadIdx.x] = top == -INF && sum == 0.0f ? 0.0f : expf(top - highest);
            weight[threadIdx.x] = sum;
        }
        __syncthreads();
        for (int i = 0; i < 128 && tile + i < count; i++) {
            all += weight[i] * factor[i];
#pragma unroll
            for (int j = 0; j < (V_DIM + 127) / 128; j++) {
                int e = 128 * j + threadIdx.x;
                if (e < V_DIM) acc[j] = fmaf(from[(tile + i) * PART + e], factor[i], acc[j]);
            }
        }
    }
    if (sink != -INF && highest != -INF) all += expf(sink - highest);
#pragma unroll
    for (int j = 0; j < (V_DIM + 127) / 128; j++) {
        int e = 128 * j + threadIdx.x;
        // A query that sees nothing gives zeros.
        if (e < V_DIM) to[e] = all == 0.0f ? 0.0f : acc[j] / all;
    }
}
