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
