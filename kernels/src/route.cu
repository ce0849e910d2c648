// Choosing experts: a warp for each row.
//
// Scores stand in shared memory; the best are found one after the other, each in one pass with a tree over the lanes. Ties go to
// the lower index and NaN counts as the least, so the order of lanes never shows. Cost: 4 bytes an expert, (k + groups) passes
// over the experts. Shared memory: 9 bytes an expert and 5 a group. A sparse mixer passes once more over the experts for each that is
// chosen: of those left, what is near it makes its share.

// Larger first, lower index first; `taken` marks what is out. Every lane gets the index, or -1.
DEVICE int best_of(const float* value, const u8* taken, int n) {
    float most = -INF;
    int at = -1;
    for (int i = lane(); i < n; i += 32) {
        if (taken[i]) continue;
        float v = value[i] != value[i] ? -INF : value[i];
        if (at < 0 || v > most) {
            most = v;
            at = i;
        }
    }
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
        float v = __shfl_xor_sync(ALL, most, o);
        int i = __shfl_xor_sync(ALL, at, o);
        if (i >= 0 && (at < 0 || v > most || (v == most && i < at))) {
            most = v;
            at = i;
        }
    }
    return at;
}

// `bias` may be null, and `within` is below 0 where this is no sparse mixer. Shared: scores, choices, worth of groups; taken experts, taken groups.
KERNEL route(TRACED const float* logits, const float* bias, u32* ids, float* weights, int experts, int k, int sigmoid, float within,
             int normalise, float factor, int groups, int top, int group_best) {
    after_the_last();
    extern __shared__ float shared[];
    float *score = shared, *choice = score + experts, *worth = choice + experts;
    u8 *taken = (u8*)(worth + groups), *closed = taken + experts;
    const float* row = logits + (u64)blockIdx.x * experts;

    float most = -INF;
    for (int e = lane(); e < experts; e += 32) most = fmaxf(most, row[e]);
    most = warp_max(most);
    float total = 0.0f;
    for (int e = lane(); e < experts; e += 32) {
        float v = sigmoid ? 1.0f / (1.0f + expf(-row[e])) : expf(row[e] - most);
        score[e] = v;
        total += v;
    }
    total = warp_sum(total);
    for (int e = lane(); e < experts; e += 32) {
        float v = sigmoid ? score[e] : score[e] / total;
        score[e] = v;
        choice[e] = within >= 0.0f ? row[e] : bias ? v + bias[e] : v;
        taken[e] = 0;
    }
    for (int g = lane(); g < groups; g += 32) closed[g] = 0;
    __syncwarp();

    // Groups are worth the sum of their best; the chosen ones are marked, the experts of the others taken out.
    int size = experts / groups;
    if (top < groups) {
        for (int g = 0; g < groups; g++) {
            float sum = 0.0f;
            for (int i = 0; i < min(group_best, size); i++) {
                int e = best_of(choice + g * size, taken + g * size, size);
                __syncwarp();
                if (e >= 0) {
                    sum += choice[g * size + e];
                    if (lane() == 0) taken[g * size + e] = 1;
                }
                __syncwarp();
            }
            if (lane() == 0) worth[g] = sum;
        }
        __syncwarp();
        for (int i = 0; i < top; i++) {
            int g = best_of(worth, closed, groups);
            __syncwarp();
            if (lane() == 0 && g >= 0) closed[g] = 1;
            __syncwarp();
        }
        for (int e = lane(); e < experts; e += 32) taken[e] = !closed[e / size];
        __syncwarp();
    }

    float chosen = 0.0f;
    for (int i = 0; i < k; i++) {
        int e = best_of(choice, taken, experts);
        __syncwarp();
        if (within >= 0.0f && e >= 0) {
            float best = choice[e], near = 0.0f;
            for (int o = lane(); o < experts; o += 32) {
                float apart = (best - choice[o]) / fmaxf(fabsf(choice[o]), best);
                // What is no number is near.
                if (!taken[o] && !(apart > within)) near += expf(choice[o] - best);
            }
            near = warp_sum(near);
            if (lane() == 0) score[e] = 1.0f / near;
            __syncwarp();
        }
        if (lane() == 0) {
            ids[(u64)blockIdx.x * k + i] = (u32)e;
            if (e >= 0) taken[e] = 1;
        }
        if (e >= 0) chosen += score[e];
        __syncwarp();
    }
    // Scores that all underflow weigh nothing; they are no reason for NaN.
    float whole = normalise ? fmaxf(chosen, 1.17549435e-38f) : 1.0f;
    if (chosen != chosen && normalise) whole = chosen;
    __syncwarp();
    for (int i = lane(); i < k; i += 32) {
        u32 e = ids[(u64)blockIdx.x * k + i];
        weights[(u64)blockIdx.x * k + i] = score[e] / whole * factor;
    }
}
