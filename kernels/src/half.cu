// The type that products are computed in, f16 or bf16, as HALF says.

#define bf16_half 0
#define f16_half 1
#define NAMED_(h) h##_half
#define NAMED(h) NAMED_(h)
#define IS_F16 (NAMED(HALF) == f16_half)

DEVICE u32 pair(float a, float b) {
#if IS_F16
    return pair_of_f16(a, b);
#else
    return pair_of_bf16(a, b);
#endif
}

// Within the type's range: a few activations of large models are beyond that of f16, and one infinity would spoil its whole row. What is no
// number stays so.
DEVICE float cut(float v) {
#if IS_F16
    return v > 65504.0f ? 65504.0f : v < -65504.0f ? -65504.0f : v;
#else
    return v;
#endif
}

DEVICE u16 half_of(float v) { return (u16)pair(cut(v), 0.0f); }

// Eight numbers as sixteen bytes, each within the type's range.
DEVICE uint4 halves_of(const float (&v)[8]) {
    return make_uint4(pair(cut(v[0]), cut(v[1])), pair(cut(v[2]), cut(v[3])), pair(cut(v[4]), cut(v[5])), pair(cut(v[6]), cut(v[7])));
}
