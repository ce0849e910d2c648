// Rows through their experts: MLPs, gated or not, a warp for each output of each choice.
//
// `experts_up` gives f(x · gateᵀ) · (x · upᵀ), or what `gating.cu` makes of the two, for every choice of every row; `experts_down` brings them
// back, weighted and summed in the order they were chosen. Nothing waits for the host to know who chose what. Cost: the packed bytes of
// two or three matrices for each choice of each row, right for a few rows; many are grouped by expert (`group.cu`). Defines: FORMAT, DOWN
// (formats of gate and down), UP (format of up; without it, `gate` is up), VECTOR.

template <class F> DEVICE float product(const u8* row, const float* x, int cols) {
    float sum = 0.0f;
    for (int i = 8 * lane(); i < cols; i += 256) {
        float a[8], b[8];
        F::read8(row, i, cols, a);
        f32::read8((const u8*)x, i, cols, b);
#pragma unroll
        for (int j = 0; j < 8; j++) sum = fmaf(a[j], b[j], sum);
    }
    return warp_sum(sum);
}

// [n, dim] -> [n, k, hidden]
KERNEL experts_up(TRACED const float* x, const u32* ids, int k, const u8* gate, u64 gate_bytes, const u8* up, u64 up_bytes, float* h,
                  int dim, int hidden, int f, const float* gate_bias, const float* up_bias, float limit) {
    after_the_last();
    int r = blockIdx.x * warps() + warp();
    if (r >= hidden) return;
    u64 row = (u64)ids[blockIdx.y] * hidden + r;
    const float* from = x + (u64)(blockIdx.y / k) * dim;
    float g = product<FORMAT>(gate + row * gate_bytes, from, dim);
    float u = GATED ? product<UP>(up + row * up_bytes, from, dim) : 0.0f;
    if (lane() == 0) h[(u64)blockIdx.y * hidden + r] = gating(f, g, u, gate_bias, up_bias, limit, row);
}

// [n, k, hidden] -> [n, dim]
KERNEL experts_down(TRACED const float* h, const u32* ids, const float* weights, int k, const u8* down, u64 down_bytes, float* y, int dim,
                    int hidden, const float* bias) {
    after_the_last();
    int r = blockIdx.x * warps() + warp();
    if (r >= dim) return;
    float sum = 0.0f;
    for (int i = 0; i < k; i++) {
        u64 choice = (u64)blockIdx.y * k + i;
        u64 row = (u64)ids[choice] * dim + r;
        float v = product<DOWN>(down + row * down_bytes, h + choice * hidden, hidden);
        if (bias) v += bias[row];
        sum = fmaf(weights[choice], v, sum);
    }
    if (lane() == 0) y[(u64)blockIdx.y * dim + r] = sum;
}
