// Up to three weights of one input in a launch, as queries, keys and values are: the blocks of the first, then those of the second and the third, each
// weight with a format of its own. By itself a narrow weight takes less time than its launch. Defines: FORMAT, a packed one, and FORMAT2 and FORMAT3
// where there are so many weights.

#ifndef FORMAT2
#define FORMAT2 FORMAT
#endif
#ifndef FORMAT3
#define FORMAT3 FORMAT2
#endif

typedef CODES(FORMAT) First;
typedef CODES(FORMAT2) Second;
typedef CODES(FORMAT3) Third;

// Whether the second weight, and the third, are of no format before theirs: a block is compiled once for each format.
enum { HAS_SECOND = !Same<First, Second>::is, HAS_THIRD = !Same<Second, Third>::is && !Same<First, Third>::is };

// A weight and where its products go.
struct Product {
    const u8* w;
    u64 row_bytes;
    float* y;
    int out;
    // Blocks of so many outputs.
    METHOD int blocks(int outputs) const { return (out + outputs - 1) / outputs; }
};

// Makes of `block`, among all, its number among those of its weight, which `p` becomes if it is not the first already. Returns which of the formats
// that weight is of; without a second weight that is the first's.
DEVICE int choose(Product& p, const Product& second, const Product& third, int outputs, int& block) {
    if (block < p.blocks(outputs)) return 0;
    block -= p.blocks(outputs);
    p = second;
    if (block < p.blocks(outputs)) return HAS_SECOND;
    block -= p.blocks(outputs);
    p = third;
    return HAS_THIRD ? 2 : Same<First, Third>::is ? 0 : 1;
}
