// Linear attention along each sequence and head: S = exp(g) S, S += k v^T, y = S^T q; if DELTA, by the gated delta rule, which adds what the
// state lacks: S += k (beta (v - S^T k))^T.
//
// A column of the state needs nothing of the others, so a block takes 32 of a head's, a warp eight: a lane holds two of them, and of each every
// eighth quad of the keys' elements. The state is read once and written once, whatever the rows, and stays in registers between. Rows are worked
// on in order. They go through shared memory, ROWS at a time, and the next ones are on their way meanwhile. A sum over a key's elements is that
// of a lane's in order, even ones and odd ones, and then over eight lanes by shuffles, so it has one order.
//
// Cost: 8 K_DIM V_DIM bytes a sequence and head for its state, which is what decoding is bound by; 8 (K_DIM + V_DIM) + 8 bytes a row and head,
// where keys and queries come from cache for all blocks but one; 5 operations an element of the state and row, 7 if DELTA. A token of one sequence
// with 32 heads of 128 by 128 is 128 blocks. Blocks behind those of sequences copy rows of nobody, which are v. Defines: K_DIM, V_DIM, DELTA.

enum {
    KEY_LANES = 8,
    COLUMNS = 32,
    THREADS = 128,
    // Fewer where registers are the state's.
    ROWS = K_DIM > 128 ? 4 : 8,
    BLOCKS = (V_DIM + COLUMNS - 1) / COLUMNS,
    QUADS = (K_DIM + 4 * KEY_LANES - 1) / (4 * KEY_LANES),
    EACH = 4 * QUADS,
    PADDED = EACH * KEY_LANES,
    FETCHED = ROWS * PADDED / THREADS,
    VALUES = ROWS * COLUMNS / THREADS
};

// Rows as they lie in shared memory: keys and queries with zeros behind their last elements.
struct Rows {
    float4 keys[ROWS][PADDED / 4], queries[ROWS][PADDED / 4];
    float values[ROWS][COLUMNS], decay[ROWS], beta[ROWS];
};

// The inputs of a head and its columns, from a sequence's first row on.
struct Inputs {
    const float *q, *k, *v, *g, *beta;
    u64 keys_apart, values_apart;
    int heads, columns;
    u32 len;
};

// What a thread fetches of some rows.
struct Fetched {
    float k[FETCHED], q[FETCHED], v[VALUES], gate;

    METHOD void fetch(const Inputs& in, u32 from) {
#pragma unroll
        for (int i = 0; i < FETCHED; i++) {
            int at = threadIdx.x + i * THREADS, e = at % PADDED;
            u32 row = from + at / PADDED;
            bool there = row < in.len && e < K_DIM;
            k[i] = there ? in.k[row * in.keys_apart + e] : 0.0f;
            q[i] = there ? in.q[row * in.keys_apart + e] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < VALUES; i++) {
            int at = threadIdx.x + i * THREADS, c = at % COLUMNS;
            u32 row = from + at / COLUMNS;
            v[i] = row < in.len && c < in.columns ? in.v[row * in.values_apart + c] : 0.0f;
        }
        u32 row = from + threadIdx.x % ROWS;
        gate = 0.0f;
        if (threadIdx.x < (DELTA ? 2 : 1) * ROWS && row < in.len) gate = (threadIdx.x < ROWS ? in.g : in.beta)[(u64)row * in.heads];
    }

    METHOD void store(Rows& rows) const {
#pragma unroll
        for (int i = 0; i < FETCHED; i++) {
            ((float*)rows.keys)[threadIdx.x + i * THREADS] = k[i];
            ((float*)rows.queries)[threadIdx.x + i * THREADS] = q[i];
        }
#pragma unroll
        for (int i = 0; i < VALUES; i++) ((float*)rows.values)[threadIdx.x + i * THREADS] = v[i];
        if (threadIdx.x < ROWS) rows.decay[threadIdx.x] = expf(gate);
        else if (threadIdx.x < 2 * ROWS) rows.beta[threadIdx.x - ROWS] = gate;
    }
};

// A lane's elements of two columns.
struct Columns {
    float2 v[EACH];

    // The row of the state that an element is of.
    DEVICE int row(int i, int key_lane) { return 4 * (key_lane + i / 4 * KEY_LANES) + i % 4; }

    // `from` is the first of the two columns, of which `there` exist.
    METHOD void load(const float* from, int key_lane, int there) {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const float* at = from + row(i, key_lane) * V_DIM;
            v[i] = make_float2(0.0f, 0.0f);
            if (row(i, key_lane) >= K_DIM) continue;
            if (V_DIM % 2 == 0) {
                if (there > 0) v[i] = *(const float2*)at;
            } else {
                if (there > 0) v[i].x = at[0];
                if (there > 1) v[i].y = at[1];
            }
        }
    }

    METHOD void clear() {
#pragma unroll
        for (int i = 0; i < EACH; i++) v[i] = make_float2(0.0f, 0.0f);
    }

    METHOD void store(float* to, int key_lane, int there) const {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            float* at = to + row(i, key_lane) * V_DIM;
            if (row(i, key_lane) >= K_DIM) continue;
            if (V_DIM % 2 == 0) {
                if (there > 0) *(float2*)at = v[i];
            } else {
                if (there > 0) at[0] = v[i].x;
                if (there > 1) at[1] = v[i].y;
            }
        }
    }

    METHOD void scale(float by) {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            v[i].x *= by;
            v[i].y *= by;
        }
    }

    // A lane's part of the products of both columns with a row.
    METHOD float2 times(const float (&row)[EACH]) const {
        float2 even = make_float2(0.0f, 0.0f), odd = even;
#pragma unroll
        for (int i = 0; i < EACH; i += 2) {
            even.x = fmaf(v[i].x, row[i], even.x);
            even.y = fmaf(v[i].y, row[i], even.y);
            odd.x = fmaf(v[i + 1].x, row[i + 1], odd.x);
            odd.y = fmaf(v[i + 1].y, row[i + 1], odd.y);
        }
        return make_float2(even.x + odd.x, even.y + odd.y);
    }

    METHOD void add(const float (&row)[EACH], float2 by) {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            v[i].x = fmaf(row[i], by.x, v[i].x);
            v[i].y = fmaf(row[i], by.y, v[i].y);
        }
    }
};

// The sum over the lanes that share two columns, in each of them.
DEVICE void over_keys(float2& a) {
#pragma unroll
    for (int o = 4; o < 32; o <<= 1) {
        a.x += __shfl_xor_sync(ALL, a.x, o);
        a.y += __shfl_xor_sync(ALL, a.y, o);
    }
}

// Of two products at a time.
DEVICE void over_keys(float2& a, float2& b) {
#pragma unroll
    for (int o = 4; o < 32; o <<= 1) {
        a.x += __shfl_xor_sync(ALL, a.x, o);
        a.y += __shfl_xor_sync(ALL, a.y, o);
        b.x += __shfl_xor_sync(ALL, b.x, o);
        b.y += __shfl_xor_sync(ALL, b.y, o);
    }
}

DEVICE void elements(const float4* row, int key_lane, float (&to)[EACH]) {
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
        float4 four = row[key_lane + i * KEY_LANES];
        to[4 * i] = four.x; to[4 * i + 1] = four.y; to[4 * i + 2] = four.z; to[4 * i + 3] = four.w;
    }
}

// What a row changes the state by.
struct Change {
    float key[EACH], decay, beta;
    float2 value;

    METHOD void load(const Rows& rows, u32 r, int key_lane, int column) {
        elements(rows.keys[r], key_lane, key);
        decay = rows.decay[r];
        beta = rows.beta[r];
        value = *(const float2*)&rows.values[r][column];
    }
};

// `group` heads read one key head.
KERNEL __launch_bounds__(128, 2) linear_attention(TRACED const float* q, const float* k, const float* v, const float* g, const float* beta, float* states,
                                          float* y, int heads, int group, const u32* step) {
    __shared__ Rows rows[2];
    Step s = {step};
    bool owned = blockIdx.x < s.spans();
    Span span = {};
    span.start = s.rows() - gridDim.x + blockIdx.x;
    if (owned) span = s.span(blockIdx.x);
    int head = blockIdx.y / BLOCKS, begin = blockIdx.y % BLOCKS * COLUMNS;
    after_the_last();
    u64 first = (u64)span.start * heads + head, key = (u64)span.start * (heads / group) + head / group;
    Inputs in = {q + key * K_DIM, k + key * K_DIM, v + first * V_DIM + begin, g + first, beta + first, (u64)(heads / group) * K_DIM,
                 (u64)heads * V_DIM, heads, V_DIM - begin, span.len};
    float* to = y + first * V_DIM + begin;
    if (!owned) {
        if (threadIdx.x < COLUMNS && (int)threadIdx.x < in.columns) to[threadIdx.x] = in.v[threadIdx.x];
        return;
    }
    Fetched next;
    next.fetch(in, 0);
    int key_lane = lane() / 4, column = warp() * 8 + lane() % 4 * 2, there = in.columns - column;
    u64 width = (u64)heads * K_DIM * V_DIM, state = (u64)head * K_DIM * V_DIM + begin + column;
    Columns own;
    own.clear();
    if (span.past) own.load(states + span.read_slot * width + state, key_lane, there);
    next.store(rows[0]);
    __syncthreads();
    to += column;
    auto result = [&](float2 sum) {
        if (key_lane == 0 && there > 0) to[0] = sum.x;
        if (key_lane == 0 && there > 1) to[1] = sum.y;
        to += in.values_apart;
    };
    // A row's result is summed over lanes together with what the next row finds: either waits for its shuffles.
    float2 sum = make_float2(0.0f, 0.0f);
    Change change;
#pragma unroll 1
    for (u32 from = 0; from < span.len; from += ROWS) {
        bool more = span.len - from > ROWS;
        if (more) next.fetch(in, from + ROWS);
        const Rows& now = rows[from / ROWS % 2];
        u32 n = more ? ROWS : span.len - from;
        change.load(now, 0, key_lane, column);
#pragma unroll 1
        for (u32 r = 0; r < n; r++) {
            float query[EACH];
            elements(now.queries[r], key_lane, query);
            own.scale(change.decay);
            float2 by = change.value;
            if (DELTA) {
                float2 found = own.times(change.key);
                over_keys(found, sum);
                by = make_float2(change.beta * (by.x - found.x), change.beta * (by.y - found.y));
            } else {
                over_keys(sum);
            }
            if (from + r) result(sum);
            own.add(change.key, by);
            change.load(now, r + 1 < ROWS ? r + 1 : r, key_lane, column);
            sum = own.times(query);
        }
        if (more) next.store(rows[(from / ROWS + 1) % 2]);
        __syncthreads();
    }
    if (span.len) {
        over_keys(sum);
        result(sum);
    }
    own.store(states + span.write_slot * width + state, key_lane, there);
}
