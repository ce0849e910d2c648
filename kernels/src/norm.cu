// Norms and sums over the last dimension.
//
// One block a row; the row is read once for the sum and once, from cache, for the result. Cost: 8 bytes and 3 operations an
// element. Threads take every blockDim-th element, so the order of a sum depends on the row's length alone.

KERNEL rms_norm(const float* x, const float* w, float* out, int cols, float eps) {
    after_the_last();
    const float* from = x + (u64)blockIdx.x * cols;
    float* to = out + (u64)blockIdx.x * cols;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) sum += from[i] * from[i];
    float scale = 1.0f / sqrtf(block_sum(sum) / (float)cols + eps);
    for (int i = threadIdx.x; i < cols; i += blockDim.x) to[i] = from[i] * scale * w[i];
}

// sum = residual + x, out = rms_norm(sum); `sum` may be `residual`.
KERNEL add_rms_norm(const float* residual, const float* x, const float* w, float* sum, float* out, int cols, float eps) {
    after_the_last();
    u64 at = (u64)blockIdx.x * cols;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) {
        float v = residual[at + i] + x[at + i];
        sum[at + i] = v;
        squares += v * v;
    }
    float scale = 1.0f / sqrtf(block_sum(squares) / (float)cols + eps);
    for (int i = threadIdx.x; i < cols; i += blockDim.x) out[at + i] = sum[at + i] * scale * w[i];
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
