// The instructions that make products fast, as inline PTX, and what stands for them on older devices.
//
// `dp4a` from compute capability 6.1, `ldmatrix` and `mma.sync` of 8 halves from 7.5, `cp.async` and the larger `mma.sync` from 8.0.
// HAS_MATRIX says whether the latter two are there, HAS_HALVES whether there is any of halves: a kernel that needs them has another
// path. Fragments are those of the PTX documentation: a lane's group is lane / 4, its place in it lane % 4.

#if __CUDA_ARCH__ >= 800
#define HAS_MATRIX 1
#else
#define HAS_MATRIX 0
#endif

#if __CUDA_ARCH__ >= 750
#define HAS_HALVES 1
#else
#define HAS_HALVES 0
#endif

// c + the products of four signed bytes.
DEVICE int dp4a(u32 a, u32 b, int c) {
#if __CUDA_ARCH__ >= 610
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(c) : "r"(a), "r"(b), "r"(c));
#else
#pragma unroll
    for (int i = 0; i < 4; i++) c += (int)(i8)(a >> 8 * i) * (int)(i8)(b >> 8 * i);
#endif
    return c;
}

// Sixteen bytes from global to shared memory, both aligned to sixteen; there after `copied` and a barrier.
DEVICE void copy16(void* shared, const void* global) {
#if __CUDA_ARCH__ >= 800
    u32 at = (u32)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(global) : "memory");
#else
    *(uint4*)shared = *(const uint4*)global;
#endif
}

// The same of the first `size` bytes only; the rest is zeros.
DEVICE void copy16_of(void* shared, const u8* global, int size) {
#if __CUDA_ARCH__ >= 800
    u32 at = (u32)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(global), "r"(size) : "memory");
#else
    uint4 v = {0u, 0u, 0u, 0u};
    if (size >= 16) {
        v = *(const uint4*)global;
    } else {
        for (int i = 0; i < size; i++) {
            u32 byte = (u32)global[i] << 8 * (i & 3);
            if (i < 4) v.x |= byte;
            else if (i < 8) v.y |= byte;
            else if (i < 12) v.z |= byte;
            else v.w |= byte;
        }
    }
    *(uint4*)shared = v;
#endif
}

// Ends a group of copies.
DEVICE void copies_end() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until all but the last PENDING groups of this thread's copies are there.
template <int PENDING> DEVICE void copied() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

// Two numbers rounded to half or bfloat16, the first in the low bits.
DEVICE u32 pair_of_f16(float a, float b) {
#if __CUDA_ARCH__ >= 800
    u32 d;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(b), "f"(a));
    return d;
#else
    return (u32)float_to_half(a) | (u32)float_to_half(b) << 16;
#endif
}

DEVICE u32 pair_of_bf16(float a, float b) {
#if __CUDA_ARCH__ >= 800
    u32 d;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(b), "f"(a));
    return d;
#else
    return (u32)float_to_bf16(a) | (u32)float_to_bf16(b) << 16;
#endif
}

#if HAS_HALVES
// Four matrices of eight rows of eight halves, each turned: a lane has two neighbours of a column. Addresses as for `load_matrix`.
DEVICE void load_matrix_turned(u32 (&r)[4], const void* shared) {
    u32 at = (u32)__cvta_generic_to_shared(shared);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

// d += a · b, 16 x 8 by 8 x 8, in single precision.
DEVICE void mma_f16_8(float (&d)[4], u32 a0, u32 a1, u32 b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(b));
}
#endif

#if HAS_MATRIX
// Four matrices of eight rows of sixteen bytes; lane i gives the address of row i % 8 of matrix i / 8.
DEVICE void load_matrix(u32 (&r)[4], const void* shared) {
    u32 at = (u32)__cvta_generic_to_shared(shared);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

// d += a · b, 16 x 16 by 16 x 8, in single precision.
DEVICE void mma_bf16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

DEVICE void mma_f16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// d += a · b, 16 x 32 by 32 x 8, of signed bytes.
DEVICE void mma_i8(int (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// d += a · b, 16 x 16 by 16 x 8, of signed bytes.
DEVICE void mma_i8_16(int (&d)[4], u32 a0, u32 a1, u32 b) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a0), "r"(a1), "r"(b));
}
#endif
