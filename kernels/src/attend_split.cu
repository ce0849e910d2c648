// Attention of few rows over long contexts of the paged cache: a block for each chunk of the context, and the last of a row's to
// arrive puts them together (Dao et al. 2023, "Flash-Decoding", https://pytorch.org/blog/flash-decoding/).
//
// The grid is set by rows, heads and the power of two of the longest context, so that a recorded step fits every length of its
// kind; a block reads on the device what its row sees, and ends at once if its chunk is not of that. Parts are put together in the order
// of chunks, whoever arrives last: the same bits as `attend.cu`, and in every run. One launch and not two, as a launch costs
// more than what the last block does.
//
// Cost: keys and values of the context once for HEADS heads, 2 · (K_DIM + V_DIM) operations a token and head, and
// 8 · (V_DIM + 2) bytes a chunk and head written and read between blocks: with f16 keys and values of 128 elements, 4 heads sharing
// one, 4 kB for every 128 kB. A chunk of 256 tokens is a group of 32 for each of eight warps. Registers allow sixteen warps on a
// multiprocessor (eight with 8 heads or wide ones): with 8 key heads on an H200 one block for each at 4096 tokens, two from 8 k on.
//
// Rows of spans of `less` rows or more are `attend_mma.cu`'s. Defines: those of `scores.cu`; PAGED is one of them.

// Of a chunk and head: the sum of weighted values, the highest score, the sum of weights.
#define PART (V_DIM + 2)

// Blocks: heads of a row, chunks from the first that the row sees, rows. `parts`: [rows, heads, gridDim.y, PART].
KERNEL __launch_bounds__(THREADS, (HEADS > 4 || HEADS * V_DIM > 512 ? 8 : 16) / WARPS)
    attend_split(const float* q, u8* k, u64 k_bytes, int k_cols, u8* v, u64 v_bytes, u32 block_len, u32 group, float* parts,
                 float* out, int heads, int kv_heads, float scale, u32 window, Edit first, Edit second, Edit third,
                 const float* sinks, u32 less, const u32* step) {
    after_the_last();
    __shared__ __align__(16) float query[HEADS][K_DIM];
    __shared__ Warps made;
    __shared__ u32 before;
    Step s = {step};
    u32 row = blockIdx.z, owner = s.owner(row);
    Heads h = heads_of(row, blockIdx.x, heads, kv_heads, scale, first, second, third, 0);
    float* to = out + ((u64)row * heads + h.first) * V_DIM;
    Sight sight = {0u, 0u, 0u};
    if (owner != NOBODY) {
        Span span = s.span(owner);
        if (span.len >= less) return;
        sight = Sight::of(span, row, window);
    }
    u32 chunks = sight.chunks();
    if (blockIdx.y >= chunks) {
        if (blockIdx.y == 0)
            for (int i = threadIdx.x; i < h.mine * V_DIM; i += THREADS) to[i] = 0.0f;
        return;
    }
    load_queries(query, q, h, heads);
    Side keys = Side::of(k, k_bytes, block_len, group, s, owner);
    Side values = Side::of(v, v_bytes, block_len, group, s, owner);
    __syncthreads();
    attend_chunk(query, keys, values, k_cols, h, sight, sight.first() + blockIdx.y * CHUNK, made);
    __syncthreads();
    float* from = parts + ((u64)row * heads + h.first) * gridDim.y * PART;
    if (chunks > 1u) {
        for (int i = threadIdx.x; i < h.mine * V_DIM; i += THREADS) {
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
        u32* ticket = s.tickets() + blockIdx.z * gridDim.x + blockIdx.x;
        if (threadIdx.x == 0) {
            __threadfence();
            before = atomicAdd(ticket, 1u);
            // For the next layer.
            if (before + 1u == chunks) atomicExch(ticket, 0u);
            __threadfence();
        }
        __syncthreads();
        if (before + 1u != chunks) return;
    }
    for (int i = threadIdx.x; i < h.mine * V_DIM; i += THREADS) {
        Running all;
        all.clear();
        if (chunks == 1u) {
            Running part = Running::of_warps(made, i);
            all.add(part.top, part.sum, part.value);
        } else {
            // From the L2 (volatile): parts of two heads meet in a sector, and before 7.0 a fence leaves an L1 as it is, which may have
            // that sector since the neighbour's parts were read.
            const volatile float* part = from + (u64)(i / V_DIM) * gridDim.y * PART;
#pragma unroll 4
            for (u32 c = 0; c < chunks; c++, part += PART) all.add(part[V_DIM], part[V_DIM + 1], part[i % V_DIM]);
        }
        add_sink(all, sinks, h.first + i / V_DIM);
        to[i] = all.result();
    }
}
