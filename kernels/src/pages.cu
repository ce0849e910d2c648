// Pages of the cache: where the keys or values of a token lie. The only place that knows.
//
// A layer's keys are `[blocks][block_len]` rows in the cache's element type, its values likewise. `-DELEMENT=f16` picks the type,
// from the same structs that decode weights.

#define NOWHERE (~(u64)0)

struct Pages {
    u8* base;
    u64 row_bytes;
    u32 block_len;
    const u32* blocks;
    u32 given_back;

    DEVICE Pages of(u8* base, u64 row_bytes, u32 block_len, const Step& step, u32 group, u32 span) {
        Pages p;
        p.base = base;
        p.row_bytes = row_bytes;
        p.block_len = block_len;
        p.blocks = step.blocks(group, span);
        p.given_back = step.given_back(group, span);
        return p;
    }

    // Which of all rows is that of token `t`; NOWHERE if its block was given back.
    METHOD u64 place(u32 t) const {
        u32 block = t / block_len;
        if (block < given_back) return NOWHERE;
        return (u64)blocks[block - given_back] * block_len + t % block_len;
    }

    // The row of token `t`; null if its block was given back.
    METHOD u8* row(u32 t) const {
        u64 at = place(t);
        return at == NOWHERE ? 0 : base + at * row_bytes;
    }
};

// One token after the other, `stride` apart: one division for all of them, and the block of the next is read while the last one is worked on.
struct Walk {
    enum : u32 { GONE = 0xffffffffu };
    const u32* blocks;
    u32 block_len, given_back, stride, left, index;
    // The block that has this token, GONE if it was given back or the token is not before the end; and the token's row there.
    u32 held, within;

    DEVICE Walk of(const Pages& pages, u32 token, u32 stride, u32 end) {
        Walk w;
        w.blocks = pages.blocks;
        w.block_len = pages.block_len;
        w.given_back = pages.given_back;
        w.stride = stride;
        w.left = token < end ? end - token : 0u;
        w.index = token / pages.block_len;
        w.within = token % pages.block_len;
        w.look();
        return w;
    }

    METHOD void look() {
        held = GONE;
        if (left && index >= given_back) held = blocks[index - given_back];
    }

    METHOD void on() {
        left = left > stride ? left - stride : 0u;
        index += stride / block_len;
        within += stride % block_len;
        if (within >= block_len) {
            within -= block_len;
            index++;
        }
        look();
    }
};

// The same where rows lie end to end: each token is a block of one.
struct Stroll {
    u32 stride, left, held, within;

    // From `token` on, of a sequence whose first row is `first`.
    DEVICE Stroll of(u32 first, u32 token, u32 stride, u32 end) {
        Stroll s;
        s.stride = stride;
        s.left = token < end ? end - token : 0u;
        s.held = s.left ? first + token : Walk::GONE;
        s.within = 0u;
        return s;
    }

    METHOD void on() {
        left = left > stride ? left - stride : 0u;
        held = left ? held + stride : Walk::GONE;
    }
};

// Element `i` of a row, rounded to nearest, for element types without blocks.
DEVICE void put(f32, u8* row, int i, float v) { ((float*)row)[i] = v; }
DEVICE void put(f16, u8* row, int i, float v) { ((u16*)row)[i] = float_to_half(v); }
DEVICE void put(bf16, u8* row, int i, float v) { ((u16*)row)[i] = float_to_bf16(v); }
