// Attention of prompts by tensor cores: tiles of queries against tiles of keys, in HALF (bf16 or f16), summed in f32 (Dao 2023,
// "FlashAttention-2", https://arxiv.org/abs/2307.08691).
//
// A block has ROWS / GROUP rows of the step and all GROUP heads that share a key head: ROWS queries, one or two sixteens for each of four
// warps. Keys and values come to shared memory KEYS at a time, the next ones while these are computed: by `cp.async` where the cache has them
// in HALF, decoded on the way where not. Where the next ones lie is looked up a tile ahead, by one lane for each token. Scores are a fragment
// of sums, and their weights the left side of the product with the values without leaving registers. A lane's inputs of queries and keys are
// eight neighbours of each 32, as in `linear_mma.cu`; its queries lie in shared memory as it reads them, and values are turned by `ldmatrix`.
//
// Weights are relative to a base that is the highest score of an earlier tile. It is raised, and what was summed is made smaller, only where a
// lane's weights of a tile add up to more than MOST: so few tiles but a query's first take a maximum. The logarithm's factor and `scale` are
// one number; queries are multiplied by its fraction and scores by its power of two, within the subtraction of the base. Tokens are compared
// with what a query sees only in tiles that some query of the warp does not see whole.
//
// Rows of spans with fewer than `least` rows are another kernel's. A tile of rows may meet several spans and takes them one after the
// other. Tiles of keys begin at multiples of KEYS, those that a query does not see change nothing of it, and its base is raised for itself
// alone: its bits hang on its own sequence and on nothing else in the step, nor on SIXTEENS. The last rows, which see most where
// attention is causal, come first, so that the longest blocks do not end alone.
//
// Cost: 2 · (K_DIM + V_DIM) operations a query, head and token seen, half of them where attention is causal; keys and values of the
// context once for ROWS queries. A warp with 32 queries, of 128 elements and 32 keys: 128 products of 16 x 8 x 16, 1024 clocks of a
// quarter of an A100's multiprocessor; 32 exponentials, 256 clocks of its function units; some 430 instructions, 112 of them for the
// weights and 75 for the next tile; 24 kB from shared memory, 768 clocks for four warps, of which a third are queries. With 16 queries
// keys and values are read for half as much: 20 kB, 640 clocks for 64 products. A block has 65 kB of shared memory, or 49, and a thread
// 250 registers, or 165: two blocks a multiprocessor, or three.
//
// Rounded to HALF: queries with their part of the factor, keys, values and the weights of tokens, which are at most MOST; the weights' sum is
// of those not rounded. What of a query, or of a cache with a wider range, is beyond that of f16 is cut to it: as an infinity it would spoil
// its whole row.
// Defines: HALF, ELEMENT, SAME if that is HALF, K_DIM and V_DIM in eights, VECTOR, GROUP, KEYS, SIXTEENS of a warp's queries, one where no
// device has `cp.async`; CAUSAL; MUTUAL; AFTER; CHUNKED; KIND1 to KIND3; PAGED, or rows lie end to end, a block of `block_len` 1 each.

#define ROWS (64 * SIXTEENS)
#define K_PAD ((K_DIM + 31) / 32 * 32)
#define V_PAD ((V_DIM + 15) / 16 * 16)
// Bytes of a row of values: an odd number of sixteens, so that eight rows lie in different banks.
#define V_PITCH (2 * V_PAD + 16)
#define SIDES (KEYS * (2 * K_PAD + V_PITCH))
// Rows of a tile of keys that a warp copies, eight lanes each.
#define OF_WARP (KEYS / 4)
// Fours of them at a time, and slabs of 32 inputs without a branch: where many results take registers, elements that are decoded on the way
// leave them for fewer.
#ifdef SAME
#define ROUNDS (OF_WARP / 4)
#define SLABS (K_PAD <= 128 ? K_PAD / 32 : 2)
#else
#define ROUNDS (SIXTEENS * (K_DIM + V_DIM) > 256 ? 1 : OF_WARP / 4)
#define SLABS 2
#endif
// Pieces of a row of keys or values that are asked for before the first is there: all, but where the heads of 256 leave no registers.
#define PIECES (__CUDA_ARCH__ < 800 && K_PAD + V_PAD > 384 ? 2 : 4)
#define LOG2_E 1.44269504f
// Less than any score.
#define LOWEST -3.40282347e38f
// The sum of a lane's weights of a tile beyond which they are made smaller: far below what f16 holds.
#define MOST 256.0f
// Tokens that a warp's last row sees and its first does not, at most, unless the step says how many.
#if defined(CAUSAL) || defined(AFTER)
#define LATER ((16 * SIXTEENS + GROUP - 2) / GROUP)
#else
#define LATER 0
#endif

// Blocks that a multiprocessor has registers for.
#define BLOCKS (HAS_MATRIX && SIXTEENS == 1 && 2 * KEYS + V_PAD <= 192 && !KIND1 ? 3 : 2)

#if HAS_MATRIX || (IS_F16 && HAS_HALVES && SIXTEENS == 1)

// Where eight inputs of a key lie; neighbouring rows begin in different halves of the banks.
DEVICE int place(int row, int chunk) {
    return (row * (K_PAD / 8) + ((K_PAD / 32) % 2 ? chunk : chunk ^ 4 * (row & 1))) * 16;
}

// Eight elements of a row, from `i + past` on, as halves in shared memory, or zeros.
DEVICE void put_eight(u8* to, const u8* row, bool there, int i, int past, int cols) {
#ifdef SAME
    copy16_of(to, row + 2 * i + 2 * past, there ? 16 : 0);
#else
    float v[8];
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] = 0.0f;
    if (there) ELEMENT::read8(row, i + past, cols, v);
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

// Two to the power of x; zero below the range of normal numbers.
DEVICE float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// What a score counts beside another: of binary logarithms, or of natural ones where options made them so.
DEVICE float relative(float score, float base) { return power_of_two(__fmul_rn(__fsub_rn(score, base), KIND1 ? LOG2_E : 1.0f)); }

// The same of a score that is still to be multiplied by `power`; exactly one of the score that is the base.
DEVICE float weight_of(float score, float base, float power) {
    return KIND1 ? relative(score, base) : power_of_two(fmaf(score, power, -base));
}

// A number as the product of a power of two and of what a query can be multiplied by and stay in its range.
struct Factor {
    float part, power;
    METHOD explicit Factor(float v) {
        u32 bits = (u32)__float_as_int(v), exponent = min(bits >> 23 & 255u, 253u);
        part = exponent ? __int_as_float((int)((bits & 0x807fffffu) | 126u << 23)) : 0.0f;
        power = __int_as_float((int)(exponent + 1u << 23));
    }
};

// Blocks: tiles of rows, the last first, and within them key heads.
KERNEL __launch_bounds__(THREADS, BLOCKS)
    attend_mma(TRACED const float* q, u8* k, u64 k_bytes, int k_cols, u8* v, u64 v_bytes, int v_cols, u32 block_len, u32 group, float* out,
               int heads, float scale, u32 window, Edit first, Edit second, Edit third, const float* sinks, u32 least,
               const u32* step) {
    after_the_last();
    extern __shared__ __align__(16) u8 shared[];
    u8* sides = shared + ROWS * K_PAD * 2;
    Step s = {step};
    const int quad = lane() % 4, at = lane() / 4;
    const u32 tile = ROWS / GROUP, kv_heads = (u32)heads / GROUP;
    const int kv = (int)(blockIdx.x % kv_heads);
    const int query0 = 16 * SIXTEENS * warp();
    // Of the warp's queries, sixteens of inputs after one another, a lane's four words.
    uint4* queries = (uint4*)(shared + query0 * K_PAD * 2) + lane();
    // What the lane copies first, and reads first: of keys its inputs of the first and of the second 32.
    const int copied_row = OF_WARP * warp() + lane() / 8, part = 8 * (lane() % 8);
    const int key_at = place(copied_row, part / 8), value_at = KEYS * K_PAD * 2 + copied_row * V_PITCH + 2 * part;
    const int even = place(at, quad);
    const u8* turned = sides + KEYS * K_PAD * 2 + lane() % 16 * V_PITCH + 16 * (lane() / 16);
    // Scores come with a factor of two's power, which options take off first.
    const Factor factor(KIND1 ? scale : scale * LOG2_E);
    const float power = KIND1 ? 1.0f : factor.power;
    const u32 tile0 = (gridDim.x / kv_heads - 1u - blockIdx.x / kv_heads) * tile;
    for (u32 row0 = tile0, next; row0 < min(tile0 + tile, s.rows()); row0 = next) {
        u32 owner = s.owner(row0);
        next = row0 + 1;
        if (owner == NOBODY) continue;
        const Span span = s.span(owner);
        next = min(tile0 + tile, span.start + span.len);
        if (span.len < least) continue;
        const u32 begin = Sight::of(s, span, row0, window).begin / KEYS * KEYS, end = Sight::of(s, span, next - 1, window).end;
        // A lane looks for one of its warp's tokens.
        const u32 own = begin + OF_WARP * warp() + lane() % OF_WARP;
#ifdef PAGED
        Walk walk = Walk::of(Pages::of(k, k_bytes, block_len, s, group, owner), own, KEYS, end);
#else
        Stroll walk = Stroll::of(span.context0, own, KEYS, end);
#endif
        // Takes the tile of keys and values that the walk is at, and takes the walk on.
        auto fetch = [&](u32 from) {
            u8* to = sides + (from / KEYS & 1u) * SIDES;
#pragma unroll ROUNDS
            for (int i = 0; i < OF_WARP; i += 4) {
                u32 block = __shfl_sync(ALL, walk.held, i + lane() / 8), place = __shfl_sync(ALL, walk.within, i + lane() / 8);
                bool there = block != Walk::GONE;
                // Where there is none it is the first block, and not read.
                u64 number = (u64)(there ? block : 0u) * block_len + place;
                const u8* key = k + number * (u32)k_bytes;
                const u8* value = v + number * (u32)v_bytes;
                // Chunks past the head are zeros.
#pragma unroll PIECES
                for (int c = 0; c < K_PAD; c += 64) {
                    bool within = K_DIM % 64 == 0 || c + part < K_DIM;
                    if (K_PAD % 64 == 0 || c + part < K_PAD)
                        put_eight(to + key_at + i * K_PAD * 2 + c * 2, key, there && within, kv * K_DIM + part, within ? c : -part, k_cols);
                }
#pragma unroll PIECES
                for (int c = 0; c < V_PAD; c += 64) {
                    bool within = V_DIM % 64 == 0 || c + part < V_DIM;
                    if (V_PAD % 64 == 0 || c + part < V_PAD)
                        put_eight(to + value_at + i * V_PITCH + c * 2, value, there && within, kv * V_DIM + part, within ? c : -part, v_cols);
                }
            }
            copies_end();
            walk.on();
        };

        __syncthreads();
        fetch(begin);
        // A warp's own queries, as the product takes them. Those past the last are zeros, and are not written.
#pragma unroll 4
        for (int i = 0; i < SIXTEENS * (K_PAD / 32); i++) {
            int chunk = i % (K_PAD / 32) * 4 + quad;
            uint4 x[2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int query = query0 + i / (K_PAD / 32) * 16 + 8 * h + at;
                u32 row = row0 + query / GROUP;
                float y[8];
#pragma unroll
                for (int j = 0; j < 8; j++) y[j] = 0.0f;
                if (query < (int)tile * GROUP && row < next && 8 * chunk < K_DIM)
                    f32::read8((const u8*)(q + ((u64)row * heads + kv * GROUP + query % GROUP) * K_DIM), 8 * chunk, K_DIM, y);
#pragma unroll
                for (int j = 0; j < 8; j++) y[j] = cut(y[j]) * factor.part;
                x[h] = halves_of(y);
            }
            queries[64 * i] = make_uint4(x[0].x, x[1].x, x[0].y, x[1].y);
            queries[64 * i + 32] = make_uint4(x[0].z, x[1].z, x[0].w, x[1].w);
        }

        // What all queries of this warp see. Later rows see no earlier beginning and no earlier end.
        u32 all_begin = 0u, all_end = 0u;
#ifdef MUTUAL
        u32 last_end = 0u;
#endif
        if (query0 / GROUP < (int)tile && row0 + query0 / GROUP < next) {
            u32 high = min(row0 + min((query0 + 16 * SIXTEENS - 1) / GROUP, (int)tile - 1), next - 1u);
            all_begin = Sight::of(s, span, high, window).begin;
#ifdef MUTUAL
            last_end = Sight::of(s, span, high, window).end;
#endif
            all_end = Sight::of(s, span, row0 + query0 / GROUP, window).end;
        }
        // Of the lane's queries: what weights are relative to, the sum of those that the lane has itself, and of weighted values.
        float base[SIXTEENS][2], total[SIXTEENS][2], acc[SIXTEENS][V_PAD / 8][4];
#pragma unroll
        for (int m = 0; m < SIXTEENS; m++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                base[m][h] = LOWEST;
                total[m][h] = 0.0f;
            }
#pragma unroll
            for (int t = 0; t < V_PAD / 8; t++)
#pragma unroll
                for (int j = 0; j < 4; j++) acc[m][t][j] = 0.0f;
        }

#pragma unroll 1
        for (u32 from = begin; from < end; from += KEYS) {
            copied<0>();
            __syncthreads();
            fetch(from + KEYS);
            // Where no query of this warp sees any of it.
#ifdef MUTUAL
            if (from >= last_end) continue;
#else
            if (from >= all_end + LATER) continue;
#endif
            const u32 side = (from / KEYS & 1u) * SIDES;
            float score[SIXTEENS][KEYS / 8][4];
#pragma unroll
            for (int m = 0; m < SIXTEENS; m++)
#pragma unroll
                for (int t = 0; t < KEYS / 8; t++)
#pragma unroll
                    for (int j = 0; j < 4; j++) score[m][t][j] = 0.0f;
#pragma unroll SLABS
            for (int slab = 0; slab < K_PAD / 32; slab++) {
                uint4 a[SIXTEENS], b[SIXTEENS];
#pragma unroll
                for (int m = 0; m < SIXTEENS; m++) {
                    a[m] = queries[64 * (K_PAD / 32 * m + slab)];
                    b[m] = queries[64 * (K_PAD / 32 * m + slab) + 32];
                }
                const u8* keys = sides + side + ((K_PAD / 32) % 2 ? even + 64 * slab : (even ^ slab % 2 * 64) + slab / 2 * 128);
#pragma unroll
                for (int t = 0; t < KEYS / 8; t++) {
                    uint4 c = *(const uint4*)(keys + 8 * t * K_PAD * 2);
#pragma unroll
                    for (int m = 0; m < SIXTEENS; m++) times(score[m][t], a[m].x, a[m].y, a[m].z, a[m].w, c.x, c.y);
#pragma unroll
                    for (int m = 0; m < SIXTEENS; m++) times(score[m][t], b[m].x, b[m].y, b[m].z, b[m].w, c.z, c.w);
                }
            }
            // A lane has, of each eight tokens, two of query `at` and two of query `at + 8` of each sixteen.
            if (KIND1 || from < all_begin || from + KEYS > all_end) {
                // Few tiles come here but for options: rather than that registers keep the span it is read again.
                const Span span_here = KIND1 ? span : s.span(owner);
#pragma unroll
                for (int m = 0; m < SIXTEENS; m++)
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        int query = query0 + 16 * m + 8 * h + at;
                        Sight sight = Sight::of(s, span_here, row0 + query / GROUP, window);
#pragma unroll
                        for (int t = 0; t < KEYS / 8; t++)
#pragma unroll
                            for (int j = 0; j < 2; j++) {
                                u32 token = from + 8 * t + 2 * quad + j;
                                float& x = score[m][t][2 * h + j];
#if KIND1
                                int head = kv * GROUP + query % GROUP;
                                x = __fmul_rn(x, factor.power);
                                x = known<KIND1>(first, x, 0, head, sight.here, token, 0);
                                x = known<KIND2>(second, x, 0, head, sight.here, token, 0);
                                x = known<KIND3>(third, x, 0, head, sight.here, token, 0);
#endif
                                if (token < sight.begin || token >= sight.end) x = -INF;
                            }
                    }
            }
            // Weights relative to what those before were relative to; where they come out too large, to the highest score.
            float sum[SIXTEENS][2];
            u32 weight[SIXTEENS][KEYS / 8][2];
#pragma unroll 1
            while (true) {
                bool high = false;
#pragma unroll
                for (int m = 0; m < SIXTEENS; m++)
#pragma unroll
                    for (int h = 0; h < 2; h++) {
#pragma unroll
                        for (int t = 0; t < KEYS / 8; t++) {
                            float x = weight_of(score[m][t][2 * h], base[m][h], power), y = weight_of(score[m][t][2 * h + 1], base[m][h], power);
                            sum[m][h] = t ? __fadd_rn(sum[m][h], __fadd_rn(x, y)) : __fadd_rn(x, y);
                            weight[m][t][h] = pair(x, y);
                        }
                        high = high || sum[m][h] > MOST;
                    }
                if (!__any_sync(ALL, high)) break;
#pragma unroll
                for (int m = 0; m < SIXTEENS; m++)
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        float highest = -INF;
#pragma unroll
                        for (int t = 0; t < KEYS / 8; t++)
                            highest = fmaxf(highest, fmaxf(score[m][t][2 * h], score[m][t][2 * h + 1]));
#pragma unroll
                        for (int o = 1; o < 4; o *= 2) {
                            highest = fmaxf(highest, __shfl_xor_sync(ALL, highest, o));
                            sum[m][h] = fmaxf(sum[m][h], __shfl_xor_sync(ALL, sum[m][h], o));
                        }
                        // For each query by itself, whoever shares its warp.
                        float above = sum[m][h] > MOST ? __fmul_rn(highest, power) : base[m][h];
                        float shrink = relative(base[m][h], above);
                        base[m][h] = above;
                        total[m][h] = __fmul_rn(total[m][h], shrink);
#pragma unroll
                        for (int t = 0; t < V_PAD / 8; t++)
#pragma unroll
                            for (int j = 0; j < 2; j++) acc[m][t][2 * h + j] = __fmul_rn(acc[m][t][2 * h + j], shrink);
                    }
            }
#pragma unroll
            for (int m = 0; m < SIXTEENS; m++)
#pragma unroll
                for (int h = 0; h < 2; h++) total[m][h] = __fadd_rn(total[m][h], sum[m][h]);
#pragma unroll
            for (int i = 0; i < KEYS / 16; i++)
#pragma unroll
                for (int t = 0; t < V_PAD / 16; t++) {
                    // Tokens 0 to 7 and 8 to 15 of elements 0 to 7, then of 8 to 15.
                    u32 b[4];
                    load_matrix_turned(b, turned + side + 16 * i * V_PITCH + 32 * t);
#pragma unroll
                    for (int m = 0; m < SIXTEENS; m++) {
                        const u32(&w)[KEYS / 8][2] = weight[m];
                        times(acc[m][2 * t], w[2 * i][0], w[2 * i][1], w[2 * i + 1][0], w[2 * i + 1][1], b[0], b[1]);
                        times(acc[m][2 * t + 1], w[2 * i][0], w[2 * i][1], w[2 * i + 1][0], w[2 * i + 1][1], b[2], b[3]);
                    }
                }
        }
        // What was asked for past the end.
        copied<0>();
#pragma unroll
        for (int m = 0; m < SIXTEENS; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                total[m][h] = __fadd_rn(total[m][h], __shfl_xor_sync(ALL, total[m][h], 1));
                total[m][h] = __fadd_rn(total[m][h], __shfl_xor_sync(ALL, total[m][h], 2));
            }
#pragma unroll
        for (int m = 0; m < SIXTEENS; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int query = query0 + 16 * m + 8 * h + at, head = kv * GROUP + query % GROUP;
                u32 row = row0 + query / GROUP;
                if (query >= (int)tile * GROUP || row >= next) continue;
                float all = total[m][h], shrink = 1.0f, sink = sinks ? __fmul_rn(sinks[head], KIND1 ? 1.0f : LOG2_E) : -INF;
                if (sink != -INF) {
                    float above = fmaxf(base[m][h], sink);
                    shrink = relative(base[m][h], above);
                    all = fmaf(all, shrink, relative(sink, above));
                }
                // A query that sees nothing gives zeros.
                bool nothing = all == 0.0f;
                float share = shrink / all;
                float* to = out + ((u64)row * heads + head) * V_DIM + 2 * quad;
#pragma unroll
                for (int t = 0; t < V_DIM / 8; t++) {
                    float2 result = make_float2(__fmul_rn(acc[m][t][2 * h], share), __fmul_rn(acc[m][t][2 * h + 1], share));
                    *(float2*)(to + 8 * t) = nothing ? make_float2(0.0f, 0.0f) : result;
                }
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
