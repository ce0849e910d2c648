// Words every kernel uses: integer types, half and bfloat16 as bits, sums over a warp and over a block.
//
// Half precision comes as inline PTX and not from the toolkit's headers, so that NVRTC alone compiles everything. Sums have one
// order, set by the number of threads and by nothing else: the same step gives the same bits.

typedef signed char i8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define DEVICE static __device__ __forceinline__
#define METHOD __device__ __forceinline__
#define KERNEL extern "C" __global__ void
#define INF __int_as_float(0x7f800000)
#define ALL 0xffffffffu

// Every kernel begins with this, but for loads of what no kernel of a step writes (`stream.cu`, `norm.cu`). Where kernels are launched to
// overlap (OVERLAP, from compute capability 9.0), the next one's blocks may take their places from here on, and this one's wait until all that
// the one before wrote is there. A kernel that ended without waiting would let the next one past the one before, so it stands before anything
// else, returns included.
DEVICE void after_the_last() {
#if defined(OVERLAP) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// With TRACE a kernel notes by the device's clock when its first block began and its last one ended: two words at `traced`, each a maximum
// from 0, the first of the time's complement. Blocks begin in their order, so of many only the first NOTED can be the first and the last NOTED
// the last to end: were it all, a grid of 30,000 blocks would spend 300 us waiting for one another at those words. Of a block the first warp
// notes, which in no kernel leaves early.
#ifdef TRACE
DEVICE u64 now() {
    u64 t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
    return t;
}

struct Traced {
    enum { NOTED = 1024 };
    u64* at;

    DEVICE u32 block() { return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z); }

    METHOD void note(u64* word, u64 value) const {
        if (value > *(volatile u64*)word) atomicMax(word, value);
    }

    METHOD explicit Traced(u64* traced) : at(traced) {
        if (at && block() < NOTED && threadIdx.x == 0 && threadIdx.y == 0) note(at, ~now());
    }

    // Wherever a thread leaves: one of those that leave with it.
    METHOD ~Traced() {
        u32 lane;
        asm("mov.u32 %0, %%laneid;" : "=r"(lane));
        bool noted = at && threadIdx.x < 32 && threadIdx.y == 0 && block() + NOTED >= gridDim.x * gridDim.y * gridDim.z;
        if (noted && (int)lane == __ffs((int)__activemask()) - 1) note(at + 1, now());
    }
};

#define TRACED u64* traced,
#define PASS_TRACED traced,
#define after_the_last() Traced noted(traced); after_the_last()
#else
#define TRACED
#define PASS_TRACED
#endif

DEVICE int lane() { return (int)(threadIdx.x & 31u); }
DEVICE int warp() { return (int)(threadIdx.x >> 5); }
DEVICE int warps() { return (int)(blockDim.x >> 5); }

// ---- half and bfloat16, as bits -------------------------------------------------------------------------------------

DEVICE float half_to_float(u16 h) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}

DEVICE u16 float_to_half(float f) {
    u16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}

DEVICE float bf16_to_float(u16 b) { return __int_as_float((int)b << 16); }

// By integers: the instruction exists from compute capability 8.0 only.
DEVICE u16 float_to_bf16(float f) {
    u32 bits = (u32)__float_as_int(f);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (u16)((bits >> 16) | 0x40u);
    return (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// ---- loads of four bytes where less than four of alignment is known --------------------------------------------------

template <int ALIGN> DEVICE u32 load4(const u8* p) {
    if (ALIGN >= 4) return *(const u32*)p;
    if (ALIGN == 2) return (u32)((const u16*)p)[0] | (u32)((const u16*)p)[1] << 16;
    return (u32)p[0] | (u32)p[1] << 8 | (u32)p[2] << 16 | (u32)p[3] << 24;
}

template <int ALIGN> DEVICE u32 load2(const u8* p) {
    if (ALIGN >= 2) return *(const u16*)p;
    return (u32)p[0] | (u32)p[1] << 8;
}

template <int ALIGN> DEVICE float load_half(const u8* p) { return half_to_float((u16)load2<ALIGN>(p)); }

// Byte `j` of eight in two words.
DEVICE u32 byte_of(u32 low, u32 high, int j) { return ((j < 4 ? low : high) >> (8 * (j & 3))) & 255u; }

// ---- loads of what is read once ---------------------------------------------------------------------------------------

// Sixteen bytes of what no kernel of a step writes, past the L1: what is on its way to a multiprocessor is as much as that holds, and would push out
// what all its warps read.
DEVICE uint4 load_once(const u8* p) {
#if __CUDA_ARCH__ >= 700
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
#else
    return *(const uint4*)p;
#endif
}

// ---- sums and maxima -------------------------------------------------------------------------------------------------

DEVICE float warp_sum(float v) {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(ALL, v, o);
    return v;
}

DEVICE float warp_max(float v) {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(ALL, v, o));
    return v;
}

// The sum over a block of whole warps, at most 32 of them; every thread gets it. May be called again at once.
DEVICE float block_sum(float v) {
    __shared__ float part[32];
    v = warp_sum(v);
    __syncthreads();
    if (lane() == 0) part[warp()] = v;
    __syncthreads();
    v = lane() < warps() ? part[lane()] : 0.0f;
    return warp_sum(v);
}

// ---- functions of one number: the order is that of the host's table of activations --------------------------------------

DEVICE float activation(int f, float x) {
    switch (f) {
        case 0: return x / (1.0f + expf(-x));
        case 1: return 0.5f * x * erfcf(-x * 0.70710678118654752f);
        case 2: return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
        case 3: return tanhf(x);
        case 4: return expf(x);
        case 5: return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
        case 6: return x / (1.0f + expf(-1.702f * x));
        case 7: return 1.0f / (1.0f + expf(-x));
        // Comparisons: `fmaxf` would make 0 of what is no number.
        case 8: return x < 0.0f ? 0.0f : x * x;
        default: return x < 0.0f ? 0.0f : x;
    }
}
