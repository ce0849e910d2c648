// Weight formats: how eight neighbouring elements of a packed row become numbers.
//
// A struct for each format, all with the same two functions, so that every kernel that reads weights is one source for all of
// them: `-DFORMAT=q4_k` picks. Eight at a time, because every format has its scales constant over eight and eight codes are
// one or two words. Products are rounded before anything is added, as the host's decoders do, so that both give the same
// bits; a decoded element costs two to four operations and BYTES / LEN bytes.
//
// `read8(row, i, cols, v)`: elements i to i + 7 of a row of `cols`; i is a multiple of eight; zeros past the end.
// `at(row, i)`: one element, for rows that do not come in eights.
// `Some<N>`, of what the cache keeps: elements i to i + N - 1 as they lie, loaded now and decoded when they are wanted, so that several loads
// are on their way together. i is a multiple of N, and N 1, 2 or 4; several plain numbers must lie at a multiple of their bytes.

// Set to 1 where rows are whole eights, so that rows of plain numbers can be read in wide loads.
#ifndef VECTOR
#define VECTOR 0
#endif

// Elements and bytes of a block.
template <int LEN, int BYTES> struct Block {
    enum { len = LEN, bytes = BYTES };
};

struct f32 : Block<1, 4> {
    DEVICE float at(const u8* row, int i) { return ((const float*)row)[i]; }
    template <int N> struct Some {
        float v[N];
        METHOD void clear() {
#pragma unroll
            for (int j = 0; j < N; j++) v[j] = 0.0f;
        }
        METHOD void load(const u8* row, int i) {
            const float* p = (const float*)row + i;
            if (N == 4) {
                float4 a = *(const float4*)p;
                v[0] = a.x; v[1 % N] = a.y; v[2 % N] = a.z; v[3 % N] = a.w;
            } else if (N == 2) {
                float2 a = *(const float2*)p;
                v[0] = a.x; v[1 % N] = a.y;
            } else {
                v[0] = p[0];
            }
        }
        METHOD float at(int j) const { return v[j]; }
    };
    DEVICE void read8(const u8* row, int i, int cols, float (&v)[8]) {
        const float* p = (const float*)row + i;
#if VECTOR
        float4 a = ((const float4*)p)[0], b = ((const float4*)p)[1];
        v[0] = a.x; v[1] = a.y; v[2] = a.z; v[3] = a.w;
        v[4] = b.x; v[5] = b.y; v[6] = b.z; v[7] = b.w;
#else
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = i + j < cols ? p[j] : 0.0f;
#endif
    }
};

DEVICE void read8_of_16(const u8* row, int i, int cols, u32 (&w)[8]) {
    const u16* p = (const u16*)row + i;
#if VECTOR
    uint4 a = *(const uint4*)p;
    w[0] = a.x & 0xffffu; w[1] = a.x >> 16; w[2] = a.y & 0xffffu; w[3] = a.y >> 16;
    w[4] = a.z & 0xffffu; w[5] = a.z >> 16; w[6] = a.w & 0xffffu; w[7] = a.w >> 16;
#else
#pragma unroll
    for (int j = 0; j < 8; j++) w[j] = i + j < cols ? p[j] : 0u;
#endif
}

template <int N> struct SomeOf16 {
    u32 w[(N + 1) / 2];
    METHOD void clear() {
#pragma unroll
        for (int j = 0; j < (N + 1) / 2; j++) w[j] = 0u;
    }
    METHOD void load(const u8* row, int i) {
        const u16* p = (const u16*)row + i;
        if (N == 4) {
            uint2 a = *(const uint2*)p;
            w[0] = a.x; w[1 % ((N + 1) / 2)] = a.y;
        } else {
            w[0] = N == 2 ? *(const u32*)p : p[0];
        }
    }
    METHOD u16 bits(int j) const { return (u16)(w[j / 2] >> 16 * (j % 2)); }
};

struct f16 : Block<1, 2> {
    DEVICE float at(const u8* row, int i) { return half_to_float(((const u16*)row)[i]); }
    template <int N> struct Some : SomeOf16<N> {
        METHOD float at(int j) const { return half_to_float(this->bits(j)); }
    };
    DEVICE void read8(const u8* row, int i, int cols, float (&v)[8]) {
        u32 w[8];
        read8_of_16(row, i, cols, w);
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = half_to_float((u16)w[j]);
    }
};

struct bf16 : Block<1, 2> {
    DEVICE float at(const u8* row, int i) { return bf16_to_float(((const u16*)row)[i]); }
    template <int N> struct Some : SomeOf16<N> {
        METHOD float at(int j) const { return bf16_to_float(this->bits(j)); }
    };
    DEVICE void read8(const u8* row, int i, int cols, float (&v)[8]) {
        u32 w[8];
        read8_of_16(row, i, cols, w);
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = bf16_to_float((u16)w[j]);
    }
};

// What packed formats share: `eight(block, g, v)` is group g of eight in a block.
template <class F, int LEN, int BYTES> struct Packed : Block<LEN, BYTES> {
    DEVICE void read8(const u8* row, int i, int, float (&v)[8]) {
        F::eight(row + (u64)(i / LEN) * BYTES, i % LEN / 8, v);
    }
    DEVICE float at(const u8* row, int i) {
        float v[8];
        F::eight(row + (u64)(i / LEN) * BYTES, i % LEN / 8, v);
        float one = 0.0f;
#pragma unroll
        for (int j = 0; j < 8; j++) one = (i & 7) == j ? v[j] : one;
        return one;
    }
};

// Blocks of 32 ---------------------------------------------------------------------------------------------------------

struct q4_0 : Packed<q4_0, 32, 18> {
    DEVICE void eight(const u8* b, int g, float (&v)[8]) {
        float d = load_half<2>(b);
        const u8* q = b + 2 + 8 * (g & 1);
        u32 low = load4<2>(q) >> 4 * (g >> 1), high = load4<2>(q + 4) >> 4 * (g >> 1);
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = __fmul_rn((float)((int)(byte_of(low, high, j) & 15u) - 8), d);
    }
};

struct q4_1 : Packed<q4_1, 32, 20> {
    DEVICE void eight(const u8* b, int g, float (&v)[8]) {
        float d = load_half<4>(b), m = load_half<4>(b + 2);
        const u8* q = b + 4 + 8 * (g & 1);
        u32 low = load4<4>(q) >> 4 * (g >> 1), high = load4<4>(q + 4) >> 4 * (g >> 1);
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = __fadd_rn(__fmul_rn((float)(byte_of(low, high, j) & 15u), d), m);
    }
};

struct q5_0 : Packed<q5_0, 32, 22> {
    DEVICE void eight(const u8* b, int g, float (&v)[8]) {
        float d = load_half<2>(b);
        u32 fifth = load4<2>(b + 2) >> 8 * g;
        const u8* q = b + 6 + 8 * (g & 1);
        u32 low = load4<2>(q) >> 4 * (g >> 1), high = load4<2>(q + 4) >> 4 * (g >> 1);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            u32 code = (byte_of(low, high, j) & 15u) | (fifth >> j & 1u) << 4;
            v[j] = __fmul_rn((float)((int)code - 16), d);
        }
    }
};

struct q5_1 : Packed<q5_1, 32, 24> {
    DEVICE void eight(const u8* b, int g, float (&v)[8]) {
        float d = load_half<4>(b), m = load_half<4>(b + 2);
        u32 fifth = load4<4>(b + 4) >> 8 * g;
        const u8* q = b + 8 + 8 * (g & 1);
        u32 low = load4<4>(q) >> 4 * (g >> 1), high = load4<4>(q + 4) >> 4 * (g >> 1);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            u32 code = (byte_of(low, high, j) & 15u) | (fifth >> j & 1u) << 4;
            v[j] = __fadd_rn(__fmul_rn((float)code, d), m);
        }
    }
};

struct q8_0 : Packed<q8_0, 32, 34> {
    // The cache reads single elements of this one.
    DEVICE float at(const u8* row, int i) {
        const u8* b = row + (u64)(i / 32) * 34;
        return __fmul_rn((float)(i8)b[2 + i % 32], load_half<2>(b));
    }
    template <int N> struct Some {
        u32 codes, scale;
        METHOD void clear() { codes = scale = 0u; }
        METHOD void load(const u8* row, int i) {
            const u8* b = row + (u64)(i / 32) * 34;
            scale = load2<2>(b);
            b += 2 + i % 32;
            codes = N == 4 ? load4<2>(b) : N == 2 ? load2<2>(b) : (u32)b[0];
        }
        METHOD float at(int j) const { return __fmul_rn((float)(i8)(codes >> 8 * j), half_to_float((u16)scale)); }
    };
    DEVICE void eight(const u8* b, int g, float (&v)[8]) {
        float d = load_half<2>(b);
        u32 low = load4<2>(b + 2 + 8 * g), high = load4<2>(b + 6 + 8 * g);
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = __fmul_rn((float)(i8)byte_of(low, high, j), d);
    }
};

// Blocks of 256 ----------------------------------------------------------------------------------------------------------
// Sixteenths (q2_k, q3_k, q6_k) or eighths (q4_k, q5_k) of a block have scales of their own.

DEVICE int two_bit_start(int i) { return 32 * (i / 8) + 16 * (i % 2); }
DEVICE int two_bit_shift(int i) { return 2 * (i / 2 % 4); }

struct q2_k : Packed<q2_k, 256, 84> {
    DEVICE void eight(const u8* b, int g, float (&v)[8]) {
        int i = g / 2, shift = two_bit_shift(i);
        float d = __fmul_rn(load_half<4>(b + 80), (float)(b[i] & 15));
        float m = __fmul_rn(load_half<4>(b + 82), (float)(b[i] >> 4));
        const u8* q = b + 16 + two_bit_start(i) + 8 * (g % 2);
        u32 low = load4<4>(q) >> shift, high = load4<4>(q + 4) >> shift;
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = __fsub_rn(__fmul_rn(d, (float)(byte_of(low, high, j) & 3u)), m);
    }
};

struct q3_k : Packed<q3_k, 256, 110> {
    DEVICE void eight(const u8* b, int g, float (&v)[8]) {
        int i = g / 2, shift = two_bit_shift(i), bit = i / 2;
        int scale = (b[96 + i % 8] >> 4 * (i / 8) & 15) | (b[104 + i % 4] >> 2 * (i / 4) & 3) << 4;
        float d = __fmul_rn(load_half<2>(b + 108), (float)(scale - 32));
        const u8* q = b + 32 + two_bit_start(i) + 8 * (g % 2);
        const u8* t = b + 16 * (i % 2) + 8 * (g % 2);
        u32 low = load4<2>(q) >> shift, high = load4<2>(q + 4) >> shift;
        u32 third_low = load4<2>(t) >> bit, third_high = load4<2>(t + 4) >> bit;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            u32 code = (byte_of(low, high, j) & 3u) | (byte_of(third_low, third_high, j) & 1u) << 2;
            v[j] = __fmul_rn(d, (float)((int)code - 4));
        }
    }
};

// Six-bit factors and minima of eight eighths in twelve bytes.
DEVICE void scale_and_min(const u8* p, int i, u32& scale, u32& min) {
    if (i < 4) {
        scale = p[i] & 63u;
        min = p[4 + i] & 63u;
    } else {
        scale = (p[4 + i] & 15u) | (u32)(p[i - 4] >> 6) << 4;
        min = (u32)(p[4 + i] >> 4) | (u32)(p[i] >> 6) << 4;
    }
}

struct q4_k : Packed<q4_k, 256, 144> {
    DEVICE void eight(const u8* b, int g, float (&v)[8]) {
        int i = g / 4, shift = 4 * (i & 1);
        u32 scale, min;
        scale_and_min(b + 4, i, scale, min);
        float d = __fmul_rn(load_half<4>(b), (float)scale), m = __fmul_rn(load_half<4>(b + 2), (float)min);
        const u8* q = b + 16 + 32 * (i / 2) + 8 * (g % 4);
        u32 low = load4<4>(q) >> shift, high = load4<4>(q + 4) >> shift;
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = __fsub_rn(__fmul_rn(d, (float)(byte_of(low, high, j) & 15u)), m);
    }
};

struct q5_k : Packed<q5_k, 256, 176> {
    DEVICE void eight(const u8* b, int g, float (&v)[8]) {
        int i = g / 4, shift = 4 * (i & 1);
        u32 scale, min;
        scale_and_min(b + 4, i, scale, min);
        float d = __fmul_rn(load_half<4>(b), (float)scale), m = __fmul_rn(load_half<4>(b + 2), (float)min);
        const u8* q = b + 48 + 32 * (i / 2) + 8 * (g % 4);
        const u8* f = b + 16 + 8 * (g % 4);
        u32 low = load4<4>(q) >> shift, high = load4<4>(q + 4) >> shift;
        u32 fifth_low = load4<4>(f) >> i, fifth_high = load4<4>(f + 4) >> i;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            u32 code = (byte_of(low, high, j) & 15u) | (byte_of(fifth_low, fifth_high, j) & 1u) << 4;
            v[j] = __fsub_rn(__fmul_rn(d, (float)code), m);
        }
    }
};

struct q6_k : Packed<q6_k, 256, 210> {
    DEVICE void eight(const u8* b, int g, float (&v)[8]) {
        int i = g / 2, shift = 4 * (i / 4 % 2), high_shift = two_bit_shift(i);
        float d = __fmul_rn(load_half<2>(b + 208), (float)(i8)b[192 + i]);
        const u8* q = b + 64 * (i / 8) + 16 * (i % 4) + 8 * (g % 2);
        const u8* h = b + 128 + two_bit_start(i) + 8 * (g % 2);
        u32 low = load4<2>(q) >> shift, high = load4<2>(q + 4) >> shift;
        u32 top_low = load4<2>(h) >> high_shift, top_high = load4<2>(h + 4) >> high_shift;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            u32 code = (byte_of(low, high, j) & 15u) | (byte_of(top_low, top_high, j) & 3u) << 4;
            v[j] = __fmul_rn(d, (float)((int)code - 32));
        }
    }
};

// Codes that are looked up -----------------------------------------------------------------------------------------------
// Sixteen levels of one byte in four words: two byte selections are cheaper than a table in memory.

DEVICE int level(u32 a, u32 b, u32 c, u32 d, u32 code) {
    u32 low = __byte_perm(a, b, code & 7u), high = __byte_perm(c, d, code & 7u);
    return (int)(i8)((code & 8u ? high : low) & 255u);
}

// -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113
DEVICE int iq4_level(u32 code) { return level(0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u, code); }
// Twice the values of E2M1: 0 1 2 3 4 6 8 12 and the same below zero.
DEVICE int e2m1_level(u32 code) { return level(0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu, code); }

struct iq4_nl : Packed<iq4_nl, 32, 18> {
    DEVICE void eight(const u8* b, int g, float (&v)[8]) {
        float d = load_half<2>(b);
        const u8* q = b + 2 + 8 * (g & 1);
        u32 low = load4<2>(q) >> 4 * (g >> 1), high = load4<2>(q + 4) >> 4 * (g >> 1);
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = __fmul_rn(d, (float)iq4_level(byte_of(low, high, j) & 15u));
    }
};

struct iq4_xs : Packed<iq4_xs, 256, 136> {
    DEVICE void eight(const u8* b, int g, float (&v)[8]) {
        int i = g / 4, part = g % 4;
        int scale = (b[4 + i / 2] >> 4 * (i % 2) & 15) | (int)(load2<4>(b + 2) >> 2 * i & 3u) << 4;
        float d = __fmul_rn(load_half<4>(b), (float)(scale - 32));
        const u8* q = b + 8 + 16 * i + 8 * (part & 1);
        u32 low = load4<4>(q) >> 4 * (part >> 1), high = load4<4>(q + 4) >> 4 * (part >> 1);
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = __fmul_rn(d, (float)iq4_level(byte_of(low, high, j) & 15u));
    }
};

struct mxfp4 : Packed<mxfp4, 32, 17> {
    DEVICE void eight(const u8* b, int g, float (&v)[8]) {
        u32 e = b[0];
        float d = __int_as_float((int)(e < 2u ? 0x00200000u << e : (e - 1u) << 23));
        const u8* q = b + 1 + 8 * (g & 1);
        u32 low = load4<1>(q) >> 4 * (g >> 1), high = load4<1>(q + 4) >> 4 * (g >> 1);
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = __fmul_rn(d, (float)e2m1_level(byte_of(low, high, j) & 15u));
    }
};

// FP8 (E4M3) as it lies on a device: a factor in single precision and 32 elements. Those of files have one for a tile of a matrix, which every format
// could have; so that no kernel but this struct knows of them, each 32 columns have theirs again, an eighth more.
struct f8_blocks : Packed<f8_blocks, 32, 36> {
    DEVICE void eight(const u8* b, int g, float (&v)[8]) {
        float d = __int_as_float((int)load4<4>(b));
        u32 low = load4<4>(b + 4 + 8 * g), high = load4<4>(b + 8 + 8 * g);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            u32 code = byte_of(low, high, j), magnitude = code & 127u;
            // Exponent and fraction in their places, with a bias that is 120 less: what is denormal in one is so in the other. The last is no number.
            u32 bits = magnitude == 127u ? 0x7fc00000u : magnitude << 20 | (code & 128u) << 24;
            v[j] = __fmul_rn(__fmul_rn(__int_as_float((int)bits), __int_as_float(247 << 23)), d);
        }
    }
};

// NVFP4 as it lies on a device: a factor in single precision before a block of the file's, as FP8 has one, a ninth more. Of the file's blocks the factor
// may be that of all of a matrix.
struct nvfp4_blocks : Packed<nvfp4_blocks, 64, 40> {
    // Half of a scale, for doubled levels: E4M3 as above without its sign, and ggml's nothing where it would be no number.
    DEVICE float half(u32 s) {
        u32 bits = s == 127u ? 0u : (s & 127u) << 20;
        return __fmul_rn(__int_as_float((int)bits), __int_as_float(246 << 23));
    }
    DEVICE void eight(const u8* b, int g, float (&v)[8]) {
        float factor = __int_as_float((int)load4<4>(b)), d = half(b[4 + g / 2]);
        const u8* q = b + 8 + 8 * (g / 2);
        u32 low = load4<4>(q) >> 4 * (g & 1), high = load4<4>(q + 4) >> 4 * (g & 1);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            v[j] = __fmul_rn(__fmul_rn(d, (float)e2m1_level(byte_of(low, high, j) & 15u)), factor);
        }
    }
};

// Whether two weights are of one format, so that their rows may go side by side.
template <class A, class B> struct Same {
    enum { is = 0 };
};
template <class A> struct Same<A, A> {
    enum { is = 1 };
};
