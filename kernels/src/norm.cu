// Norms and sums over the last dimension.
//
// One block a row, which is read once: a thread holds quads of neighbours, a block's width apart, in registers between the row's sum and its
// result, and all of them are on their way at once. What is more than that is read again, from cache. Cost: 8 bytes and 3 operations an element.
// Threads and their elements hang on the row's length alone (`ops/norm.rs`), and so does the order of a sum. Of many rows a multiprocessor
// has some blocks at a time, so that one loads while another waits for its sum. Defines: VECTOR, 1 where rows are whole quads.

// Where products in integers will read the result, it is rounded while it is in registers (`codes` is then not null), eight lanes a group of
// `rounding.cu`, to what the kernel `codes` would give, or in tiles. 1.25 bytes and some 10 operations an element, where that kernel would read 4 bytes more
// and be a launch of its own. Rows are then whole groups.

// Quads of a thread in registers: 16 elements, so rows of 8192. Blocks of these two devices have half the registers that others' have, 64 for
// each of 512 threads, and compilers for Kepler use no more; where rows are no whole quads, which is rare, each element has an address and a
// bound of its own to be held as well.
#if !VECTOR
enum { QUADS = 1 };
#elif __CUDA_ARCH__ == 530 || __CUDA_ARCH__ == 620 || __CUDA_ARCH__ < 500
enum { QUADS = 2 };
#else
enum { QUADS = 4 };
#endif

// The column at which a thread's quad begins.
DEVICE int column(int i) { return 4 * (int)(threadIdx.x + i * blockDim.x); }

// Quads of a thread.
struct Held {
    float v[QUADS][4];

    METHOD Held() {}

    METHOD Held(const float* row, int cols) {
#pragma unroll
        for (int i = 0; i < QUADS; i++) fetch(row, column(i), cols, v[i]);
    }
};

// A thread's factors of a row are asked for before the kernel before is done, as no kernel writes them (`ops/norm.rs` sees to that). Each norm
// has its own, which a step's other weights push out of the L2 until it comes again, and asked for behind the row's sum they would take
// memory's whole latency once more.
typedef Held Factors;

// Each product's rounding is said, so that a row has one sum in every kernel.
DEVICE float squares(const float (&v)[4]) { return fmaf(v[3], v[3], fmaf(v[2], v[2], fmaf(v[1], v[1], __fmul_rn(v[0], v[0])))); }

// The result of N quads, of which the first begins at `c` of the row that begins at element `at`. All lanes of a warp come here together.
template <int N>
DEVICE void scaled(const float (&v)[N][4], float scale, const float (&factor)[N][4], float* out, const Rounded& rounded, u64 at, int c, int cols) {
    float y[N][4];
    bool there[N];
    u32 quad[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        int k = c + 4 * i * blockDim.x;
#pragma unroll
        for (int j = 0; j < 4; j++) y[i][j] = v[i][j] * scale * factor[i][j];
        keep(y[i], out + at, k, cols);
        there[i] = k < cols;
        quad[i] = (u32)k / 4;
    }
    if (rounded.wanted()) round_quads(y, there, blockIdx.x, quad, (u32)cols / 4, rounded);
}

// The row's result, of which a thread has `row` and finds the rest at `from`, once its squares are summed. Whole warps go on or stop.
DEVICE void finish(const Held& row, const Factors& factors, const float* from, const float* w, float squared, float* out, const Rounded& rounded,
                   int cols, float eps) {
    u64 at = (u64)blockIdx.x * cols;
    float v[1][4], factor[1][4], scale = 1.0f / sqrtf(block_sum(squared) / (float)cols + eps);
    scaled(row.v, scale, factors.v, out, rounded, at, column(0), cols);
    for (int c = column(QUADS); c - 4 * lane() < cols; c += 4 * blockDim.x) {
        fetch(from + at, c, cols, v[0]);
        fetch(w, c, cols, factor[0]);
        scaled(v, scale, factor, out, rounded, at, c, cols);
    }
    // The rest of the last tile is zeros.
    if (rounded.tiles.pairs && blockIdx.x + 1 == gridDim.x)
        for (u32 i = threadIdx.x; i < (7u - blockIdx.x % 8) * cols / 4; i += blockDim.x) {
            u32 below = gridDim.x + i / ((u32)cols / 4), quad = i % ((u32)cols / 4);
            rounded.tiles.put(below, quad, 0u);
            if (quad % 8 == 0) rounded.tiles.keep(below, quad / 8, make_uint2(0u, 0u));
        }
}

KERNEL __launch_bounds__(512)
    rms_norm(TRACED const float* x, const float* w, float* out, u32* codes, uint2* groups, u32 pairs, int cols, float eps) {
    Factors factors(w, cols);
    after_the_last();
    u64 at = (u64)blockIdx.x * cols;
    Held row(x + at, cols);
    float sum = 0.0f, v[4];
#pragma unroll
    for (int i = 0; i < QUADS; i++) sum += squares(row.v[i]);
    for (int c = column(QUADS); c < cols; c += 4 * blockDim.x) {
        fetch(x + at, c, cols, v);
        sum += squares(v);
    }
    finish(row, factors, x, w, sum, out, Rounded(codes, groups, pairs), cols, eps);
}

// sum = residual + x, out = rms_norm(sum); `sum` may be `residual`.
KERNEL __launch_bounds__(512, 1) add_rms_norm(TRACED const float* residual, const float* x, const float* w, float* sum, float* out, u32* codes,
                                            uint2* groups, u32 pairs, int cols, float eps) {
    Factors factors(w, cols);
    after_the_last();
    u64 at = (u64)blockIdx.x * cols;
    Held row(residual + at, cols), more(x + at, cols);
    float all = 0.0f, v[4], summand[4];
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) row.v[i][j] += more.v[i][j];
        keep(row.v[i], sum + at, column(i), cols);
        all += squares(row.v[i]);
    }
    for (int c = column(QUADS); c < cols; c += 4 * blockDim.x) {
        fetch(residual + at, c, cols, v);
        fetch(x + at, c, cols, summand);
#pragma unroll
        for (int j = 0; j < 4; j++) v[j] += summand[j];
        keep(v, sum + at, c, cols);
        all += squares(v);
    }
    finish(row, factors, sum, w, all, out, Rounded(codes, groups, pairs), cols, eps);
}

// The sum of squares of what four elements from `c` on are off the mean.
DEVICE float deviations(const float (&v)[4], float mean, int c, int cols) {
    float d[4];
#pragma unroll
    for (int j = 0; j < 4; j++) d[j] = c + j < cols ? v[j] - mean : 0.0f;
    return squares(d);
}

DEVICE void centred(const float (&v)[4], float mean, float scale, const float (&factor)[4], const float (&summand)[4], bool shifted, float* to, int c,
                    int cols) {
    float y[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        y[j] = (v[j] - mean) * scale * factor[j];
        if (shifted) y[j] += summand[j];
    }
    keep(y, to, c, cols);
}

// `b` may be null. The variance is summed of differences: squares of large numbers would cancel.
KERNEL __launch_bounds__(512) layer_norm(TRACED const float* x, const float* w, const float* b, float* out, int cols, float eps) {
    Factors factors(w, cols), summands(b, b ? cols : 0);
    after_the_last();
    const float* from = x + (u64)blockIdx.x * cols;
    float* to = out + (u64)blockIdx.x * cols;
    Held row(from, cols);
    float sum = 0.0f, v[4], factor[4], summand[4];
#pragma unroll
    for (int i = 0; i < QUADS; i++) sum += (row.v[i][0] + row.v[i][1]) + (row.v[i][2] + row.v[i][3]);
    for (int c = column(QUADS); c < cols; c += 4 * blockDim.x) {
        fetch(from, c, cols, v);
        sum += (v[0] + v[1]) + (v[2] + v[3]);
    }
    float mean = block_sum(sum) / (float)cols, all = 0.0f;
#pragma unroll
    for (int i = 0; i < QUADS; i++) all += deviations(row.v[i], mean, column(i), cols);
    for (int c = column(QUADS); c < cols; c += 4 * blockDim.x) {
        fetch(from, c, cols, v);
        all += deviations(v, mean, c, cols);
    }
    float scale = 1.0f / sqrtf(block_sum(all) / (float)cols + eps);
#pragma unroll
    for (int i = 0; i < QUADS; i++) centred(row.v[i], mean, scale, factors.v[i], summands.v[i], b, to, column(i), cols);
    for (int c = column(QUADS); c < cols; c += 4 * blockDim.x) {
        fetch(from, c, cols, v);
        fetch(w, c, cols, factor);
        fetch(b, c, b ? cols : 0, summand);
        centred(v, mean, scale, factor, summand, b, to, c, cols);
    }
}

// [rows, cols] -> [rows, 1]
KERNEL __launch_bounds__(512) sum(TRACED const float* x, float* out, int cols) {
    after_the_last();
    const float* from = x + (u64)blockIdx.x * cols;
    Held row(from, cols);
    float sum = 0.0f, v[4];
#pragma unroll
    for (int i = 0; i < QUADS; i++) sum += (row.v[i][0] + row.v[i][1]) + (row.v[i][2] + row.v[i][3]);
    for (int c = column(QUADS); c < cols; c += 4 * blockDim.x) {
        fetch(from, c, cols, v);
        sum += (v[0] + v[1]) + (v[2] + v[3]);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
