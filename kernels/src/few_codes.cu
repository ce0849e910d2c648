// Formats of very few bits as integers: what `packed.cu` has of others, made of `few_bits.cu`.
//
// Codes have their signs already, so nothing is taken off their sums, but for ternary ones. Where a group's halves have factors of their own, products
// are made of sixteens.

#if HAS_FEW

template <class F, bool HALVES = F::halves> struct FewGroup {
    typedef Scaled<0> type;
    DEVICE void factors(const Few& few, type& o) { o.d = __fmul_rn(few.d, (float)few.whole[0]); }
};
template <class F> struct FewGroup<F, true> {
    typedef Halved<0> type;
    DEVICE void factors(const Few& few, type& o) { o.d = few.d, o.low = few.whole[0], o.high = few.whole[1]; }
};

template <class F> struct FewCodes : Block<256, F::bytes> {
    typedef typename FewGroup<F>::type Group;
    DEVICE void group(const u8* b, int i, Group& o) {
        Few few;
        F::read(b, i, few);
        FewGroup<F>::factors(few, o);
#pragma unroll
        for (int l = 0; l < 4; l++) {
            u32 q[2];
            F::eight(few, l, q);
            o.q[2 * l] = q[0], o.q[2 * l + 1] = q[1];
        }
    }
};

typedef FewCodes<iq1_s_few> iq1_s_codes;
typedef FewCodes<iq1_m_few> iq1_m_codes;
typedef FewCodes<iq2_xxs_few> iq2_xxs_codes;
typedef FewCodes<iq2_xs_few> iq2_xs_codes;
typedef FewCodes<iq2_s_few> iq2_s_codes;
typedef FewCodes<iq3_xxs_few> iq3_xxs_codes;
typedef FewCodes<iq3_s_few> iq3_s_codes;

struct tq1_0_codes : Block<256, 54> {
    typedef Scaled<1> Group;
    DEVICE void group(const u8* b, int i, Group& o) {
        o.d = load_half<2>(b + 52);
#pragma unroll
        for (int j = 0; j < 8; j++) o.q[j] = ternary(b, 8 * i + j);
    }
};

struct tq2_0_codes : Block<256, 66> {
    typedef Scaled<1> Group;
    DEVICE void group(const u8* b, int i, Group& o) {
        o.d = load_half<2>(b + 64);
        pairs<2>(b, i, o.q);
    }
};

#endif
