// x · wᵀ for packed weights and some rows of 8-bit activations, by tensor cores: from a handful of rows to some dozens.
//
// A block has 16 · MT outputs of 8 · NT rows. Its PARTS warps share the inputs, a chunk of 256 in turn, and sum their parts in the end; so
// also a weight of few outputs has warps for a whole device. A warp copies its chunk of packed rows to shared memory as it lies, one chunk
// ahead, the first before the kernel before is done. Then, 64 inputs at a time, each lane decodes a group of 32 of one row (`packed.cu`) and
// puts its codes into a tile, from which fragments of `mma.sync` are read; its factors go by shuffles. Activations lie in the order of
// fragments (`rounding.cu`), so a lane's part of 64 inputs of eight rows is sixteen bytes, with as many of scales and of sums: three loads that
// pass the L1 in six clocks or so, where rows as they are took four times as many loads of eight lines each, which bound it.
//
// Cost for n rows: the packed weight once for every 8 · NT of them, n · cols · 1.25 bytes of activations for 16 · MT outputs, from a cache;
// for 32 inputs of 16 outputs some 40 instructions of a warp that do not depend on rows, and for each eight rows one product by tensor cores
// and some 22 others: 12 for sums and factors, 4 more for minima. These bind it: an H200 has q4_k pass so at a third of what it copies with eight
// rows, at a seventh with 64.
//
// Sums of 32 products, or 16 where factors are of 16, are integers and exact. They are made on top of 1.5 · 2^23 as bits of a float, which
// turns them to one by a subtraction. For each group in order, `acc = fma(scale, p, acc)` with p = d · sum + m · sum of codes; then parts are
// added in their order. Neither MT nor NT nor what else a launch does changes bits. Defines: those of the products (`products.cu`), MT,
// NT, PITCH (bytes of a staged row, an odd number of sixteens).

enum { PARTS = 8, CHUNK = 256, OUTPUTS = 16 * MT, TILE_BYTES = MT * 2 * 16 * 32, WARP_BYTES = 2 * OUTPUTS * PITCH + TILE_BYTES };

// From 10.0 on compilers find no registers for the largest, and no device is asked for it; nor for half of it in 10.3, which makes such products
// of other instructions.
#define HAS_TILE (HAS_MATRIX && !(MT * NT > 8 && __CUDA_ARCH__ >= 1000) && !(MT * NT > 4 && __CUDA_ARCH__ == 1030))
#if HAS_TILE

// What a group is to this kernel: codes with a sign, and COUNT factors: of the group or of its halves, then of its minimum or of theirs.
template <class G> struct Kind;
template <int OFFSET> struct Kind<Scaled<OFFSET>> {
    enum { HALVES = 0, MINIMA = 0, COUNT = 1, OFF = OFFSET };
    DEVICE void factors(const Scaled<OFFSET>& g, float (&f)[4]) { f[0] = g.d; }
};
template <> struct Kind<Shifted> {
    enum { HALVES = 0, MINIMA = 1, COUNT = 2, OFF = 0 };
    DEVICE void factors(const Shifted& g, float (&f)[4]) { f[0] = g.d, f[1] = g.m; }
};
template <int OFFSET> struct Kind<Halved<OFFSET>> {
    enum { HALVES = 1, MINIMA = 0, COUNT = 2, OFF = OFFSET };
    DEVICE void factors(const Halved<OFFSET>& g, float (&f)[4]) {
        f[0] = __fmul_rn(g.d, (float)g.low), f[1] = __fmul_rn(g.d, (float)g.high);
    }
};
template <> struct Kind<Twofold> {
    enum { HALVES = 1, MINIMA = 0, COUNT = 2, OFF = 0 };
    DEVICE void factors(const Twofold& g, float (&f)[4]) { f[0] = g.low, f[1] = g.high; }
};
template <> struct Kind<HalvedShifted> {
    enum { HALVES = 1, MINIMA = 1, COUNT = 4, OFF = 0 };
    DEVICE void factors(const HalvedShifted& g, float (&f)[4]) {
        f[0] = __fmul_rn(g.d, (float)g.low), f[1] = __fmul_rn(g.d, (float)g.high);
        f[2] = __fmul_rn(g.m, (float)g.low_min), f[3] = __fmul_rn(g.m, (float)g.high_min);
    }
};

// Four codes below 128 less OFF, with a sign.
template <int OFF> DEVICE u32 with_sign(u32 q) {
    return OFF ? ((q | 0x80808080u) - OFF * 0x01010101u) ^ 0x80808080u : q;
}

// Where half `h` of sixteen bytes of row r of a tile lies, of 32 a row: of every second four rows they are exchanged, so that eight rows
// meet all banks once.
DEVICE int place(int r, int h) { return 32 * r + 16 * (h ^ (r >> 2 & 1)); }

enum { BASE = 0x4b400000 };
DEVICE float sum_of(int bits) { return __fsub_rn(__int_as_float(bits), 12582912.0f); }

// The rows of a weight that a warp has, and where they go on their way: four lanes a row, eight rows at a time.
template <class F> struct Rows {
    enum { BYTES = CHUNK / F::len * F::bytes, EIGHTS = OUTPUTS / 8 };
    static_assert(PITCH >= BYTES + 15 + 4, "a staged row holds what it must");
    static_assert(PITCH % 32 == 16, "rows begin in different banks");
    // The rows that this lane copies, and their bytes to the weight's end: nothing past that is read.
    const u8* rows[EIGHTS];
    u32 room[EIGHTS];
    // How far the rows that it decodes begin past sixteen bytes.
    u32 odd[MT];
    int cols;
    u8* area;

    METHOD Rows(const u8* w, u64 row_bytes, int first, int out, int cols, u8* area) : cols(cols), area(area) {
        const u8* end = w + (u64)out * row_bytes;
#pragma unroll
        for (int i = 0; i < EIGHTS; i++) {
            rows[i] = w + (u64)min(first + 8 * i + lane() / 4, out - 1) * row_bytes;
            room[i] = (u32)min((u64)(end - rows[i]), (u64)0x7fffffffu);
        }
#pragma unroll
        for (int m = 0; m < MT; m++) odd[m] = (u32)(u64)w + (u32)min(first + 16 * m + lane() % 16, out - 1) * (u32)row_bytes & 15u;
    }

    METHOD int chunks() const { return (cols + CHUNK - 1) / CHUNK; }

    // Asks for chunk `c`, if there is one, in aligned sixteens from before it begins. What comes after the last one's in a row is copied too, if it is
    // of the weight.
    METHOD void ask(int c, int stage) {
        if (c < chunks()) {
            u32 at = 16 * (lane() % 4), offset = (u32)c * BYTES;
#pragma unroll
            for (int i = 0; i < EIGHTS; i++) {
                const u8* from = rows[i] + offset;
                u32 before = (u32)(u64)from & 15u;
                u8* to = area + (stage * OUTPUTS + 8 * i + lane() / 4) * PITCH + at;
                from = from + at - before;
                if (offset + PITCH <= room[i]) {
#pragma unroll
                    for (int k = 0; k < PITCH; k += 64)
                        if (k + 64 <= BYTES || (at + k < PITCH && at + k < before + BYTES + 4)) copy16(to + k, from + k);
                } else {
#pragma unroll 1
                    for (int k = 0; at + k < PITCH; k += 64) {
                        int left = (int)(room[i] - offset + before - at) - k;
                        copy16_of(to + k, left > 0 ? from + k : (const u8*)((u64)rows[i] & ~15ull), left >= 16 ? 16 : left > 0 ? left : 0);
                    }
                }
            }
        }
        copies_end();
    }

    // Group g of a row of sixteen m that this lane decodes, of the chunk `c` that is in this stage.
    METHOD void group(int c, int stage, int m, int g, typename F::Group& o) const {
        u32 before = BYTES % 16 ? odd[m] + (u32)c * BYTES & 15u : odd[m];
        const u8* from = area + (stage * OUTPUTS + 16 * m + lane() % 16) * PITCH + before;
        if (F::len == 32) F::group(from + g * F::bytes, 0, o);
        else if (F::len == 64) F::group(from + g / 2 * F::bytes, g % 2, o);
        else F::group(from, g, o);
    }
};

// Rounded rows in tiles: where this lane's part of its block's first tile lies, in bytes, of fewer than 2^32 as rows are few.
struct Given {
    const u8* codes;
    const u8* kept;
    u32 code, scale;
    // Tiles from there on, and pairs of groups in a row.
    int tiles;
    u32 pairs;
};

// What a lane has of 64 inputs of a tile: words of both groups, and scales and sums of the two rows that its results are of.
struct Fetched {
    uint4 b, scales, sums;
    template <class K> METHOD void fetch(const Given& x, int t, u32 pair) {
        u32 at = t == 0 ? pair : (u32)min(t, x.tiles - 1) * x.pairs + pair;
        b = *(const uint4*)(x.codes + (x.code + at * 512u));
        const uint4* of = (const uint4*)(x.kept + (x.scale + at * 128u));
        scales = of[0];
        if (K::MINIMA) sums = of[1];
    }
};

// Adds a group's products: of 16 outputs, whose codes are in fragments `a` and factors `f` for the rows lane / 4 and 8 more.
template <class K> DEVICE void add(const u32 (&a)[4], const float (&f)[2][4], u32 b0, u32 b1, const u32 (&scale)[2], const u32 (&sums)[2], float (&acc)[4]) {
    int d[2][4] = {{BASE, BASE, BASE, BASE}, {BASE, BASE, BASE, BASE}};
    if (K::HALVES) {
        mma_i8_16(d[0], a[0], a[1], b0);
        mma_i8_16(d[1], a[2], a[3], b1);
    } else {
        mma_i8(d[0], a, b0, b1);
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float* of = f[j >> 1];
        u32 sum = sums[j & 1];
        float p = __fmul_rn(of[0], sum_of(d[0][j]));
        if (K::HALVES) p = fmaf(of[1], sum_of(d[1][j]), p);
        if (K::MINIMA && K::HALVES) p = fmaf(of[2], (float)first_sum(sum), fmaf(of[3], (float)(whole_sum(sum) - first_sum(sum)), p));
        else if (K::MINIMA) p = fmaf(of[1], (float)whole_sum(sum), p);
        acc[j] = fmaf(__int_as_float((int)scale[j & 1]), p, acc[j]);
    }
}

// 64 inputs from group g on of the chunk in this stage: decoded, put in the tile, and multiplied.
template <class F>
DEVICE void add_pair(const Rows<F>& w, u8* tile, const Given& x, int c, int stage, int g, float (&acc)[MT][NT][4]) {
    typedef Kind<typename F::Group> K;
    // Tiles that are asked for before weights are decoded; the others each before the one that is multiplied.
    enum { EARLY = NT <= 2 ? NT : MT == 1 ? 1 : 2 };
    int groups = w.cols / 32, at = CHUNK / 32 * c + g;
    Fetched given[EARLY];
#pragma unroll
    for (int t = 0; t < EARLY; t++) given[t].template fetch<K>(x, t, (u32)at / 2);
    u32 a[MT][2][4];
    float factors[MT][2][2][4];
#pragma unroll
    for (int m = 0; m < MT; m++) {
        int r = lane() % 16, h = lane() / 16;
        typename F::Group o;
        // Past the last group: codes of the last, whose factors are zeros. Blocks of 256 have no such.
        bool is = F::len == 256 || at + h < groups;
        w.group(c, stage, m, is ? g + h : g, o);
        float own[4] = {};
        K::factors(o, own);
        u32 q[8];
#pragma unroll
        for (int j = 0; j < 8; j++) q[j] = with_sign<K::OFF>(o.q[j]);
        u8* to = tile + (m * 2 + h) * 512;
        *(uint4*)(to + place(r, 0)) = make_uint4(q[0], q[1], q[2], q[3]);
        *(uint4*)(to + place(r, 1)) = make_uint4(q[4], q[5], q[6], q[7]);
#pragma unroll
        for (int k = 0; k < K::COUNT; k++) {
            own[k] = is ? own[k] : 0.0f;
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int e = 0; e < 2; e++) factors[m][h][e][k] = __shfl_sync(ALL, own[k], 16 * h + 8 * e + lane() / 4);
        }
    }
    __syncwarp();
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) load_matrix(a[m][h], tile + (m * 2 + h) * 512 + place(lane() % 16, lane() / 16));
#pragma unroll
    for (int t = 0; t < NT; t++) {
        Fetched now = given[t % EARLY];
        if (t + EARLY < NT) given[t % EARLY].template fetch<K>(x, t + EARLY, (u32)at / 2);
        const u32 scales[2][2] = {{now.scales.x, now.scales.y}, {now.scales.z, now.scales.w}};
        const u32 sums[2][2] = {{now.sums.x, now.sums.y}, {now.sums.z, now.sums.w}};
#pragma unroll
        for (int m = 0; m < MT; m++) add<K>(a[m][0], factors[m][0], now.b.x, now.b.y, scales[0], sums[0], acc[m][t]);
#pragma unroll
        for (int m = 0; m < MT; m++) add<K>(a[m][1], factors[m][1], now.b.z, now.b.w, scales[1], sums[1], acc[m][t]);
    }
    // What is put there next overwrites what others read.
    __syncwarp();
}

// Block `block` of a weight's.
template <class F> DEVICE void outputs(TRACED u8* shared, const Product& p, int block, const u8* codes, const u8* kept, int n, int cols) {
    int first_out = block * OUTPUTS, first_tile = blockIdx.y * NT;
    Rows<F> w(p.w, p.row_bytes, first_out, p.out, cols, shared + warp() * WARP_BYTES);
    u8* tile = w.area + 2 * OUTPUTS * PITCH;
    w.ask(warp(), 0);
    after_the_last();
    u32 pairs = (u32)(cols / 32 + 1) / 2;
    u32 begin = (u32)first_tile * pairs;
    Given x = {codes, kept, begin * 512 + 16 * lane(), begin * 128 + 32 * (lane() % 4), (n + 7) / 8 - first_tile, pairs};
    // Without this they are computed anew each time, by a sixth of all instructions.
    asm volatile("" : "+r"(x.code), "+r"(x.scale));
    float acc[MT][NT][4];
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int t = 0; t < NT; t++)
#pragma unroll
            for (int j = 0; j < 4; j++) acc[m][t][j] = 0.0f;
    int stage = 0;
    for (int c = warp(); c < w.chunks(); c += PARTS, stage ^= 1) {
        w.ask(c + PARTS, stage ^ 1);
        copied<1>();
        __syncwarp();
        // Where rows are few, decoding is most of the work, and less with numbers of groups that the compiler knows, as far as registers go.
        enum { TURNS = MT * NT > 1 || Kind<typename F::Group>::COUNT > 2 ? 1 : 4 };
#pragma unroll (TURNS)
        for (int g = 0; g < CHUNK / 32; g += 2)
            if (F::len == 256 || CHUNK / 32 * c + g < cols / 32) add_pair(w, tile, x, c, stage, g, acc);
    }
    copied<0>();
    __syncthreads();
    // Parts in their order: a warp adds those of every PARTS-th fragment.
    float4* sums = (float4*)shared;
#pragma unroll
    for (int i = 0; i < MT * NT; i++) {
        const float(&d)[4] = acc[i / NT][i % NT];
        sums[(warp() * MT * NT + i) * 32 + lane()] = make_float4(d[0], d[1], d[2], d[3]);
    }
    __syncthreads();
    for (int i = warp(); i < MT * NT; i += PARTS) {
        float4 v = sums[i * 32 + lane()];
#pragma unroll
        for (int part = 1; part < PARTS; part++) {
            float4 u = sums[(part * MT * NT + i) * 32 + lane()];
            v.x += u.x, v.y += u.y, v.z += u.z, v.w += u.w;
        }
        float d[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int row = (first_tile + i % NT) * 8 + 2 * (lane() % 4) + (j & 1), o = first_out + i / NT * 16 + lane() / 4 + 8 * (j >> 1);
            if (row < n && o < p.out) p.y[(u64)row * p.out + o] = d[j];
        }
    }
}

// Blocks that a multiprocessor shall have registers for. For the four factors of q2_k and two tiles compilers for 12.1 find too few for two, and
// those for 10.3 for any.
enum { WIDE = Kind<First::Group>::COUNT > 2 || Kind<Second::Group>::COUNT > 2 || Kind<Third::Group>::COUNT > 2 };
enum { BLOCKS = NT > 2 || NT == 2 && (WIDE && __CUDA_ARCH__ >= 1200 || __CUDA_ARCH__ == 1030) ? 1 : 2 };
#else
enum { BLOCKS = 1 };
#endif

KERNEL __launch_bounds__(32 * PARTS, BLOCKS)
    linear_int8_mma(TRACED const u8* codes, const u8* kept, int n, int cols, const u8* w, u64 row_bytes, float* y, int out,
                    const u8* w2, u64 row_bytes2, float* y2, int out2, const u8* w3, u64 row_bytes3, float* y3, int out3) {
#if HAS_TILE
    extern __shared__ __align__(16) u8 shared[];
    Product p = {w, row_bytes, y, out};
    int block = blockIdx.x, which = choose(p, {w2, row_bytes2, y2, out2}, {w3, row_bytes3, y3, out3}, OUTPUTS, block);
    if (HAS_THIRD && which == 2) return outputs<Third>(PASS_TRACED shared, p, block, codes, kept, n, cols);
    if (HAS_SECOND && which == 1) return outputs<Second>(PASS_TRACED shared, p, block, codes, kept, n, cols);
    outputs<First>(PASS_TRACED shared, p, block, codes, kept, n, cols);
#else
    // No device without these instructions is asked.
    __trap();
#endif
}
