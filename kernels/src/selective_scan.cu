// The scan of a selective state space, channel by channel along each sequence: h = exp(dt a) h + (dt x) b, y = h c.
//
// LANES neighbours share a channel of a sequence and hold its state in registers, in quads, the lanes' in turn: a state is read once and written
// once, whatever the rows. A row's sum is that of a lane's elements in order and then by shuffles, so it has one order. The next rows' inputs are
// on their way while rows are worked on. Cost: 12 bytes a channel and row, 8 M more a row for `b` and `c`, which all channels read (from
// cache), 8 M a channel and sequence for its state and 4 M for `a`; an exponential and 5 operations an element of the state and row. In
// decoding it is bound by the states' bytes. Blocks behind those of sequences are for rows of nobody, which are dt x. Defines: M, LANES.

enum {
    CHANNELS = 128 / LANES,
    QUADS = ((M + 3) / 4 + LANES - 1) / LANES,
    // Rows whose inputs a thread fetches at a time, which it holds twice.
    ROWS = QUADS == 1 ? 4 : QUADS == 2 ? 2 : 1
};

// A lane's elements of M numbers; 0 beyond them.
struct Part {
    float v[QUADS][4];

    METHOD void load(const float* from, int part) {
#pragma unroll
        for (int q = 0; q < QUADS; q++) {
            int i = 4 * (part + q * LANES);
            if (M % 4 == 0) {
                float4 four = i < M ? *(const float4*)(from + i) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                v[q][0] = four.x; v[q][1] = four.y; v[q][2] = four.z; v[q][3] = four.w;
            } else {
#pragma unroll
                for (int j = 0; j < 4; j++) v[q][j] = i + j < M ? from[i + j] : 0.0f;
            }
        }
    }

    METHOD void clear() {
#pragma unroll
        for (int q = 0; q < QUADS; q++)
#pragma unroll
            for (int j = 0; j < 4; j++) v[q][j] = 0.0f;
    }

    METHOD void store(float* to, int part) const {
#pragma unroll
        for (int q = 0; q < QUADS; q++) {
            int i = 4 * (part + q * LANES);
            if (M % 4 == 0) {
                if (i < M) *(float4*)(to + i) = make_float4(v[q][0], v[q][1], v[q][2], v[q][3]);
            } else {
#pragma unroll
                for (int j = 0; j < 4; j++)
                    if (i + j < M) to[i + j] = v[q][j];
            }
        }
    }
};

// What a row gives a channel.
struct Input {
    float x, dt;
    Part b, c;
};

KERNEL __launch_bounds__(128) selective_scan(TRACED const float* x, const float* dt, const float* a, const float* b, const float* c, float* states,
                                             float* y, int dim, const u32* step) {
    Step s = {step};
    bool owned = blockIdx.x < s.spans();
    u32 rows = s.rows();
    Span span = {};
    if (owned) span = s.span(blockIdx.x);
    int part = threadIdx.x % LANES, own = blockIdx.y * CHANNELS + threadIdx.x / LANES;
    after_the_last();
    // Lanes beyond the last channel do as it does, and keep nothing.
    int channel = own < dim ? own : dim - 1;
    bool first = part == 0 && own < dim;
    if (!owned) {
        u64 at = (u64)(rows - gridDim.x + blockIdx.x) * dim + channel;
        if (first) y[at] = dt[at] * x[at];
        return;
    }
    Input now[ROWS], next[ROWS];
    auto fetch = [&](u32 from) {
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            if (from + r < span.len) {
                u64 row = (u64)span.start + from + r;
                next[r].x = x[row * dim + channel];
                next[r].dt = dt[row * dim + channel];
                next[r].b.load(b + row * M, part);
                next[r].c.load(c + row * M, part);
            }
    };
    fetch(0);
    Part h, decay;
    h.clear();
    u64 width = (u64)dim * M, state = (u64)channel * M;
    if (span.past) h.load(states + span.read_slot * width + state, part);
    decay.load(a + state, part);
#pragma unroll 1
    for (u32 from = 0; from < span.len; from += ROWS) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) now[r] = next[r];
        fetch(from + ROWS);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (from + r >= span.len) break;
            float dtx = now[r].dt * now[r].x, sum = 0.0f;
#pragma unroll
            for (int q = 0; q < QUADS; q++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    h.v[q][j] = fmaf(expf(decay.v[q][j] * now[r].dt), h.v[q][j], dtx * now[r].b.v[q][j]);
                    sum = fmaf(h.v[q][j], now[r].c.v[q][j], sum);
                }
#pragma unroll
            for (int o = LANES / 2; o > 0; o >>= 1) sum += __shfl_xor_sync(ALL, sum, o);
            if (first) y[((u64)span.start + from + r) * dim + channel] = sum;
        }
    }
    if (own < dim) h.store(states + span.write_slot * width + state, part);
}
