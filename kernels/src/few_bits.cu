// Weight formats of very few bits: IQ1 to IQ3, whose eights or fours are entries of a grid with signs beside them, and the ternary TQ1 and TQ2.
//
// A struct `NAME_few` for each says where the parts of a block lie; all else is one source for all: a group of 32 elements is read (`read`), eight of
// them at a time become codes of a byte with a sign (`eight`), and factors are whole numbers times the block's (`Few`). `formats.cu` has numbers of
// that, `packed.cu` words of codes. All products are of so few bits that they are exact: decoded numbers have no rounding, whatever the order.
//
// IQ1's elements are a level of -1, 0 or 1 and an eighth more or less, that is eighths of 8 · level + 1 or - 1: those are its codes. Cost for eight
// elements: an entry of a table (`grids.cu`), 12 to 24 operations, and what `formats.cu` and `packed.cu` make of them.

#if HAS_FEW

// A group of 32: numbers of entries, their top bits and signs as they lie, the block's factor and what it is multiplied by in either half.
struct Few {
    u32 index[2], more, signs;
    float d;
    int whole[2];
};

// Two bits of each of eight elements as two words of bytes, from four levels in a word.
DEVICE void eight_levels(u32 levels, u32 entry, u32 (&q)[2]) {
    entry = (entry | entry << 8) & 0x00ff00ffu;
    entry = (entry | entry << 4) & 0x0f0f0f0fu;
    entry = (entry | entry << 2) & 0x33333333u;
    q[0] = __byte_perm(levels, 0u, entry & 0xffffu);
    q[1] = __byte_perm(levels, 0u, entry >> 16);
}

// Four bits as four bytes, all ones where a bit is set.
DEVICE u32 masks(u32 bits) { return ((bits & 15u) * 0x00204081u & 0x01010101u) * 255u; }

// Four codes of at least one, less than zero where their bit is set.
DEVICE u32 negated(u32 q, u32 bits) {
    u32 mask = masks(bits);
    return (q ^ mask) + (mask & 0x01010101u);
}

// Seven signs, and the eighth: there is an even number of them.
DEVICE u32 with_eighth(u32 seven) { return seven | (u32)(__popc(seven) & 1) << 7; }

// An entry of a grid of eights of 8, 25 and 43, or of fours, with signs.
DEVICE void signed_eight(const u16* grid, u32 at, u32 signs, u32 (&q)[2]) {
    eight_levels(0x002b1908u, grid[at], q);
    q[0] = negated(q[0], signs);
    q[1] = negated(q[1], signs >> 4);
}

struct iq2_xxs_few : Block<256, 66> {
    enum { halves = 0 };
    DEVICE void read(const u8* b, int i, Few& o) {
        o.index[0] = load4<2>(b + 2 + 8 * i);
        o.signs = load4<2>(b + 6 + 8 * i);
        o.d = __fmul_rn(load_half<2>(b), 0.125f);
        o.whole[0] = o.whole[1] = 2 * (int)(o.signs >> 28) + 1;
    }
    DEVICE void eight(const Few& o, int l, u32 (&q)[2]) {
        signed_eight(iq2_xxs_grid, o.index[0] >> 8 * l & 255u, with_eighth(o.signs >> 7 * l & 127u), q);
    }
};

// Factors of both halves in a byte.
DEVICE void nibbles_of(u32 scales, Few& o) {
    o.whole[0] = 2 * (int)(scales & 15u) + 1;
    o.whole[1] = 2 * (int)(scales >> 4) + 1;
}

struct iq2_xs_few : Block<256, 74> {
    enum { halves = 1 };
    DEVICE void read(const u8* b, int i, Few& o) {
        o.index[0] = load4<2>(b + 2 + 8 * i);
        o.index[1] = load4<2>(b + 6 + 8 * i);
        o.d = __fmul_rn(load_half<2>(b), 0.125f);
        nibbles_of(b[66 + i], o);
    }
    DEVICE void eight(const Few& o, int l, u32 (&q)[2]) {
        u32 entry = (l < 2 ? o.index[0] : o.index[1]) >> 16 * (l & 1) & 0xffffu;
        signed_eight(iq2_xs_grid, entry & 511u, with_eighth(entry >> 9), q);
    }
};

struct iq2_s_few : Block<256, 82> {
    enum { halves = 1 };
    DEVICE void read(const u8* b, int i, Few& o) {
        o.index[0] = load4<2>(b + 2 + 4 * i);
        o.more = b[66 + i];
        o.signs = load4<2>(b + 34 + 4 * i);
        o.d = __fmul_rn(load_half<2>(b), 0.125f);
        nibbles_of(b[74 + i], o);
    }
    DEVICE void eight(const Few& o, int l, u32 (&q)[2]) {
        u32 at = (o.index[0] >> 8 * l & 255u) | (o.more >> 2 * l & 3u) << 8;
        signed_eight(iq2_s_grid, at, o.signs >> 8 * l, q);
    }
};

struct iq3_xxs_few : Block<256, 98> {
    enum { halves = 0 };
    DEVICE void read(const u8* b, int i, Few& o) {
        o.index[0] = load4<2>(b + 2 + 8 * i);
        o.index[1] = load4<2>(b + 6 + 8 * i);
        o.signs = load4<2>(b + 66 + 4 * i);
        o.d = __fmul_rn(load_half<2>(b), 0.25f);
        o.whole[0] = o.whole[1] = 2 * (int)(o.signs >> 28) + 1;
    }
    DEVICE void eight(const Few& o, int l, u32 (&q)[2]) {
        u32 both = (l < 2 ? o.index[0] : o.index[1]) >> 16 * (l & 1), signs = with_eighth(o.signs >> 7 * l & 127u);
        // 4 12 20 28 36 44 52 62
        q[0] = negated(__byte_perm(0x1c140c04u, 0x3e342c24u, iq3_xxs_grid[both & 255u]), signs);
        q[1] = negated(__byte_perm(0x1c140c04u, 0x3e342c24u, iq3_xxs_grid[both >> 8 & 255u]), signs >> 4);
    }
};

struct iq3_s_few : Block<256, 110> {
    enum { halves = 0 };
    DEVICE void read(const u8* b, int i, Few& o) {
        o.index[0] = load4<2>(b + 2 + 8 * i);
        o.index[1] = load4<2>(b + 6 + 8 * i);
        o.more = b[66 + i];
        o.signs = load4<2>(b + 74 + 4 * i);
        o.d = load_half<2>(b);
        o.whole[0] = o.whole[1] = 2 * (b[106 + i / 2] >> 4 * (i % 2) & 15) + 1;
    }
    DEVICE void eight(const Few& o, int l, u32 (&q)[2]) {
        u32 both = (l < 2 ? o.index[0] : o.index[1]) >> 16 * (l & 1), ninth = o.more >> 2 * l;
        u32 signs = o.signs >> 8 * l;
        // 1 3 5 7 9 11 13 15
        q[0] = negated(__byte_perm(0x07050301u, 0x0f0d0b09u, iq3_s_grid[(both & 255u) | (ninth & 1u) << 8]), signs);
        q[1] = negated(__byte_perm(0x07050301u, 0x0f0d0b09u, iq3_s_grid[(both >> 8 & 255u) | (ninth & 2u) << 7]), signs >> 4);
    }
};

// An entry of IQ1's grid, an eighth less or more.
DEVICE void eighths(u32 at, bool less, u32 (&q)[2]) {
    // -7 1 9, or -9 -1 7.
    eight_levels(less ? 0x0007fff7u : 0x000901f9u, iq1_grid[at], q);
}

struct iq1_s_few : Block<256, 50> {
    enum { halves = 0 };
    DEVICE void read(const u8* b, int i, Few& o) {
        o.index[0] = load4<2>(b + 2 + 4 * i);
        o.more = load2<2>(b + 34 + 2 * i);
        o.d = __fmul_rn(load_half<2>(b), 0.125f);
        o.whole[0] = o.whole[1] = 2 * (int)(o.more >> 12 & 7u) + 1;
    }
    DEVICE void eight(const Few& o, int l, u32 (&q)[2]) {
        eighths((o.index[0] >> 8 * l & 255u) | (o.more >> 3 * l & 7u) << 8, o.more >> 15, q);
    }
};

struct iq1_m_few : Block<256, 56> {
    enum { halves = 1 };
    DEVICE void read(const u8* b, int i, Few& o) {
        o.index[0] = load4<8>(b + 4 * i);
        o.more = load2<8>(b + 32 + 2 * i);
        // The block's factor is the top four bits of the four words that hold the groups'.
        u32 low = load4<8>(b + 48), high = load4<8>(b + 52);
        u32 half = (low >> 12 & 0xfu) | (low >> 24 & 0xf0u) | (high >> 4 & 0xf00u) | (high >> 16 & 0xf000u);
        o.d = __fmul_rn(half_to_float((u16)half), 0.125f);
        u32 scales = (i < 4 ? low : high) >> (16 * (i / 2 % 2) + 6 * (i % 2));
        o.whole[0] = 2 * (int)(scales & 7u) + 1;
        o.whole[1] = 2 * (int)(scales >> 3 & 7u) + 1;
    }
    DEVICE void eight(const Few& o, int l, u32 (&q)[2]) {
        u32 more = o.more >> 4 * l;
        eighths((o.index[0] >> 8 * l & 255u) | (more & 7u) << 8, more & 8u, q);
    }
};

// As numbers.
template <class F> struct FewPacked : Packed<FewPacked<F>, 256, F::bytes> {
    DEVICE void eight(const u8* b, int g, float (&v)[8]) {
        Few few;
        u32 q[2];
        F::read(b, g / 4, few);
        F::eight(few, g % 4, q);
        float d = __fmul_rn(few.d, (float)(g & 2 ? few.whole[1] : few.whole[0]));
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = __fmul_rn(d, (float)(i8)byte_of(q[0], q[1], j));
    }
};

typedef FewPacked<iq1_s_few> iq1_s;
typedef FewPacked<iq1_m_few> iq1_m;
typedef FewPacked<iq2_xxs_few> iq2_xxs;
typedef FewPacked<iq2_xs_few> iq2_xs;
typedef FewPacked<iq2_s_few> iq2_s;
typedef FewPacked<iq3_xxs_few> iq3_xxs;
typedef FewPacked<iq3_s_few> iq3_s;

// Ternary ----------------------------------------------------------------------------------------------------------------

// The w-th four of a block's elements plus one: digits to base three, of which a byte has five, each the front one when the byte is multiplied by a
// power of three. The first 32 bytes have 160 elements, 16 more have 80, and the last four have 16.
DEVICE u32 ternary(const u8* b, int w) {
    bool last = w >= 60;
    int part = w < 40 ? w / 8 : last ? w - 60 : (w - 40) / 4;
    u32 bytes = load4<2>(b + (w < 40 ? 4 * (w % 8) : last ? 48 : 32 + 4 * (w % 4)));
    u32 power = part == 4 ? 81u : 0x1b090301u >> 8 * part & 255u;
    u32 even = ((bytes & 0x00ff00ffu) * power & 0x00ff00ffu) * 3u, odd = ((bytes >> 8 & 0x00ff00ffu) * power & 0x00ff00ffu) * 3u;
    return (even >> 8 & 0x00030003u) | (odd & 0x03000300u);
}

struct tq1_0 : Packed<tq1_0, 256, 54> {
    DEVICE void eight(const u8* b, int g, float (&v)[8]) {
        float d = load_half<2>(b + 52);
        u32 low = ternary(b, 2 * g), high = ternary(b, 2 * g + 1);
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = __fmul_rn((float)((int)byte_of(low, high, j) - 1), d);
    }
};

struct tq2_0 : Packed<tq2_0, 256, 66> {
    DEVICE void eight(const u8* b, int g, float (&v)[8]) {
        float d = load_half<2>(b + 64);
        const u8* q = b + 32 * (g / 16) + 8 * (g % 4);
        u32 low = load4<2>(q) >> 2 * (g / 4 % 4), high = load4<2>(q + 4) >> 2 * (g / 4 % 4);
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = __fmul_rn((float)((int)(byte_of(low, high, j) & 3u) - 1), d);
    }
};

#endif
