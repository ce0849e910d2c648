// What the memory gives: a plain copy and a plain read, to hold operators against, and numbers to multiply.
//
// Sixteen bytes a thread and load, four loads in flight before the first is used, all blocks resident at once and striding over the
// whole. `copy` moves 2 bytes for each of `words` * 16, `read` one; what is read is folded into a sum that is stored only where it is a
// number that no sum of these is likely to be, so that no load can be left out and nothing is written.

struct alignas(16) Four { u32 x, y, z, w; };

KERNEL copy(const Four* from, Four* to, u64 words) {
    u64 stride = (u64)gridDim.x * blockDim.x, i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * stride < words; i += 4 * stride) {
        Four a = from[i], b = from[i + stride], c = from[i + 2 * stride], d = from[i + 3 * stride];
        to[i] = a;
        to[i + stride] = b;
        to[i + 2 * stride] = c;
        to[i + 3 * stride] = d;
    }
    for (; i < words; i += stride) to[i] = from[i];
}

DEVICE u32 fold(Four v) { return v.x ^ v.y ^ v.z ^ v.w; }

KERNEL read(const Four* from, u32* to, u64 words) {
    u64 stride = (u64)gridDim.x * blockDim.x, i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u32 sum = 0;
    for (; i + 3 * stride < words; i += 4 * stride) {
        Four a = from[i], b = from[i + stride], c = from[i + 2 * stride], d = from[i + 3 * stride];
        sum ^= fold(a) ^ fold(b) ^ fold(c) ^ fold(d);
    }
    for (; i < words; i += stride) sum ^= fold(from[i]);
    if (sum == 0x9e3779b9u) to[0] = sum;
}

// Two bfloat16 numbers between -1 and 1 in each word, all bits of their fractions in use: multiplying zeros draws less power, and a
// device then clocks higher than any model lets it.
KERNEL scatter(u32* to, u64 words) {
    u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += stride) {
        u32 h = (u32)i * 0x9e3779b1u ^ (u32)(i >> 32);
        h ^= h >> 15;
        h *= 0x85ebca77u;
        h ^= h >> 13;
        float low = (float)(h & 0xffffu) * (1.0f / 32768.0f) - 1.0f;
        float high = (float)(h >> 16) * (1.0f / 32768.0f) - 1.0f;
        to[i] = (u32)float_to_bf16(low) | (u32)float_to_bf16(high) << 16;
    }
}
