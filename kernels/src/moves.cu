// Operators that only move values: parts of rows, columns and rows by number, states by slot.
//
// One thread an element, 8 bytes each; what is read and written is contiguous but for the seams.

// `turns` runs of `width` elements, from one stride to another.
KERNEL copy_runs(TRACED const float* from, u64 from_stride, float* to, u64 to_stride, u32 width, int turns) {
    after_the_last();
    for (int turn = blockIdx.y; turn < turns; turn += gridDim.y)
        for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < width; i += gridDim.x * blockDim.x)
            to[turn * to_stride + i] = from[turn * from_stride + i];
}

// Columns in another order, which `order` has a number for each of: to[i] = from[order[i]]. Eight bytes an element and four for its number,
// which rows after the first find in the cache. What is written is contiguous; what is read is wherever it is, within one row.
KERNEL permute_columns(TRACED const float* x, const u32* order, float* out, int cols, int rows) {
    after_the_last();
    for (int row = blockIdx.y; row < rows; row += gridDim.y) {
        const float* from = x + (u64)row * cols;
        float* to = out + (u64)row * cols;
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < cols; i += gridDim.x * blockDim.x) to[i] = from[order[i]];
    }
}

// The rows whose logits are wanted, a block each.
KERNEL __launch_bounds__(1024) outputs(TRACED const float* x, float* out, int width, const u32* step) {
    after_the_last();
    Step s = {step};
    const float* from = x + (u64)s.outputs()[blockIdx.x] * width;
    float* to = out + (u64)blockIdx.x * width;
    for (int i = threadIdx.x; i < width; i += blockDim.x) to[i] = from[i];
}

// A block for each span; zeros where nothing has gone before.
KERNEL __launch_bounds__(1024) read_state(TRACED const float* states, float* out, int len, const u32* step) {
    after_the_last();
    Step s = {step};
    Span span = s.span(blockIdx.x);
    const float* from = states + (u64)span.read_slot * len;
    float* to = out + (u64)blockIdx.x * len;
    for (int i = threadIdx.x; i < len; i += blockDim.x) to[i] = span.past > 0u ? from[i] : 0.0f;
}

KERNEL __launch_bounds__(1024) write_state(TRACED const float* x, float* states, int len, const u32* step) {
    after_the_last();
    Step s = {step};
    const float* from = x + (u64)blockIdx.x * len;
    float* to = states + (u64)s.span(blockIdx.x).write_slot * len;
    for (int i = threadIdx.x; i < len; i += blockDim.x) to[i] = from[i];
}
