// Rows of packed weights straight to a lane's registers, and their products with one row of 8-bit activations: for formats whose blocks are
// whole sixteens of bytes, and so begin at sixteen wherever they lie (q4_k, q5_k). Others, and several rows, go by shared memory (`stream.cu`).
//
// A lane takes sixteen bytes of codes, which are half `h` of two neighbouring groups of 32, the low fours of bits of one and the high ones of the
// other; so a warp's load of codes is 512 bytes in a row that no two lanes share. Loads of a warp pass its multiprocessor's L1 at 128 bytes
// a clock, whoever shares them, and that was what bound it: with a group of 32 to a lane, whose codes two lanes fetch, and one line at a time,
// an H200's 4.2 TB/s became 2.9. Of 1024 inputs codes are four such passes now, factors four, and what LINES share of activations 12 to 20.
//
// Chunks of 1024 inputs are DEPTH ahead, the first ones before the kernel before is done. Cost: the packed weight's bytes once; for 32
// weights some 60 operations of a warp.
//
// For each chunk `acc = fma(-dmin, v, fma(d, u, acc))` with u the sum of scale · (whole factor · sum of products) of both groups, the second one
// added to the first, and v that of scale · (whole minimum · sum of codes).

// Formats that go so.
template <class F> struct Wide {
    enum { is = 0 };
};
template <> struct Wide<q4_k_codes> {
    enum { is = ROWS == 1, fifth = 0 };
};
template <> struct Wide<q5_k_codes> {
    enum { is = ROWS == 1, fifth = 1 };
};

template <class F, int LINES> struct Direct {
    // Chunks ahead. Of shared memory it takes nothing, but arrays have a length.
    enum { DEPTH = 2, BYTES = CHUNK / F::len * F::bytes, AREA = 16, FIFTH = Wide<F>::fifth };
    struct Words {
        uint4 head, codes, fifth;
    };
    // Where this lane's block of the first chunk lies, of each line.
    const u8* lines[LINES];
    u8* area;
    int cols;
    Words ahead[DEPTH][LINES];

    // Which sixteen bytes of a block's codes are this lane's: half `half()` of the groups 2 · pair() and the next.
    METHOD int half() const { return lane() & 1; }
    METHOD int pair() const { return lane() >> 1 & 3; }

    // Row r of a weight; past the last, the last.
    METHOD void line(int l, const u8* w, u64 row_bytes, int r, int out) {
        lines[l] = w + (u64)min(r, out - 1) * row_bytes + lane() / 8 * F::bytes;
    }

    METHOD bool has(int chunk) const { return chunk * (CHUNK / 32) + (lane() & 24) < cols / 32; }

    METHOD void fetch(int chunk, int to) {
        if (!has(chunk)) return;
#pragma unroll
        for (int l = 0; l < LINES; l++) {
            const u8* b = lines[l] + (u64)((u32)chunk * BYTES);
            ahead[to][l].head = load_once(b);
            ahead[to][l].codes = load_once(b + 16 + 32 * FIFTH + 16 * (lane() & 7));
            if (FIFTH) ahead[to][l].fifth = load_once(b + 16 + 16 * half());
        }
    }

    // Fetches the first chunks.
    METHOD void begin() {
#pragma unroll
        for (int c = 0; c < DEPTH; c++) fetch(c, c);
    }

    // Two neighbouring factors, or minima, of six bits as bytes: of a block's first four groups they are in one word, of the last four their low
    // bits are in `rest` and their high ones above the others'.
    METHOD u32 sixes(u32 word, u32 rest) const {
        int shift = 16 * (pair() & 1);
        bool late = pair() > 1;
        return (word >> (shift + 2 * late) & (late ? 0x3030u : 0x3f3fu)) | (rest >> shift & (late ? 0x0f0fu : 0u));
    }

    // The products of a line's sixteen bytes: with activations of both groups, their scales, and the sums of those codes.
    METHOD float add(const Words& w, const u32 (&a)[2][4], const float (&scale)[2], const int (&sums)[2], float acc) const {
        const u32 codes[4] = {w.codes.x, w.codes.y, w.codes.z, w.codes.w}, fifth[4] = {w.fifth.x, w.fifth.y, w.fifth.z, w.fifth.w};
        int dot[2] = {0, 0};
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                u32 q = codes[j] >> 4 * i & 0x0f0f0f0fu;
                if (FIFTH) q |= (fifth[j] >> (2 * pair() + i) & 0x01010101u) << 4;
                dot[i] = dp4a(q, a[i][j], dot[i]);
            }
        u32 factors = sixes(w.head.y, w.head.w), minima = sixes(w.head.z, w.head.w >> 4);
        return add_neighbours(w.head.x, factors, minima, dot, sums, scale, acc);
    }

    // This lane's parts of the products with a row of activations.
    METHOD void products(const u8* codes, const uint2* scales, int row, int, float (&acc)[LINES][ROWS]) {
#pragma unroll
        for (int l = 0; l < LINES; l++) acc[l][0] = 0.0f;
        const u8* from = codes + (u64)row * cols + 256 * (lane() / 8) + 64 * pair() + 16 * half();
        const uint2* kept = scales + (u64)row * (cols / 32) + (lane() & 24) + 2 * pair();
        for (int c = 0; c * CHUNK < cols; c += DEPTH) {
#pragma unroll
            for (int d = 0; d < DEPTH; d++) {
                if (!has(c + d)) continue;
                const uint4* x = (const uint4*)(from + (c + d) * CHUNK);
                uint4 low = x[0], high = x[2], both = *(const uint4*)(kept + (c + d) * (CHUNK / 32));
                const u32 a[2][4] = {{low.x, low.y, low.z, low.w}, {high.x, high.y, high.z, high.w}};
                const float scale[2] = {__int_as_float((int)both.x), __int_as_float((int)both.z)};
                const u32 of[2] = {both.y, both.w};
                int sums[2];
#pragma unroll
                for (int i = 0; i < 2; i++) sums[i] = half() ? whole_sum(of[i]) - first_sum(of[i]) : first_sum(of[i]);
#pragma unroll
                for (int l = 0; l < LINES; l++) acc[l][0] = add(ahead[d][l], a, scale, sums, acc[l][0]);
                fetch(c + d + DEPTH, d);
            }
        }
    }
};

// How lines of a format are read.
template <class F, int LINES, bool DIRECT = Wide<F>::is> struct Reader {
    typedef Stream<F, LINES> type;
};
template <class F, int LINES> struct Reader<F, LINES, true> {
    typedef Direct<F, LINES> type;
};
