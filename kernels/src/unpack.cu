// Rows of a packed weight as halves, for products by cuBLAS: a slab of them, which stays in the L2 until it is multiplied.
//
// A block has a row, a thread eight neighbouring inputs of it at a time: a warp reads 256 of them side by side and writes 512 bytes in
// whole lines. Decoded in single precision and rounded once, as `linear_mma` does, so that both multiply the same numbers.
//
// Cost an element: its packed bytes from memory and 2 bytes to the L2; four to six operations and the conversion of half a pair. An H100
// decodes some 3.5e12 elements a second by its operations and as many by what its L2 takes: q4_k at 2 TB/s from memory, so neither
// alone is the bound. Nothing is kept in shared memory: groups of eight that share packed bytes are read by one warp, from L1.
// Defines: FORMAT, VECTOR, HALF.

// [rows, row_bytes] -> [rows, padded], a block a row; padded is a multiple of eight, with zeros past `cols`.
KERNEL unpack(TRACED const u8* w, u16* to, int cols, int padded, u64 row_bytes) {
    after_the_last();
    const u8* row = w + (u64)blockIdx.x * row_bytes;
    uint4* out = (uint4*)(to + (u64)blockIdx.x * padded);
    for (int g = threadIdx.x; g < padded / 8; g += blockDim.x) {
        float v[8];
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = 0.0f;
        if (8 * g < cols) FORMAT::read8(row, 8 * g, cols, v);
        out[g] = make_uint4(pair(v[0], v[1]), pair(v[2], v[3]), pair(v[4], v[5]), pair(v[6], v[7]));
    }
}
