// Attention of prompts by tensor cores: tiles of queries against tiles of keys, in HALF (bf16 or f16), summed in f32 (Dao 2023,
// "FlashAttention-2", https://arxiv.org/abs/2307.08691).
//
// A block has ROWS / GROUP rows of the step and all GROUP heads that share a key head: ROWS queries, sixteen for each of four warps. Keys
// and values come to shared memory KEYS at a time, the next ones while these are computed: by `cp.async` where the cache has them in HALF,
// decoded on the way where not. Scores are a fragment of sums, and their weights the left side of the product with the values without
// leaving registers. A lane's inputs of queries and keys are eight neighbours of each 32, as in `linear_mma.cu`; values are
// turned by `ldmatrix`.
//
// Rows of spans with fewer than `least` rows are another kernel's. A tile of rows may meet several spans and takes them one after the
// other. Tiles of keys begin at multiples of KEYS, and those that a query does not see change nothing of it: its bits hang on
// its own sequence and on nothing else in the step.
//
// Cost: 2 · (K_DIM + V_DIM) operations a query, head and token seen, half of them where attention is causal; keys and values of the
// context once for ROWS queries. With 128 elements, 64 queries and 32 keys: 512 k multiplications, 512 clocks of an A100's multiprocessor;
// 16 kB copied; 2 k exponentials, 128 clocks of its function units. 50 kB of shared memory and 160 registers allow three blocks.
//
// Rounded to HALF: queries, keys, values and the weights of tokens, which are at most one; the weights' sum is of those not rounded. What of a
// query, or of a cache with a wider range, is beyond that of f16 is cut to it: as an infinity it would spoil its whole row.
// Defines: HALF, ELEMENT, SAME if that is HALF, K_DIM and V_DIM in eights, VECTOR, GROUP, KEYS;
// CAUSAL; KIND1 to KIND3. PAGED is always.

#define ROWS 64
#define K_PAD ((K_DIM + 31) / 32 * 32)
#define V_PAD ((V_DIM + 15) / 16 * 16)
// Bytes of a row of values: an odd number of sixteens, so that eight rows lie in different banks.
#define V_PITCH (2 * V_PAD + 16)
#define SIDES (KEYS * (2 * K_PAD + V_PITCH))

#if IS_F16 ? HAS_HALVES : HAS_MATRIX

// Where eight inputs of a query or key lie; neighbouring rows begin in different halves of the banks.
DEVICE int place(int row, int chunk) {
    return (row * (K_PAD / 8) + ((K_PAD / 32) % 2 ? chunk : chunk ^ 4 * (row & 1))) * 16;
}

// Eight elements of a row, or zeros, as halves in shared memory.
DEVICE void put_eight(u8* to, const u8* row, int i, int cols) {
#ifdef SAME
    if (row) copy16(to, row + 2 * i);
    else *(uint4*)to = make_uint4(0u, 0u, 0u, 0u);
#else
    float v[8];
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] = 0.0f;
    if (row) ELEMENT::read8(row, i, cols, v);
    *(uint4*)to = halves_of(v);
#endif
}

DEVICE void times(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
#if HAS_MATRIX
    u32 a[4] = {a0, a1, a2, a3};
#if IS_F16
    mma_f16(d, a, b0, b1);
#else
    mma_bf16(d, a, b0, b1);
#endif
#else
    mma_f16_8(d, a0, a1, b0);
    mma_f16_8(d, a2, a3, b1);
#endif
}

// Blocks: tiles of rows, key heads.
KERNEL __launch_bounds__(THREADS, 2)
    attend_mma(TRACED const float* q, u8* k, u64 k_bytes, int k_cols, u8* v, u64 v_bytes, int v_cols, u32 block_len, u32 group, float* out,
               int heads, float scale, u32 window, Edit first, Edit second, Edit third, const float* sinks, u32 least,
               const u32* step) {
    after_the_last();
    extern __shared__ __align__(16) u8 shared[];
    u8* queries = shared;
    u8* sides = shared + ROWS * K_PAD * 2;
    Step s = {step};
    int kv = blockIdx.y, quad = lane() % 4, at = lane() / 4;
    const u32 tile = ROWS / GROUP;
    u32 last = min((blockIdx.x + 1) * tile, s.rows());
    for (u32 row0 = blockIdx.x * tile, next; row0 < last; row0 = next) {
        u32 owner = s.owner(row0);
        next = row0 + 1;
        if (owner == NOBODY) continue;
        Span span = s.span(owner);
        next = min(last, span.start + span.len);
        if (span.len < least) continue;
        Pages keys = Pages::of(k, k_bytes, block_len, s, group, owner);
        Pages values = Pages::of(v, v_bytes, block_len, s, group, owner);
        u32 begin = Sight::of(span, row0, window).begin / KEYS * KEYS, end = Sight::of(span, next - 1, window).end;

        // Queries past the last are zeros, and are not written.
        __syncthreads();
        for (int c = threadIdx.x; c < ROWS * (K_PAD / 8); c += THREADS) {
            int m = c / (K_PAD / 8), chunk = c % (K_PAD / 8);
            u32 row = row0 + m / GROUP;
            float x[8];
#pragma unroll
            for (int j = 0; j < 8; j++) x[j] = 0.0f;
            if (m < (int)tile * GROUP && row < next && 8 * chunk < K_DIM)
                f32::read8((const u8*)(q + ((u64)row * heads + kv * GROUP + m % GROUP) * K_DIM), 8 * chunk, K_DIM, x);
            *(uint4*)(queries + place(m, chunk)) = halves_of(x);
        }
        auto fetch = [&](u32 from) {
            u8* to = sides + (from / KEYS & 1u) * SIDES;
            for (int c = threadIdx.x; c < KEYS * (K_PAD / 8); c += THREADS) {
                int i = c / (K_PAD / 8), chunk = c % (K_PAD / 8);
                const u8* row = from + i < end && 8 * chunk < K_DIM ? keys.row(from + i) : 0;
                put_eight(to + place(i, chunk), row, kv * K_DIM + 8 * chunk, k_cols);
            }
            to += KEYS * K_PAD * 2;
            for (int c = threadIdx.x; c < KEYS * (V_PAD / 8); c += THREADS) {
                int i = c / (V_PAD / 8), chunk = c % (V_PAD / 8);
                const u8* row = from + i < end && 8 * chunk < V_DIM ? values.row(from + i) : 0;
                put_eight(to + i * V_PITCH + 16 * chunk, row, kv * V_DIM + 8 * chunk, v_cols);
            }
        };

        // Of this lane's two queries: which row and head they are, and what they see.
        u32 row[2];
        int head[2];
        Sight sight[2];
        float most[2], total[2], acc[V_PAD / 8][4];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int m = 16 * warp() + at + 8 * h;
            row[h] = row0 + m / GROUP;
            head[h] = kv * GROUP + m % GROUP;
            if (m >= (int)tile * GROUP) row[h] = next;
            sight[h] = Sight{0u, 0u, 0u};
            if (row[h] < next) sight[h] = Sight::of(span, row[h], window);
            most[h] = -INF;
            total[h] = 0.0f;
        }
#pragma unroll
        for (int t = 0; t < V_PAD / 8; t++)
#pragma unroll
            for (int j = 0; j < 4; j++) acc[t][j] = 0.0f;

        fetch(begin);
        copies_end();
        for (u32 from = begin; from < end; from += KEYS) {
            if (from + KEYS < end) fetch(from + KEYS);
            copies_end();
            copied<1>();
            __syncthreads();
            const u8* ks = sides + (from / KEYS & 1u) * SIDES;
            const u8* vs = ks + KEYS * K_PAD * 2;
            float p[KEYS / 8][4];
#pragma unroll
            for (int t = 0; t < KEYS / 8; t++)
#pragma unroll
                for (int j = 0; j < 4; j++) p[t][j] = 0.0f;
#pragma unroll 2
            for (int slab = 0; slab < K_PAD / 32; slab++) {
                int chunk = 4 * slab + quad;
                uint4 a = *(const uint4*)(queries + place(16 * warp() + at, chunk));
                uint4 b = *(const uint4*)(queries + place(16 * warp() + at + 8, chunk));
#pragma unroll
                for (int t = 0; t < KEYS / 8; t++) {
                    uint4 c = *(const uint4*)(ks + place(8 * t + at, chunk));
                    times(p[t], a.x, b.x, a.y, b.y, c.x, c.y);
                    times(p[t], a.z, b.z, a.w, b.w, c.z, c.w);
                }
            }
            // A lane has, of each eight tokens, two of query `at` and two of query `at + 8`.
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float higher = most[h];
#pragma unroll
                for (int t = 0; t < KEYS / 8; t++)
#pragma unroll
                    for (int j = 0; j < 2; j++) {
                        u32 token = from + 8 * t + 2 * quad + j;
                        float score = -INF;
                        if (token >= sight[h].begin && token < sight[h].end) {
                            score = __fmul_rn(scale, p[t][2 * h + j]);
                            score = known<KIND1>(first, score, 0, head[h], sight[h].here, token, 0);
                            score = known<KIND2>(second, score, 0, head[h], sight[h].here, token, 0);
                            score = known<KIND3>(third, score, 0, head[h], sight[h].here, token, 0);
                        }
                        p[t][2 * h + j] = score;
                        higher = fmaxf(higher, score);
                    }
                higher = fmaxf(higher, __shfl_xor_sync(ALL, higher, 1));
                higher = fmaxf(higher, __shfl_xor_sync(ALL, higher, 2));
                // Where nothing is seen yet all weights are zeros, but for scores that are no numbers: those must spoil the result.
                float base = higher == -INF ? 0.0f : higher, sum = 0.0f;
                float shrink = most[h] == -INF ? 0.0f : expf(most[h] - base);
#pragma unroll
                for (int t = 0; t < KEYS / 8; t++)
#pragma unroll
                    for (int j = 0; j < 2; j++) {
                        p[t][2 * h + j] = expf(p[t][2 * h + j] - base);
                        sum += p[t][2 * h + j];
                    }
                sum += __shfl_xor_sync(ALL, sum, 1);
                sum += __shfl_xor_sync(ALL, sum, 2);
                most[h] = higher;
                total[h] = fmaf(total[h], shrink, sum);
#pragma unroll
                for (int t = 0; t < V_PAD / 8; t++)
#pragma unroll
                    for (int j = 0; j < 2; j++) acc[t][2 * h + j] *= shrink;
            }
#pragma unroll
            for (int i = 0; i < KEYS / 16; i++) {
                u32 a0 = pair(p[2 * i][0], p[2 * i][1]), a1 = pair(p[2 * i][2], p[2 * i][3]);
                u32 a2 = pair(p[2 * i + 1][0], p[2 * i + 1][1]), a3 = pair(p[2 * i + 1][2], p[2 * i + 1][3]);
#pragma unroll
                for (int t = 0; t < V_PAD / 16; t++) {
                    // Tokens 0 to 7 and 8 to 15 of elements 0 to 7, then of 8 to 15.
                    u32 b[4];
                    load_matrix_turned(b, vs + (16 * i + lane() % 16) * V_PITCH + 32 * t + 16 * (lane() / 16));
                    times(acc[2 * t], a0, a1, a2, a3, b[0], b[1]);
                    times(acc[2 * t + 1], a0, a1, a2, a3, b[2], b[3]);
                }
            }
            __syncthreads();
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if (row[h] >= next) continue;
            float sink = sinks ? sinks[head[h]] : -INF, factor = 1.0f;
            if (sink != -INF) {
                float higher = fmaxf(most[h], sink);
                factor = most[h] == -INF && total[h] == 0.0f ? 0.0f : expf(most[h] - higher);
                total[h] = fmaf(total[h], factor, expf(sink - higher));
            }
            float* to = out + ((u64)row[h] * heads + head[h]) * V_DIM;
#pragma unroll
            for (int t = 0; t < V_PAD / 8; t++)
#pragma unroll
                for (int j = 0; j < 2; j++)
                    // A query that sees nothing gives zeros.
                    if (8 * t < V_DIM) to[8 * t + 2 * quad + j] = total[h] == 0.0f ? 0.0f : acc[t][2 * h + j] * factor / total[h];
        }
    }
}

#else

// No device without these instructions is asked.
KERNEL attend_mma(TRACED const float*, u8*, u64, int, u8*, u64, int, u32, u32, float*, int, float, u32, Edit, Edit, Edit, const float*, u32,
                  const u32*) {
    __trap();
}

#endif
