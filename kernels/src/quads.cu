// Rows by quads of neighbours: sixteen bytes a load and a store. Cost: what is moved, and a bound a quad. Defines: VECTOR, 1 where rows are whole
// quads, so that they begin at sixteen bytes.

// Four of a row's elements from `c` on, zeros past the end.
DEVICE void fetch(const float* row, int c, int cols, float (&v)[4]) {
#if VECTOR
    float4 all = c < cols ? *(const float4*)(row + c) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    v[0] = all.x, v[1] = all.y, v[2] = all.z, v[3] = all.w;
#else
#pragma unroll
    for (int j = 0; j < 4; j++) v[j] = c + j < cols ? row[c + j] : 0.0f;
#endif
}

DEVICE void keep(const float (&v)[4], float* row, int c, int cols) {
#if VECTOR
    if (c < cols) *(float4*)(row + c) = make_float4(v[0], v[1], v[2], v[3]);
#else
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (c + j < cols) row[c + j] = v[j];
#endif
}
