// Softmax attention in one pass over the context: a block for each row and HEADS of its heads, chunk after chunk.
//
// For steps that fill a device by their rows and heads alone, and for what is not in the cache; `attend_split.cu` gives the same bits
// from a block for each chunk. Cost: keys and values of a row's context once for HEADS heads, 2 · (K_DIM + V_DIM) operations a token
// and head, two barriers a chunk. Neighbouring rows do not share what they read but through the caches.
//
// Rows of spans of `less` rows or more are `attend_mma.cu`'s.
// Where a token's value is the beginning of its key, `v` is `k`. Defines: those of `scores.cu`.

KERNEL __launch_bounds__(THREADS, (HEADS > 4 || HEADS * V_DIM > 512 || V_DIM % 32 != 0 ? 8 : 16) / WARPS)
    attend(TRACED const float* q, u8* k, u64 k_bytes, int k_cols, u8* v, u64 v_bytes, u32 block_len, u32 group, float* out,
           i8* codes, uint2* groups, int heads, int kv_heads, float scale, u32 window, Edit first, Edit second, Edit third, u32 mask_width, const float* sinks,
           u32 less, const u32* step) {
    __shared__ __align__(16) float query[HEADS][K_DIM];
    __shared__ Warps made;
    // The host sent the step before any kernel of it ran.
    Step s = {step};
    u32 row = blockIdx.x, owner = s.owner(row), rows = 0u;
    Sight sight = {0u, 0u, 0u};
    Context context = {};
    u64 place = NOWHERE;
    if (owner != NOBODY) {
        Span span = s.span(owner);
        rows = span.len;
        sight = Sight::of(s, span, row, window);
        context = Context::of(k, k_bytes, v, v_bytes, block_len, group, s, owner);
        place = context.own(sight, sight.first());
    }
    after_the_last();
    Heads h = heads_of(row, blockIdx.y, heads, kv_heads, scale, first, second, third, mask_width);
    Results to = {out, codes, groups};
    const u64 first_of_all = ((u64)row * heads + h.first) * V_DIM;
    if (owner == NOBODY) {
        for (int i = threadIdx.x; i < h.mine * V_DIM; i += THREADS) to.put(first_of_all + i, 0.0f);
        return;
    }
    if (rows >= less) return;
    load_queries(query, q, h, heads);
    Running all[OWN];
#pragma unroll
    for (int j = 0; j < OWN; j++) all[j].clear();
    for (u32 chunk = sight.first(); chunk < sight.end; chunk += sight.chunk()) {
        __syncthreads();
        attend_chunk<(AHEAD + 1) / 2>(query, context, k_cols, h, sight, chunk, place, made);
        place = context.own(sight, chunk + sight.chunk());
        __syncthreads();
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            int i = THREADS * j + threadIdx.x;
            if (i >= HEADS * V_DIM) continue;
            Running part = Running::of_warps(made, i);
            all[j].add(part.top, part.sum, part.value);
        }
    }
#pragma unroll
    for (int j = 0; j < OWN; j++) {
        int i = THREADS * j + threadIdx.x;
        if (i >= h.mine * V_DIM) continue;
        add_sink(all[j], sinks, h.first + i / V_DIM);
        to.put(first_of_all + i, all[j].result());
    }
}
