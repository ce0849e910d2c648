// x · wᵀ for packed weights, or halves, and one row: of up to three weights (`products.cu`), or of two, gated. Blocks that stay, whose warps share all rows of all
// weights (`one.cu`), with what comes before the products in a layer done by each.
//
// Cost: that of `one.cu`. Defines: those of it; the products' formats, or for the gated form FORMAT alone.

// Where row r of all is: which of the formats, in which weight. `r` becomes its number there.
struct Placed {
    Product p;
    int format;
    METHOD Placed(const Product& first, const Product& second, const Product& third, int& r) : p(first) { format = choose(p, second, third, 1, r); }
};

// Blocks that registers must leave room for: of two kernels that overlap. Others have fewer warps, and so room for two by themselves.
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200
#define BLOCKS 2
#else
#define BLOCKS 1
#endif

KERNEL __launch_bounds__(32 * WARPS, BLOCKS)
    linear_one(TRACED const void* x, const uint2* groups, const float* other, float* sum, const float* factors, float eps, int cols, const u8* w,
               u64 row_bytes, float* y, int out, const u8* w2, u64 row_bytes2, float* y2, int out2, const u8* w3, u64 row_bytes3, float* y3, int out3) {
#if HAS_MATRIX
    extern __shared__ __align__(16) u8 shared[];
    typedef Ring<First, Second, Third, 1> R;
    typedef Taken<First, 1>::Row Row;
    Product first = {w, row_bytes, y, out}, second = {w2, row_bytes2, y2, out2}, third = {w3, row_bytes3, y3, out3};
    int all = out + out2 + out3, asked = R::first_row();
    Row row(shared, cols);
    R ring(shared + Row::bytes(cols) + warp() * AREA);
    auto turn = [&] {
        int r = asked;
        if (r >= all) {
            ring.go_on(0, 0);
        } else {
            Placed at(first, second, third, r);
            ring.from[0] = at.p.w + (u64)r * at.p.row_bytes;
            ring.ends[0] = at.p.w + (u64)at.p.out * at.p.row_bytes;
            ring.go_on((int)at.p.row_bytes, HAS_THIRD && at.format == 2 ? R::OF_C : HAS_SECOND && at.format == 1 ? R::OF_B : R::OF_A);
        }
    };
    auto more = [&] { ring.ask(asked, turn); };
    turn();
    ring.fill(more);
    Given given = {x, groups, other, sum, factors, eps};
    ask_for_factors(given, cols);
    after_the_last();
    stage(given, row, cols);
    Taken<First, 1> of_first;
    Taken<Second, 1> of_second;
    Taken<Third, 1> of_third;
    for (int i = R::first_row(); i < all; i += R::row_step()) {
        int r = i;
        Placed at(first, second, third, r);
        const u8* rows[1] = {at.p.w + (u64)r * at.p.row_bytes};
        float acc[1];
        if (HAS_THIRD && at.format == 2) ring.products<Third>(rows, of_third, row, cols, acc, more);
        else if (HAS_SECOND && at.format == 1) ring.products<Second>(rows, of_second, row, cols, acc, more);
        else ring.products<First>(rows, of_first, row, cols, acc, more);
        float v = warp_sum(acc[0]);
        if (lane() == 0) at.p.y[r] = v;
    }
#else
    // No device without copies that go on by themselves is asked.
    __trap();
#endif
}

// f(x · gateᵀ) · (x · upᵀ), of weights of one format.
KERNEL __launch_bounds__(32 * WARPS, BLOCKS)
    linear_gated_one(TRACED const void* x, const uint2* groups, const float* other, float* sum, const float* factors, float eps, int cols,
                     const u8* gate, u64 row_bytes, const u8* up, float* y, int out, int f) {
#if HAS_MATRIX
    extern __shared__ __align__(16) u8 shared[];
    typedef Ring<First, First, First, 2> R;
    typedef Taken<First, 2>::Row Row;
    int asked = R::first_row();
    u64 bytes = (u64)out * row_bytes;
    Row row(shared, cols);
    R ring(shared + Row::bytes(cols) + warp() * AREA);
    ring.ends[0] = gate + bytes;
    ring.ends[1] = up + bytes;
    auto turn = [&] {
        ring.from[0] = gate + (u64)asked * row_bytes;
        ring.from[1] = up + (u64)asked * row_bytes;
        ring.go_on(asked < out ? (int)row_bytes : 0, R::OF_A);
    };
    auto more = [&] { ring.ask(asked, turn); };
    turn();
    ring.fill(more);
    Given given = {x, groups, other, sum, factors, eps};
    ask_for_factors(given, cols);
    after_the_last();
    stage(given, row, cols);
    Taken<First, 2> taken;
    for (int r = R::first_row(); r < out; r += R::row_step()) {
        const u8* rows[2] = {gate + (u64)r * row_bytes, up + (u64)r * row_bytes};
        float acc[2];
        ring.products<First>(rows, taken, row, cols, acc, more);
        float g = warp_sum(acc[0]), u = warp_sum(acc[1]);
        if (lane() == 0) y[r] = activation(f, g) * u;
    }
#else
    __trap();
#endif
}
