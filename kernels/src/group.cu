// Choices of experts in the experts' order, so that all rows of one expert are multiplied together; and what came of them, summed for each row.
//
// `group` sorts by counting. A block has an expert and reads all choices twice: to count those of every expert, in shared memory, which says
// where its own begin; and to write its own in the order they were made, which warps keep as each has a stretch of them. No block waits for
// another, and nothing hangs on who comes first: the same choices give the same order. Then it cuts its choices into tiles. How many tiles
// there are only the device knows; the list is as long as it can be, and what is left of it is tiles of nothing.
// Cost: 8 bytes a choice and expert, from L2, and 4 written; some 3 operations for each of those bytes. Shared memory: 4 bytes an expert.
//
// `combine` sums what the experts made of a row in the order they were chosen. Cost: 4 bytes an element and choice, 2 operations.

// ids [choices] -> order [choices]; tiles [all]: an expert, where its rows begin in the order, how many (at most `rows`), and 0.
KERNEL group(TRACED const u32* ids, u32* order, int4* tiles, int choices, int experts, int rows, int all) {
    after_the_last();
    extern __shared__ u32 counts[];
    __shared__ u32 found[32];
    int own = blockIdx.x;
    for (int e = threadIdx.x; e < experts; e += blockDim.x) counts[e] = 0u;
    __syncthreads();
    int stretch = (choices + blockDim.x - 1) / blockDim.x * 32, begin = warp() * stretch;
    int end = min(begin + stretch, choices);
    u32 mine = 0u;
    for (int i = begin; i < end; i += 32) {
        bool there = i + lane() < end;
        int e = there ? (int)ids[i + lane()] : experts;
        if (there) atomicAdd(&counts[e], 1u);
        mine += __popc(__ballot_sync(ALL, e == own));
    }
    if (lane() == 0) found[warp()] = mine;
    __syncthreads();

    // Choices and tiles of the experts before, in every warp alike.
    u32 first = 0u, tile = 0u;
    for (int e = lane(); e < own; e += 32) {
        first += counts[e];
        tile += (counts[e] + rows - 1) / rows;
    }
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
        first += __shfl_xor_sync(ALL, first, o);
        tile += __shfl_xor_sync(ALL, tile, o);
    }
    u32 to = first;
    for (int w = 0; w < warp(); w++) to += found[w];
    for (int i = begin; i < end; i += 32) {
        bool is = i + lane() < end && (int)ids[i + lane()] == own;
        u32 which = __ballot_sync(ALL, is);
        if (is) order[to + __popc(which & ((1u << lane()) - 1u))] = (u32)(i + lane());
        to += __popc(which);
    }
    int count = (int)counts[own], last = (int)tile + (count + rows - 1) / rows;
    for (int t = (int)tile + threadIdx.x; t < last; t += blockDim.x) {
        int skipped = (t - (int)tile) * rows;
        tiles[t] = make_int4(own, (int)first + skipped, min(rows, count - skipped), 0);
    }
    if (own == experts - 1)
        for (int t = last + threadIdx.x; t < all; t += blockDim.x) tiles[t] = make_int4(0, 0, 0, 0);
}

// parts [n, k, cols], weights [n, k] -> y [n, cols]; a block a row.
KERNEL __launch_bounds__(1024) combine(TRACED const float* parts, const float* weights, float* y, int k, int cols) {
    after_the_last();
    u64 row = blockIdx.x;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        float sum = 0.0f;
        for (u64 i = row * k; i < (row + 1) * k; i++) sum = fmaf(weights[i], parts[i * cols + c], sum);
        y[row * cols + c] = sum;
    }
}
