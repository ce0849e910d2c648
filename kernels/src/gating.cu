// What an expert's gate and what it gates become one by: biases and bounds, where there are any, the activation and the product.
//
// Without UP there is no gate: what comes first is `up` itself, and is only activated. That is a define and not a second kernel, so that
// either has the other's tiles, and costs what it needs. Cost: 8 bytes from a cache for an element with biases, and some operations, once for
// an output of a row.

#ifdef UP
#define GATED 1
#else
#define GATED 0
#define UP FORMAT
#endif

// Products with gate and up that are element `i` of the stacks' outputs, [experts, hidden]; no biases are null, no bound is 0.
DEVICE float gating(int f, float g, float u, const float* gate_bias, const float* up_bias, float limit, u64 i) {
    if (!GATED) return activation(f, g);
    if (gate_bias) g += gate_bias[i], u += up_bias[i];
    if (limit > 0.0f) {
        // Comparisons: `fminf` would make a bound of what is no number.
        g = g > limit ? limit : g;
        u = (u > limit ? limit : u < -limit ? -limit : u) + 1.0f;
    }
    return activation(f, g) * u;
}
