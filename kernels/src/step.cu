// A step on the device: whose rows, at which positions, which blocks and slots.
//
// One buffer of 32-bit words, sent up once a step. It begins with where everything is in it, so that a kernel takes one pointer,
// and a recorded step runs again on whatever lies there. The layout is that of `plan.rs` in ogive-cuda.

#define NOBODY 0xffffffffu

struct Span {
    u32 start, len, past, context0, read_slot, write_slot;
    DEVICE Span at(const u32* p) {
        Span s;
        s.start = p[0]; s.len = p[1]; s.past = p[2];
        s.context0 = p[3]; s.read_slot = p[4]; s.write_slot = p[5];
        return s;
    }
    METHOD u32 context() const { return past + len; }
};

struct Step {
    const u32* p;
    METHOD u32 rows() const { return p[0]; }
    METHOD u32 spans() const { return p[1]; }
    // 0 tokens, 1 positions, 2 types.
    METHOD const u32* ids(int kind) const { return p + p[4 + kind]; }
    // Where a row stands in time, down and across, in steps whose rows have places.
    METHOD const u32* places(u32 row) const { return p + p[13] + 3u * row; }
    // Tokens of its sequence that a row sees, in steps where rows see each other to both sides.
    METHOD u32 end(u32 row) const { return (p + p[14])[row]; }
    // The span of a row, or NOBODY.
    METHOD u32 owner(u32 row) const { return (p + p[7])[row]; }
    // The same, with the first 64 words on their way together, which of one row over some hundred tokens is all that leads from its owner to its
    // blocks: each then waits for the nearest cache and not for the L2. No step is shorter, and tickets come after them. A warp
    // calls it whole.
    METHOD u32 owner_soon(u32 row) const {
        uint2 two = ((const uint2*)p)[lane()];
        return (p + __shfl_sync(ALL, two.y, 3))[row];
    }
    METHOD const u32* outputs() const { return p + p[8]; }
    // Counters that are zero, for blocks that wait for no other; whoever counts leaves zeros behind.
    METHOD u32* tickets() const { return (u32*)p + p[12]; }
    METHOD Span span(u32 i) const { return Span::at(p + p[9] + 6u * i); }
    // Where a span's blocks of a group begin, and how many it has given back.
    METHOD const u32* blocks(u32 group, u32 i) const { return p + (p + p[10])[3u * (group * p[1] + i)]; }
    METHOD u32 given_back(u32 group, u32 i) const { return (p + p[10])[3u * (group * p[1] + i) + 2u]; }
};
