// Depthwise convolution along each sequence: y[t] = sum over j of w[j] x[t + j - (WIDTH - 1)], channel by channel; before a sequence's rows lie those
// that its state kept, or zeros.
//
// A thread for a channel and ROWS rows of the step, whoever's they are: its rows are on their way together, and what lies before each is in
// registers, from the row before or, where a sequence or the thread begins, from the state and the rows of other threads. The thread that has a
// sequence's last row writes the state. Rows of nobody are copied. Cost: a row is read once from memory and (WIDTH - 1) / ROWS times more from
// cache, and written once: 8 bytes and 2 WIDTH operations an element; 8 (WIDTH - 1) bytes a channel and sequence for its state, and 4 WIDTH a channel
// for the factors, which no kernel writes: they are asked for before the kernel before is done, and so is where the rows belong. Blocks behind
// those, if there are any, copy states of sequences without rows. Defines: WIDTH, ROWS.

enum { KEPT = WIDTH - 1, HELD = WIDTH > 1 ? WIDTH - 1 : 1 };

// What lies in channel `c` before row `i` of a sequence.
struct Window {
    float v[HELD];

    METHOD void look(const float* x, const float* states, const Span& span, u32 i, int dim, int c) {
#pragma unroll
        for (int k = 0; k < KEPT; k++) {
            v[k] = 0.0f;
            if (i + k + 1 >= WIDTH)
                v[k] = x[(u64)(span.start + (i + k - KEPT)) * dim + c];
            else if (span.past)
                v[k] = states[((u64)span.read_slot * KEPT + i + k) * dim + c];
        }
    }

    METHOD void keep(float* states, const Span& span, int dim, int c) const {
#pragma unroll
        for (int k = 0; k < KEPT; k++) states[((u64)span.write_slot * KEPT + k) * dim + c] = v[k];
    }

    // The sum for the row that has `next`, which is then the last of what lies before the one after.
    METHOD float on(const float (&factor)[WIDTH], float next) {
        float sum = __fmul_rn(factor[0], KEPT ? v[0] : next);
#pragma unroll
        for (int k = 1; k < KEPT; k++) sum = fmaf(factor[k], v[k], sum);
        if (KEPT) sum = fmaf(factor[KEPT], next, sum);
#pragma unroll
        for (int k = 1; k < KEPT; k++) v[k - 1] = v[k];
        v[HELD - 1] = next;
        return sum;
    }
};

KERNEL __launch_bounds__(128) causal_conv(TRACED const float* x, const float* w, float* states, float* y, int dim, const u32* step) {
    Step s = {step};
    u32 rows = s.rows(), pieces = (rows + ROWS - 1) / ROWS, first = blockIdx.x * ROWS, owner = NOBODY;
    int c = blockIdx.y * blockDim.x + threadIdx.x;
    if (first < rows) owner = s.owner_soon(first);
    Span span = {};
    if (blockIdx.x >= pieces) span = s.span(blockIdx.x - pieces);
    else if (owner != NOBODY) span = s.span(owner);
    float factor[WIDTH];
#pragma unroll
    for (int k = 0; k < WIDTH; k++) factor[k] = c < dim ? w[(u64)k * dim + c] : 0.0f;
    after_the_last();
    if (c >= dim) return;
    Window before;
    if (blockIdx.x >= pieces) {
        if (span.len) return;
        before.look(x, states, span, 0, dim, c);
        before.keep(states, span, dim, c);
        return;
    }
    float next[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) next[r] = first + r < rows ? x[(u64)(first + r) * dim + c] : 0.0f;
    if (owner != NOBODY) before.look(x, states, span, first - span.start, dim, c);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        u32 row = first + r;
        if (row >= rows) return;
        if (r && s.owner(row) != owner) {
            owner = s.owner(row);
            if (owner != NOBODY) {
                span = s.span(owner);
                before.look(x, states, span, 0, dim, c);
            }
        }
        float sum = owner == NOBODY ? next[r] : before.on(factor, next[r]);
        y[(u64)row * dim + c] = sum;
        if (owner != NOBODY && row + 1 == span.start + span.len) before.keep(states, span, dim, c);
    }
}
