// Rows of packed weights on their way through a warp, and their products with few rows of 8-bit activations.
//
// A warp copies its weight rows, 1024 inputs at a time, to shared memory as they lie, in aligned sixteens of bytes whatever the format's
// blocks are; some chunks ahead, the first ones before the kernel before is done. From there each lane takes a group of 32 inputs:
// codes of weights four to a word (`packed.cu`), times the codes of every row by `dp4a`, and one multiplication by the group's scale a
// row. Cost: the packed weight's bytes once; for 32 weights some 30 operations, and for each row 8 `dp4a` and some 8 more; 40 bytes of
// activations a group and row from cache, once for all weight rows of the warp.
//
// For each group in order, `acc = fma(scale, p, acc)` with p of `packed.cu`; lanes are then summed in a tree. Which groups a lane takes
// hangs on the row's length alone: a row's product has the same bits in any company.
//
// How many chunks ahead: a memory of 3.35 TB/s that answers in 0.7 us needs 18 kB on their way from each of an H100's 132 multiprocessors.
// Registers let it have 32 warps of one row and 12 to 16 of four or eight. With two lines and one chunk ahead that is 37 kB of q4_k for
// one row, but 14 to 18 for more; 21 of q2_k, but 8 to 11. So several rows of two lines are two chunks ahead, but for q8_0, of which that
// many warps have 26 kB with one. One line is two chunks ahead, of one row 60 kB for 28 warps; a third would keep warps of q8_0 out of the
// shared memory that is not L1. Shared memory then still holds as many blocks as registers do, from 8.0 on; older devices have no
// copies that go on by themselves.
//
// Weights never change while steps are queued: they are written by copies of the host before any kernel that reads them, and copies
// wait, and are waited for, whole. So chunks of weights may be asked for before `after_the_last`; activations may not. Defines: ROWS.

// Warps of a block; inputs of a chunk.
enum { WARPS = 4, CHUNK = 1024 };

// Adds the products of a group of each line, the `g`-th of its row, with that of ROWS rows of activations from `first` on; rows past the last
// repeat it.
template <class G, int LINES>
DEVICE void add_group(const G (&w)[LINES], int g, const u8* codes, const uint2* scales, int first, int n, int cols, float (&acc)[LINES][ROWS]) {
#pragma unroll
    for (int m = 0; m < ROWS; m++) {
        u64 row = (u64)min(first + m, n - 1);
        const uint4* p = (const uint4*)(codes + row * cols + 32 * g);
        uint4 low = p[0], high = p[1];
        uint2 scale = scales[row * (cols / 32) + g];
        Codes a = {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
#pragma unroll
        for (int l = 0; l < LINES; l++) acc[l][m] = fmaf(__int_as_float((int)scale.x), w[l].times(a, scale.y), acc[l][m]);
    }
}

// Rows of weights of one format on their way through a warp. A lane reads what others copied, so all of a warp's lanes call everything.
template <class F, int LINES> struct Stream {
    enum {
        BYTES = CHUNK / F::len * F::bytes,
        // Chunks in shared memory at a time, all but one of them on their way.
        STAGES = LINES == 1 || (HAS_MATRIX && ROWS > 1 && BYTES <= CHUNK) ? 3 : 2,
        // A chunk's bytes, before it up to fifteen and past it a word, in whole sixteens.
        PITCH = (BYTES + 15 + 4 + 15) / 16 * 16,
        AREA = STAGES * LINES * PITCH
    };
    const u8* rows[LINES];
    // Of the weight each row is of: nothing past it is read.
    const u8* ends[LINES];
    u8* area;
    int cols;

    // Row r of a weight; past the last, the last.
    METHOD void line(int l, const u8* w, u64 row_bytes, int r, int out) {
        rows[l] = w + (u64)min(r, out - 1) * row_bytes;
        ends[l] = w + (u64)out * row_bytes;
    }

    METHOD int chunks() const { return (cols + CHUNK - 1) / CHUNK; }

    // Asks for a chunk, if there is one. Of all that a warp asks for it is the `turn`-th, which decides where in the area it lies. A lane copies
    // every 32nd sixteen; whether any of a chunk's might pass the weight's end is asked once, as it is so in the last rows only.
    METHOD void ask(int chunk, int turn) {
        if (chunk < chunks()) {
            int inputs = min(CHUNK, cols - chunk * CHUNK), bytes = inputs / F::len * F::bytes;
#pragma unroll
            for (int l = 0; l < LINES; l++) {
                const u8* from = rows[l] + (u64)((u32)chunk * BYTES);
                int before = (int)((u64)from & 15), needed = before + bytes + 4;
                u8* to = area + (turn % STAGES * LINES + l) * PITCH + 16 * lane();
                from += 16 * lane() - before;
                if (from + PITCH <= ends[l] + 16 * lane()) {
#pragma unroll
                    for (int at = 0; at < PITCH; at += 512)
                        if (16 * lane() + at < needed) copy16(to + at, from + at);
                } else {
#pragma unroll 1
                    for (int at = 0; 16 * lane() + at < needed; at += 512) {
                        long long left = ends[l] - (from + at);
                        copy16_of(to + at, left > 0 ? from + at : from - 16 * lane(), left >= 16 ? 16 : left > 0 ? (int)left : 0);
                    }
                }
            }
        }
        copies_end();
    }

    // Asks for the first chunks.
    METHOD void begin() {
#pragma unroll
        for (int c = 0; c < STAGES - 1; c++) ask(c, c);
    }

    // This lane's parts of the products with rows of activations from `first` on; rows past the last repeat it.
    METHOD void products(const u8* codes, const uint2* scales, int first, int n, float (&acc)[LINES][ROWS]) {
        products(0, [&](int turn) { ask(turn, turn); }, codes, scales, first, n, acc);
    }

    // The same where the first chunk is the `turn`-th that the warp asked for, and `next` asks for another.
    template <class Next>
    METHOD void products(int turn, Next next, const u8* codes, const uint2* scales, int first, int n, float (&acc)[LINES][ROWS]) {
#pragma unroll
        for (int l = 0; l < LINES; l++)
#pragma unroll
            for (int m = 0; m < ROWS; m++) acc[l][m] = 0.0f;
        for (int c = 0; c < chunks(); c++, turn++) {
            next(turn + STAGES - 1);
            copied<STAGES - 1>();
            __syncwarp();
            int g = c * (CHUNK / 32) + lane();
            if (g < cols / 32) {
                typename F::Group w[LINES];
#pragma unroll
                for (int l = 0; l < LINES; l++) {
                    int before = (int)((u64)(rows[l] + (u64)c * BYTES) & 15), parts = F::len / 32;
                    const u8* chunk = area + (turn % STAGES * LINES + l) * PITCH + before;
                    F::group(chunk + lane() / parts * F::bytes, lane() % parts, w[l]);
                }
                add_group(w, g, codes, scales, first, n, cols, acc);
            }
            __syncwarp();
        }
    }
};
