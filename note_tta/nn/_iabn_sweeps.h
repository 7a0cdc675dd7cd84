/*
 * The sweeps of _iabn.c over elements of one type, for one instruction set. _iabn_isa.h sets both: `elem` is the type,
 * TYPE is its name, and get_TYPE and put_TYPE read and write a vector of elements.
 */

#define TYPED(f) NAME(JOIN(f, TYPE))
#define get TYPED(get)
#define put TYPED(put)
#define one TYPED(one)
#define LINE ((int64_t)(64 / sizeof(elem))) /* elements per cache line */
#define UNROLL _Pragma("GCC unroll 16")

/* ---- planes: the positions of a channel are adjacent --------------------------------------------------------- */

/* The end of a plane: its last W elements, or all of them in the last lanes. */
INLINE vec TYPED(get_end)(const elem *x, int64_t length) {
    elem room[W] = {0};
    if (length >= W) return get(x + length - W);
    memcpy(room + W - length, x, (size_t)length * sizeof(elem));
    return get(room);
}

INLINE void TYPED(put_end)(elem *out, int64_t length, vec v) {
    elem room[W];
    if (length >= W) {
        put(out + length - W, v);
    } else {
        put(room, v);
        memcpy(out, room + W - length, (size_t)length * sizeof(elem));
    }
}
#define get_end TYPED(get_end)
#define put_end TYPED(put_end)

/* Sums over one plane, as vectors of partial sums. */
INLINE Sums TYPED(plane_sums)(const elem *x, int64_t length, float pivot) {
    vec centre = all(pivot);
    if (length < W) return first_of(keep_last(get_end(x, length) - centre, length));
    Sums chain[4]; /* short planes need one chain only */
    int chains = length < 4 * W ? 1 : 4;
    int64_t i = chains * W;
    for (int k = 0; k < chains; k++) chain[k] = first_of(get(x + k * W) - centre);
    if (chains == 4)
        for (; i + 4 * W <= length; i += 4 * W)
            for (int k = 0; k < 4; k++) chain[k] = with(chain[k], get(x + i + k * W) - centre);
    for (; i + W <= length; i += W) chain[0] = with(chain[0], get(x + i) - centre);
    if (i < length) {
        vec tail = keep_last(get_end(x, length) - centre, length - i);
        if (chains == 1) return both(chain[0], first_of(tail));
        chain[1] = with(chain[1], tail);
    }
    return chains == 1 ? chain[0] : both(both(chain[0], chain[1]), both(chain[2], chain[3]));
}
#define plane_sums TYPED(plane_sums)

/* Sweep again over those of W neighbouring channels whose pivots were bad, with their means as pivots. */
FN void TYPED(planes_again)(const elem *x, int64_t length, bits again, vec *mean, vec *rest, vec *m2) {
    vec sum[W], square[W], old = *mean, old_rest = *rest, old_m2 = *m2;
    for (int j = 0; j < W; j++) {
        Sums found = {{0}, {0}};
        if (again[j]) found = plane_sums(x + j * length, length, (*mean)[j]);
        sum[j] = found.sum;
        square[j] = found.square;
    }
    settle(sums(sum, W), sums(square, W), old, (float)length, mean, rest, m2);
    *mean = pick(again, *mean, old);
    *rest = pick(again, *rest, old_rest);
    *m2 = pick(again, *m2, old_m2);
}

/* Mean, its rest and sum of squared deviations of n <= W neighbouring channels of one sample; W values are written. */
INLINE void TYPED(plane_stats)(const elem *x, int64_t length, int n, float *mean, float *rest, float *m2) {
    vec sum[W], square[W], centre, lost, about;
    float pivot[W] = {0};
#define ADD_PLANE                                                  \
    {                                                              \
        pivot[j] = one(x + j * length);                            \
        Sums found = plane_sums(x + j * length, length, pivot[j]); \
        sum[j] = found.sum;                                        \
        square[j] = found.square;                                  \
    }
    if (__builtin_constant_p(length))
        UNROLL for (int j = 0; j < n; j++) ADD_PLANE
    else
        for (int j = 0; j < n; j++) ADD_PLANE
#undef ADD_PLANE
    for (int j = W; j-- > n;) sum[j] = square[j] = (vec){0};
    bits again = settle(sums(sum, n), sums(square, n), load(pivot), (float)length, &centre, &lost, &about);
    if (__builtin_expect(any(again), 0)) TYPED(planes_again)(x, length, again, &centre, &lost, &about);
    store(mean, centre);
    store(rest, lost);
    store(m2, about);
}

/* The same for one channel with a large map. */
FN void TYPED(lone_plane_stats)(const elem *x, int64_t length, float *mean, float *rest, float *m2) {
    vec centre, lost, about, pivot = {one(x)};
    Sums found = plane_sums(x, length, pivot[0]);
    bits again = settle(lone_sum(found.sum), lone_sum(found.square), pivot, (float)length, &centre, &lost, &about);
    if (__builtin_expect(any(again), 0)) TYPED(planes_again)(x, length, again, &centre, &lost, &about);
    store(mean, centre);
    store(rest, lost);
    store(m2, about);
}

/* The same for n <= TILE channels; a multiple of W values may be written. For maps of a few vectors it pays to have
 * the length as a constant. */
FN void TYPED(planes_stats)(const elem *x, int64_t length, int n, float *mean, float *rest, float *m2) {
    for (int j = 0; j < n; j += W) {
        int left = (int)smaller(n - j, W);
        const elem *from = x + j * length;
#define STATS(stats, ...) TYPED(stats)(from, __VA_ARGS__, mean + j, rest + j, m2 + j)
        if (left == 1)
            STATS(lone_plane_stats, length);
        else if (left == W && length == W)
            STATS(plane_stats, W, W);
        else if (left == W && length == 2 * W)
            STATS(plane_stats, 2 * W, W);
        else if (left == W && length == 4 * W)
            STATS(plane_stats, 4 * W, W);
        else
            STATS(plane_stats, length, left);
#undef STATS
    }
}
#define planes_stats TYPED(planes_stats)

/* Normalise one channel. There is no prefetching: a plane is read and written in order, which the hardware predicts. */
INLINE void TYPED(plane_apply)(const elem *restrict x, elem *restrict out, int64_t length, float centre, float scale,
                               float bias) {
    vec c = all(centre), s = all(scale), b = all(bias);
    int64_t i = 0;
    for (; i + LINE <= length; i += LINE)
        for (int k = 0; k < LINE; k += W) put(out + i + k, MULTIPLY_ADD(get(x + i + k) - c, s, b));
    for (; i + W <= length; i += W) put(out + i, MULTIPLY_ADD(get(x + i) - c, s, b));
    if (i < length) put_end(out, length, MULTIPLY_ADD(get_end(x, length) - c, s, b));
}
#define plane_apply TYPED(plane_apply)

/* Normalise n <= TILE neighbouring channels of one sample whose statistics are known, from instance `first` on. */
FN void TYPED(planes_apply)(const Job *job, int64_t first, int n, const float *mean, const float *rest,
                            const float *m2) {
    int64_t b = first / job->ask.channels, c0 = first % job->ask.channels, length = job->ask.positions;
    const elem *x = (const elem *)job->ask.x + first * length;
    elem *out = (elem *)job->ask.out + first * length;
    float centre[TILE + W], scale[TILE + W], bias[TILE + W];
    normaliser(job, b, c0, n, mean, rest, m2, centre, scale, bias);
    if (length == 16)
        for (int j = 0; j < n; j++) plane_apply(x + j * 16, out + j * 16, 16, centre[j], scale[j], bias[j]);
    else
        for (int j = 0; j < n; j++)
            plane_apply(x + j * length, out + j * length, length, centre[j], scale[j], bias[j]);
}
#define planes_apply TYPED(planes_apply)

/* Tasks are instances (sample, channel), in memory order. How many of them, from `first` on, are neighbouring channels
 * of one sample; at most `most`. */
INLINE int TYPED(neighbours)(const Job *job, int64_t first, int64_t last, int64_t most) {
    return (int)smaller(smaller(most, job->ask.channels - first % job->ask.channels), last - first);
}

FN void TYPED(eval_planes)(const Job *job, int64_t first, int64_t last) {
    int64_t length = job->ask.positions, together = channels_within(length, NEAR_CACHE, TILE);
    for (int n; first < last; first += n) {
        float mean[TILE + W], rest[TILE + W], m2[TILE + W];
        n = TYPED(neighbours)(job, first, last, together);
        if (job->ask.alpha != INFINITY)
            planes_stats((const elem *)job->ask.x + first * length, length, n, mean, rest, m2);
        planes_apply(job, first, n, mean, rest, m2);
        if (job->ask.instance_mean) {
            memcpy(job->ask.instance_mean + first, mean, (size_t)n * sizeof(float));
            memcpy(job->ask.instance_m2 + first, m2, (size_t)n * sizeof(float));
        }
    }
}

FN void TYPED(stats_planes)(const Job *job, int64_t first, int64_t last) {
    int64_t length = job->ask.positions;
    for (int n; first < last; first += n) {
        float mean[TILE + W], rest[TILE + W], m2[TILE + W];
        n = (int)smaller(TILE, last - first);
        planes_stats((const elem *)job->ask.x + first * length, length, n, mean, rest, m2);
        memcpy(job->ask.instance_mean + first, mean, (size_t)n * sizeof(float));
        memcpy(job->ask.instance_m2 + first, m2, (size_t)n * sizeof(float));
    }
}

FN void TYPED(apply_planes)(const Job *job, int64_t first, int64_t last) {
    for (int n; first < last; first += n) {
        n = TYPED(neighbours)(job, first, last, TILE);
        planes_apply(job, first, n, job->ask.instance_mean + first, NULL, job->ask.instance_m2 + first);
    }
}

/* sum(grad) and sum(grad * (x - mean)) of one channel of one sample, as vectors of partial sums. */
INLINE void TYPED(plane_reduce)(const elem *grad, const elem *x, int64_t length, float mean, vec *total, vec *cross) {
    vec centre = all(mean), g[2] = {{0}}, h[2] = {{0}};
    int64_t i = 0;
    for (; i + 2 * W <= length; i += 2 * W)
        for (int k = 0; k < 2; k++) {
            vec push = get(grad + i + k * W);
            g[k] += push;
            h[k] = MULTIPLY_ADD(push, get(x + i + k * W) - centre, h[k]);
        }
    for (; i + W <= length; i += W) {
        vec push = get(grad + i);
        g[0] += push;
        h[0] = MULTIPLY_ADD(push, get(x + i) - centre, h[0]);
    }
    if (i < length) {
        vec push = keep_last(get_end(grad, length), length - i), apart = get_end(x, length) - centre;
        g[1] += push;
        h[1] = MULTIPLY_ADD(push, keep_last(apart, length - i), h[1]);
    }
    *total = g[0] + g[1];
    *cross = h[0] + h[1];
}

/* The same for n neighbouring channels. */
FN void TYPED(planes_reduce)(const elem *grad, const elem *x, int64_t length, int64_t n, const float *mean,
                             float *total, float *cross) {
    for (int64_t j = 0; j < n; j += W) {
        int left = (int)smaller(n - j, W);
        vec sum[W], product[W];
        float found[W];
        for (int k = 0; k < left; k++) {
            int64_t at = (j + k) * length;
            if (length == 2 * W)
                TYPED(plane_reduce)(grad + at, x + at, 2 * W, mean[j + k], &sum[k], &product[k]);
            else
                TYPED(plane_reduce)(grad + at, x + at, length, mean[j + k], &sum[k], &product[k]);
        }
        for (int k = left; k < W; k++) sum[k] = product[k] = (vec){0};
        store(found, sums(sum, left));
        memcpy(total + j, found, (size_t)left * sizeof(float));
        store(found, sums(product, left));
        memcpy(cross + j, found, (size_t)left * sizeof(float));
    }
}

INLINE void TYPED(plane_backward)(const elem *restrict x, const elem *restrict grad, elem *restrict out, int64_t length,
                                  float mean, float slope, float tilt, float shift) {
    vec m = all(mean), a = all(slope), t = all(tilt), s = all(shift);
    int64_t i = 0;
    for (; i + W <= length; i += W)
        put(out + i, MULTIPLY_ADD(get(grad + i), a, MULTIPLY_ADD(get(x + i) - m, t, s)));
    if (i < length)
        put_end(out, length, MULTIPLY_ADD(get_end(grad, length), a, MULTIPLY_ADD(get_end(x, length) - m, t, s)));
}

FN void TYPED(reduce_planes)(const Job *job, int64_t first, int64_t last) {
    int64_t length = job->ask.positions, at = first * length;
    const elem *x = (const elem *)job->ask.x + at, *grad = (const elem *)job->ask.grad + at;
    TYPED(planes_reduce)(grad, x, length, last - first, job->ask.instance_mean + first, job->shift + first,
                         job->tilt + first);
}

FN void TYPED(backward_planes)(const Job *job, int64_t first, int64_t last) {
    int64_t length = job->ask.positions;
    const elem *x = job->ask.x, *grad = job->ask.grad;
    for (int64_t i = first; i < last; i++)
        TYPED(plane_backward)(x + i * length, grad + i * length, (elem *)job->ask.out + i * length, length,
                              job->ask.instance_mean[i], job->slope[i], job->tilt[i], job->shift[i]);
}

/* ---- rows: the channels of a position are adjacent ------------------------------------------------------------
 * A task is a strip of a sample's channels, processed row by row in memory order. The values of the strip are in
 * arrays, with one slot per vector of channels. If the channels do not fill the last vector, it begins earlier and
 * computes some channels a second time, in its own slot, with the same result. */

#define Strip TYPED(Strip)
typedef struct {
    const Job *job;
    int64_t b, c0, width;            /* sample, first channel, channels */
    const elem *x;                   /* the sample's first row, at the strip */
    float mean[STRIP + W], rest[STRIP + W], m2[STRIP + W];
    float sum[STRIP + W], square[STRIP + W], total[STRIP + W], total_square[STRIP + W];
    float centre[STRIP + W], scale[STRIP + W], bias[STRIP + W];
} Strip;

/* Do something for COLUMN slots of a strip at a time, so that their values stay in registers, and for the rest one by
 * one. The number of slots is `slots`; they begin at `at` in the arrays and at `from` in the strip. */
#define EACH_COLUMN(width, ...)                                           \
    do {                                                                  \
        int64_t at = 0, from = 0;                                         \
        for (; at + COLUMN * W <= (width); at += COLUMN * W, from = at) { \
            enum { slots = COLUMN };                                      \
            __VA_ARGS__;                                                  \
        }                                                                 \
        for (; at < (width); at += W) {                                   \
            enum { slots = 1 };                                           \
            from = smaller(at, (width)-W);                                \
            __VA_ARGS__;                                                  \
        }                                                                 \
    } while (0)

/* The same for one slot at a time. */
#define EACH_SLOT(width, ...)                        \
    for (int64_t at = 0; at < (width); at += W) {    \
        int64_t from = smaller(at, (width)-W);       \
        __VA_ARGS__;                                 \
    }

INLINE void TYPED(strip_of)(const Job *job, int64_t b, int64_t c0, Strip *strip) {
    strip->job = job;
    strip->b = b;
    strip->width = smaller(job->strip, job->ask.channels - c0);
    if (strip->width < W) strip->width = W;
    strip->c0 = smaller(c0, job->ask.channels - strip->width);
    strip->x = (const elem *)job->ask.x + b * job->ask.positions * job->ask.channels + strip->c0;
}
#define strip_of TYPED(strip_of)

/* The sums of 4 rows or of 1, of one slot. */
INLINE Sums TYPED(slot_sums)(const elem *x, int64_t stride, int rows, vec centre) {
    Sums first = first_of(get(x) - centre);
    if (rows == 1) return first;
    return both(with(first, get(x + stride) - centre),
                with(first_of(get(x + 2 * stride) - centre), get(x + 3 * stride) - centre));
}
#define slot_sums TYPED(slot_sums)

/* The pivots are the first row of a sample, for all its segments. They are stored in place of the means for a while. */
INLINE void TYPED(strip_pivots)(Strip *strip) {
    EACH_SLOT(strip->width, store(strip->mean + at, get(strip->x + from)));
}
#define strip_pivots TYPED(strip_pivots)

/* The sums of one segment, a few rows after another, so that memory is read in order. */
INLINE void TYPED(segment_sums)(const Strip *strip, int64_t first, int64_t last, float *sum, float *square) {
    int64_t stride = strip->job->ask.channels, width = strip->width;
    memset(sum, 0, (size_t)(width + W) * sizeof(float));
    memset(square, 0, (size_t)(width + W) * sizeof(float));
    for (int64_t start = first, end; start < last; start = end) {
        end = smaller(start + ROWS, last);
        EACH_COLUMN(width, {
            const elem *x = strip->x + start * stride + from;
            Sums total[slots];
            vec centre[slots];
            for (int k = 0; k < slots; k++) {
                total[k] = (Sums){load(sum + at + k * W), load(square + at + k * W)};
                centre[k] = load(strip->mean + at + k * W);
            }
            int64_t i = start;
            for (; i + 4 <= end; i += 4, x += 4 * stride) {
                for (int64_t j = 0; j < 4 * stride; j += stride)
                    for (int k = 0; k < slots; k++) __builtin_prefetch(x + READ_AHEAD + j + k * W, 0, 3);
                for (int k = 0; k < slots; k++) total[k] = both(total[k], slot_sums(x + k * W, stride, 4, centre[k]));
            }
            for (; i < end; i++, x += stride)
                for (int k = 0; k < slots; k++) total[k] = both(total[k], slot_sums(x + k * W, stride, 1, centre[k]));
            for (int k = 0; k < slots; k++) {
                store(sum + at + k * W, total[k].sum);
                store(square + at + k * W, total[k].square);
            }
        });
    }
}
#define segment_sums TYPED(segment_sums)

/* Sweep over one slot again, over all rows, with its mean as the pivot. */
FN void TYPED(sweep_again)(const Strip *strip, int64_t from, bits again, vec *mean, vec *rest, vec *m2) {
    int64_t length = strip->job->ask.positions, stride = strip->job->ask.channels;
    vec sum = {0}, square = {0}, old = *mean, old_rest = *rest, old_m2 = *m2;
    for (int64_t first = 0; first < length; first += SEGMENT) {
        Sums total = {{0}, {0}};
        for (int64_t i = first, last = smaller(first + SEGMENT, length); i < last; i++)
            total = both(total, slot_sums(strip->x + i * stride + from, stride, 1, old));
        sum += total.sum;
        square += total.square;
    }
    settle(sum, square, old, (float)length, mean, rest, m2);
    *mean = pick(again, *mean, old);
    *rest = pick(again, *rest, old_rest);
    *m2 = pick(again, *m2, old_m2);
}

/* From the sums of all segments to means and squared deviations. */
INLINE void TYPED(strip_settle)(Strip *strip) {
    float length = (float)strip->job->ask.positions;
    EACH_SLOT(strip->width, {
        vec mean, rest, m2, sum = load(strip->total + at), square = load(strip->total_square + at);
        bits again = settle(sum, square, load(strip->mean + at), length, &mean, &rest, &m2);
        if (__builtin_expect(any(again), 0)) TYPED(sweep_again)(strip, from, again, &mean, &rest, &m2);
        store(strip->mean + at, mean);
        store(strip->rest + at, rest);
        store(strip->m2 + at, m2);
    });
}
#define strip_settle TYPED(strip_settle)

/* Statistics of one sample, segment by segment, so that the sums do not depend on the number of threads. */
INLINE void TYPED(strip_stats)(Strip *strip) {
    int64_t length = strip->job->ask.positions, slots = strip->width + W;
    strip_pivots(strip);
    segment_sums(strip, 0, smaller(SEGMENT, length), strip->total, strip->total_square);
    for (int64_t first = SEGMENT; first < length; first += SEGMENT) {
        segment_sums(strip, first, smaller(first + SEGMENT, length), strip->sum, strip->square);
        for (int64_t j = 0; j < slots; j++) strip->total[j] += strip->sum[j];
        for (int64_t j = 0; j < slots; j++) strip->total_square[j] += strip->square[j];
    }
    strip_settle(strip);
}
#define strip_stats TYPED(strip_stats)

/* Copy the values of a strip to or from an array of [B, C]. */
INLINE void TYPED(strip_keep)(const Strip *strip, const float *slots, float *instances) {
    instances += strip->b * strip->job->ask.channels + strip->c0;
    EACH_SLOT(strip->width, store(instances + from, load(slots + at)));
}
INLINE void TYPED(strip_take)(const Strip *strip, float *slots, const float *instances) {
    instances += strip->b * strip->job->ask.channels + strip->c0;
    EACH_SLOT(strip->width, store(slots + at, load(instances + from)));
}
#define strip_keep TYPED(strip_keep)
#define strip_take TYPED(strip_take)

/* Normalise some positions of a sample whose statistics are known. */
INLINE void TYPED(strip_apply)(Strip *strip, int64_t first, int64_t last) {
    const Job *job = strip->job;
    int64_t stride = job->ask.channels, sample = stride * job->ask.positions;
    EACH_SLOT(strip->width, {
        normaliser(job, strip->b, strip->c0 + from, W, strip->mean + at, strip->rest + at, strip->m2 + at,
                   strip->centre + at, strip->scale + at, strip->bias + at);
    });
    for (int64_t start = first, end; start < last; start = end) {
        end = smaller(start + ROWS, last);
        EACH_COLUMN(strip->width, {
            const elem *restrict x = strip->x + start * stride + from;
            elem *restrict out = (elem *)job->ask.out + (x - (const elem *)job->ask.x);
            vec centre[slots], scale[slots], bias[slots];
            for (int k = 0; k < slots; k++) {
                centre[k] = load(strip->centre + at + k * W);
                scale[k] = load(strip->scale + at + k * W);
                bias[k] = load(strip->bias + at + k * W);
            }
            for (int64_t i = start; i < end; i++, x += stride, out += stride)
                for (int k = 0; k < slots; k++) {
                    __builtin_prefetch(x + sample + k * W, 0, 2); /* the next sample's statistics come next */
                    __builtin_prefetch(out + WRITE_AHEAD + k * W, 1, 3);
                    put(out + k * W, MULTIPLY_ADD(get(x + k * W) - centre[k], scale[k], bias[k]));
                }
        });
    }
}
#define strip_apply TYPED(strip_apply)

/* For each task; a task is a strip of a sample. */
#define EACH_STRIP(strip)                                                                                       \
    for (int64_t task = first, count = pieces(job->ask.channels, job->strip);                                   \
         task < last && (strip_of(job, task / count, task % count * job->strip, &(strip)), 1); task++)

FN void TYPED(eval_rows)(const Job *job, int64_t first, int64_t last) {
    Strip strip;
    EACH_STRIP(strip) {
        if (job->ask.alpha != INFINITY) strip_stats(&strip);
        if (job->ask.instance_mean) {
            strip_keep(&strip, strip.mean, job->ask.instance_mean);
            strip_keep(&strip, strip.m2, job->ask.instance_m2);
        }
        strip_apply(&strip, 0, job->ask.positions);
    }
}

FN void TYPED(stats_rows)(const Job *job, int64_t first, int64_t last) {
    Strip strip;
    EACH_STRIP(strip) {
        strip_stats(&strip);
        strip_keep(&strip, strip.mean, job->ask.instance_mean);
        strip_keep(&strip, strip.m2, job->ask.instance_m2);
    }
}

FN void TYPED(apply_rows)(const Job *job, int64_t first, int64_t last) {
    Strip strip;
    EACH_STRIP(strip) {
        strip_take(&strip, strip.mean, job->ask.instance_mean);
        strip_take(&strip, strip.m2, job->ask.instance_m2);
        memset(strip.rest, 0, sizeof strip.rest);
        strip_apply(&strip, 0, job->ask.positions);
    }
}

/* If there are fewer samples than threads, a task is a segment of a sample: first all sums, then the output. */
#define EACH_SEGMENT(strip)                                                                          \
    for (int64_t task = first, segments = pieces(job->ask.positions, SEGMENT); task < last; task++)  \
        for (int64_t c0 = 0; c0 < job->ask.channels && (strip_of(job, task / segments, c0, &(strip)), 1); \
             c0 += job->strip)

/* The position of a segment's sums of a strip in `parts`; their squares come `channels` later. */
INLINE float *TYPED(part_at)(const Strip *strip, int64_t task) {
    return strip->job->parts + 2 * task * strip->job->ask.channels + strip->c0;
}

FN void TYPED(part_stats_rows)(const Job *job, int64_t first, int64_t last) {
    Strip strip;
    EACH_SEGMENT(strip) {
        int64_t start = task % segments * SEGMENT;
        float *part = TYPED(part_at)(&strip, task);
        strip_pivots(&strip);
        segment_sums(&strip, start, smaller(start + SEGMENT, job->ask.positions), strip.sum, strip.square);
        EACH_SLOT(strip.width, {
            store(part + from, load(strip.sum + at));
            store(part + job->ask.channels + from, load(strip.square + at));
        });
    }
}

FN void TYPED(part_eval_rows)(const Job *job, int64_t first, int64_t last) {
    Strip strip;
    EACH_SEGMENT(strip) {
        int64_t index = task % segments, start = index * SEGMENT;
        strip_pivots(&strip);
        EACH_SLOT(strip.width, {
            vec sum = all(0.0f), square = sum;
            for (int64_t s = task - index, end = s + segments; s < end; s++) {
                const float *part = TYPED(part_at)(&strip, s) + from;
                sum += load(part);
                square += load(part + job->ask.channels);
            }
            store(strip.total + at, sum);
            store(strip.total_square + at, square);
        });
        strip_settle(&strip);
        strip_apply(&strip, start, smaller(start + SEGMENT, job->ask.positions));
    }
}

/* sum(grad) and sum(grad * (x - mean)) of every instance. */
FN void TYPED(reduce_rows)(const Job *job, int64_t first, int64_t last) {
    int64_t length = job->ask.positions, stride = job->ask.channels;
    Strip strip;
    EACH_STRIP(strip) {
        strip_take(&strip, strip.mean, job->ask.instance_mean);
        EACH_COLUMN(strip.width, {
            const elem *x = strip.x + from, *grad = (const elem *)job->ask.grad + (x - (const elem *)job->ask.x);
            vec mean[slots], total[slots], cross[slots];
            for (int k = 0; k < slots; k++) {
                mean[k] = load(strip.mean + at + k * W);
                total[k] = cross[k] = (vec){0};
            }
            for (int64_t i = 0; i < length;) {
                vec sum[slots], product[slots];
                for (int k = 0; k < slots; k++) sum[k] = product[k] = (vec){0};
                int64_t end = smaller(i + SEGMENT, length);
                for (; i + 2 <= end; i += 2, x += 2 * stride, grad += 2 * stride)
                    for (int k = 0; k < slots; k++) {
                        vec push = get(grad + k * W), next = get(grad + stride + k * W);
                        vec own = push * (get(x + k * W) - mean[k]);
                        sum[k] += push + next;
                        product[k] += MULTIPLY_ADD(next, get(x + stride + k * W) - mean[k], own);
                    }
                for (; i < end; i++, x += stride, grad += stride)
                    for (int k = 0; k < slots; k++) {
                        vec push = get(grad + k * W);
                        sum[k] += push;
                        product[k] += push * (get(x + k * W) - mean[k]);
                    }
                for (int k = 0; k < slots; k++) {
                    total[k] += sum[k];
                    cross[k] += product[k];
                }
            }
            for (int k = 0; k < slots; k++) {
                store(strip.total + at + k * W, total[k]);
                store(strip.total_square + at + k * W, cross[k]);
            }
        });
        strip_keep(&strip, strip.total, job->shift);
        strip_keep(&strip, strip.total_square, job->tilt);
    }
}

FN void TYPED(backward_rows)(const Job *job, int64_t first, int64_t last) {
    int64_t stride = job->ask.channels;
    Strip strip;
    EACH_STRIP(strip) {
        int64_t start = strip.x - (const elem *)job->ask.x;
        const elem *restrict x = strip.x, *restrict grad = (const elem *)job->ask.grad + start;
        elem *restrict out = (elem *)job->ask.out + start;
        strip_take(&strip, strip.mean, job->ask.instance_mean);
        strip_take(&strip, strip.scale, job->slope);
        strip_take(&strip, strip.m2, job->tilt);
        strip_take(&strip, strip.bias, job->shift);
        EACH_COLUMN(strip.width, {
            vec mean[slots], slope[slots], tilt[slots], shift[slots];
            for (int k = 0; k < slots; k++) {
                mean[k] = load(strip.mean + at + k * W);
                slope[k] = load(strip.scale + at + k * W);
                tilt[k] = load(strip.m2 + at + k * W);
                shift[k] = load(strip.bias + at + k * W);
            }
            for (int64_t i = 0, row = from; i < job->ask.positions; i++, row += stride)
                for (int k = 0; k < slots; k++) {
                    vec own = MULTIPLY_ADD(get(x + row + k * W) - mean[k], tilt[k], shift[k]);
                    put(out + row + k * W, MULTIPLY_ADD(get(grad + row + k * W), slope[k], own));
                }
        });
    }
}

#undef TYPED
#undef get
#undef put
#undef one
#undef UNROLL
#undef LINE
#undef get_end
#undef put_end
#undef plane_sums
#undef planes_stats
#undef plane_apply
#undef planes_apply
#undef Strip
#undef EACH_SLOT
#undef EACH_COLUMN
#undef strip_of
#undef slot_sums
#undef strip_pivots
#undef segment_sums
#undef strip_settle
#undef strip_stats
#undef strip_keep
#undef strip_take
#undef strip_apply
#undef EACH_STRIP
#undef EACH_SEGMENT
