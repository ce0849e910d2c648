// One row of activations in a block's shared memory, and rows of weights on their way past it: for blocks that stay, one a multiprocessor.
//
// What a kernel between two products would do to one row each block does by itself, as it would else wait for that kernel: it rounds floats, or adds
// two rows, norms the sum and rounds that. Halves meet the row as it is. Meanwhile its weights come: every warp has a ring of AREA bytes in shared memory, full before the kernel
// before is done, some 90 kB a multiprocessor, and 12 MB of 132 are what an H200 reads in 3 us.
//
// A warp takes rows of weights that lie a grid's warps apart, each in chunks of whole blocks. Copies are in aligned sixteens of bytes whatever the
// blocks are. A lane takes a group of 32 inputs of a chunk (`packed.cu`), or two whose codes lie in the same bytes: neighbours of q4_k and q5_k, and of
// q6_k those 64 inputs apart. By their disassembly for `sm_90` 2048 inputs of q4_k take some 135 instructions of a warp, 50 of them to ask for more; half a
// group a lane takes 210 (`direct.cu`). Cost: the packed weights' bytes once; of shared memory those once in and out, 40 bytes of activations a group and
// row of weights, or pair of rows; of the L2 the row of activations for each block.
//
// For each group in order, `acc = fma(scale, p, acc)` with p of `packed.cu`; of neighbours as `direct.cu` has it. Lanes are then summed in a tree. Which
// groups a lane takes hangs on the format alone: a product has the same bits in any company.
//
// Halves are not packed and the row is not rounded: a lane takes eights of them as `linear_few.cu` has it, to the same bits. Cost: the weights' bytes once; of
// shared memory those once in and out, and for a row of weights or a pair of rows twice as many of floats, some 72 of the 128 bytes a clock that an H200's
// multiprocessors have at 4.2 TB/s; of the L2 four bytes an input for each block.
//
// Weights never change while steps are queued (`stream.cu`), so they may be asked for before `after_the_last`. Defines: WARPS; AREA, bytes of shared memory for a
// warp's weights; INPUT: 0 codes, 1 floats, 2 floats to norm, 3 two rows to add and norm; HELD, quads of a row that a thread has at a time, 1 to 4;
// VECTOR 1, as rows are whole quads.

enum { CODED = 0, FLOATS = 1, NORMED = 2, ADDED = 3 };

// Inputs that lie together, and their bytes.
enum { STRETCH = 2048 };

// The row, rounded: of each stretch 64 groups, first the low halves of even groups, then their high ones, then those of odd groups. Of odd groups places are
// turned by five, so that eight lanes find theirs in different banks whether they have eight neighbours, every second one, or two of every four.
struct Staged {
    u8* codes;
    uint2* kept;

    METHOD Staged(u8* shared, int cols) : codes(shared), kept((uint2*)(shared + (cols + STRETCH - 1) / STRETCH * STRETCH)) {}

    METHOD static int bytes(int cols) { return (cols + STRETCH - 1) / STRETCH * (STRETCH + STRETCH / 32 * 8); }

    // Sixteen bytes of a group's codes.
    METHOD uint4* half(int group, int h) const {
        int odd = group & 1;
        return (uint4*)(codes + group / 64 * STRETCH + (2 * odd + h) * 512) + (group % 64 / 2 ^ 5 * odd);
    }

    // As `round_quads` has them.
    METHOD void put(u32, u32 quad, u32, u32 code) const { ((u32*)half(quad / 8, quad / 4 % 2))[quad % 4] = code; }
    METHOD void keep(u32, u32 quad, u32, uint2 k) const { kept[quad / 8] = k; }

    // Codes and their scales as they lie elsewhere.
    METHOD void copy(const void* x, const uint2* groups, int cols) const {
        for (int i = threadIdx.x; i < cols / 16; i += blockDim.x) *half(i / 2, i % 2) = ((const uint4*)x)[i];
        for (int i = threadIdx.x; i < cols / 32; i += blockDim.x) kept[i] = groups[i];
    }
};

// The row as it is: of each 256 inputs first the low quads of all eights, then the high ones, so that a warp reads either from 512 bytes in a row.
struct Plain {
    u8* floats;

    METHOD Plain(u8* shared, int) : floats(shared) {}

    METHOD static int bytes(int cols) { return (cols + 255) / 256 * 1024; }

    METHOD float4* quad(int q) const { return (float4*)(floats + q / 64 * 1024 + q % 2 * 512) + q / 2 % 32; }

    // There are no codes of it.
    METHOD void copy(const void*, const uint2*, int) const {}
};

// A thread's quads of a row, a block's width apart: sixteen bytes each.
struct Held {
    float v[HELD][4];

    METHOD Held() {}

    METHOD Held(const float* row, int first, int cols) {
#pragma unroll
        for (int i = 0; i < HELD; i++) fetch(row, first + 4 * i * blockDim.x, cols, v[i]);
    }

    // To codes, from the column `first` of the row on. All lanes of a warp come here together.
    METHOD void give(const Staged& to, int first, int cols) const {
#pragma unroll
        for (int i = 0; i < HELD; i += 2) {
            int c = first + 4 * i * blockDim.x, d = c + 4 * blockDim.x;
            if (i + 1 < HELD) {
                const float two[2][4] = {{v[i][0], v[i][1], v[i][2], v[i][3]}, {v[(i + 1) % HELD][0], v[(i + 1) % HELD][1], v[(i + 1) % HELD][2], v[(i + 1) % HELD][3]}};
                round_quads(two, {c < cols, d < cols}, 0u, {(u32)c / 4, (u32)d / 4}, 0u, to);
            } else {
                const float one[1][4] = {{v[i][0], v[i][1], v[i][2], v[i][3]}};
                round_quads(one, {c < cols}, 0u, {(u32)c / 4}, 0u, to);
            }
        }
    }

    METHOD void give(const Plain& to, int first, int cols) const {
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            int c = first + 4 * i * blockDim.x;
            if (c < cols) *to.quad(c / 4) = make_float4(v[i][0], v[i][1], v[i][2], v[i][3]);
        }
    }
};

// What a block is given as its row.
struct Given {
    // Codes or floats; scales of groups; what is added to floats; where the sum goes.
    const void* x;
    const uint2* groups;
    const float* other;
    float* sum;
    // Of a norm.
    const float* factors;
    float eps;
};

// Asks the L2 for a norm's factors, which no kernel writes: each norm has its own, which a step's other weights push out until it comes again.
DEVICE void ask_for_factors(const Given& given, int cols) {
#if __CUDA_ARCH__ >= 800
    if (INPUT >= NORMED)
        for (int c = 32 * threadIdx.x; c < cols; c += 32 * blockDim.x) asm volatile("prefetch.global.L2 [%0];" ::"l"(given.factors + c));
#endif
}

// Stages the row. One to norm is no longer than a block holds at once.
template <class Row> DEVICE void stage(const Given& given, const Row& to, int cols) {
    int first = 4 * threadIdx.x;
    if (INPUT == CODED) {
        to.copy(given.x, given.groups, cols);
    } else if (INPUT == FLOATS) {
        for (int c = first; c - 4 * lane() < cols; c += 4 * HELD * blockDim.x) Held((const float*)given.x, c, cols).give(to, c, cols);
    } else {
        Held row((const float*)given.x, first, cols);
        float squares = 0.0f;
        if (INPUT == ADDED) {
            Held more(given.other, first, cols);
#pragma unroll
            for (int i = 0; i < HELD; i++) {
#pragma unroll
                for (int j = 0; j < 4; j++) row.v[i][j] += more.v[i][j];
                if (blockIdx.x == 0) keep(row.v[i], given.sum, first + 4 * i * blockDim.x, cols);
            }
        }
#pragma unroll
        for (int i = 0; i < HELD; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) squares = fmaf(row.v[i][j], row.v[i][j], squares);
        // Of long rows registers do not hold factors while the sum is made, and then those of two quads at a time.
        enum { LATE = HELD > 2 };
        Held factors;
        if (!LATE) factors = Held(given.factors, first, cols);
        float scale = 1.0f / sqrtf(block_sum(squares) / (float)cols + given.eps);
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            if (i == 2) asm volatile("" ::: "memory");
            if (LATE) fetch(given.factors, first + 4 * i * blockDim.x, cols, factors.v[i]);
#pragma unroll
            for (int j = 0; j < 4; j++) row.v[i][j] = row.v[i][j] * scale * factors.v[i][j];
        }
        row.give(to, first, cols);
    }
    __syncthreads();
}

// How a lane takes chunks of lines of one format: a group of 32 inputs of each. Where things lie for this lane is computed once: by itself a compiler
// does so anew for each chunk, which is as much work as the products.
template <class F, int LINES> struct Taken {
    typedef Staged Row;
    // ALIGNED: whether blocks begin at sixteen wherever they lie.
    enum { CHUNK = 1024, BYTES = CHUNK / F::len * F::bytes, ALIGNED = F::bytes % 16 == 0, PARTS = F::len / 32 };
    // In a chunk; in the row's codes, and in its scales.
    u32 weights, codes, kept;

    METHOD Taken() {
        int odd = lane() & 1;
        weights = lane() / PARTS * F::bytes;
        codes = odd * 1024 + 16 * (lane() / 2 ^ 5 * odd);
        kept = 8 * lane();
        asm volatile("" : "+r"(weights), "+r"(codes), "+r"(kept));
    }

    // Adds the products of chunk `c`.
    METHOD void add(const u8* const (&lines)[LINES], int c, const Staged& x, int cols, float (&acc)[LINES]) const {
        if (c * (CHUNK / 32) + lane() >= cols / 32) return;
        const u8* from = x.codes + (c * 1024 - (c & 1) * 768) + codes;
        uint4 low = *(const uint4*)from, high = *(const uint4*)(from + 512);
        uint2 k = *(const uint2*)((const u8*)x.kept + c * 256 + kept);
        Codes a = {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
#pragma unroll
        for (int l = 0; l < LINES; l++) {
            typename F::Group w;
            F::group(lines[l] + weights, lane() % PARTS, w);
            acc[l] = fmaf(__int_as_float((int)k.x), w.times(a, k.y), acc[l]);
        }
    }
};

// c + the products of four bytes without a sign with four that have one.
DEVICE int dp4a_of_unsigned(u32 a, u32 b, int c) {
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(c) : "r"(a), "r"(b), "r"(c));
    return c;
}

// The same of two neighbouring groups, the low fours of bits of 32 bytes and the high ones. Of four bits the high ones stay where they are: sums of sixteen
// times as much, which is taken off.
template <class F, int FIFTH, int LINES> struct TakenInPairs {
    typedef Staged Row;
    enum { CHUNK = 2048, BYTES = CHUNK / F::len * F::bytes, ALIGNED = F::bytes % 16 == 0 };
    // As above; where factors and minima are in a block's head, and their bits.
    u32 head, weights, even, shift, mask;

    METHOD TakenInPairs() {
        int pair = lane() & 3;
        bool late = pair > 1;
        head = lane() / 4 * F::bytes;
        weights = head + 16 + 32 * FIFTH + 32 * pair;
        even = 16 * lane();
        shift = 16 * (pair & 1) + 2 * late;
        mask = late ? 0x3030u : 0x3f3fu;
        asm volatile("" : "+r"(head), "+r"(weights), "+r"(even), "+r"(shift), "+r"(mask));
    }

    // Two neighbouring factors, or minima, of six bits as bytes: of a block's first four groups they are in one word, of the last four their low bits are
    // in `others` and their high ones above the others'.
    METHOD u32 sixes(u32 word, u32 others) const { return (word >> shift & mask) | (others >> (shift & 16u) & (mask ^ 0x3f3fu)); }

    METHOD void add(const u8* const (&lines)[LINES], int c, const Staged& x, int cols, float (&acc)[LINES]) const {
        if (c * (CHUNK / 32) + 2 * lane() >= cols / 32) return;
        const u8 *from = x.codes + c * STRETCH, *odd = from + 1024 + (even ^ 16u * 5u);
        uint4 both = *(const uint4*)((const u8*)x.kept + c * 512 + even);
        const float scale[2] = {__int_as_float((int)both.x), __int_as_float((int)both.z)};
        const int sums[2] = {whole_sum(both.y), whole_sum(both.w)};
        int dots[LINES][2] = {};
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint4 first = *(const uint4*)(from + even + 512 * h), second = *(const uint4*)(odd + 512 * h);
            const u32 a[4] = {first.x, first.y, first.z, first.w}, b[4] = {second.x, second.y, second.z, second.w};
#pragma unroll
            for (int l = 0; l < LINES; l++) {
                uint4 w = *(const uint4*)(lines[l] + weights + 16 * h), v = FIFTH ? *(const uint4*)(lines[l] + head + 16 + 16 * h) : w;
                const u32 q[4] = {w.x, w.y, w.z, w.w}, fifth[4] = {v.x, v.y, v.z, v.w};
                int(&dot)[2] = dots[l];
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    u32 low = q[j] & 0x0f0f0f0fu, high = q[j] & 0xf0f0f0f0u;
                    if (FIFTH) {
                        u32 bits = fifth[j] >> 2 * (lane() & 3);
                        low |= (bits & 0x01010101u) << 4;
                        high = high >> 4 | (bits & 0x02020202u) << 3;
                    }
                    dot[0] = dp4a(low, a[j], dot[0]);
                    dot[1] = FIFTH ? dp4a(high, b[j], dot[1]) : dp4a_of_unsigned(high, b[j], dot[1]);
                }
            }
        }
#pragma unroll
        for (int l = 0; l < LINES; l++) {
            uint4 top = *(const uint4*)(lines[l] + head);
            int(&dot)[2] = dots[l];
            if (!FIFTH) dot[1] >>= 4;
            u32 factors = sixes(top.y, top.w), minima = sixes(top.z, top.w >> 4);
            acc[l] = add_neighbours(top.x, factors, minima, dot, sums, scale, acc[l]);
        }
    }
};

// The same of two groups 64 inputs apart, whose low four bits lie in the same 32 bytes and their high two in another 32, which blocks of 210 bytes align to two.
template <int LINES> struct TakenInSixes {
    typedef q6_k_codes F;
    typedef Staged Row;
    enum { CHUNK = 2048, BYTES = CHUNK / F::len * F::bytes, ALIGNED = F::bytes % 16 == 0 };
    // As above.
    u32 block, first, kept, shift;

    METHOD TakenInSixes() {
        int odd = lane() & 1, even = lane() & ~1;
        block = lane() / 4 * F::bytes;
        first = odd * 1024 + 16 * (even ^ 5 * odd);
        kept = 8 * (2 * even + odd);
        shift = 2 * odd;
        asm volatile("" : "+r"(block), "+r"(first), "+r"(kept), "+r"(shift));
    }

    // The sum of products of a group's sixteens, each with its factor.
    METHOD static float times(const u32 (&q)[8], const Codes& a, u32 sums, u32 factors, float d) {
        Halved<32> w;
#pragma unroll
        for (int j = 0; j < 8; j++) w.q[j] = q[j];
        w.d = d;
        w.low = (int)(i8)(factors & 255u);
        w.high = (int)(i8)(factors >> 8);
        return w.times(a, sums);
    }

    METHOD static Codes codes_at(const u8* from) {
        uint4 low = *(const uint4*)from, high = *(const uint4*)(from + 512);
        return {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
    }

    METHOD void add(const u8* const (&lines)[LINES], int c, const Staged& x, int cols, float (&acc)[LINES]) const {
        int g = c * (CHUNK / 32) + 2 * (lane() & ~1) + (lane() & 1);
        if (g >= cols / 32) return;
        const u8 *from = x.codes + c * STRETCH, *scales = (const u8*)x.kept + c * 512 + kept;
        Codes a = codes_at(from + first), b = codes_at(from + (first ^ 16u));
        uint2 of_a = *(const uint2*)scales, of_b = *(const uint2*)(scales + 16);
#pragma unroll
        for (int l = 0; l < LINES; l++) {
            const u8 *w = lines[l] + block, *own = w + 64 * (lane() >> 1 & 1) + 32 * (lane() & 1), *top = w + 128 + 32 * (lane() >> 1 & 1);
            const u8* factors = w + 192 + 8 * (lane() >> 1 & 1) + 2 * (lane() & 1);
            u32 low[8], high[8], q[8], r[8];
            words<8, 2>(own, low);
            words<8, 2>(top, high);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                u32 bits = high[j] >> shift;
                q[j] = (low[j] & 0x0f0f0f0fu) | (bits << 4 & 0x30303030u);
                r[j] = (low[j] >> 4 & 0x0f0f0f0fu) | (bits & 0x30303030u);
            }
            float d = load_half<2>(w + 208);
            acc[l] = fmaf(__int_as_float((int)of_a.x), times(q, a, of_a.y, load2<2>(factors), d), acc[l]);
            acc[l] = fmaf(__int_as_float((int)of_b.x), times(r, b, of_b.y, load2<2>(factors + 4), d), acc[l]);
        }
    }
};

// Halves go by the names that `products.cu` has for packed formats.
struct f16_codes : f16 {};
struct bf16_codes : bf16 {};

// Eights of halves, of rows that begin at sixteen bytes.
template <class F, int LINES> struct TakenAsTheyAre {
    typedef Plain Row;
    enum { CHUNK = 512, BYTES = 2 * CHUNK, ALIGNED = 1 };
    // Where this lane's are, in a line of 256 and in each half of the row's.
    u32 own;

    METHOD TakenAsTheyAre() {
        own = 16 * lane();
        asm volatile("" : "+r"(own));
    }

    METHOD void add(const u8* const (&lines)[LINES], int c, const Plain& x, int cols, float (&acc)[LINES]) const {
#pragma unroll
        for (int k = 0; k < CHUNK; k += 256) {
            if (c * CHUNK + k + 8 * lane() >= cols) return;
            const u8* from = x.floats + (c * CHUNK + k) * 4 + own;
            float4 low = *(const float4*)from, high = *(const float4*)(from + 512);
            const float b[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
            for (int l = 0; l < LINES; l++) {
                float a[8];
                F::read8(lines[l] + own + 2 * k, 0, 8, a);
#pragma unroll
                for (int j = 0; j < 8; j++) acc[l] = fmaf(a[j], b[j], acc[l]);
            }
        }
    }
};

template <int LINES> struct Taken<f16_codes, LINES> : TakenAsTheyAre<f16_codes, LINES> {};
template <int LINES> struct Taken<bf16_codes, LINES> : TakenAsTheyAre<bf16_codes, LINES> {};
template <int LINES> struct Taken<q6_k_codes, LINES> : TakenInSixes<LINES> {};
template <int LINES> struct Taken<q4_k_codes, LINES> : TakenInPairs<q4_k_codes, 0, LINES> {};
template <int LINES> struct Taken<q5_k_codes, LINES> : TakenInPairs<q5_k_codes, 1, LINES> {};

// Rows of weights on their way through a warp, LINES side by side: of up to three weights of other formats one after the other, or of two of one.
template <class A, class B, class C, int LINES> struct Ring {
    enum {
        OF_A = (int)Taken<A, LINES>::BYTES,
        OF_B = (int)Taken<B, LINES>::BYTES,
        OF_C = (int)Taken<C, LINES>::BYTES,
        OF_AB = OF_A > OF_B ? OF_A : OF_B,
        MOST = OF_AB > OF_C ? OF_AB : OF_C,
        ALIKE = OF_A == OF_B && OF_A == OF_C,
        // Else a chunk has up to fifteen bytes before it and a word past it.
        ALIGNED = (int)Taken<A, LINES>::ALIGNED && (int)Taken<B, LINES>::ALIGNED && (int)Taken<C, LINES>::ALIGNED,
        AROUND = ALIGNED ? 0 : 15 + 4,
        PITCH = (MOST + AROUND + 15) / 16 * 16,
        SLOTS = AREA / PITCH
    };
    static_assert(SLOTS > LINES, "AREA holds too few chunks");

    // Of this warp, and where in it this lane's first sixteen go.
    u8 *area, *own;
    // What is asked for next: where each line of the row goes on and ends, bytes left of it and of a chunk; which line; where in the area.
    const u8 *from[LINES], *ends[LINES];
    int left, chunk, line, to;
    // Where the chunk lies that is read next.
    int next;

    METHOD explicit Ring(u8* area) : area(area), own(area + 16 * lane()), left(0), line(0), to(0), next(0) {}

    // Rows of which this warp has one after the other: blocks first, so that what is left over is spread over all.
    METHOD static int first_row() { return warp() * gridDim.x + blockIdx.x; }
    METHOD static int row_step() { return WARPS * gridDim.x; }

    METHOD static int after(int slot) { return slot + PITCH == SLOTS * PITCH ? 0 : slot + PITCH; }

    // Asks for rows of so many bytes from here on, in chunks of so many.
    METHOD void go_on(int row_bytes, int bytes) {
        left = row_bytes;
        chunk = bytes;
    }

    // Asks for a chunk of a line, if there is one. Returns whether that row is done.
    METHOD bool ask() {
        bool done = false;
        if (left > 0) {
            bool second = LINES == 2 && line;
            const u8 *start = second ? from[LINES - 1] : from[0], *end = second ? ends[LINES - 1] : ends[0];
            int before = ALIGNED ? 0 : (int)((u64)start & 15), span = ALIKE ? PITCH : chunk + AROUND;
            u8* at = own + to;
            const u8* mine = start + (16 * lane() - before);
            if (left >= chunk && (ALIGNED || start + span <= end)) {
#pragma unroll
                for (int k = 0; k < PITCH; k += 512)
                    if (16 * lane() < span - k) copy16(at + k, mine + k);
            } else {
                // What is left of a row, and rows beside the weight's end.
                int needed = before + min(chunk, left) + (ALIGNED ? 0 : 4);
#pragma unroll 1
                for (int k = 0; 16 * lane() + k < needed; k += 512) {
                    long long there = end - (mine + k);
                    if (ALIGNED) copy16(at + k, mine + k);
                    else copy16_of(at + k, there > 0 ? mine + k : mine - 16 * lane(), there >= 16 ? 16 : there > 0 ? (int)there : 0);
                }
            }
            if (LINES == 1 || line) {
#pragma unroll
                for (int l = 0; l < LINES; l++) from[l] += chunk;
                left -= chunk;
                done = left <= 0;
            }
            if (LINES == 2) line ^= 1;
            to = after(to);
        }
        copies_end();
        return done;
    }

    // The same; of the next row, which `turn` goes on to, once this one is done.
    template <class Turn> METHOD void ask(int& row, Turn turn) {
        if (ask()) {
            row += row_step();
            turn();
        }
    }

    // Asks for all that there is room for.
    template <class More> METHOD void fill(More more) {
#pragma unroll 1
        for (int s = 0; s < SLOTS; s++) more();
    }

    // The products of the row whose lines begin at `rows`; `more` asks for a chunk.
    template <class F, class More>
    METHOD void products(const u8* const (&rows)[LINES], const Taken<F, LINES>& taken, const typename Taken<F, LINES>::Row& x, int cols, float (&acc)[LINES], More more) {
#pragma unroll
        for (int l = 0; l < LINES; l++) acc[l] = 0.0f;
#pragma unroll 1
        for (int c = 0; c * Taken<F, LINES>::CHUNK < cols; c++) {
            copied<SLOTS - LINES>();
            __syncwarp();
            const u8* lines[LINES];
#pragma unroll
            for (int l = 0; l < LINES; l++) {
                int before = ALIGNED ? 0 : (int)((u64)(rows[l] + c * Taken<F, LINES>::BYTES) & 15);
                lines[l] = area + next + before;
                next = after(next);
            }
            taken.add(lines, c, x, cols, acc);
            __syncwarp();
#pragma unroll
            for (int l = 0; l < LINES; l++) more();
        }
    }
};
