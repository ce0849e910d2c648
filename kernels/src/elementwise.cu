// Sums, products and functions of single elements.
//
// Cost: 12 bytes and one operation an element for two full operands, 8 bytes for one; broadcasts read the smaller operand from cache, an
// element a thread in a loop over the grid. Where operands are of one shape they are one long row, and a thread takes two quads of neighbours
// of it, a block's width apart: all that it reads is on its way at once. The output may be one of the inputs, so a compiler would not
// load ahead of a store by itself: each element is read before it is written, by the same thread. Counts are below 2^31 and without a sign: the
// last turn's step, or the last block's quads, would pass the end of an `int`.

// Quads of a thread.
enum { QUADS = 2 };

// Where a thread's quads begin.
DEVICE u32 quad(int i) { return 4u * (blockIdx.x * blockDim.x * QUADS + i * blockDim.x + threadIdx.x); }

// Whether all quads of this block are whole: asked once, so that nothing stands between the loads.
DEVICE bool is_whole(u32 n) { return 4u * (blockIdx.x + 1u) * blockDim.x * QUADS <= n; }

// A thread's elements of `n`, zeros past the end.
DEVICE void fetch(const float* x, u32 n, float (&v)[QUADS][4]) {
    if (is_whole(n)) {
#pragma unroll
        for (int i = 0; i < QUADS; i++) {
            float4 q = *(const float4*)(x + quad(i));
            v[i][0] = q.x, v[i][1] = q.y, v[i][2] = q.z, v[i][3] = q.w;
        }
    } else {
#pragma unroll
        for (int i = 0; i < QUADS; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) v[i][j] = quad(i) + j < n ? x[quad(i) + j] : 0.0f;
    }
}

DEVICE void keep(const float (&v)[QUADS][4], float* out, u32 n) {
    if (is_whole(n)) {
#pragma unroll
        for (int i = 0; i < QUADS; i++) *(float4*)(out + quad(i)) = make_float4(v[i][0], v[i][1], v[i][2], v[i][3]);
    } else {
#pragma unroll
        for (int i = 0; i < QUADS; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (quad(i) + j < n) out[quad(i) + j] = v[i][j];
    }
}

DEVICE u32 place(u32 i, u32 cols, u32 rows_of, u32 cols_of) {
    u32 row = rows_of == 1u ? 0u : i / cols, col = cols_of == 1u ? 0u : i % cols;
    return row * cols_of + col;
}

// f(x, y) for each two elements.
template <class F> DEVICE void combine(const float* x, const float* y, float* out, u32 n, F f) {
    float a[QUADS][4], b[QUADS][4];
    fetch(x, n, a);
    fetch(y, n, b);
#pragma unroll
    for (int i = 0; i < QUADS; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) a[i][j] = f(a[i][j], b[i][j]);
    keep(a, out, n);
}

KERNEL add(TRACED const float* x, const float* y, float* out, u32 n) {
    after_the_last();
    combine(x, y, out, n, [](float a, float b) { return a + b; });
}

KERNEL mul(TRACED const float* x, const float* y, float* out, u32 n) {
    after_the_last();
    combine(x, y, out, n, [](float a, float b) { return a * b; });
}

// Rows and columns of either side may be one.
KERNEL add_broadcast(TRACED const float* x, int x_rows, int x_cols, const float* y, int y_rows, int y_cols, float* out, u32 n, int cols) {
    after_the_last();
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        out[i] = x[place(i, cols, x_rows, x_cols)] + y[place(i, cols, y_rows, y_cols)];
}

KERNEL mul_broadcast(TRACED const float* x, int x_rows, int x_cols, const float* y, int y_rows, int y_cols, float* out, u32 n, int cols) {
    after_the_last();
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        out[i] = x[place(i, cols, x_rows, x_cols)] * y[place(i, cols, y_rows, y_cols)];
}

template <int F> DEVICE void each(float (&v)[QUADS][4]) {
#pragma unroll
    for (int i = 0; i < QUADS; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) v[i][j] = activation(F, v[i][j]);
}

// Which function it is is asked once, and not for each element.
DEVICE void activations(int f, float (&v)[QUADS][4]) {
    switch (f) {
        case 0: return each<0>(v);
        case 1: return each<1>(v);
        case 2: return each<2>(v);
        case 3: return each<3>(v);
        case 4: return each<4>(v);
        case 5: return each<5>(v);
        case 6: return each<6>(v);
        case 7: return each<7>(v);
        case 8: return each<8>(v);
        default: return each<9>(v);
    }
}

KERNEL activate(TRACED const float* x, float* out, u32 n, int f) {
    after_the_last();
    float v[QUADS][4];
    fetch(x, n, v);
    activations(f, v);
    keep(v, out, n);
}

// xIELU with a model's own numbers. `expm1f`, as near 0 an exponential less 1 has no digits left; comparisons, as `fminf` would make the bound
// of what is no number.
KERNEL xielu(TRACED const float* x, float* out, u32 n, float positive, float negative, float linear, float bound) {
    after_the_last();
    float v[QUADS][4];
    fetch(x, n, v);
#pragma unroll
    for (int i = 0; i < QUADS; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float e = v[i][j], curved = positive * e * e;
            if (!(e > 0.0f)) curved = negative * (expm1f(e > bound ? bound : e) - e);
            v[i][j] = curved + linear * e;
        }
    keep(v, out, n);
}

// f(gate) * up
KERNEL gated(TRACED const float* gate, const float* up, float* out, u32 n, int f) {
    after_the_last();
    float v[QUADS][4], factor[QUADS][4];
    fetch(gate, n, v);
    fetch(up, n, factor);
    activations(f, v);
#pragma unroll
    for (int i = 0; i < QUADS; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) v[i][j] *= factor[i][j];
    keep(v, out, n);
}
