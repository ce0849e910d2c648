// x · wᵀ by tensor cores, for two rows of x and more: packed weights times activations in HALF (bf16 or f16), summed in f32.
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
// their order. `halves` rounds the activations once for all blocks.
//
// Cost for n rows: the packed weight once for every 8 · NT of them, 2 · n operations a weight; n · cols · 2 bytes of activations, from L2,
// for each 16 · MT · DOWN outputs; decoding, four to six operations a weight for every 8 · NT rows. With 128 rows and 128 outputs a step of
// 64 inputs is 1 M multiplications, 1024 clocks of an A100's multiprocessor, and 8192 weights to decode, some 400 of its other pipes,
// which overlap; 8 kB of fragments for 16 products come from shared memory, half of its bandwidth. With 8 rows it is bound by the
// weight's bytes: eight warps keep 2 · 16 rows of 256 inputs each on their way, 37 kB of q4_k a block.
//
// What is rounded: weights and activations to 8 bits of significand (bf16) or 11 (f16); products are exact, sums in single precision in an
// order set by the sizes. Activations beyond the range of f16 are cut to it. Defines: FORMAT, VECTOR, HALF, DOWN, ACROSS, MT, NT, STEP,
// RAW, PITCH (bytes of a staged row of weights).

#define PLAIN (FORMAT::len == 1)
#define OUTPUTS (16 * MT)
#define ROWS (8 * NT)
#define RAW_BYTES (RAW / FORMAT::len * FORMAT::bytes)
// Rows begin at sixteen bytes wherever RAW inputs do.
#define ALIGNED (PLAIN ? VECTOR : FORMAT::bytes % 16 == 0)

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

// `x`: halves, [n, padded], padded a multiple of STEP; blocks: outputs, rows.
KERNEL __launch_bounds__(32 * DOWN * ACROSS, 2)
    linear_mma(const u16* x, const u8* w, float* y, int n, int out, int cols, int padded, u64 row_bytes) {
    after_the_last();
    static_assert(STEP % 64 == 0 && RAW % STEP == 0 && RAW % FORMAT::len == 0, "steps are whole blocks");
    static_assert(PITCH % 16 == 0 && PITCH >= RAW_BYTES + (ALIGNED ? 0 : 15), "a staged row holds what it must");
    extern __shared__ __align__(16) u8 shared[];
    const int x_bytes = ROWS * STEP * 2, w_bytes = OUTPUTS * PITCH;
    int down = warp() % DOWN, across = warp() / DOWN;
    // [ACROSS][2] of activations, then [warps][2] of weights.
    u8* xs = shared + across * 2 * x_bytes;
    u8* ws = shared + ACROSS * 2 * x_bytes + warp() * 2 * w_bytes;
    int first_row = blockIdx.y * ROWS, first_out = (blockIdx.x * DOWN + down) * OUTPUTS;
    u64 end = (u64)out * row_bytes;
    const int subs = RAW / STEP;
    int turns = (cols + RAW - 1) / RAW, steps = (turns + ACROSS - 1) / ACROSS * subs;

    // Step `i` begins at this input in this part.
    auto input = [&](int i) { return (i / subs * ACROSS + across) * RAW + i % subs * STEP; };
    // Where the bytes of a row lie, and how far those of this input are from its beginning.
    auto row_at = [&](int r) { return (u64)min(first_out + r, out - 1) * row_bytes; };
    auto bytes_to = [](int k) { return (u64)(k / FORMAT::len) * FORMAT::bytes; };
    auto fetch = [&](int i) {
        int k = input(i);
        if (k >= cols) return;
        u8* to = xs + (i & 1) * x_bytes;
        // Sums of 128 rows leave no registers for the addresses of several copies.
#pragma unroll (MT * NT > 16 ? 1 : 4)
        for (int c = 32 * down + lane(); c < ROWS * (STEP / 8); c += 32 * DOWN) {
            int row = c / (STEP / 8), chunk = c % (STEP / 8);
            copy16(to + place(row, chunk), x + (u64)min(first_row + row, n - 1) * padded + k + 8 * chunk);
        }
        if (i % subs) return;
        to = ws + (i / subs & 1) * w_bytes;
#pragma unroll (MT * NT > 16 ? 1 : 4)
        for (int c = lane(); c < OUTPUTS * (PITCH / 16); c += 32) {
            int row = c / (PITCH / 16), chunk = c % (PITCH / 16);
            u64 at = (row_at(row) + bytes_to(k)) / 16 * 16 + 16 * chunk;
            int size = at >= end ? 0 : (int)min((u64)16, end - at);
            copy16_of(to + row * PITCH + 16 * chunk, w + (size ? at : 0), size);
        }
    };

    float acc[MT][NT][4];
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
    for (int m = 0; m < 2 * MT; m++) odd[m] = ALIGNED ? 0u : (u32)row_at(8 * m + group) & 15u;
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
        u32 further = ALIGNED ? 0u : (u32)bytes_to(begin - within);
#pragma unroll 1
        for (int slab = 0; slab < STEP && begin + slab < cols; slab += 32) {
            int k = slab + 8 * quad;
            u32 a[MT][2][4];
#pragma unroll
            for (int m = 0; m < 2 * MT; m++) {
                int r = 8 * m + group;
                float v[8];
#pragma unroll
                for (int j = 0; j < 8; j++) v[j] = 0.0f;
                if (begin + k < cols) {
                    const u8* row = rows + r * PITCH + (odd[m] + further & 15u);
                    FORMAT::read8(row, within + k, cols - begin + within, v);
                }
#pragma unroll
                for (int j = 0; j < 4; j++) a[m / 2][m % 2][j] = pair(v[2 * j], v[2 * j + 1]);
            }
#pragma unroll
            for (int t = 0; t < NT; t++) {
                uint4 b = *(const uint4*)(from + place(8 * t + group, k / 8));
#pragma unroll
                for (int m = 0; m < MT; m++) products(acc[m][t], a[m][0], a[m][1], b);
            }
        }
        __syncthreads();
    }

    // Parts along the inputs, in their order.
#if ACROSS > 1
    float* sums = (float*)shared + (threadIdx.x % (32 * DOWN)) * (MT * NT * 4);
    const int part = 32 * DOWN * MT * NT * 4;
    if (across > 0)
#pragma unroll
        for (int j = 0; j < MT * NT * 4; j++) sums[(across - 1) * part + j] = acc[j / 4 / NT][j / 4 % NT][j % 4];
    __syncthreads();
    if (across > 0) return;
    for (int other = 0; other < ACROSS - 1; other++)
#pragma unroll
        for (int j = 0; j < MT * NT * 4; j++) acc[j / 4 / NT][j / 4 % NT][j % 4] += sums[other * part + j];
#endif
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int t = 0; t < NT; t++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                int row = first_row + 8 * t + 2 * quad + (j & 1), o = first_out + 16 * m + group + 8 * (j >> 1);
                if (row < n && o < out) y[(u64)row * out + o] = acc[m][t][j];
            }
}

#else

// No device without these instructions is asked.
KERNEL linear_mma(const u16*, const u8*, float*, int, int, int, int, u64) { __trap(); }

#endif
