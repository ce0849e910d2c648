// x · wᵀ for few rows of x: a warp for each output, lanes along the input.
//
// Each weight is read and decoded once for up to ROWS rows of x, which come from cache. Cost: the packed weight's bytes once for
// every ROWS rows; 2 · ROWS operations a weight beside its decoding. A lane sums every 256th eight of the row, then the lanes
// are summed in a tree: an order set by the row's length. More rows are done in slices of ROWS where tiles would leave most of a device
// idle (`ops/linear.rs`), with the bits that each would have alone.
//
// Up to three weights of one format and one input in a launch, as queries, keys and values are: the blocks of the first, then those of the
// second and the third. `linear_gated_few` does two weights of one shape at once, so that x is read once and neither product is ever
// written. Of halves and one row, the first 1024 inputs are on their way before the kernel before is done (no kernel of a step writes a
// weight), and as many stay so. Defines: FORMAT, VECTOR, ROWS; UP, the format of the second weight.

#ifndef UP
#define UP FORMAT
#endif

DEVICE void eight_of(const float* x, int i, int cols, float (&v)[8]) { f32::read8((const u8*)x, i, cols, v); }

// Adds the products of eight weights with eight inputs.
DEVICE void multiply(const float (&a)[8], const float (&b)[8], float& acc) {
#pragma unroll
    for (int j = 0; j < 8; j++) acc = fmaf(a[j], b[j], acc);
}

// Rows of weights, and a lane's part of their products.
template <class F, int LINES, bool AHEAD> struct Lines {
    const u8* rows[LINES];
    METHOD void begin(int l, const u8* row, int) { rows[l] = row; }
    METHOD void products(const float* x, int first, int n, int cols, float (&acc)[LINES][ROWS]) {
#pragma unroll
        for (int l = 0; l < LINES; l++)
            // Plain numbers are little work, so four of a lane's loads are on their way at once; of several rows two, as each is of nine or of
            // five eights, and more registers would leave room for fewer warps.
#pragma unroll(F::len == 1 ? (ROWS == 1 ? 4 : 2) : 1)
            for (int i = 8 * lane(); i < cols; i += 256) {
                float a[8];
                F::read8(rows[l], i, cols, a);
                // Rows past the last repeat it.
#pragma unroll
                for (int m = 0; m < ROWS; m++) {
                    float b[8];
                    eight_of(x + (u64)min(first + m, n - 1) * cols, i, cols, b);
                    multiply(a, b, acc[l][m]);
                }
            }
    }
};

// The same of halves and one row of x, with eights ahead; what is read of x is for all lines. Lines go side by side, as a warp's eights of x take its L1
// four times as long as those of a line.
template <class F, int LINES> struct Lines<F, LINES, true> {
    enum { TURNS = 4 };
    const u8* rows[LINES];
    uint4 held[LINES][TURNS];
    METHOD void fetch(int l, int t, int i, int cols) {
        if (i < cols) held[l][t] = load_once(rows[l] + (u64)i * 2);
    }
    METHOD void begin(int l, const u8* row, int cols) {
        rows[l] = row;
#pragma unroll
        for (int t = 0; t < TURNS; t++) fetch(l, t, 8 * lane() + 256 * t, cols);
    }
    METHOD void products(const float* x, int, int, int cols, float (&acc)[LINES][ROWS]) {
        for (int at = 8 * lane(); at < cols; at += 256 * TURNS) {
#pragma unroll
            for (int t = 0; t < TURNS; t++) {
                int i = at + 256 * t;
                if (i >= cols) break;
                float b[8];
                eight_of(x, i, cols, b);
#pragma unroll
                for (int l = 0; l < LINES; l++) {
                    float a[8];
                    F::read8((const u8*)&held[l][t], 0, 8, a);
                    fetch(l, t, i + 256 * TURNS, cols);
                    multiply(a, b, acc[l][0]);
                }
            }
        }
    }
};

// What goes ahead: halves in rows of whole eights, of one row of x.
#define GOES_AHEAD(F) (F::len == 1 && F::bytes == 2 && VECTOR && ROWS == 1)

KERNEL linear_few(TRACED const float* x, int n, int cols, const u8* w, u64 row_bytes, float* y, int out, const u8* w2, u64 row_bytes2,
                  float* y2, int out2, const u8* w3, u64 row_bytes3, float* y3, int out3) {
    int block = blockIdx.x, blocks = (out + warps() - 1) / warps(), first = blockIdx.y * ROWS;
    // Without a second weight this is nothing.
    if (block >= blocks) {
        block -= blocks;
        blocks = (out2 + warps() - 1) / warps();
        w = w2, row_bytes = row_bytes2, y = y2, out = out2;
        if (block >= blocks) {
            block -= blocks;
            w = w3, row_bytes = row_bytes3, y = y3, out = out3;
        }
    }
    int r = block * warps() + warp();
    Lines<FORMAT, 1, GOES_AHEAD(FORMAT)> line;
    line.begin(0, w + (u64)min(r, out - 1) * row_bytes, cols);
    after_the_last();
    if (r >= out) return;
    float acc[1][ROWS] = {};
    line.products(x, first, n, cols, acc);
#pragma unroll
    for (int m = 0; m < ROWS; m++) {
        float v = warp_sum(acc[0][m]);
        if (lane() == 0 && first + m < n) y[(u64)(first + m) * out + r] = v;
    }
}

// f(x · gateᵀ) · (x · upᵀ)
KERNEL linear_gated_few(TRACED const float* x, const u8* gate, u64 gate_bytes, const u8* up, u64 up_bytes, float* y, int n, int out,
                        int cols, int f) {
    int r = blockIdx.x * warps() + warp(), first = blockIdx.y * ROWS;
    enum { SIDE = GOES_AHEAD(FORMAT) && Same<FORMAT, UP>::is };
    const u8 *gates = gate + (u64)min(r, out - 1) * gate_bytes, *ups = up + (u64)min(r, out - 1) * up_bytes;
    Lines<FORMAT, 1 + SIDE, GOES_AHEAD(FORMAT)> line;
    Lines<UP, 1, GOES_AHEAD(UP)> other;
    line.begin(0, gates, cols);
    if (SIDE) line.begin(SIDE, ups, cols);
    else other.begin(0, ups, cols);
    after_the_last();
    if (r >= out) return;
    float acc[1 + SIDE][ROWS] = {}, u[1][ROWS] = {};
    line.products(x, first, n, cols, acc);
    if (!SIDE) other.products(x, first, n, cols, u);
#pragma unroll
    for (int m = 0; m < ROWS; m++) {
        float a = warp_sum(acc[0][m]), b = warp_sum(SIDE ? acc[SIDE][m] : u[0][m]);
        if (lane() == 0 && first + m < n) y[(u64)(first + m) * out + r] = activation(f, a) * b;
    }
}
