// Where attention of few rows puts its results: as they are and, where products in integers will read them and `codes` is not null, rounded while
// they are in registers. Heads are then whole groups of 32 elements. Cost: 1.25 bytes and some 20 operations an element, where the kernel `codes`
// would read 4 bytes more and be a launch of its own.

struct Results {
    float* out;
    i8* codes;
    uint2* groups;
    // Element `at` of all; those of a warp's lanes are neighbours.
    METHOD void put(u64 at, float v) const {
        out[at] = v;
        if (V_DIM % 32 == 0 && codes) round_group(v, at, codes, groups);
    }
};
