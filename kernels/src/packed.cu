// Packed formats as integers: 32 neighbouring elements of a row as eight words of four codes, and what multiplies their sums.
//
// A struct `NAME_codes` for each format that `formats.cu` decodes, with its block's length and bytes, the alignment its blocks are sure
// of, and `group(b, i)`: elements 32 i to 32 i + 31 of block b. What it gives is one of five kinds, which differ in what a group has
// beside its codes. All have `times(a, sums)`: the product with 32 codes of activations, but for the activations' scale. Sums of codes
// are integers and exact; so is a block's factor times that of a part of it, of 11 and at most 8 bits; what is rounded is the sum's
// product with its factor, the addition of the minimum's product (as one), and nothing else.
//
// Cost for 32 elements: 16 to 64 bytes read in words, 2 to 8 operations for each word of codes, once for all rows; 8 `dp4a` and 2 to 8
// other operations a row.

#define CODES_(f) f##_codes
#define CODES(f) CODES_(f)

// 32 codes of activations.
struct Codes {
    u32 q[8];
};

DEVICE int first_sum(u32 sums) { return (int)(short)(sums & 0xffffu); }
DEVICE int whole_sum(u32 sums) { return (int)sums >> 16; }

DEVICE int dot(const u32* q, const u32* a, int words) {
    int sum = 0;
#pragma unroll
    for (int j = 0; j < words; j++) sum = dp4a(q[j], a[j], sum);
    return sum;
}

// One factor; codes are OFFSET too large.
template <int OFFSET> struct Scaled {
    u32 q[8];
    float d;
    METHOD float times(const Codes& a, u32 sums) const {
        return __fmul_rn(d, (float)(dot(q, a.q, 8) - OFFSET * whole_sum(sums)));
    }
};

// A factor, and a number that is added to each element.
struct Shifted {
    u32 q[8];
    float d, m;
    METHOD float times(const Codes& a, u32 sums) const {
        return fmaf(m, (float)whole_sum(sums), __fmul_rn(d, (float)dot(q, a.q, 8)));
    }
};

// Whole factors of the two sixteens; codes are OFFSET too large.
template <int OFFSET> struct Halved {
    u32 q[8];
    float d;
    int low, high;
    METHOD float times(const Codes& a, u32 sums) const {
        int first = first_sum(sums), second = whole_sum(sums) - first;
        int sum = low * (dot(q, a.q, 4) - OFFSET * first) + high * (dot(q + 4, a.q + 4, 4) - OFFSET * second);
        return __fmul_rn(d, (float)sum);
    }
};

// Whole factors and whole minima of the two sixteens.
struct HalvedShifted {
    u32 q[8];
    float d, m;
    int low, high, low_min, high_min;
    METHOD float times(const Codes& a, u32 sums) const {
        int first = first_sum(sums), second = whole_sum(sums) - first;
        int sum = low * dot(q, a.q, 4) + high * dot(q + 4, a.q + 4, 4);
        return fmaf(m, (float)(low_min * first + high_min * second), __fmul_rn(d, (float)sum));
    }
};

// Factors of the two sixteens that nothing whole relates.
struct Twofold {
    u32 q[8];
    float low, high;
    METHOD float times(const Codes& a, u32) const {
        return fmaf(high, (float)dot(q + 4, a.q + 4, 4), __fmul_rn(low, (float)dot(q, a.q, 4)));
    }
};

// N words from where ALIGN of alignment is known. From less than four they are shifted out of the words around them, the last of which
// may be the one after them.
template <int N, int ALIGN> DEVICE void words(const u8* p, u32 (&w)[N]) {
    if (ALIGN >= 16) {
#pragma unroll
        for (int j = 0; j < N; j += 4) {
            uint4 v = *(const uint4*)(p + 4 * j);
            w[j] = v.x; w[j + 1] = v.y; w[j + 2] = v.z; w[j + 3] = v.w;
        }
    } else if (ALIGN >= 8) {
#pragma unroll
        for (int j = 0; j < N; j += 2) {
            uint2 v = *(const uint2*)(p + 4 * j);
            w[j] = v.x; w[j + 1] = v.y;
        }
    } else if (ALIGN >= 4) {
#pragma unroll
        for (int j = 0; j < N; j++) w[j] = ((const u32*)p)[j];
    } else {
        int off = (int)((u64)p & 3);
        const u32* from = (const u32*)(p - off);
        u32 select = 0x3210u + 0x1111u * off, last = from[0];
#pragma unroll
        for (int j = 0; j < N; j++) {
            u32 next = from[j + 1];
            w[j] = __byte_perm(last, next, select);
            last = next;
        }
    }
}

// Blocks of 32 ---------------------------------------------------------------------------------------------------------

// Codes of four bits: the low halves of sixteen bytes, then the high ones.
template <int ALIGN> DEVICE void nibbles(const u8* p, u32 (&q)[8]) {
    u32 w[4];
    words<4, ALIGN>(p, w);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        q[j] = w[j] & 0x0f0f0f0fu;
        q[4 + j] = w[j] >> 4 & 0x0f0f0f0fu;
    }
}

// Four bits as the fifth of four bytes.
DEVICE u32 fifths(u32 bits) { return (bits & 15u) * 0x02040810u & 0x10101010u; }

struct q4_0_codes : Block<32, 18> {
    typedef Scaled<8> Group;
    DEVICE void group(const u8* b, int, Group& o) {
        o.d = load_half<2>(b);
        nibbles<2>(b + 2, o.q);
    }
};

struct q4_1_codes : Block<32, 20> {
    typedef Shifted Group;
    DEVICE void group(const u8* b, int, Group& o) {
        o.d = load_half<4>(b);
        o.m = load_half<4>(b + 2);
        nibbles<4>(b + 4, o.q);
    }
};

struct q5_0_codes : Block<32, 22> {
    typedef Scaled<16> Group;
    DEVICE void group(const u8* b, int, Group& o) {
        o.d = load_half<2>(b);
        nibbles<2>(b + 6, o.q);
        u32 fifth = load4<2>(b + 2);
#pragma unroll
        for (int j = 0; j < 8; j++) o.q[j] |= fifths(fifth >> 4 * j);
    }
};

struct q5_1_codes : Block<32, 24> {
    typedef Shifted Group;
    DEVICE void group(const u8* b, int, Group& o) {
        o.d = load_half<4>(b);
        o.m = load_half<4>(b + 2);
        nibbles<8>(b + 8, o.q);
        u32 fifth = load4<4>(b + 4);
#pragma unroll
        for (int j = 0; j < 8; j++) o.q[j] |= fifths(fifth >> 4 * j);
    }
};

struct q8_0_codes : Block<32, 34> {
    typedef Scaled<0> Group;
    DEVICE void group(const u8* b, int, Group& o) {
        o.d = load_half<2>(b);
        words<8, 2>(b + 2, o.q);
    }
};

// Blocks of 256 ----------------------------------------------------------------------------------------------------------

// Codes of two bits: the i-th 32 of a block are shifted out of 32 bytes that four of them share.
template <int ALIGN> DEVICE void pairs(const u8* p, int i, u32 (&q)[8]) {
    words<8, ALIGN>(p + 32 * (i / 4), q);
#pragma unroll
    for (int j = 0; j < 8; j++) q[j] = q[j] >> 2 * (i % 4) & 0x03030303u;
}

struct q2_k_codes : Block<256, 84> {
    typedef HalvedShifted Group;
    DEVICE void group(const u8* b, int i, Group& o) {
        o.d = load_half<4>(b + 80);
        o.m = -load_half<4>(b + 82);
        u32 both = load2<4>(b + 2 * i);
        o.low = (int)(both & 15u);
        o.low_min = (int)(both >> 4 & 15u);
        o.high = (int)(both >> 8 & 15u);
        o.high_min = (int)(both >> 12);
        pairs<4>(b + 16, i, o.q);
    }
};

struct q3_k_codes : Block<256, 110> {
    typedef Halved<4> Group;
    DEVICE int scale(const u8* b, int k) {
        return ((b[96 + k % 8] >> 4 * (k / 8) & 15) | (b[104 + k % 4] >> 2 * (k / 4) & 3) << 4) - 32;
    }
    DEVICE void group(const u8* b, int i, Group& o) {
        o.d = load_half<2>(b + 108);
        o.low = scale(b, 2 * i);
        o.high = scale(b, 2 * i + 1);
        pairs<2>(b + 32, i, o.q);
        u32 third[8];
        words<8, 2>(b, third);
#pragma unroll
        for (int j = 0; j < 8; j++) o.q[j] |= (third[j] >> i & 0x01010101u) << 2;
    }
};

// Adds the products of two neighbouring groups of q4_k or q5_k, or of a part of both: `head` is d and dmin, factors and minima are bytes, sums are of
// products and of codes, and `scale` the activations'.
DEVICE float add_neighbours(u32 head, u32 factors, u32 minima, const int (&dot)[2], const int (&sums)[2], const float (&scale)[2], float acc) {
    float u[2], v[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        u[i] = (float)((int)(factors >> 8 * i & 255u) * dot[i]);
        v[i] = (float)((int)(minima >> 8 * i & 255u) * sums[i]);
    }
    float products = fmaf(scale[1], u[1], __fmul_rn(scale[0], u[0])), taken = fmaf(scale[1], v[1], __fmul_rn(scale[0], v[0]));
    acc = fmaf(half_to_float((u16)(head & 0xffffu)), products, acc);
    return fmaf(-half_to_float((u16)(head >> 16)), taken, acc);
}

// What q4_k and q5_k share: d, dmin and twelve bytes of six-bit scales and minima in sixteen bytes, and codes' low four bits. Blocks are whole
// sixteens of bytes, so words come in wide loads wherever a block lies.
DEVICE void eighth(const u8* b, const u8* codes, int i, Shifted& o) {
    uint4 head = *(const uint4*)b;
    // As `scale_and_min` has them: the factor's and the minimum's word, for the later four eighths the last word with their two top bits.
    int shift = 8 * (i & 3);
    u32 scale = head.y >> shift, min = head.z >> shift, rest = head.w >> shift;
    scale = i < 4 ? scale & 63u : (rest & 15u) | (scale >> 2 & 48u);
    min = i < 4 ? min & 63u : (rest >> 4 & 15u) | (min >> 2 & 48u);
    o.d = __fmul_rn(half_to_float((u16)(head.x & 0xffffu)), (float)scale);
    o.m = -__fmul_rn(half_to_float((u16)(head.x >> 16)), (float)min);
    words<8, 16>(codes + 32 * (i / 2), o.q);
#pragma unroll
    for (int j = 0; j < 8; j++) o.q[j] = o.q[j] >> 4 * (i % 2) & 0x0f0f0f0fu;
}

struct q4_k_codes : Block<256, 144> {
    typedef Shifted Group;
    DEVICE void group(const u8* b, int i, Group& o) { eighth(b, b + 16, i, o); }
};

struct q5_k_codes : Block<256, 176> {
    typedef Shifted Group;
    DEVICE void group(const u8* b, int i, Group& o) {
        eighth(b, b + 48, i, o);
        u32 fifth[8];
        words<8, 16>(b + 16, fifth);
#pragma unroll
        for (int j = 0; j < 8; j++) o.q[j] |= (fifth[j] >> i & 0x01010101u) << 4;
    }
};

struct q6_k_codes : Block<256, 210> {
    typedef Halved<32> Group;
    DEVICE void group(const u8* b, int i, Group& o) {
        o.d = load_half<2>(b + 208);
        u32 both = load2<2>(b + 192 + 2 * i);
        o.low = (int)(i8)(both & 255u);
        o.high = (int)(i8)(both >> 8);
        u32 low[8];
        words<8, 2>(b + 64 * (i / 4) + 32 * (i % 2), low);
        pairs<2>(b + 128, i, o.q);
#pragma unroll
        for (int j = 0; j < 8; j++) o.q[j] = o.q[j] << 4 | (low[j] >> 4 * (i / 2 % 2) & 0x0f0f0f0fu);
    }
};

// Codes that are looked up -----------------------------------------------------------------------------------------------

// The levels of four codes of four bits, from a table of sixteen bytes: both halves are looked up, and the codes' top bits choose.
DEVICE u32 levels_of(u32 a, u32 b, u32 c, u32 d, u32 codes) {
    u32 at = codes & 0x7777u, low = __byte_perm(a, b, at), high = __byte_perm(c, d, at);
    return __byte_perm(low, high, 0x3210u | (codes & 0x8888u) >> 1);
}

// The same of 32 codes as `nibbles` finds them.
template <int ALIGN> DEVICE void levels(u32 a, u32 b, u32 c, u32 d, const u8* p, u32 (&q)[8]) {
    u32 w[4];
    words<4, ALIGN>(p, w);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        // Bytes 0 and 1, then 2 and 3: of each the low half and the high one.
        u32 front = levels_of(a, b, c, d, w[j]), back = levels_of(a, b, c, d, w[j] >> 16);
        q[j] = __byte_perm(front, back, 0x6420u);
        q[4 + j] = __byte_perm(front, back, 0x7531u);
    }
}

template <int ALIGN> DEVICE void iq4_levels(const u8* p, u32 (&q)[8]) {
    levels<ALIGN>(0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u, p, q);
}

struct iq4_nl_codes : Block<32, 18> {
    typedef Scaled<0> Group;
    DEVICE void group(const u8* b, int, Group& o) {
        o.d = load_half<2>(b);
        iq4_levels<2>(b + 2, o.q);
    }
};

struct iq4_xs_codes : Block<256, 136> {
    typedef Scaled<0> Group;
    DEVICE void group(const u8* b, int i, Group& o) {
        int scale = (b[4 + i / 2] >> 4 * (i % 2) & 15) | (int)(load2<4>(b + 2) >> 2 * i & 3u) << 4;
        o.d = __fmul_rn(load_half<4>(b), (float)(scale - 32));
        iq4_levels<8>(b + 8 + 16 * i, o.q);
    }
};

struct mxfp4_codes : Block<32, 17> {
    typedef Scaled<0> Group;
    DEVICE void group(const u8* b, int, Group& o) {
        u32 e = b[0];
        o.d = __int_as_float((int)(e < 2u ? 0x00200000u << e : (e - 1u) << 23));
        levels<1>(0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu, b + 1, o.q);
    }
};

// A factor before a file's block of 64: its scales are of sixteen, and so are eight bytes of codes, the low halves and then the high ones.
struct nvfp4_blocks_codes : Block<64, 40> {
    typedef Twofold Group;
    DEVICE void group(const u8* b, int i, Group& o) {
        float factor = __int_as_float((int)load4<4>(b));
        u32 scales = load2<2>(b + 4 + 2 * i), w[4];
        o.low = __fmul_rn(factor, nvfp4_blocks::half(scales & 255u));
        o.high = __fmul_rn(factor, nvfp4_blocks::half(scales >> 8));
        words<4, 8>(b + 8 + 16 * i, w);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            u32 front = levels_of(0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu, w[j]);
            u32 back = levels_of(0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu, w[j] >> 16);
            int first = 4 * (j / 2) + j % 2;
            o.q[first] = __byte_perm(front, back, 0x6420u);
            o.q[first + 2] = __byte_perm(front, back, 0x7531u);
        }
    }
};
