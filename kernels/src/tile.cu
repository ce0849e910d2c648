// A tile of a product in single precision: 64 rows by 64 outputs, 32 inputs at a time.
//
// 256 threads fetch 32 inputs of 64 rows of each side into a panel of shared memory, decoding the weight, and each sums a 4 by 4 part,
// along the input in order. Of a panel each eight inputs are turned by eight columns more than those before: a warp puts four eights of
// inputs of eight rows, which so meet every bank once. Cost: 2 operations a weight and row, 8 bytes of shared memory for 4 of them.

#define TILE 64
#define DEEP 32

typedef float Panel[DEEP][TILE];

// The row of a panel that this thread fetches, which eight of its inputs, and where its part of the tile begins.
DEVICE int fetched() { return threadIdx.x / 4; }
DEVICE int eight() { return 8 * (threadIdx.x % 4); }
DEVICE int across() { return 4 * (threadIdx.x % 16); }
DEVICE int down() { return 4 * (threadIdx.x / 16); }

DEVICE void clear(float (&acc)[4][4]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) acc[i][j] = 0.0f;
}

// Eight of a row's inputs from `i` on, zeros past the end.
template <class F> DEVICE void fetch(const u8* row, int i, int cols, float (&v)[8]) {
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] = 0.0f;
    if (i < cols) F::read8(row, i, cols, v);
}

// Where column `c` of an input lies; fours of columns stay together.
DEVICE int turned(int c, int input) { return (c + input / 8 * 8) % TILE; }

DEVICE void put(Panel& to, const float (&v)[8]) {
#pragma unroll
    for (int j = 0; j < 8; j++) to[eight() + j][turned(fetched(), eight())] = v[j];
}

DEVICE void multiply(const Panel& xs, const Panel& ws, float (&acc)[4][4]) {
#pragma unroll 1
    for (int i = 0; i < DEEP; i += 8) {
        int row = turned(down(), i), column = turned(across(), i);
#pragma unroll
        for (int j = i; j < i + 8; j++) {
            float4 p = *(const float4*)&xs[j][row], q = *(const float4*)&ws[j][column];
            float ps[4] = {p.x, p.y, p.z, p.w}, qs[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
            for (int r = 0; r < 4; r++)
#pragma unroll
                for (int c = 0; c < 4; c++) acc[r][c] = fmaf(ps[r], qs[c], acc[r][c]);
        }
    }
}
