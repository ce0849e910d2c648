// The scale of activations rounded to 8 bits, in one place for all kernels that round.
//
// A group of 32 elements has one scale, its largest magnitude / 127, and codes from -127 to 127 to nearest, ties to even. A group whose
// largest magnitude is below 2^-120 counts as zeros, as the inverse of its scale would overflow. One with an element that is no finite
// number has codes of zero and a scale that is no number: so is every product that reads it. Cost: two divisions and a multiplication for
// whoever asks, and a multiplication and a conversion an element.

// An element's magnitude as bits: these are in the order of the numbers, with what is no number above infinity.
DEVICE u32 magnitude(float v) { return (u32)__float_as_int(v) & 0x7fffffffu; }

// Of a group whose largest magnitude is `most`.
struct Rounding {
    u32 most;
    bool wrong, zeros;
    float inverse;

    METHOD explicit Rounding(u32 most) : most(most) {
        wrong = most >= 0x7f800000u;
        zeros = wrong || most < 7u << 23;
        inverse = zeros ? 0.0f : __fdiv_rn(127.0f, __int_as_float((int)most));
    }

    METHOD int code(float v) const { return zeros ? 0 : __float2int_rn(__fmul_rn(v, inverse)); }

    // What is kept of a group beside its codes: bits of the scale, and two sums of 16 bits, of the first sixteen codes below and of all
    // 32 above. At most 32 * 127.
    METHOD uint2 kept(int first, int all) const {
        float scale = zeros ? 0.0f : __fdiv_rn(__int_as_float((int)most), 127.0f);
        u32 bits = wrong ? 0x7fc00000u : (u32)__float_as_int(scale);
        return make_uint2(bits, ((u32)first & 0xffffu) | (u32)all << 16);
    }
};

// How products by tensor cores have rounded rows (`linear_int8_mma.cu`): in tiles of eight rows, of which 64 inputs of all are together. A warp
// reads those at once, sixteen bytes a lane: of the row lane / 4 the words lane % 4 and 4 + lane % 4 of the first group and of the second one.
// Scales of a tile's 64 inputs are 32 bytes for every two rows: the first group's of both, the second group's, then sums likewise.
struct Tiles {
    u32* codes;
    u32* kept;
    // Pairs of groups in a row; the last may be one and zeros.
    u32 pairs;

    METHOD u64 pair(u32 row, u32 group) const { return (u64)(row / 8) * pairs + group / 2; }
    // Word `w` of a row.
    METHOD void put(u32 row, u32 w, u32 code) const { codes[(pair(row, w / 8) * 32 + row % 8 * 4 + w % 4) * 4 + w / 4 % 4] = code; }
    METHOD void keep(u32 row, u32 group, uint2 k) const {
        u32* to = kept + (pair(row, group) * 4 + row % 8 / 2) * 8 + group % 2 * 2 + row % 2;
        to[0] = k.x;
        to[4] = k.y;
    }
};

// Where rounded quads go: rows one after the other, or tiles if they are wanted (`tiles.pairs` is then not 0).
struct Rounded {
    u32* codes;
    uint2* groups;
    Tiles tiles;

    METHOD Rounded(void* codes, void* groups, u32 pairs) : codes((u32*)codes), groups((uint2*)groups), tiles{(u32*)codes, (u32*)groups, pairs} {}
    METHOD bool wanted() const { return codes; }
    // Quad `w` of a row of `quads`.
    METHOD void put(u32 row, u32 w, u32 quads, u32 code) const {
        if (tiles.pairs) tiles.put(row, w, code);
        else codes[(u64)row * quads + w] = code;
    }
    METHOD void keep(u32 row, u32 w, u32 quads, uint2 k) const {
        if (tiles.pairs) tiles.keep(row, w / 8, k);
        else groups[((u64)row * quads + w) / 8] = k;
    }
};

// Rounds N quads of a lane's, the `w`-th of a row of `quads` each, to what has `put` and `keep` as `Rounded` does; eight lanes that follow one another have
// a group. All lanes of a warp call it, and those for which nothing is `there` store nothing. Each step is taken for all quads, so that one does not wait
// for another's shuffles.
template <int N, class To>
DEVICE void round_quads(const float (&v)[N][4], const bool (&there)[N], u32 row, const u32 (&w)[N], u32 quads, const To& to) {
    u32 most[N], word[N];
    int first[N], all[N];
#pragma unroll
    for (int q = 0; q < N; q++) most[q] = max(max(magnitude(v[q][0]), magnitude(v[q][1])), max(magnitude(v[q][2]), magnitude(v[q][3])));
#pragma unroll
    for (int o = 4; o > 0; o >>= 1)
#pragma unroll
        for (int q = 0; q < N; q++) most[q] = max(most[q], __shfl_xor_sync(ALL, most[q], o));
#pragma unroll
    for (int q = 0; q < N; q++) {
        Rounding r(most[q]);
        word[q] = 0u;
        first[q] = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int code = r.code(v[q][j]);
            word[q] |= ((u32)code & 255u) << 8 * j;
            first[q] += code;
        }
    }
#pragma unroll
    for (int o = 1; o < 4; o <<= 1)
#pragma unroll
        for (int q = 0; q < N; q++) first[q] += __shfl_xor_sync(ALL, first[q], o);
#pragma unroll
    for (int q = 0; q < N; q++) {
        all[q] = first[q] + __shfl_xor_sync(ALL, first[q], 4);
        if (there[q]) to.put(row, w[q], quads, word[q]);
    }
    if (lane() % 8) return;
#pragma unroll
    for (int q = 0; q < N; q++)
        if (there[q]) to.keep(row, w[q], quads, Rounding(most[q]).kept(first[q], all[q]));
}

// Rounds a group whose elements a warp's lanes have in their order, the lane's own being element `at` of all: to what the kernel `codes` would
// give.
DEVICE void round_group(float v, u64 at, i8* codes, uint2* groups) {
    u32 most = magnitude(v);
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) most = max(most, __shfl_xor_sync(ALL, most, o));
    Rounding r(most);
    int code = r.code(v), sum = code;
    codes[at] = (i8)code;
#pragma unroll
    for (int o = 8; o > 0; o >>= 1) sum += __shfl_xor_sync(ALL, sum, o);
    int all = sum + __shfl_xor_sync(ALL, sum, 16);
    if (lane() == 0) groups[at / 32] = r.kept(sum, all);
}
