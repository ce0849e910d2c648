// What comes before attention, in one kernel: queries rotated in place, keys rotated on their way to the cache, values stored.
//
// A block a row of the step, threads as in `rope.cu`. Cost: 8 bytes an element of the queries, 4 and the cache's of keys and values;
// rotated keys are never written but to their page. Defines: ELEMENT, one without blocks.

KERNEL __launch_bounds__(1024, 1)
    rope_store(TRACED float* q, int heads, const float* k, int kv_heads, int dim, const float* v, int v_cols, const float* inv_freq,
               float factor, int pairs, int neighbours, u8* k_base, u64 k_bytes, u8* v_base, u64 v_bytes, u32 block_len, u32 group,
               const u32* step) {
    after_the_last();
    Step s = {step};
    u32 row = blockIdx.x, owner = s.owner(row);
    u8 *keys = 0, *values = 0;
    if (owner != NOBODY) {
        Span span = s.span(owner);
        u32 t = span.past + row - span.start;
        keys = Pages::of(k_base, k_bytes, block_len, s, group, owner).row(t);
        values = Pages::of(v_base, v_bytes, block_len, s, group, owner).row(t);
    }
    float* own = q + (u64)row * heads * dim;
    const float* key = k + (u64)row * kv_heads * dim;
    const float* value = v + (u64)row * v_cols;
    float position = (float)s.ids(1)[row];
    for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
        Angle by = angle(position, inv_freq[i], factor);
        int a = neighbours ? 2 * i : i, b = neighbours ? 2 * i + 1 : i + pairs;
        for (int h = threadIdx.y; h < heads; h += blockDim.y) {
            float x = own[h * dim + a], y = own[h * dim + b];
            own[h * dim + a] = first(by, x, y);
            own[h * dim + b] = second(by, x, y);
        }
        for (int h = threadIdx.y; keys && h < kv_heads; h += blockDim.y) {
            float x = key[h * dim + a], y = key[h * dim + b];
            put(ELEMENT(), keys, h * dim + a, first(by, x, y));
            put(ELEMENT(), keys, h * dim + b, second(by, x, y));
        }
    }
    // What of a head does not rotate.
    for (int h = threadIdx.y; keys && h < kv_heads; h += blockDim.y)
        for (int i = 2 * pairs + threadIdx.x; i < dim; i += blockDim.x) put(ELEMENT(), keys, h * dim + i, key[h * dim + i]);
    int thread = threadIdx.y * blockDim.x + threadIdx.x, threads = blockDim.x * blockDim.y;
    for (int i = thread; values && i < v_cols; i += threads) put(ELEMENT(), values, i, value[i]);
}
