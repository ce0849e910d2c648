// The paged cache: what a step appends, and what a layer holds, in single precision.
//
// Rows are stored in the cache's element type, rounded to nearest. Cost: 4 bytes and the element's an element. Defines: ELEMENT,
// VECTOR; PACKED where elements come in blocks of 32 with a scale.

#ifdef PACKED
// A warp for each block: a lane an element, the largest by shuffles.
DEVICE void store_row(u8* to, const float* from, int dim) {
    for (int b = warp(); b < dim / 32; b += warps()) {
        float v = from[32 * b + lane()];
        // By their bits, of which those of no number are the largest: the scale then is none either, and with it the block.
        u32 largest = __float_as_uint(fabsf(v));
#pragma unroll
        for (int o = 16; o > 0; o >>= 1) largest = max(largest, __shfl_xor_sync(ALL, largest, o));
        float d = __uint_as_float(largest) / 127.0f;
        float inverse = d == 0.0f ? 0.0f : 1.0f / d;
        u8* block = to + (u64)b * 34;
        if (lane() == 0) *(u16*)block = float_to_half(d);
        block[2 + lane()] = (u8)(i8)fminf(fmaxf(roundf(v * inverse), -128.0f), 127.0f);
    }
}
#else
DEVICE void store_row(u8* to, const float* from, int dim) {
    for (int i = threadIdx.x; i < dim; i += blockDim.x) put(ELEMENT(), to, i, from[i]);
}
#endif

// Appends one side, keys or values: a block a row of the step.
KERNEL __launch_bounds__(1024) store(TRACED const float* x, int dim, u8* base, u64 row_bytes, u32 block_len, u32 group, const u32* step) {
    after_the_last();
    Step s = {step};
    u32 row = blockIdx.x, owner = s.owner(row);
    if (owner == NOBODY) return;
    Span span = s.span(owner);
    Pages pages = Pages::of(base, row_bytes, block_len, s, group, owner);
    u8* to = pages.row(span.past + row - span.start);
    if (to) store_row(to, x + (u64)row * dim, dim);
}

// What a layer holds of the contexts: blocks share a span's tokens.
KERNEL __launch_bounds__(1024) gather(TRACED u8* base, u64 row_bytes, u32 block_len, u32 group, float* out, int dim, const u32* step) {
    after_the_last();
    Step s = {step};
    for (u32 i = blockIdx.y; i < s.spans(); i += gridDim.y) {
        Span span = s.span(i);
        Pages pages = Pages::of(base, row_bytes, block_len, s, group, i);
        for (u32 t = blockIdx.x; t < span.context(); t += gridDim.x) {
            const u8* from = pages.row(t);
            float* to = out + (u64)(span.context0 + t) * dim;
            for (int j = threadIdx.x; j < dim; j += blockDim.x) to[j] = from ? ELEMENT::at(from, j) : 0.0f;
        }
    }
}
