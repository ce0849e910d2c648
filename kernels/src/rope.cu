// Rotary position embedding, in place: a block a row of the step, a thread a pair of elements of all heads.
//
// The angle is the single precision product of position and frequency, as models were trained with; sine and cosine reduce it
// exactly. Cost: 8 bytes an element, one sine and cosine a pair and row. `pairs` rotate, the rest of a head stays. PLACES: rows have three places,
// each with frequencies of its own, and the angle is the sum of the products.

#ifndef PLACES
#define PLACES 0
#endif

KERNEL __launch_bounds__(1024)
    rope(TRACED float* x, const float* inv_freq, float factor, int heads, int dim, int pairs, int neighbours,
#if PLACES
         const float* down, const float* across,
#endif
         const u32* step) {
    after_the_last();
    Step s = {step};
#if PLACES
    const u32* at = s.places(blockIdx.x);
    float position = (float)at[0], below = (float)at[1], beside = (float)at[2];
#else
    float position = (float)s.ids(1)[blockIdx.x];
#endif
    float* row = x + (u64)blockIdx.x * heads * dim;
    for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
#if PLACES
        float turned = __fmul_rn(position, inv_freq[i]);
        turned = __fadd_rn(turned, __fmul_rn(below, down[i]));
        Angle by = angle(1.0f, __fadd_rn(turned, __fmul_rn(beside, across[i])), factor);
#else
        Angle by = angle(position, inv_freq[i], factor);
#endif
        int a = neighbours ? 2 * i : i, b = neighbours ? 2 * i + 1 : i + pairs;
        for (int h = threadIdx.y; h < heads; h += blockDim.y) {
            float u = row[h * dim + a], v = row[h * dim + b];
            row[h * dim + a] = first(by, u, v);
            row[h * dim + b] = second(by, u, v);
        }
    }
}
