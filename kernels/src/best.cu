// The largest elements of each row with their places, best first: a block for each slice of a row, which holds it in registers.
//
// Each pass over the slice finds the best of what comes after the last one found, in the order "larger, then lower index", NaN last. So a
// pass keeps no list and marks nothing. What the slices of a row found, end to end, is a shorter row for another launch: among equals, lower
// places there are still lower indices. A block for the whole of a vocabulary would read it from the L2 in every pass, one load after the
// other: a millisecond for 40 of 150 k. Cost: the row's bytes once, and k passes of some 200 operations a thread, half a microsecond each.

#define THREADS 256
// Elements of a thread, and of a slice: `SLICE` in best.rs.
#define OWN 16
#define SLICE (OWN * THREADS)

// Whether (v, i) comes before (w, j).
DEVICE bool before(float v, int i, float w, int j) { return v > w || (v == w && i < j); }

// x [n, cols] -> ids and values [n, all], slice after slice: of each its k best, or all that it has. `names` [n, cols] is what elements are
// called, or null where that is their place. Blocks: rows, slices.
KERNEL __launch_bounds__(THREADS)
    best(TRACED const float* x, const u32* names, int cols, int k, int all, u32* ids, float* values) {
    after_the_last();
    __shared__ float most[THREADS / 32];
    __shared__ int place[THREADS / 32];
    u64 begin = (u64)blockIdx.x * cols, to = (u64)blockIdx.x * all + (u64)blockIdx.y * k;
    int first = blockIdx.y * SLICE;
    // Past the end there is what comes last: a slice has k elements before that, or its count of passes is cut.
    k = min(k, cols - first);
    float own[OWN];
#pragma unroll
    for (int j = 0; j < OWN; j++) {
        int c = first + THREADS * j + threadIdx.x;
        float v = c < cols ? x[begin + c] : -INF;
        own[j] = v != v ? -INF : v;
    }
    float last = INF;
    int last_at = -1;
    for (int i = 0; i < k; i++) {
        float found = -INF;
        int at = cols;
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            int c = first + THREADS * j + threadIdx.x;
            bool better = before(last, last_at, own[j], c) && before(own[j], c, found, at);
            found = better ? own[j] : found;
            at = better ? c : at;
        }
#pragma unroll
        for (int o = 16; o > 0; o >>= 1) {
            float v = __shfl_xor_sync(ALL, found, o);
            int c = __shfl_xor_sync(ALL, at, o);
            if (before(v, c, found, at)) {
                found = v;
                at = c;
            }
        }
        if (lane() == 0) {
            most[warp()] = found;
            place[warp()] = at;
        }
        __syncthreads();
        found = most[0];
        at = place[0];
#pragma unroll
        for (int w = 1; w < THREADS / 32; w++)
            if (before(most[w], place[w], found, at)) {
                found = most[w];
                at = place[w];
            }
        if (threadIdx.x == 0) ids[to + i] = (u32)at;
        last = found;
        last_at = at;
        __syncthreads();
    }
    // Looked up together, and not one by one in the passes.
    for (int i = threadIdx.x; i < k; i += THREADS) {
        u64 at = begin + ids[to + i];
        values[to + i] = x[at];
        if (names) ids[to + i] = names[at];
    }
}
