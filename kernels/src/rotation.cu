// Turning pairs by an angle: what `rope.cu` and `rope_store.cu` have in common.
//
// Each product's rounding is said. A compiler may join a sum with one of two products, and which of them is its choice: the two kernels,
// or one with and without `TRACE`, could differ in a bit.

struct Angle {
    float sine, cosine;
};

DEVICE Angle angle(float position, float frequency, float factor) {
    Angle a;
    sincosf(__fmul_rn(position, frequency), &a.sine, &a.cosine);
    a.sine *= factor;
    a.cosine *= factor;
    return a;
}

// The first and the second of a pair, turned.
DEVICE float first(Angle by, float x, float y) { return fmaf(x, by.cosine, -__fmul_rn(y, by.sine)); }

DEVICE float second(Angle by, float x, float y) { return fmaf(y, by.cosine, __fmul_rn(x, by.sine)); }
