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

KERNEL rms_norm(const float* x, const float* w, float* out, i8* codes, uint2* groups, int cols, float eps) {
    after_the_last();
    u64 at = (u64)blockIdx.x * cols;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) sum += x[at + i] * x[at + i];
    float scale = 1.0f / sqrtf(block_sum(sum) / (float)cols + eps);
    for (int i = threadIdx.x; i < cols; i += blockDim.x) {
        float v = x[at + i] * scale * w[i];
        out[at + i] = v;
        if (codes) round_group(v, at + i, codes, groups);
    }
}

// sum = residual + x, out = rms_norm(sum); `sum` may be `residual`.
KERNEL add_rms_norm(const float* residual, const float* x, const float* w, float* sum, float* out, i8* codes, uint2* groups,
                    int cols, float eps) {
    after_the_last();
    u64 at = (u64)blockIdx.x * cols;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) {
        float v = residual[at + i] + x[at + i];
        sum[at + i] = v;
        squares += v * v;
    }
    float scale = 1.0f / sqrtf(block_sum(squares) / (float)cols + eps);
    for (int i = threadIdx.x; i < cols; i += blockDim.x) {
        float v = sum[at + i] * scale * w[i];
        out[at + i] = v;
        if (codes) round_group(v, at + i, codes, groups);
    }
}

// `b` may be null. The variance is summed of differences: squares of large numbers would cancel.
KERNEL layer_norm(const float* x, const float* w, const float* b, float* out, int cols, float eps) {
    after_the_last();
    const float* from = x + (u64)blockIdx.x * cols;
    float* to = out + (u64)blockIdx.x * cols;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) sum += from[i];
    float mean = block_sum(sum) / (float)cols;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) {
        float d = from[i] - mean;
        squares += d * d;
    }
    float scale = 1.0f / sqrtf(block_sum(squares) / (float)cols + eps);
    for (int i = threadIdx.x; i < cols; i += blockDim.x) {
        float v = (from[i] - mean) * scale * w[i];
        to[i] = b ? v + b[i] : v;
    }
}

// [rows, cols] -> [rows, 1]
KERNEL sum(const float* x, float* out, int cols) {
    after_the_last();
    const float* from = x + (u64)blockIdx.x * cols;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) sum += from[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
