// A token's score in attention: the product with the query, and the options that change it. For the kernels that attend.
//
// Defines: K_DIM, V_DIM, VECTOR, ELEMENT.

#define WARPS 4
#define MINE ((V_DIM + 31) / 32)

// An option that changes a score; they are applied in the order they come.
struct Edit {
    int kind;  // 0 none, 1 soft cap, 2 slopes of heads, 3 mask
    float cap;
    const float* data;
};

DEVICE float edited(const Edit& e, float score, u32 row, int head, u32 here, u32 t, u32 width) {
    switch (e.kind) {
        case 1: return e.cap * tanhf(score / e.cap);
        case 2: return score - e.data[head] * (float)(here > t ? here - t : t - here);
        case 3: return score + e.data[(u64)row * width + t];
        default: return score;
    }
}

// What a row of the step sees of its sequence: tokens from `begin` to before `end`.
struct Sight {
    u32 here, begin, end;
    DEVICE Sight of(const Span& span, u32 row, u32 window) {
        Sight s;
        s.here = span.past + row - span.start;
        s.end = span.context();
#ifdef CAUSAL
        s.end = min(s.end, s.here + 1u);
#endif
        s.begin = s.here + 1u > window ? s.here + 1u - window : 0u;
        s.begin = min(s.begin, s.end);
        return s;
    }
};
