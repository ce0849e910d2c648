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

// Element `i` of a row, rounded to nearest, for element types without blocks.
DEVICE void put(f32, u8* row, int i, float v) { ((float*)row)[i] = v; }
DEVICE void put(f16, u8* row, int i, float v) { ((u16*)row)[i] = float_to_half(v); }
DEVICE void put(bf16, u8* row, int i, float v) { ((u16*)row)[i] = float_to_bf16(v); }
