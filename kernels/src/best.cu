// The largest elements of each row with their places, best first: a block a row, a pass over the row for each.
//
// Each pass finds the best of what comes after the last one found, in the order "larger, then lower index", NaN last. So a pass
// keeps no list and marks nothing. Cost: k times the row's bytes, from cache after the first. Right for the few candidates a
// sampler wants.


// Whether (v, i) comes before (w, j).
DEVICE bool before(float v, int i, float w, int j) { return v > w || (v == w && i < j); }

KERNEL best(const float* x, int cols, int k, u32* ids, float* values) {
    after_the_last();
    __shared__ float most[32];
    __shared__ int place[32];
    const float* row = x + (u64)blockIdx.x * cols;
    float last = INF;
    int last_at = -1;
    for (int i = 0; i < k; i++) {
        float found = -INF;
        int at = cols;
        for (int c = threadIdx.x; c < cols; c += blockDim.x) {
            float v = row[c];
            v = v != v ? -INF : v;
            if (before(last, last_at, v, c) && (at == cols || before(v, c, found, at))) {
                found = v;
                at = c;
            }
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
        for (int w = 1; w < warps(); w++)
            if (before(most[w], place[w], found, at)) {
                found = most[w];
                at = place[w];
            }
        if (threadIdx.x == 0) {
            ids[(u64)blockIdx.x * k + i] = (u32)at;
            values[(u64)blockIdx.x * k + i] = at < cols ? row[at] : 0.0f;
        }
        last = found;
        last_at = at;
        __syncthreads();
    }
}
