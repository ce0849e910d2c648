// What comes before attention, in one kernel: queries rotated in place, keys rotated on their way to the cache, values stored.
//
// A block for some heads of a row of the step, queries' first and then keys', or for all of them: threads are pairs, and heads in the second
// extent. Values are shared out among a row's threads. Where a row's key goes hangs on the step alone, so it is found before the kernel before
// is done; an angle's sine and cosine are computed while the pair is on its way. Cost: 8 bytes an element of the queries, 4 and the cache's of
// keys and values; a sine and cosine a pair and each blockDim.y heads; rotated keys are never written but to their page. Defines: ELEMENT,
// one without blocks.

KERNEL __launch_bounds__(256, 4)
    rope_store(TRACED float* q, int heads, const float* k, int kv_heads, int dim, const float* v, int v_cols, const float* inv_freq,
               float factor, int pairs, int neighbours, u8* k_base, u64 k_bytes, u8* v_base, u64 v_bytes, u32 block_len, u32 group,
               const u32* step) {
    Step s = {step};
    u32 row = blockIdx.x, owner = s.owner_soon(row);
    float position = (float)s.ids(1)[row];
    u64 place = NOWHERE;
    if (owner != NOBODY) {
        Span span = s.span(owner);
        place = Pages::of(k_base, k_bytes, block_len, s, group, owner).place(span.past + row - span.start);
    }
    u8* keys = k_base + place * k_bytes;
    u8* values = v_base + place * v_bytes;
    bool kept = place != NOWHERE;
    float frequency = (int)threadIdx.x < pairs ? inv_freq[threadIdx.x] : 0.0f;
    after_the_last();
    int threads = blockDim.x * blockDim.y, one = blockIdx.y * threads + threadIdx.y * blockDim.x + threadIdx.x;
    int first_head = blockIdx.y * blockDim.y + threadIdx.y, apart = gridDim.y * blockDim.y, all = heads + kv_heads;
    float* own = q + (u64)row * heads * dim;
    const float* key = k + (u64)row * kv_heads * dim;
    const float* value = v + (u64)row * v_cols;
    // Asked for with the first pair.
    float stored = one < v_cols ? value[one] : 0.0f;
    for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
        int a = neighbours ? 2 * i : i, b = neighbours ? 2 * i + 1 : i + pairs;
        float x = 0.0f, y = 0.0f;
        auto load = [&](int h) {
            const float* from = h < heads ? own + h * dim : key + (h - heads) * dim;
            if (h < all) {
                x = from[a];
                y = from[b];
            }
        };
        load(first_head);
        Angle by = angle(position, frequency, factor);
#pragma unroll 1
        for (int h = first_head; h < all; h += apart) {
            float u = first(by, x, y), w = second(by, x, y);
            load(h + apart);
            if (h < heads) {
                own[h * dim + a] = u;
                own[h * dim + b] = w;
            } else if (kept) {
                put(ELEMENT(), keys, (h - heads) * dim + a, u);
                put(ELEMENT(), keys, (h - heads) * dim + b, w);
            }
        }
        if (i + (int)blockDim.x < pairs) frequency = inv_freq[i + blockDim.x];
    }
    if (!kept) return;
    // What of a head does not rotate.
#pragma unroll 1
    for (int h = first_head; h < all; h += apart)
#pragma unroll 1
        for (int i = 2 * pairs + threadIdx.x; h >= heads && i < dim; i += blockDim.x)
            put(ELEMENT(), keys, (h - heads) * dim + i, key[(h - heads) * dim + i]);
    if (one < v_cols) put(ELEMENT(), values, one, stored);
#pragma unroll 1
    for (int i = one + threads * gridDim.y; i < v_cols; i += threads * gridDim.y) put(ELEMENT(), values, i, value[i]);
}
