// A tile of a product by tensor cores: packed weights times activations in HALF (bf16 or f16), summed in single precision.
//
// Weights are the left side of `mma.sync`, 16 outputs by 16 inputs; activations the right, 8 rows. A lane of a fragment holds
// inputs of two outputs and may hold any, as long as both sides agree; here it is eight neighbours of each 32, which is what a packed
// row decodes at once and what 16 bytes of activations are. So weights go from their packed bytes to fragments in registers,
// each once in a block, and never lie decoded in shared memory: that would cost more of its bandwidth than it has.
//
// A block is DOWN warps along the outputs times ACROSS along the inputs; a warp has 16 · MT outputs and 8 · NT rows. Packed bytes of a
// warp's outputs and activations of a part's rows come to shared memory by `cp.async`, one step ahead of what is computed: STEP inputs
// of activations, and RAW of weights, the whole blocks that cover a step. Rows of weights are copied from where sixteen bytes
// begin, so blocks of 18, 34 or 210 bytes need no alignment. Parts along the inputs take turns of RAW inputs and are summed in
// their order. With UP, the second sixteen of a warp's outputs are of another weight, of that format: two weights meet the same activations.
//
// Cost for n rows: the packed weight once for every 8 · NT of them, 2 · n operations a weight; n · cols · 2 bytes of activations, from L2,
// for each 16 · MT · DOWN outputs; decoding, four to six operations a weight for every 8 · NT rows. With 128 rows and 128 outputs a step of
// 64 inputs is 1 M multiplications, 1024 clocks of an A100's multiprocessor, and 8192 weights to decode, some 400 of its other pipes,
// which overlap; 8 kB of fragments for 16 products come from shared memory, half of its bandwidth. With 8 rows it is bound by the
// weight's bytes: eight warps keep 2 · 16 rows of 256 inputs each on their way, 37 kB of q4_k a block.
//
// What is rounded: weights and activations to 8 bits of significand (bf16) or 11 (f16); products are exact, sums in single precision in an
// order set by the sizes. Defines: FORMAT, UP, VECTOR, HALF, DOWN, ACROSS, MT, NT, STEP, RAW, PITCH (bytes of a staged row of weights).

#ifdef UP
#define SECOND UP
#else
#define SECOND FORMAT
#endif
#define OUTPUTS (16 * MT)
#define ROWS (8 * NT)

// Bytes from a row's beginning to this input, of which blocks begin at.
template <class F> DEVICE u64 bytes_to(int k) { return (u64)(k / F::len) * F::bytes; }

// Whether rows begin at sixteen bytes wherever RAW inputs do.
template <class F> struct Aligned {
    enum { is = F::len == 1 ? VECTOR : F::bytes % 16 == 0 };
    static_assert(RAW % F::len == 0, "steps are whole blocks");
    static_assert(PITCH >= RAW / F::len * F::bytes + (is ? 0 : 15), "a staged row holds what it must");
};

// Rows of a weight: `rows` of them from byte `begin` on, of which a warp has those from `first` on; past the last, the last.
struct Lines {
    const u8* w;
    u64 begin, row_bytes;
    int first, rows;
    METHOD u64 at(int r) const { return begin + (u64)min(first + r, rows - 1) * row_bytes; }
    METHOD u64 end() const { return begin + (u64)rows * row_bytes; }
};

#if IS_F16 ? HAS_HALVES : HAS_MATRIX

// Two of each eight inputs: 32 inputs of 16 outputs (`a` of output g, `b` of g + 8) times those of 8 rows.
DEVICE void products(float (&d)[4], const u32 (&a)[4], const u32 (&b)[4], const uint4& x) {
#if HAS_MATRIX
    u32 low[4] = {a[0], b[0], a[1], b[1]}, high[4] = {a[2], b[2], a[3], b[3]};
#if IS_F16
    mma_f16(d, low, x.x, x.y);
    mma_f16(d, high, x.z, x.w);
#else
    mma_bf16(d, low, x.x, x.y);
    mma_bf16(d, high, x.z, x.w);
#endif
#else
    mma_f16_8(d, a[0], b[0], x.x);
    mma_f16_8(d, a[1], b[1], x.y);
    mma_f16_8(d, a[2], b[2], x.z);
    mma_f16_8(d, a[3], b[3], x.w);
#endif
}

// Where sixteen bytes of activations lie: of a row's, those of odd rows are exchanged by fours, so that the eight lanes that are
// served together, four of one row and four of the next, meet all banks once.
DEVICE int place(int row, int chunk) { return (row * (STEP / 8) + (chunk ^ 4 * (row & 1))) * 16; }

// The sums of a block's tile, in fragments; false for warps whose part others have taken. `eights` of NT are rows that there are;
// `x_row(r)` is where row r of the activations begins, of whole STEPs; `w` and `v` are what a warp's sixteens of outputs are of.
template <class X>
DEVICE bool tile(u8* shared, X x_row, int eights, const Lines& w, const Lines& v, int cols, float (&acc)[MT][NT][4]) {
    static_assert(STEP % 64 == 0 && RAW % STEP == 0 && PITCH % 16 == 0, "steps are whole blocks");
    const int x_bytes = ROWS * STEP * 2, w_bytes = OUTPUTS * PITCH, first_of_v = OUTPUTS / 2;
    const bool aligned = Aligned<FORMAT>::is && Aligned<SECOND>::is;
    int across = warp() / DOWN;
    // [ACROSS][2] of activations, then [warps][2] of weights.
    u8* xs = shared + across * 2 * x_bytes;
    u8* ws = shared + ACROSS * 2 * x_bytes + warp() * 2 * w_bytes;
    const int subs = RAW / STEP;
    int turns = (cols + RAW - 1) / RAW, steps = (turns + ACROSS - 1) / ACROSS * subs;
#ifdef UP
    auto is_second = [=](int r) { return r >= first_of_v; };
#else
    auto is_second = [=](int) { return false; };
#endif
    // Step `i` begins at this input in this part.
    auto input = [&](int i) { return (i / subs * ACROSS + across) * RAW + i % subs * STEP; };
    // Where the bytes of a row lie, and how far those of this input are from its beginning.
    auto row_at = [&](int r) { return is_second(r) ? v.at(r - first_of_v) : w.at(r); };
    auto further = [&](int r, int k) { return is_second(r) ? bytes_to<SECOND>(k) : bytes_to<FORMAT>(k); };
    auto fetch = [&](int i) {
        int k = input(i);
        if (k >= cols) return;
        u8* to = xs + (i & 1) * x_bytes;
        // Sums of 128 rows leave no registers for the addresses of several copies.
#pragma unroll (MT * NT > 16 ? 1 : 4)
        for (int c = 32 * (warp() % DOWN) + lane(); c < 8 * eights * (STEP / 8); c += 32 * DOWN) {
            int row = c / (STEP / 8), chunk = c % (STEP / 8);
            copy16(to + place(row, chunk), x_row(row) + k + 8 * chunk);
        }
        if (i % subs) return;
        to = ws + (i / subs & 1) * w_bytes;
#pragma unroll (MT * NT > 16 ? 1 : 4)
        for (int c = lane(); c < OUTPUTS * (PITCH / 16); c += 32) {
            int row = c / (PITCH / 16), chunk = c % (PITCH / 16);
            u64 at = (row_at(row) + further(row, k)) / 16 * 16 + 16 * chunk, end = is_second(row) ? v.end() : w.end();
            int size = at >= end ? 0 : (int)min((u64)16, end - at);
            copy16_of(to + row * PITCH + 16 * chunk, (is_second(row) ? v.w : w.w) + (size ? at : 0), size);
        }
    };

#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int t = 0; t < NT; t++)
#pragma unroll
            for (int j = 0; j < 4; j++) acc[m][t][j] = 0.0f;
    int group = lane() / 4, quad = lane() % 4;
    // How far rows begin past sixteen bytes.
    u32 odd[2 * MT];
#pragma unroll
    for (int m = 0; m < 2 * MT; m++) odd[m] = aligned ? 0u : (u32)row_at(8 * m + group) & 15u;
    fetch(0);
    copies_end();
    for (int i = 0; i < steps; i++) {
        if (i + 1 < steps) fetch(i + 1);
        copies_end();
        copied<1>();
        __syncthreads();
        int begin = input(i), within = i % subs * STEP;
        const u8* from = xs + (i & 1) * x_bytes;
        const u8* rows = ws + (i / subs & 1) * w_bytes;
#pragma unroll 1
        for (int slab = 0; slab < STEP && begin + slab < cols; slab += 32) {
            int k = slab + 8 * quad;
            u32 a[MT][2][4];
#pragma unroll
            for (int m = 0; m < 2 * MT; m++) {
                int r = 8 * m + group;
                float e[8];
#pragma unroll
                for (int j = 0; j < 8; j++) e[j] = 0.0f;
                if (begin + k < cols) {
                    u32 off = aligned ? 0u : odd[m] + (u32)further(8 * m, begin - within) & 15u;
                    const u8* row = rows + r * PITCH + off;
                    if (is_second(8 * m)) SECOND::read8(row, within + k, cols - begin + within, e);
                    else FORMAT::read8(row, within + k, cols - begin + within, e);
                }
#pragma unroll
                for (int j = 0; j < 4; j++) a[m / 2][m % 2][j] = pair(e[2 * j], e[2 * j + 1]);
            }
            // Lanes past the last input decoded nothing; products are of whole warps.
            __syncwarp();
#pragma unroll
            for (int t = 0; t < NT; t++) {
                if (t >= eights) continue;
                uint4 b = *(const uint4*)(from + place(8 * t + group, k / 8));
#pragma unroll
                for (int m = 0; m < MT; m++) products(acc[m][t], a[m][0], a[m][1], b);
            }
        }
        __syncthreads();
    }

    // Parts along the inputs, in their order. Fragments of neighbouring threads are neighbours, so that every bank is met once.
#if ACROSS > 1
    float4* sums = (float4*)shared + threadIdx.x % (32 * DOWN);
    const int part = 32 * DOWN * MT * NT;
    if (across > 0)
#pragma unroll
        for (int i = 0; i < MT * NT; i++) {
            const float(&d)[4] = acc[i / NT][i % NT];
            sums[(across - 1) * part + 32 * DOWN * i] = make_float4(d[0], d[1], d[2], d[3]);
        }
    __syncthreads();
    if (across > 0) return false;
    for (int other = 0; other < ACROSS - 1; other++)
#pragma unroll
        for (int i = 0; i < MT * NT; i++) {
            float(&d)[4] = acc[i / NT][i % NT];
            float4 v = sums[other * part + 32 * DOWN * i];
            d[0] += v.x, d[1] += v.y, d[2] += v.z, d[3] += v.w;
        }
#endif
    return true;
}

// The row of a tile, and the output of a warp, that element j of fragment t of this lane is of.
DEVICE int row_of(int t, int j) { return 8 * t + 2 * (lane() % 4) + (j & 1); }
DEVICE int output_of(int m, int j) { return 16 * m + lane() / 4 + 8 * (j >> 1); }

#define HAS_TILE 1
#else
#define HAS_TILE 0
#endif
