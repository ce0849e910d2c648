#include "prelude.cuh"

// C (m × n) = A (m × k) · B (n × k)ᵀ. Tiles of 64 × 32 per block of four warps, 64 bytes of k at a time, two buffers filled by
// cp.async. What a row's bytes mean only the multiplication knows: ldmatrix moves 16 bytes of 8 rows whatever they are.
#define ROW 80   // 64 bytes of k and 16 to keep the banks apart

template <class Acc, class Mul>
DEV void gemm(const char* a, const char* b, Acc* c, int m, int n, int bytes, Mul multiply) {
    __shared__ __align__(16) char sa[2][64 * ROW], sb[2][32 * ROW];
    int t = threadIdx.x, lane = t & 31, warp = t >> 5;
    int m0 = blockIdx.y * 64, n0 = blockIdx.x * 32;
    auto fill = [&](int buffer, int k) {
        for (int i = t; i < 64 * 4; i += 128) {
            int row = m0 + i / 4, part = i % 4 * 16;
            copy16_some(&sa[buffer][i / 4 * ROW + part], a + (size_t)(row < m ? row : 0) * bytes + k + part, row < m ? 16 : 0);
        }
        int row = n0 + t / 4, part = t % 4 * 16;
        copy16_some(&sb[buffer][t / 4 * ROW + part], b + (size_t)(row < n ? row : 0) * bytes + k + part, row < n ? 16 : 0);
    };
    Acc sum[4][4] = {};
    fill(0, 0);
    copy_commit();
    for (int k = 0, buffer = 0; k < bytes; k += 64, buffer ^= 1) {
        if (k + 64 < bytes) fill(buffer ^ 1, k + 64);
        copy_commit();
        copy_wait<1>();
        __syncthreads();
#pragma unroll
        for (int part = 0; part < 64; part += 32) {
            u32 fa[4], fb[2];
            load_matrix4(fa, &sa[buffer][(warp * 16 + (lane & 15)) * ROW + part + (lane >> 4) * 16]);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                load_matrix2(fb, &sb[buffer][(j * 8 + (lane & 7)) * ROW + part + (lane >> 3 & 1) * 16]);
                multiply(sum[j], fa, fb);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = m0 + warp * 16 + (lane >> 2) + i / 2 * 8, column = n0 + j * 8 + (lane & 3) * 2 + i % 2;
            if (row < m && column < n) c[(size_t)row * n + column] = sum[j][i];
        }
}

KERNEL gemm_half(const char* a, const char* b, float* c, int m, int n, int bytes) { gemm(a, b, c, m, n, bytes, mma_half); }
KERNEL gemm_bfloat(const char* a, const char* b, float* c, int m, int n, int bytes) { gemm(a, b, c, m, n, bytes, mma_bfloat); }
KERNEL gemm_tf32(const char* a, const char* b, float* c, int m, int n, int bytes) { gemm(a, b, c, m, n, bytes, mma_tf32); }
KERNEL gemm_int8(const char* a, const char* b, int* c, int m, int n, int bytes) { gemm(a, b, c, m, n, bytes, mma_int8); }
