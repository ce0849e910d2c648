// A trial of every instruction in matrix.cu and every conversion in prelude.cu, for tests: a new device or compiler shows here first.
//
// One warp multiplies 16 rows by 8, of 16 halves (as bfloat16 and as half) and of 32 bytes, through shared memory as a fast kernel
// would; where the device has no such instructions, in plain loops. Cost: none that matters.

DEVICE u32 pair(const u16* p) { return (u32)p[0] | (u32)p[1] << 16; }

// a [16, 16], b [8, 16] -> [16, 8]; bytes: a [16, 32], b [8, 32]. `out`: bf16, f16, mma of 32 bytes, dp4a, mma of 16 bytes
// twice, 128 of each.
KERNEL trial(const float* a, const float* b, const i8* bytes_a, const i8* bytes_b, float* out) {
    __shared__ __align__(16) u16 sa[2][16 * 16];
    __shared__ __align__(16) u16 sb[2][8 * 16];
    __shared__ __align__(16) i8 ba[16 * 32];
    __shared__ __align__(16) i8 bb[8 * 32];
    for (int i = lane(); i < 256; i += 32) {
        sa[0][i] = float_to_bf16(a[i]);
        sa[1][i] = float_to_half(a[i]);
    }
    for (int i = lane(); i < 128; i += 32) {
        sb[0][i] = float_to_bf16(b[i]);
        sb[1][i] = float_to_half(b[i]);
    }
    copy16(ba + 16 * lane(), bytes_a + 16 * lane());
    if (lane() < 16) copy16(bb + 16 * lane(), bytes_b + 16 * lane());
    copies_end();
    copied<0>();
    __syncthreads();

    // dp4a: a lane has row lane / 2 and four of the columns.
    for (int c = 4 * (lane() % 2); c < 4 * (lane() % 2) + 4; c++) {
        int sum = 0;
        for (int k = 0; k < 32; k += 4)
            sum = dp4a(*(const u32*)(ba + 32 * (lane() / 2) + k), *(const u32*)(bb + 32 * c + k), sum);
        out[384 + 8 * (lane() / 2) + c] = (float)sum;
    }
#if HAS_MATRIX
    int group = lane() / 4, place = lane() % 4;
    for (int kind = 0; kind < 4; kind++) {
        float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        int e[4] = {0, 0, 0, 0};
        u32 fragment[4];
        if (kind < 2) {
            load_matrix(fragment, &sa[kind][16 * (lane() % 16) + 8 * (lane() / 16)]);
            const u16* row = &sb[kind][16 * group + 2 * place];
            if (kind == 0) mma_bf16(d, fragment, pair(row), pair(row + 8));
            else mma_f16(d, fragment, pair(row), pair(row + 8));
        } else {
            load_matrix(fragment, ba + 32 * (lane() % 16) + 16 * (lane() / 16));
            const i8* row = bb + 32 * group + 4 * place;
            u32 low = *(const u32*)row, high = *(const u32*)(row + 16);
            if (kind == 2) {
                mma_i8(e, fragment, low, high);
            } else {
                mma_i8_16(e, fragment[0], fragment[1], low);
                mma_i8_16(e, fragment[2], fragment[3], high);
            }
            for (int i = 0; i < 4; i++) d[i] = (float)e[i];
        }
        // What `dp4a` makes lies before the last.
        float* to = out + 128 * (kind + kind / 3) + 8 * group + 2 * place;
        to[0] = d[0]; to[1] = d[1];
        to[64] = d[2]; to[65] = d[3];
    }
#else
    for (int i = lane(); i < 128; i += 32) {
        float x = 0.0f, y = 0.0f;
        int z = 0;
        for (int k = 0; k < 16; k++) {
            x += bf16_to_float(sa[0][16 * (i / 8) + k]) * bf16_to_float(sb[0][16 * (i % 8) + k]);
            y += half_to_float(sa[1][16 * (i / 8) + k]) * half_to_float(sb[1][16 * (i % 8) + k]);
        }
        for (int k = 0; k < 32; k++) z += (int)ba[32 * (i / 8) + k] * (int)bb[32 * (i % 8) + k];
        out[i] = x;
        out[128 + i] = y;
        out[256 + i] = out[512 + i] = (float)z;
    }
#endif
}
