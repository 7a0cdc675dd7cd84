/*
 * The arithmetic of _iabn.c for one instruction set, which the including file sets: W is the number of floats in a
 * vector, TARGET the compiler's attribute, and ISA the name, which is a part of every function's name.
 */

#define NAME(f) JOIN(f, ISA)
#define FN static TARGET
#define INLINE static inline __attribute__((always_inline)) TARGET
#define vec NAME(vec)
#define bits NAME(bits)
#define halves NAME(halves)
typedef float vec __attribute__((vector_size(4 * W), aligned(4), may_alias));
typedef uint32_t bits __attribute__((vector_size(4 * W), aligned(4), may_alias));
typedef uint16_t halves __attribute__((vector_size(2 * W), aligned(2), may_alias));

INLINE vec NAME(load)(const float *p) { return *(const vec *)p; }
INLINE void NAME(store)(float *p, vec v) { *(vec *)p = v; }
INLINE vec NAME(all)(float f) { return f - (vec){0}; }
INLINE vec NAME(pick)(bits mask, vec yes, vec no) {
#if W == 8
    return (vec)_mm256_blendv_ps((__m256)no, (__m256)yes, (__m256)mask);
#else
    return (vec)(((bits)yes & mask) | ((bits)no & ~mask));
#endif
}
#define load NAME(load)
#define store NAME(store)
#define all NAME(all)
#define pick NAME(pick)

/* a * b + c, rounded once if the machine can do so. It is explicit because contractions by the compiler depend on how
 * many channels are processed together, and so on the number of threads. */
#if W == 8
#define MULTIPLY_ADD(a, b, c) ((vec)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#elif W == 16
#define MULTIPLY_ADD(a, b, c) ((vec)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#else
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#endif

/* Whether a comparison is true in any lane. */
INLINE int NAME(any)(bits mask) {
#if W == 8
    return _mm256_movemask_ps((__m256)mask);
#elif W == 16
    return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask);
#else
    uint32_t found = 0;
    for (int i = 0; i < W; i++) found |= mask[i];
    return found != 0;
#endif
}
#define any NAME(any)

/* A mask of the first `count` lanes, or of all W if `count` is larger. */
INLINE bits NAME(first_lanes)(int64_t count) {
    bits lane;
    for (uint32_t i = 0; i < W; i++) lane[i] = i;
    return (bits)(lane < (uint32_t)count);
}
#define first_lanes NAME(first_lanes)

/* Keep the last `count` lanes of a vector and set the others to zero, to read a tail without reading beyond it. */
INLINE vec NAME(keep_last)(vec v, int64_t count) { return (vec)((bits)v & ~first_lanes(W - count)); }
#define keep_last NAME(keep_last)

/* Steps of a tree of sums. Each step turns two vectors into one, with partial sums of the first vector in the lanes
 * where i & step is 0, and of the second in the others. */
#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (bits){__VA_ARGS__})
#endif
#if W == 4
INLINE vec NAME(step1)(vec a, vec b) { return SHUFFLE(a, b, 0, 4, 2, 6) + SHUFFLE(a, b, 1, 5, 3, 7); }
INLINE vec NAME(step2)(vec a, vec b) { return SHUFFLE(a, b, 0, 1, 4, 5) + SHUFFLE(a, b, 2, 3, 6, 7); }
#elif W == 8
INLINE vec NAME(step1)(vec a, vec b) {
    return SHUFFLE(a, b, 0, 8, 2, 10, 4, 12, 6, 14) + SHUFFLE(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
}
INLINE vec NAME(step2)(vec a, vec b) {
    return SHUFFLE(a, b, 0, 1, 8, 9, 4, 5, 12, 13) + SHUFFLE(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
}
INLINE vec NAME(step4)(vec a, vec b) {
    return SHUFFLE(a, b, 0, 1, 2, 3, 8, 9, 10, 11) + SHUFFLE(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
}
#else /* what compilers make of SHUFFLE takes longer */
INLINE vec NAME(step1)(vec a, vec b) {
    return (vec)_mm512_mask_moveldup_ps((__m512)a, 0xaaaa, (__m512)b) +
           (vec)_mm512_mask_movehdup_ps((__m512)b, 0x5555, (__m512)a);
}
INLINE vec NAME(step2)(vec a, vec b) {
    return (vec)_mm512_unpacklo_pd((__m512d)a, (__m512d)b) + (vec)_mm512_unpackhi_pd((__m512d)a, (__m512d)b);
}
INLINE vec NAME(step4)(vec a, vec b) {
    return (vec)_mm512_mask_shuffle_f32x4((__m512)a, 0xf0f0, (__m512)b, (__m512)b, 0xa0) +
           (vec)_mm512_mask_shuffle_f32x4((__m512)b, 0x0f0f, (__m512)a, (__m512)a, 0xf5);
}
INLINE vec NAME(step8)(vec a, vec b) {
    return (vec)_mm512_shuffle_f32x4((__m512)a, (__m512)b, 0x44) +
           (vec)_mm512_shuffle_f32x4((__m512)a, (__m512)b, 0xee);
}
#endif
#undef SHUFFLE

/* The sums of n <= W vectors, which together are far cheaper than one by one; the other vectors are zero. */
INLINE vec NAME(sums)(vec *v, int n) {
    for (int i = 0; i < n; i += 2) v[i] = NAME(step1)(v[i], v[i + 1]);
    for (int i = 0; i < n; i += 4) v[i] = NAME(step2)(v[i], v[i + 2]);
#if W >= 8
    for (int i = 0; i < n; i += 8) v[i] = NAME(step4)(v[i], v[i + 4]);
#endif
#if W >= 16
    v[0] = NAME(step8)(v[0], v[8]);
#endif
    return v[0];
}
#define sums NAME(sums)

/* The sum of one vector, with the same additions in the same order, in the first lane; the others are zero. */
INLINE vec NAME(lone_sum)(vec v) {
    v = NAME(step1)(v, v);
    v = NAME(step2)(v, v);
#if W >= 8
    v = NAME(step4)(v, v);
#endif
#if W >= 16
    v = NAME(step8)(v, v);
#endif
    return (vec){v[0]};
}
#define lone_sum NAME(lone_sum)

/* ---- statistics from one sweep: sums of x - pivot and of its square, the pivot being one of the values ------- */

typedef struct {
    vec sum, square;
} NAME(Sums);
#define Sums NAME(Sums)

INLINE Sums NAME(first_of)(vec apart) { return (Sums){apart, apart * apart}; }
INLINE Sums NAME(with)(Sums s, vec apart) { return (Sums){s.sum + apart, MULTIPLY_ADD(apart, apart, s.square)}; }
INLINE Sums NAME(both)(Sums a, Sums b) { return (Sums){a.sum + b.sum, a.square + b.square}; }
#define first_of NAME(first_of)
#define with NAME(with)
#define both NAME(both)

/* Mean and squared deviations of W instances, and the rounding error of the mean, `rest`, which matters for instances
 * that are nearly constant. If a pivot was so far from the mean that digits were lost, its lane of the result is set:
 * then sweep again, with the mean as the pivot. */
INLINE bits NAME(settle)(vec sum, vec square, vec pivot, float length, vec *mean, vec *rest, vec *m2) {
    vec apart = sum * (1.0f / length), about = square - sum * apart;
    *mean = pivot + apart;
    *rest = apart - (*mean - pivot);
    *m2 = pick((bits)(about < 0.0f), (vec){0}, about);
    return (bits)(about * SUSPECT < square);
}
#define settle NAME(settle)

/* ---- per-instance numbers: plain loops over lanes, which the compiler turns into vectors -------------------- */

/* How IABN normalises n instances of one sample: out = (x - centre) * scale + bias. The bias corrects the rounding
 * error of the centre, including the `rest` of the mean (NULL: unknown). */
FN void NAME(corrected)(const Job *job, int64_t b, int64_t c0, int n, const float *mean, const float *rest,
                        const float *m2, float *centre, float *scale, float *bias) {
    float length = (float)job->ask.positions, eps = job->ask.eps, alpha = job->ask.alpha;
    float spread = alpha * sqrtf(2.0f / (length - 1.0f)), reach = alpha * sqrtf(1.0f / length);
    float inverse = 1.0f / (length - (float)job->ask.correction);
    int64_t at = layer_at(job, b, c0);
    const float *restrict layer_mean = job->ask.mean + at, *restrict layer_var = job->ask.var + at;
    if (alpha == INFINITY) { /* BatchNorm: the sample's own statistics are not needed */
        for (int j = 0; j < n; j++) centre[j] = layer_mean[j];
        for (int j = 0; j < n; j++) scale[j] = 1.0f / sqrtf(layer_var[j] + eps);
        for (int j = 0; j < n; j++) bias[j] = 0.0f;
    } else {
        for (int j = 0; j < n; j++) {
            float room = layer_var[j] + eps, limit = reach * sqrtf(room), far = room * spread;
            float own = m2[j] * inverse, apart = mean[j] - layer_mean[j], wider = own - layer_var[j];
            float variance = wider > far ? own - far : wider < -far ? own + far : layer_var[j];
            variance = variance < 0.0f ? 0.0f : variance;
            variance = wider == wider ? variance : wider; /* keep NaN */
            float within = apart > limit ? limit : apart < -limit ? -limit : apart, exact = mean[j] - within;
            centre[j] = within == apart ? layer_mean[j] : exact;
            centre[j] = apart == apart ? centre[j] : apart;
            bias[j] = within == apart ? 0.0f : mean[j] - exact - within + (rest ? rest[j] : 0.0f); /* rounding */
            scale[j] = 1.0f / sqrtf(variance + eps);
        }
    }
    if (job->ask.weight)
        for (int j = 0; j < n; j++) scale[j] *= job->ask.weight[at + j];
    for (int j = 0; j < n; j++) bias[j] = bias[j] == 0.0f ? 0.0f : -bias[j] * scale[j];
    if (job->ask.bias)
        for (int j = 0; j < n; j++) bias[j] += job->ask.bias[at + j];
}
#define corrected NAME(corrected)

/* What `within` says of each channel; the numbers are those of `corrected`. Lanes beyond the last channel are zero. */
FN void NAME(fill_within)(const Job *job) {
    const Within *to = &job->within;
    float length = (float)job->ask.positions, eps = job->ask.eps, alpha = job->ask.alpha;
    float spread = alpha * sqrtf(2.0f / (length - 1.0f)), reach = alpha * sqrtf(1.0f / length);
    int64_t channels = job->ask.channels;
    for (int64_t c = 0; c < channels; c++) {
        float var = job->ask.var[c], room = var + eps;
        to->mean[c] = job->ask.mean[c];
        to->var[c] = var;
        to->mean_limit[c] = reach * sqrtf(room);
        to->var_limit[c] = room * spread;
        to->scale[c] = 1.0f / sqrtf((var < 0.0f ? 0.0f : var) + eps);
        to->bias[c] = 0.0f;
    }
    if (job->ask.weight)
        for (int64_t c = 0; c < channels; c++) to->scale[c] *= job->ask.weight[c];
    if (job->ask.bias)
        for (int64_t c = 0; c < channels; c++) to->bias[c] = job->ask.bias[c];
    for (int64_t c = channels; c < channels + W; c++)
        to->mean[c] = to->var[c] = to->mean_limit[c] = to->var_limit[c] = to->scale[c] = to->bias[c] = 0.0f;
}

INLINE vec NAME(size_of)(vec v) { return (vec)((bits)v & 0x7fffffff); }

/* How n instances of one sample are normalised, as `corrected` says. Most instances are within the limits of their
 * channels, and then their numbers need not be computed. */
INLINE void NAME(normaliser)(const Job *job, int64_t b, int64_t c0, int n, const float *mean, const float *rest,
                             const float *m2, float *centre, float *scale, float *bias) {
    const Within *within = &job->within;
    float inverse = 1.0f / ((float)job->ask.positions - (float)job->ask.correction);
    if (!within->mean) {
        corrected(job, b, c0, n, mean, rest, m2, centre, scale, bias);
        return;
    }
    for (int j = 0; j < n; j += W) {
        int64_t at = c0 + j;
        vec layer_mean = load(within->mean + at), apart = load(mean + j) - layer_mean;
        vec wider = load(m2 + j) * inverse - load(within->var + at);
        bits inside = (bits)(NAME(size_of)(apart) <= load(within->mean_limit + at)) &
                      (bits)(NAME(size_of)(wider) <= load(within->var_limit + at)); /* NaN is not inside */
        if (any(~inside & first_lanes(n - j))) {
            corrected(job, b, at, (int)smaller(W, n - j), mean + j, rest + j, m2 + j, centre + j, scale + j, bias + j);
        } else {
            store(centre + j, layer_mean);
            store(scale + j, load(within->scale + at));
            store(bias + j, load(within->bias + at));
        }
    }
}
#define normaliser NAME(normaliser)

/* The chain rule between the two sweeps of the backward, for n channels and all samples. On entry tilt and shift
 * hold, for every instance, sum(grad * (x - mean)) and sum(grad). */
FN void NAME(chain)(const Job *job, int64_t c0, int n) {
    float length = (float)job->ask.positions, eps = job->ask.eps, alpha = job->ask.alpha;
    float root = alpha * sqrtf(2.0f / (length - 1.0f)), reach = alpha * sqrtf(1.0f / length), part = 1.0f / length;
    float inverse = 1.0f / (length - (float)job->ask.correction);
    double sum_mean[TILE] = {0}, sum_var[TILE] = {0}, sum_weight[TILE] = {0}, sum_bias[TILE] = {0};
    float weight[TILE], layer_mean[TILE], layer_var[TILE], to_layer_mean[TILE], to_layer_var[TILE], to_weight[TILE];
    for (int j = 0; j < n; j++) {
        weight[j] = job->ask.weight ? job->ask.weight[c0 + j] : 1.0f;
        layer_mean[j] = job->ask.mean[c0 + j];
        layer_var[j] = job->ask.var[c0 + j];
    }
    for (int64_t b = 0; b < job->ask.batch; b++) {
        int64_t at = b * job->ask.channels + c0;
        const float *restrict mean = job->ask.instance_mean + at, *restrict m2 = job->ask.instance_m2 + at;
        float *restrict slope = job->slope + at, *restrict tilt = job->tilt + at, *restrict shift = job->shift + at;
        for (int j = 0; j < n; j++) sum_bias[j] += shift[j];
        for (int j = 0; j < n; j++) {
            float room = layer_var[j] + eps, limit = reach * sqrtf(room), far = root * room;
            float own = m2[j] * inverse, apart = mean[j] - layer_mean[j], wider = own - layer_var[j];
            float side = (apart > limit ? 1.0f : 0.0f) - (apart < -limit ? 1.0f : 0.0f); /* 0: within the shrinkage */
            float edge = (wider > far ? 1.0f : 0.0f) - (wider < -far ? 1.0f : 0.0f);
            float beyond = side * side, outside = edge * edge;
            float clamped = side * limit + (1.0f - beyond) * apart;
            float raw = outside * (own - edge * far) + (1.0f - outside) * layer_var[j];
            float alive = raw < 0.0f ? 0.0f : 1.0f, scale = 1.0f / sqrtf(alive * raw + eps);
            float cross = tilt[j] + clamped * shift[j]; /* sum(grad * (x - corrected mean)) */
            float to_mean = -weight[j] * scale * shift[j];
            float to_var = -0.5f * weight[j] * scale * scale * scale * cross * alive;
            to_weight[j] = scale * cross;
            to_layer_mean[j] = (1.0f - beyond) * to_mean;
            to_layer_var[j] = to_var * (1.0f - outside - edge * root) - to_mean * side * 0.5f * limit / room;
            slope[j] = weight[j] * scale;
            tilt[j] = outside * 2.0f * inverse * to_var;
            shift[j] = beyond * part * to_mean;
        }
        for (int j = 0; j < n; j++) sum_weight[j] += to_weight[j];
        for (int j = 0; j < n; j++) sum_mean[j] += to_layer_mean[j];
        for (int j = 0; j < n; j++) sum_var[j] += to_layer_var[j];
    }
    for (int j = 0; j < n; j++) {
        job->ask.grad_weight[c0 + j] = (float)sum_weight[j];
        job->ask.grad_bias[c0 + j] = (float)sum_bias[j];
    }
    if (!job->ask.training || !job->ask.out) return;
    double count = (double)job->ask.batch * (double)job->ask.positions;
    for (int j = 0; j < n; j++) {
        to_layer_mean[j] = (float)(sum_mean[j] / count);
        to_layer_var[j] = (float)(2.0 * sum_var[j] / (count - job->ask.correction));
    }
    for (int64_t b = 0; b < job->ask.batch; b++) {
        int64_t at = b * job->ask.channels + c0;
        const float *restrict mean = job->ask.instance_mean + at;
        float *restrict tilt = job->tilt + at, *restrict shift = job->shift + at;
        for (int j = 0; j < n; j++) {
            tilt[j] += to_layer_var[j];
            shift[j] += to_layer_mean[j] + to_layer_var[j] * (mean[j] - layer_mean[j]);
        }
    }
}
#define chain NAME(chain)

FN void NAME(chain_all)(const Job *job, int64_t first, int64_t last) {
    for (int64_t c0 = first; c0 < last; c0 += TILE) chain(job, c0, (int)smaller(TILE, last - c0));
}

/* ---- elements: how each type is read and written, and the sweeps over it ------------------------------------ */

/* W numbers of 16 bits to 32 bits and back. The code that compilers make of vector types is twice as long. */
INLINE bits NAME(extend)(const uint16_t *p) {
#if W == 8
    return (bits)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
#elif W == 16
    return (bits)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
#else
    return __builtin_convertvector(*(const halves *)p, bits);
#endif
}
INLINE void NAME(narrow)(uint16_t *p, bits v) {
#if W == 8
    __m128i low = _mm256_castsi256_si128((__m256i)v), high = _mm256_extracti128_si256((__m256i)v, 1);
    _mm_storeu_si128((__m128i *)p, _mm_packus_epi32(low, high));
#elif W == 16
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16((__m512i)v));
#else
    *(halves *)p = __builtin_convertvector(v, halves);
#endif
}

#define TYPE float32
#define elem float
INLINE vec NAME(get_float32)(const float *p) { return load(p); }
INLINE void NAME(put_float32)(float *p, vec v) { store(p, v); }
INLINE float NAME(one_float32)(const float *p) { return *p; }
#include "_iabn_sweeps.h"
#undef TYPE
#undef elem

#define elem uint16_t
#define TYPE bfloat16 /* the upper half of a float32 */
INLINE vec NAME(get_bfloat16)(const uint16_t *p) { return (vec)(NAME(extend)(p) << 16); }
INLINE void NAME(put_bfloat16)(uint16_t *p, vec v) { /* round to nearest, ties to even */
    bits whole = (bits)v, rounded = (whole + (0x7fff + (whole >> 16 & 1))) >> 16;
    NAME(narrow)(p, (bits)pick((bits)(v == v), (vec)rounded, (vec)((bits){0} + 0x7fc0)));
}
INLINE float NAME(one_bfloat16)(const uint16_t *p) {
    union {
        uint32_t bits;
        float value;
    } whole = {(uint32_t)*p << 16};
    return whole.value;
}
#include "_iabn_sweeps.h"
#undef TYPE

#define TYPE float16
#if W == 8
INLINE vec NAME(get_float16)(const uint16_t *p) { return (vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
INLINE void NAME(put_float16)(uint16_t *p, vec v) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}
#elif W == 16
INLINE vec NAME(get_float16)(const uint16_t *p) { return (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
INLINE void NAME(put_float16)(uint16_t *p, vec v) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
}
#else /* 5 bits of exponent with bias 15; float32 has 8 bits with bias 127 */
INLINE vec NAME(get_float16)(const uint16_t *p) {
    bits half = NAME(extend)(p), endless = (bits)((half & 0x7c00) == 0x7c00);
    vec size = (vec)((half & 0x7fff) << 13) * 0x1p112f;
    return (vec)((bits)size | (endless & 0x7f800000) | (half & 0x8000) << 16);
}
INLINE void NAME(put_float16)(uint16_t *p, vec v) {
    bits whole = (bits)v & 0x7fffffff, sign = (bits)v >> 16 & 0x8000;
    bits normal = (whole + 0xfff + (whole >> 13 & 1) - (112u << 23)) >> 13;
    bits small = (bits)((vec)whole + 0.5f) - 0x3f000000; /* the sum's last bit is the smallest float16 */
    bits tiny = (bits)(whole < 0x38800000), huge = (bits)(whole >= 0x47800000), number = (bits)(whole <= 0x7f800000);
    bits half = (small & tiny) | (normal & ~tiny);
    half = (half & ~huge) | (huge & ((0x7c00 & number) | (0x7e00 & ~number)));
    NAME(narrow)(p, half | sign);
}
#endif
INLINE float NAME(one_float16)(const uint16_t *p) {
    uint16_t room[W] = {*p};
    return NAME(get_float16)(room)[0];
}
#include "_iabn_sweeps.h"
#undef TYPE
#undef elem

#undef MULTIPLY_ADD
#undef NAME
#undef FN
#undef INLINE
#undef vec
#undef bits
#undef halves
#undef load
#undef store
#undef all
#undef pick
#undef any
#undef first_lanes
#undef keep_last
#undef sums
#undef lone_sum
#undef settle
#undef Sums
#undef first_of
#undef with
#undef both
#undef normaliser
#undef corrected
#undef chain
