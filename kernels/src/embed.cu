// Rows of a table, decoded: one block a row of the step.
//
// Cost: the packed row and 4 bytes an element written. Where columns are in another order (act-order), `order` says where each belongs, 4
// bytes more an element; else it is null. Defines: FORMAT, VECTOR, KIND (which of a row's numbers looks up).

KERNEL __launch_bounds__(1024) embed(TRACED const u8* table, u64 row_bytes, const u32* order, float* out, int cols, const u32* step) {
    after_the_last();
    Step s = {step};
    const u8* row = table + (u64)s.ids(KIND)[blockIdx.x] * row_bytes;
    float* to = out + (u64)blockIdx.x * cols;
    for (int i = 8 * threadIdx.x; i < cols; i += 8 * blockDim.x) {
        float v[8];
        FORMAT::read8(row, i, cols, v);
#pragma unroll
        for (int j = 0; j < 8; j++)
            if (i + j < cols) to[order ? order[i + j] : (u32)(i + j)] = v[j];
    }
}
