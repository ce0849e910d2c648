#include "prelude.cuh"

// Flash attention on tensor cores: a warp has 16 queries of 64 dimensions and walks over the keys 32 at a time. The scores stay
// in registers: what the first product gives is laid out as the second one takes it.
#define ROW 72   // 64 halves and 8 to keep the banks apart

KERNEL attention(const half* q, const half* k, const half* v, float* out, int queries, int keys, int causal) {
    __shared__ __align__(16) half sq[16 * ROW], sk[32 * ROW], sv[32 * ROW];
    int lane = threadIdx.x, head = blockIdx.y, q0 = blockIdx.x * 16;
    q += (size_t)head * queries * 64;
    k += (size_t)head * keys * 64;
    v += (size_t)head * keys * 64;
    auto fill = [&](half* to, const half* from, int first, int rows, int end) {
        for (int i = lane; i < rows * 8; i += 32) {
            int row = first + i / 8;
            copy16_some(to + i / 8 * ROW + i % 8 * 8, from + (size_t)(row < end ? row : 0) * 64 + i % 8 * 8, row < end ? 16 : 0);
        }
    };
    fill(sq, q, q0, 16, queries);
    u32 fq[4][4];
    float sum[8][4] = {}, top[2] = {-INF, -INF}, total[2] = {0.f, 0.f};
    int last = causal ? min(keys, q0 + 16) : keys;
    for (int k0 = 0; k0 < last; k0 += 32) {
        __syncwarp();
        fill(sk, k, k0, 32, keys);
        fill(sv, v, k0, 32, keys);
        copy_wait_all();
        __syncwarp();
        if (k0 == 0)
            for (int d = 0; d < 4; d++) load_matrix4(fq[d], &sq[(lane & 15) * ROW + d * 16 + (lane >> 4) * 8]);
        float s[4][4] = {};
        for (int j = 0; j < 4; j++)
            for (int d = 0; d < 4; d++) {
                u32 fk[2];
                load_matrix2(fk, &sk[(j * 8 + (lane & 7)) * ROW + d * 16 + (lane >> 3 & 1) * 8]);
                mma_half(s[j], fq[d], fk);
            }
        float next[2] = {top[0], top[1]};
        for (int j = 0; j < 4; j++)
            for (int i = 0; i < 4; i++) {
                int key = k0 + j * 8 + (lane & 3) * 2 + i % 2, query = q0 + (lane >> 2) + i / 2 * 8;
                s[j][i] = key < keys && (!causal || key <= query) ? s[j][i] * 0.125f : -INF;
                next[i / 2] = fmaxf(next[i / 2], s[j][i]);
            }
        for (int h = 0; h < 2; h++) {
            next[h] = fmaxf(next[h], __shfl_xor_sync(ALL, next[h], 1));
            next[h] = fmaxf(next[h], __shfl_xor_sync(ALL, next[h], 2));
            float scale = __expf(top[h] - next[h]);
            total[h] *= scale;
            for (int d = 0; d < 8; d++) { sum[d][h * 2] *= scale; sum[d][h * 2 + 1] *= scale; }
            top[h] = next[h];
        }
        u32 fp[2][4];
        for (int j = 0; j < 4; j++)
            for (int h = 0; h < 2; h++) {
                float a = __expf(s[j][h * 2] - top[h]), b = __expf(s[j][h * 2 + 1] - top[h]);
                total[h] += a + b;
                fp[j / 2][j % 2 * 2 + h] = pack(float_to_half(a), float_to_half(b));
            }
        for (int d = 0; d < 8; d++)
            for (int j = 0; j < 2; j++) {
                u32 fv[2];
                load_matrix2_transposed(fv, &sv[(j * 16 + (lane & 15)) * ROW + d * 8]);
                mma_half(sum[d], fp[j], fv);
            }
    }
    for (int h = 0; h < 2; h++) {
        total[h] += __shfl_xor_sync(ALL, total[h], 1);
        total[h] += __shfl_xor_sync(ALL, total[h], 2);
        int query = q0 + (lane >> 2) + h * 8;
        if (query >= queries) continue;
        for (int d = 0; d < 8; d++)
            for (int i = 0; i < 2; i++)
                out[((size_t)head * queries + query) * 64 + d * 8 + (lane & 3) * 2 + i] = sum[d][h * 2 + i] / total[h];
    }
}
