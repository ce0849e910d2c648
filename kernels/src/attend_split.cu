// Attention of few rows over long contexts of the paged cache: a block for each chunk of the context, and the last of a row's to
// arrive puts them together (Dao et al. 2023, "Flash-Decoding", https://pytorch.org/blog/flash-decoding/).
//
// The grid is set by rows, heads and the power of two of the longest context, so that a recorded step fits every length of its
// kind (where all parts would take too much memory there are several, each for some of the rows or heads: `split.rs`); a block reads on the device what its row sees, and ends at once if its chunk is not of that. Parts are put together in the order
// of chunks, whoever arrives last: the same bits as `attend.cu`, and in every run. One launch and not two, as a launch costs
// more than what the last block does. What leads to a token's row is the host's, so it is read before the kernel before is done.
//
// Cost: keys and values of the context once for HEADS heads, 2 · (K_DIM + V_DIM) operations a token and head, and
// 8 · (V_DIM + 2) bytes a chunk and head written and read between blocks: with f16 keys and values of 128 elements, 4 heads sharing
// one, 4 kB for every 128 kB of a long context and every 32 of a short one. A fine chunk is a group of eight tokens for each of eight warps, a coarse
// one four. Registers allow sixteen warps on a multiprocessor (eight with 8 heads or wide ones, or of elements with a scale or four bytes before 7.0): with 8 key
// heads, 64 blocks at 512 tokens and 256, on an H200 nearly two for each multiprocessor, at 2048 and again at 8 k. The last block reads all parts of
// its heads from the L2, those of 32 chunks at a time: 266 kB for 4 such heads at 32 k tokens, 4200 clocks of what a multiprocessor gets from there,
// and 7 operations a chunk for 32 elements.
//
// Rows of spans of `less` rows or more are `attend_mma.cu`'s. Defines: those of `scores.cu`; PAGED is one of them.

// Of a chunk and head: the sum of weighted values, the highest score, the sum of weights.
#define PART (V_DIM + 2)

// A number of another block's part, from the L2: parts of two heads meet in a sector, and before 7.0 a fence leaves an L1 as it is, which
// may have that sector since the neighbour's parts were read. The statement stays behind the fence; the load itself is a plain one, so
// any number of them may be on their way.
DEVICE float of_another(const float* p) {
    float v;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
    return v;
}

// Elements of a head that a lane puts together at a time, and chunks of which it has them on their way.
enum { TOGETHER = MINE % 2 == 0 ? 2 : 1, AT_ONCE = 16 };

// Elements `e` of a head of all its chunks, whose parts begin at `part`: to the bit what `Running::add` makes of one after the other. A warp
// calls it whole, for one head.
//
// A lane has its elements of AT_ONCE chunks on their way at a time: one after the other each would take the L2's whole latency. What a chunk's
// numbers are multiplied by, and those of the chunks before it, is the same for all elements, so each lane finds it for one of the 32
// chunks. `add` itself gives both factors: it makes them of 1 and 0.
DEVICE void of_chunks(const float* part, int chunks, const int (&e)[TOGETHER], Running (&all)[TOGETHER]) {
#pragma unroll
    for (int n = 0; n < TOGETHER; n++) all[n].clear();
    for (int left = chunks; left > 0; left -= 32, part += 32 * PART) {
        float top = -INF, sum = 0.0f, value[TOGETHER][AT_ONCE];
        if (lane() < left) {
            const float* both = part + lane() * PART + V_DIM;
            top = of_another(both);
            sum = of_another(both + 1);
        }
        auto load = [&](int first) {
#pragma unroll
            for (int n = 0; n < TOGETHER; n++)
#pragma unroll
                for (int j = 0; j < AT_ONCE; j++)
                    value[n][j] = first + j < left ? of_another(part + e[n] + (first + j) * PART) : 0.0f;
        };
        load(0);
        float most = fmaxf(all[0].top, top);
#pragma unroll
        for (int o = 1; o < 32; o *= 2) most = fmaxf(most, __shfl_up_sync(ALL, most, o));
        float before = __shfl_up_sync(ALL, most, 1);
        if (lane() == 0) before = all[0].top;
        // Of the sum so far `add` asks no more than whether it is zero, and that only where nothing had a score yet: then it is if every
        // chunk's is.
        u32 earlier = __ballot_sync(ALL, sum != 0.0f) & ((1u << lane()) - 1u);
        float so_far = all[0].sum == 0.0f && earlier == 0u ? 0.0f : 1.0f;
        Running old = {before, so_far, 1.0f}, now = {before, so_far, 0.0f};
        old.add(top, sum, 0.0f);
        now.add(top, sum, 1.0f);
#pragma unroll 1
        for (int first = 0; first < 32 && first < left; first += AT_ONCE) {
            if (first > 0) load(first);
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++) {
                if (first + j >= left) break;
                float of_old = __shfl_sync(ALL, old.value, first + j), of_now = __shfl_sync(ALL, now.value, first + j);
                all[0].sum = fmaf(__shfl_sync(ALL, sum, first + j), of_now, __fmul_rn(all[0].sum, of_old));
#pragma unroll
                for (int n = 0; n < TOGETHER; n++)
                    all[n].value = fmaf(value[n][j], of_now, __fmul_rn(all[n].value, of_old));
            }
        }
        all[0].top = __shfl_sync(ALL, most, 31);
    }
#pragma unroll
    for (int n = 1; n < TOGETHER; n++) {
        all[n].top = all[0].top;
        all[n].sum = all[0].sum;
    }
}

// Has the L2 ask for this lane's part of a key and a value: the block waits for its queries meanwhile, and where kernels overlap for the one
// before. A line that this one still writes is none the worse, as it is the L2's.
DEVICE void ask_for(const Context& c, u64 place, int kv) {
    if (place == NOWHERE) return;
    const u8* key = c.k + place * c.k_bytes + (u64)(kv * K_DIM) / ELEMENT::len * ELEMENT::bytes;
    const u8* value = c.v + place * c.v_bytes + (u64)(kv * V_DIM) / ELEMENT::len * ELEMENT::bytes;
    for (int at = 64 * (lane() % SHARE); at < K_DIM * ELEMENT::bytes / ELEMENT::len; at += 64 * SHARE)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(key + at));
    for (int at = 64 * (lane() % SHARE); at < V_DIM * ELEMENT::bytes / ELEMENT::len; at += 64 * SHARE)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(value + at));
}

// Orders what is before it and what comes after it for the whole device. The intrinsic is stronger from 7.0 on, one order for all fences,
// and slower.
DEVICE void fence() {
#if __CUDA_ARCH__ >= 700
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
#else
    __threadfence();
#endif
}

// Blocks: heads of a row from `first_tile` on, chunks from the first that the row sees, rows from `first_row` on.
// `parts`: [gridDim.z, gridDim.x, HEADS, gridDim.y, PART].
#define FEWER_WARPS \
    (HEADS > 4 || HEADS * V_DIM > 512 || ELEMENT::bytes * V_DIM > 512 || (BEFORE_7 && (ELEMENT::len > 1 || ELEMENT::bytes == 4)))
KERNEL __launch_bounds__(THREADS, (FEWER_WARPS ? 8 : 16) / WARPS)
    attend_split(TRACED const float* q, u8* k, u64 k_bytes, int k_cols, u8* v, u64 v_bytes, u32 block_len, u32 group, float* parts,
                 u32 first_row, u32 first_tile, float* out, i8* codes, uint2* groups, int heads, int kv_heads, float scale, u32 window, Edit first, Edit second,
                 Edit third, const float* sinks, u32 less, const u32* step) {
    __shared__ __align__(16) float query[HEADS][K_DIM];
    __shared__ Warps made;
    __shared__ u32 before;
    // The host sent the step before any kernel of it ran, all but the tickets.
    Step s = {step};
    u32 row = first_row + blockIdx.z, owner = s.owner_soon(row), rows = 0u;
    Heads h = heads_of(row, first_tile + blockIdx.x, heads, kv_heads, scale, first, second, third, 0);
    // The first head among those of all rows: no more than TICKETS times HEADS.
    u32 head = row * heads + h.first;
    // The block among those of a chunk.
    u32 among = blockIdx.z * gridDim.x + blockIdx.x;
    u32* ticket = s.tickets() + among;
    Sight sight = {0u, 0u, 0u};
    Context context = {};
    u64 place = NOWHERE;
    if (owner != NOBODY) {
        Span span = s.span(owner);
        rows = span.len;
        sight = Sight::of(s, span, row, window);
        context = Context::of(k, k_bytes, v, v_bytes, block_len, group, s, owner);
        if (rows < less) place = context.own(sight, sight.first() + blockIdx.y * sight.chunk());
        ask_for(context, place, h.kv);
    }
    after_the_last();
    if (rows >= less) return;
    u32 chunks = sight.chunks();
    Results to = {out, codes, groups};
    const u64 first_of_all = (u64)head * V_DIM;
    if (blockIdx.y >= chunks) {
        if (blockIdx.y == 0)
#pragma unroll 1
            for (int i = threadIdx.x; i < h.mine * V_DIM; i += THREADS) to.put(first_of_all + i, 0.0f);
        return;
    }
    load_queries(query, q, h, heads);
    __syncthreads();
    attend_chunk<AHEAD>(query, context, k_cols, h, sight, sight.first() + blockIdx.y * sight.chunk(), place, made);
    __syncthreads();
    if (chunks == 1u) {
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            int i = THREADS * j + threadIdx.x;
            if (i >= h.mine * V_DIM) continue;
            Running all, part = Running::of_warps(made, i);
            all.clear();
            all.add(part.top, part.sum, part.value);
            add_sink(all, sinks, h.first + i / V_DIM);
            to.put(first_of_all + i, all.result());
        }
        return;
    }
    float* from = parts + (u64)among * HEADS * gridDim.y * PART;
#pragma unroll
    for (int j = 0; j < OWN; j++) {
        int i = THREADS * j + threadIdx.x;
        if (i >= h.mine * V_DIM) continue;
        Running part = Running::of_warps(made, i);
        float* mine = from + ((u64)(i / V_DIM) * gridDim.y + blockIdx.y) * PART;
        mine[i % V_DIM] = part.value;
        if (i % V_DIM == 0) {
            mine[V_DIM] = part.top;
            mine[V_DIM + 1] = part.sum;
        }
    }
    // The ticket says that the part is there, so it must be seen after all of it: the barrier puts the others' writes before this
    // thread's fence, and the fence puts them before the ticket.
    __syncthreads();
    if (threadIdx.x == 0) {
        fence();
        before = atomicAdd(ticket, 1u);
        fence();
    }
    __syncthreads();
    if (before + 1u != chunks) return;
    // For the next layer; nothing here waits for it.
    if (threadIdx.x == 0) atomicExch(ticket, 0u);
    for (int i = warp(); i < h.mine * MINE / TOGETHER; i += WARPS) {
        int m = i / (MINE / TOGETHER), e[TOGETHER], at[TOGETHER];
#pragma unroll
        for (int n = 0; n < TOGETHER; n++) {
            e[n] = 32 * (i % (MINE / TOGETHER) * TOGETHER + n) + lane();
            at[n] = min(e[n], V_DIM - 1);
        }
        Running all[TOGETHER];
        of_chunks(from + (u64)m * gridDim.y * PART, (int)chunks, at, all);
#pragma unroll
        for (int n = 0; n < TOGETHER; n++) {
            add_sink(all[n], sinks, h.first + m);
            if (e[n] < V_DIM) to.put(first_of_all + m * V_DIM + e[n], all[n].result());
        }
    }
}
