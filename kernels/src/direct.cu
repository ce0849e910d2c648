// Rows of packed weights straight to a lane's registers, and their products with few rows of 8-bit activations: for formats whose blocks
// are whole sixteens of bytes, and so begin at sixteen wherever they lie (q4_k, q5_k), and one row. Others go by shared memory
// (`stream.cu`): of several rows' numbers there are too many for what is fetched ahead to stay in registers.
//
// A lane's group of 32 inputs is three or five loads of sixteen bytes of each line, DEPTH chunks of 1024 inputs ahead, the first ones before
// the kernel before is done. Neighbouring lanes share sectors and lines, so memory is read once. Cost: the packed weight's bytes once; for
// 32 weights of one row some 70 operations of a warp, half of those by way of shared memory; with them an H100's schedulers pass q4_k
// at some 6 TB/s, where its memory gives 3. Sums are those of `stream.cu`, to the bit.
//
// On their way: 1.1 kB a warp and line of q4_k; registers let a multiprocessor have 28 warps of one line and one row, some 30 kB.

// Formats that go so.
template <class F> struct Wide {
    enum { is = 0 };
};
template <> struct Wide<q4_k_codes> {
    enum { is = ROWS == 1 };
};
template <> struct Wide<q5_k_codes> {
    enum { is = ROWS == 1 };
};

template <class F, int LINES> struct Direct {
    // Chunks ahead. Of shared memory it takes nothing, but arrays have a length.
    enum { DEPTH = 2, BYTES = CHUNK / F::len * F::bytes, AREA = 16 };
    // Where this lane's block of the first chunk lies, of each line.
    const u8* lines[LINES];
    u8* area;
    int cols;
    typename F::Words ahead[DEPTH][LINES];

    METHOD int part() const { return lane() % (F::len / 32); }

    // Row r of a weight; past the last, the last.
    METHOD void line(int l, const u8* w, u64 row_bytes, int r, int out) {
        lines[l] = w + (u64)min(r, out - 1) * row_bytes + lane() / (F::len / 32) * F::bytes;
    }

    METHOD bool has(int chunk) const { return chunk * (CHUNK / 32) + lane() < cols / 32; }

    METHOD void fetch(int chunk, int to) {
        if (!has(chunk)) return;
#pragma unroll
        for (int l = 0; l < LINES; l++) ahead[to][l].fetch(lines[l] + (u64)((u32)chunk * BYTES), part());
    }

    // Fetches the first chunks.
    METHOD void begin() {
#pragma unroll
        for (int c = 0; c < DEPTH; c++) fetch(c, c);
    }

    // This lane's parts of the products with rows of activations from `first` on; rows past the last repeat it.
    METHOD void products(const u8* codes, const uint2* scales, int first, int n, float (&acc)[LINES][ROWS]) {
#pragma unroll
        for (int l = 0; l < LINES; l++)
#pragma unroll
            for (int m = 0; m < ROWS; m++) acc[l][m] = 0.0f;
        for (int c = 0; c * CHUNK < cols; c += DEPTH) {
#pragma unroll
            for (int d = 0; d < DEPTH; d++) {
                if (!has(c + d)) continue;
                int g = (c + d) * (CHUNK / 32) + lane();
                typename F::Group w[LINES];
#pragma unroll
                for (int l = 0; l < LINES; l++) F::group(ahead[d][l], part(), w[l]);
                fetch(c + d + DEPTH, d);
                add_group(w, g, codes, scales, first, n, cols, acc);
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
