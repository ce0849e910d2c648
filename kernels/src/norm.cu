// Norms and sums over the last dimension.
//
// One block a row; the row is read once for the sum and once, from cache, for the result. Cost: 8 bytes and 3 operations an
// element. Threads take every blockDim-th element, so the order of a sum depends on the row's length alone.

// Where products in integers will read the result, it is rounded while it is in registers (`codes` is then not null): a warp's 32 neighbours
// are a group of `rounding.cu`, and get the codes that the kernel `codes` would give them. 1.25 bytes and some 20 operations an element, where
// that kernel would read 4 bytes more and be a launch of its own. Rows are then whole groups, so that warps go on or stop as one.

// The number of its lane is element `at` of all.
DEVICE void round_group(float v, u64 at, i8* codes, uint2* groups) {
    u32 most = magnitude(v);
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) most = max(most, __shfl_xor_sync(ALL, most, o));
    Rounding r(most);
    int code = r.code(v), sum = code;
    codes[at] = (i8)code;
#pragma unroll
    for (int o = 8; o > 0; o >>= 1) sum += __shfl_xor_sync(ALL, sum, o);
    int all = sum + __shfl_xor_sync(ALL, sum, 16);
    if (lane() == 0) groups[at / 32] = r.kept(sum, all);
}

// Elements of a row that a thread has on their way at a time: alone, each would take the L2's whole latency, and what is stored might be
// what is loaded next, for all that a compiler knows.
enum { AHEAD = 4 };

// A thread's next elements, every blockDim-th from `i` on; zeros past the end.
DEVICE void fetch(const float* row, int i, int cols, float (&v)[AHEAD]) {
#pragma unroll
    for (int j = 0; j < AHEAD; j++) {
        int c = i + j * blockDim.x;
        v[j] = c < cols ? row[c] : 0.0f;
    }
}

// A thread's factors of a row, fetched TURNS turns before they are multiplied. The first are asked for before the kernel before is done, as no
// kernel writes them (`ops/norm.rs` sees to that). Each norm has its own, which a step's other weights push out of the L2 until it comes again,
// and asked for behind the row's sum they would take memory's whole latency once more. Two turns are 8192 columns, which wide
// models have; a layer norm has summands as well, and one is 4096.
template <int TURNS> struct Factors {
    const float* w;
    int cols;
    float held[TURNS + 1][AHEAD];

    METHOD Factors(const float* w, int cols) : w(w), cols(cols) {
#pragma unroll
        for (int t = 0; t < TURNS; t++) fetch(w, threadIdx.x + t * AHEAD * blockDim.x, cols, held[t]);
    }

    // Those of the elements from `i` on, where the call before was for those one turn earlier.
    METHOD void turn(int i, float (&v)[AHEAD]) {
        fetch(w, i + TURNS * AHEAD * blockDim.x, cols, held[TURNS]);
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            v[j] = held[0][j];
#pragma unroll
            for (int t = 0; t < TURNS; t++) held[t][j] = held[t + 1][j];
        }
    }
};

// Blocks of these two have half the registers that others' have: 32 for each of 1024 threads, and none to hold factors in.
#if __CUDA_ARCH__ == 530 || __CUDA_ARCH__ == 620
typedef Factors<0> Scaling, Shifting;
#else
typedef Factors<2> Scaling;
typedef Factors<1> Shifting;
#endif

KERNEL __launch_bounds__(1024)
    rms_norm(TRACED const float* x, const float* w, float* out, i8* codes, uint2* groups, int cols, float eps) {
    Scaling factors(w, cols);
    after_the_last();
    u64 at = (u64)blockIdx.x * cols;
    float sum = 0.0f, v[AHEAD], factor[AHEAD];
    for (int i = threadIdx.x; i < cols; i += AHEAD * blockDim.x) {
        fetch(x + at, i, cols, v);
#pragma unroll
        for (int j = 0; j < AHEAD; j++) sum += v[j] * v[j];
    }
    float scale = 1.0f / sqrtf(block_sum(sum) / (float)cols + eps);
    for (int i = threadIdx.x; i < cols; i += AHEAD * blockDim.x) {
        fetch(x + at, i, cols, v);
        factors.turn(i, factor);
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            int c = i + j * blockDim.x;
            if (c >= cols) continue;
            float y = v[j] * scale * factor[j];
            out[at + c] = y;
            if (codes) round_group(y, at + c, codes, groups);
        }
    }
}

// sum = residual + x, out = rms_norm(sum); `sum` may be `residual`.
KERNEL __launch_bounds__(1024) add_rms_norm(TRACED const float* residual, const float* x, const float* w, float* sum, float* out, i8* codes,
                                            uint2* groups, int cols, float eps) {
    Scaling factors(w, cols);
    after_the_last();
    u64 at = (u64)blockIdx.x * cols;
    float squares = 0.0f, v[AHEAD], more[AHEAD];
    for (int i = threadIdx.x; i < cols; i += AHEAD * blockDim.x) {
        fetch(residual + at, i, cols, v);
        fetch(x + at, i, cols, more);
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            int c = i + j * blockDim.x;
            if (c >= cols) continue;
            v[j] += more[j];
            sum[at + c] = v[j];
            squares += v[j] * v[j];
        }
    }
    float scale = 1.0f / sqrtf(block_sum(squares) / (float)cols + eps);
    for (int i = threadIdx.x; i < cols; i += AHEAD * blockDim.x) {
        fetch(sum + at, i, cols, v);
        factors.turn(i, more);
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            int c = i + j * blockDim.x;
            if (c >= cols) continue;
            float y = v[j] * scale * more[j];
            out[at + c] = y;
            if (codes) round_group(y, at + c, codes, groups);
        }
    }
}

// `b` may be null. The variance is summed of differences: squares of large numbers would cancel.
KERNEL __launch_bounds__(1024) layer_norm(TRACED const float* x, const float* w, const float* b, float* out, int cols, float eps) {
    Shifting factors(w, cols), summands(b, b ? cols : 0);
    after_the_last();
    const float* from = x + (u64)blockIdx.x * cols;
    float* to = out + (u64)blockIdx.x * cols;
    float sum = 0.0f, v[AHEAD], factor[AHEAD], summand[AHEAD];
    for (int i = threadIdx.x; i < cols; i += AHEAD * blockDim.x) {
        fetch(from, i, cols, v);
#pragma unroll
        for (int j = 0; j < AHEAD; j++) sum += v[j];
    }
    float mean = block_sum(sum) / (float)cols;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < cols; i += AHEAD * blockDim.x) {
        fetch(from, i, cols, v);
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            float d = i + j * blockDim.x < cols ? v[j] - mean : 0.0f;
            squares += d * d;
        }
    }
    float scale = 1.0f / sqrtf(block_sum(squares) / (float)cols + eps);
    for (int i = threadIdx.x; i < cols; i += AHEAD * blockDim.x) {
        fetch(from, i, cols, v);
        factors.turn(i, factor);
        summands.turn(i, summand);
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            int c = i + j * blockDim.x;
            if (c >= cols) continue;
            float y = (v[j] - mean) * scale * factor[j];
            to[c] = b ? y + summand[j] : y;
        }
    }
}

// [rows, cols] -> [rows, 1]
KERNEL __launch_bounds__(1024) sum(TRACED const float* x, float* out, int cols) {
    after_the_last();
    const float* from = x + (u64)blockIdx.x * cols;
    float sum = 0.0f, v[AHEAD];
    for (int i = threadIdx.x; i < cols; i += AHEAD * blockDim.x) {
        fetch(from, i, cols, v);
#pragma unroll
        for (int j = 0; j < AHEAD; j++) sum += v[j];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
