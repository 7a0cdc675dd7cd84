/*
 * The arithmetic of _iabn.c for one instruction set. The including file says which: IABN_WIDTH is the number of
 * floats in a vector, TARGET the compiler's attribute for it, NAME(f) what a function is called there.
 */

#define W IABN_WIDTH
#define UNROLL _Pragma("GCC unroll 16")
#define FN static TARGET
#define INLINE static inline __attribute__((always_inline)) TARGET
#define vec NAME(vec)
#define bits NAME(bits)
typedef float vec __attribute__((vector_size(4 * W), aligned(4), may_alias));
typedef int32_t bits __attribute__((vector_size(4 * W), aligned(4), may_alias));

INLINE vec NAME(load)(const float *p) { return *(const vec *)p; }
INLINE void NAME(store)(float *p, vec v) { *(vec *)p = v; }
INLINE vec NAME(all)(float f) { return f - (vec){0}; }

/* Keep the last `count` lanes of a vector, make the others zero: how a tail is read without reading beyond it. */
INLINE vec NAME(keep_last)(vec v, int64_t count) {
    bits lane;
    for (int i = 0; i < W; i++) lane[i] = i;
    return (vec)((bits)v & (lane >= (int32_t)(W - count)));
}

#define load NAME(load)
#define store NAME(store)
#define all NAME(all)
#define keep_last NAME(keep_last)

/* The sum of one vector's lanes, in the order of the tree below: how many channels are looked at together, and so
 * the number of threads, makes no difference to the result. */
INLINE float NAME(lanes)(vec v) {
    float part[W];
    store(part, v);
    for (int step = 1; step < W; step *= 2)
        for (int i = 0; i < W; i += 2 * step) part[i] += part[i + step];
    return part[0];
}
#define lanes NAME(lanes)


/* W vectors in, their W sums out: a tree of shuffles, far cheaper than W sums one by one. At each step two vectors
 * become one, that holds the half-finished sums of the first in the lanes where i & step is 0, else of the second. */
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define IABN_TREE
#endif
#endif
#define PAIR(a, b, low, high) (__builtin_shufflevector(a, b, low) + __builtin_shufflevector(a, b, high))
#define LIST(...) __VA_ARGS__
INLINE vec NAME(sums)(vec *v) {
#ifdef IABN_TREE
#if W == 4
    for (int i = 0; i < W; i += 2) v[i] = PAIR(v[i], v[i + 1], LIST(0, 4, 2, 6), LIST(1, 5, 3, 7));
    return PAIR(v[0], v[2], LIST(0, 1, 4, 5), LIST(2, 3, 6, 7));
#elif W == 8
    for (int i = 0; i < W; i += 2)
        v[i] = PAIR(v[i], v[i + 1], LIST(0, 8, 2, 10, 4, 12, 6, 14), LIST(1, 9, 3, 11, 5, 13, 7, 15));
    for (int i = 0; i < W; i += 4)
        v[i] = PAIR(v[i], v[i + 2], LIST(0, 1, 8, 9, 4, 5, 12, 13), LIST(2, 3, 10, 11, 6, 7, 14, 15));
    return PAIR(v[0], v[4], LIST(0, 1, 2, 3, 8, 9, 10, 11), LIST(4, 5, 6, 7, 12, 13, 14, 15));
#else
    for (int i = 0; i < W; i += 2)
        v[i] = PAIR(v[i], v[i + 1], LIST(0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30),
                    LIST(1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31));
    for (int i = 0; i < W; i += 4)
        v[i] = PAIR(v[i], v[i + 2], LIST(0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29),
                    LIST(2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31));
    for (int i = 0; i < W; i += 8)
        v[i] = PAIR(v[i], v[i + 4], LIST(0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27),
                    LIST(4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31));
    return PAIR(v[0], v[8], LIST(0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
                LIST(8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31));
#endif
#else
    vec total;
    for (int i = 0; i < W; i++) total[i] = lanes(v[i]);
    return total;
#endif
}
#undef PAIR
#undef LIST
#define sums NAME(sums)

/* ---- per-instance numbers: plain loops over lanes, which the compiler turns into vectors -------------------- */

/* How IABN normalises n instances of one sample: out = (x - centre) * scale + bias. */
INLINE void NAME(normaliser)(const Job *job, int64_t b, int64_t c0, int n, const float *mean, const float *m2,
                             float *centre, float *scale) {
    float length = (float)job->ask.positions, eps = job->ask.eps;
    float spread = job->ask.alpha * sqrtf(2.0f / (length - 1.0f));
    float inverse = 1.0f / (length - (float)job->ask.correction);
    float alpha = job->ask.alpha, part = 1.0f / length;
    int64_t at = layer_at(job, b, c0);
    const float *restrict layer_mean = job->ask.mean + at, *restrict layer_var = job->ask.var + at;
    if (alpha == INFINITY) { /* BatchNorm: the sample's own statistics are not known and not needed */
        for (int j = 0; j < n; j++) {
            centre[j] = layer_mean[j];
            scale[j] = 1.0f / sqrtf(layer_var[j] + eps);
        }
    } else for (int j = 0; j < n; j++) {
        float room = layer_var[j] + eps, limit = alpha * sqrtf(room * part), far = room * spread;
        float own = m2[j] * inverse, apart = mean[j] - layer_mean[j], wider = own - layer_var[j];
        float variance = wider > far ? own - far : wider < -far ? own + far : layer_var[j];
        variance = variance < 0.0f ? 0.0f : variance;
        variance = wider == wider ? variance : wider; /* a NaN stays one */
        centre[j] = apart > limit ? mean[j] - limit : apart < -limit ? mean[j] + limit : layer_mean[j];
        centre[j] = apart == apart ? centre[j] : apart;
        scale[j] = 1.0f / sqrtf(variance + eps);
    }
    if (job->ask.weight)
        for (int j = 0; j < n; j++) scale[j] *= job->ask.weight[at + j];
}
#define normaliser NAME(normaliser)

/* The chain rule between the two sweeps of the backward, for n channels and all samples. On entry tilt and shift
 * hold, for every instance, sum(grad * (x - mean)) and sum(grad). */
FN void NAME(chain)(const Job *job, int64_t c0, int n) {
    float length = (float)job->ask.positions, eps = job->ask.eps, alpha = job->ask.alpha;
    float root = alpha * sqrtf(2.0f / (length - 1.0f)), part = 1.0f / length;
    float inverse = 1.0f / (length - (float)job->ask.correction);
    double sum_mean[TILE] = {0}, sum_var[TILE] = {0}, sum_weight[TILE] = {0}, sum_bias[TILE] = {0};
    float weight[TILE], layer_mean[TILE], layer_var[TILE], to_layer_mean[TILE], to_layer_var[TILE], to_weight[TILE];
    for (int j = 0; j < n; j++) {
        weight[j] = weight_at(job, c0 + j);
        layer_mean[j] = job->ask.mean[c0 + j];
        layer_var[j] = job->ask.var[c0 + j];
    }
    for (int64_t b = 0; b < job->ask.batch; b++) {
        int64_t at = b * job->ask.channels + c0;
        const float *restrict mean = job->ask.instance_mean + at, *restrict m2 = job->ask.instance_m2 + at;
        float *restrict slope = job->slope + at, *restrict tilt = job->tilt + at, *restrict shift = job->shift + at;
        for (int j = 0; j < n; j++) sum_bias[j] += shift[j];
        for (int j = 0; j < n; j++) {
            float room = layer_var[j] + eps, limit = alpha * sqrtf(room * part), far = root * room;
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

/* ---- planes: a channel's positions lie together ------------------------------------------------------------- */

/* Sum over the positions of f(offset), which gives a vector at an offset; `sum` stays a vector of partial sums. */
#define SWEEP(sum, length, f)                                                      \
    do {                                                                           \
        vec s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};                                \
        int64_t i = 0;                                                             \
        for (; i + 4 * W <= (length); i += 4 * W) {                                \
            s0 += f(i);                                                            \
            s1 += f(i + W);                                                        \
            s2 += f(i + 2 * W);                                                    \
            s3 += f(i + 3 * W);                                                    \
        }                                                                          \
        for (; i + W <= (length); i += W) s0 += f(i);                              \
        if (i < (length)) s1 += keep_last(f((length)-W), (length)-i);              \
        sum = (s0 + s1) + (s2 + s3);                                               \
    } while (0)

/* Turn n vectors of partial sums into n numbers. */
INLINE void NAME(finish)(vec *partial, int n, float *total) {
    if (n == W)
        store(total, sums(partial));
    else
        for (int j = 0; j < n; j++) total[j] = lanes(partial[j]);
}
#define finish NAME(finish)

/* Mean and sum of squared deviations of n <= W neighbouring channels of one sample. */
FN void NAME(plane_stats)(const float *x, int64_t length, int n, float *mean, float *m2) {
    float total[W], share = 1.0f / (float)length;
    if (length < W) {
        for (int j = 0; j < n; j++, x += length) {
            float sum = 0.0f, square = 0.0f;
            for (int64_t i = 0; i < length; i++) sum += x[i];
            mean[j] = sum * share;
            for (int64_t i = 0; i < length; i++) square += (x[i] - mean[j]) * (x[i] - mean[j]);
            m2[j] = square;
        }
        return;
    }
    vec partial[W];
    if (length == W && n == W) {
        UNROLL for (int j = 0; j < W; j++) partial[j] = load(x + j * W);
        store(mean, sums(partial) * share);
        UNROLL for (int j = 0; j < W; j++) {
            vec apart = load(x + j * W) - mean[j];
            partial[j] = apart * apart;
        }
        store(m2, sums(partial));
        return;
    }
    for (int j = 0; j < n; j++) {
        const float *p = x + j * length;
#define AT(i) load(p + (i))
        SWEEP(partial[j], length, AT);
#undef AT
    }
    finish(partial, n, total);
    for (int j = 0; j < n; j++) mean[j] = total[j] * share;
    for (int j = 0; j < n; j++) {
        const float *p = x + j * length;
        vec centre = all(mean[j]);
#define AT(i) ((load(p + (i)) - centre) * (load(p + (i)) - centre))
        SWEEP(partial[j], length, AT);
#undef AT
    }
    finish(partial, n, m2);
}
#define plane_stats NAME(plane_stats)

INLINE void NAME(plane_apply)(const float *restrict x, float *restrict out, int64_t length, float centre, float scale,
                              float bias) {
    int64_t i = 0;
    for (; i + W <= length; i += W) store(out + i, (load(x + i) - centre) * scale + bias);
    for (; i < length; i++) out[i] = (x[i] - centre) * scale + bias;
}
#define plane_apply NAME(plane_apply)

/* Normalise n <= W neighbouring channels of one sample whose statistics are known. */
INLINE void NAME(planes_apply)(const Job *job, int64_t b, int64_t c0, int n, const float *mean, const float *m2) {
    int64_t length = job->ask.positions, at = (b * job->ask.channels + c0) * length;
    float centre[W], scale[W];
    if (n == W) {
        normaliser(job, b, c0, W, mean, m2, centre, scale);
        if (length == W) {
            const float *restrict x = job->ask.x + at;
            float *restrict out = job->ask.out + at, bias[W];
            for (int j = 0; j < W; j++) bias[j] = bias_at(job, layer_at(job, b, c0 + j));
            UNROLL for (int j = 0; j < W; j++)
                store(out + j * W, (load(x + j * W) - centre[j]) * scale[j] + bias[j]);
            return;
        }
    } else {
        normaliser(job, b, c0, n, mean, m2, centre, scale);
    }
    for (int j = 0; j < n; j++)
        plane_apply(job->ask.x + at + j * length, job->ask.out + at + j * length, length, centre[j], scale[j],
                    bias_at(job, layer_at(job, b, c0 + j)));
}
#define planes_apply NAME(planes_apply)

/* Tasks are instances (sample, channel), in memory's order. */
FN void NAME(eval_planes)(const Job *job, int64_t first, int64_t last) {
    int64_t together = channels_within(job->ask.positions, NEAR_CACHE, W);
    while (first < last) {
        int64_t b = first / job->ask.channels, c0 = first % job->ask.channels;
        int n = (int)smaller(smaller(together, job->ask.channels - c0), last - first);
        float mean[W], m2[W];
        if (job->ask.alpha != INFINITY)
            plane_stats(job->ask.x + first * job->ask.positions, job->ask.positions, n, mean, m2);
        planes_apply(job, b, c0, n, mean, m2);
        if (job->ask.instance_mean) {
            memcpy(job->ask.instance_mean + first, mean, (size_t)n * sizeof(float));
            memcpy(job->ask.instance_m2 + first, m2, (size_t)n * sizeof(float));
        }
        first += n;
    }
}

/* Tasks are channels: a channel's whole batch is still cached when its statistics are known. */
FN void NAME(train_planes)(const Job *job, int64_t first, int64_t last) {
    int64_t together = channels_within(job->ask.batch * job->ask.positions, FAR_CACHE, W);
    for (int64_t c0 = first; c0 < last; c0 += together) {
        int n = (int)smaller(together, last - c0);
        for (int64_t b = 0; b < job->ask.batch; b++) {
            int64_t at = b * job->ask.channels + c0;
            plane_stats(job->ask.x + at * job->ask.positions, job->ask.positions, n, job->ask.instance_mean + at,
                        job->ask.instance_m2 + at);
        }
        merge_instances(job, c0, n);
        for (int64_t b = 0; b < job->ask.batch; b++) {
            int64_t at = b * job->ask.channels + c0;
            planes_apply(job, b, c0, n, job->ask.instance_mean + at, job->ask.instance_m2 + at);
        }
    }
}

/* sum(grad) and sum(grad * (x - mean)) of n <= W neighbouring channels of one sample. */
FN void NAME(plane_reduce)(const float *grad, const float *x, int64_t length, int n, const float *mean, float *total,
                           float *cross) {
    if (length < W) {
        for (int j = 0; j < n; j++, x += length, grad += length) {
            float sum = 0.0f, product = 0.0f;
            for (int64_t i = 0; i < length; i++) {
                sum += grad[i];
                product += grad[i] * (x[i] - mean[j]);
            }
            total[j] = sum;
            cross[j] = product;
        }
        return;
    }
    vec partial[W], product[W];
    if (length == W && n == W) {
        UNROLL for (int j = 0; j < W; j++) {
            partial[j] = load(grad + j * W);
            product[j] = partial[j] * (load(x + j * W) - mean[j]);
        }
        store(total, sums(partial));
        store(cross, sums(product));
        return;
    }
    for (int j = 0; j < n; j++) {
        const float *p = x + j * length, *g = grad + j * length;
        vec centre = all(mean[j]), g0 = {0}, g1 = {0}, h0 = {0}, h1 = {0};
        int64_t i = 0;
        for (; i + 2 * W <= length; i += 2 * W) {
            vec a = load(g + i), b = load(g + i + W);
            g0 += a;
            g1 += b;
            h0 += a * (load(p + i) - centre);
            h1 += b * (load(p + i + W) - centre);
        }
        for (; i + W <= length; i += W) {
            vec a = load(g + i);
            g0 += a;
            h0 += a * (load(p + i) - centre);
        }
        if (i < length) {
            vec a = load(g + length - W);
            g1 += keep_last(a, length - i);
            h1 += keep_last(a * (load(p + length - W) - centre), length - i);
        }
        partial[j] = g0 + g1;
        product[j] = h0 + h1;
    }
    finish(partial, n, total);
    finish(product, n, cross);
}
#define plane_reduce NAME(plane_reduce)

FN void NAME(backward_planes)(const Job *job, int64_t first, int64_t last) {
    int64_t length = job->ask.positions, together = channels_within(2 * job->ask.batch * length, FAR_CACHE, W);
    for (int64_t c0 = first; c0 < last; c0 += together) {
        int n = (int)smaller(together, last - c0);
        for (int64_t b = 0; b < job->ask.batch; b++) {
            int64_t at = b * job->ask.channels + c0;
            plane_reduce(job->ask.grad + at * length, job->ask.x + at * length, length, n, job->ask.instance_mean + at,
                         job->shift + at, job->tilt + at);
        }
        chain(job, c0, n);
        if (!job->ask.out) continue;
        for (int64_t b = 0; b < job->ask.batch; b++) {
            for (int64_t at = b * job->ask.channels + c0, end = at + n; at < end; at++) {
                const float *restrict x = job->ask.x + at * length, *restrict grad = job->ask.grad + at * length;
                float *restrict out = job->ask.out + at * length;
                float mean = job->ask.instance_mean[at], slope = job->slope[at], tilt = job->tilt[at];
                float shift = job->shift[at];
                int64_t i = 0;
                for (; i + W <= length; i += W)
                    store(out + i, load(grad + i) * slope + ((load(x + i) - mean) * tilt + shift));
                for (; i < length; i++) out[i] = grad[i] * slope + ((x[i] - mean) * tilt + shift);
            }
        }
    }
}

/* ---- rows: a position's channels lie together ---------------------------------------------------------------
 * A task is a tile of channels of one sample, looked at as 4, 2 or 1 vectors. Where the channels do not fill the
 * last vector it begins earlier and computes some channels a second time, to the same values. */

#define EACH_TILE(job, first, last, body)                                                     \
    for (int64_t task = (first), tiles = pieces((job)->ask.channels, (job)->tile); task < (last); task++) { \
        int64_t b = task / tiles, from = task % tiles * (job)->tile;                           \
        int64_t to = smaller(from + (job)->tile, (job)->ask.channels);                             \
        while (from < to) {                                                                    \
            if (to - from < W) from = to - W;                                                  \
            if (to - from >= 4 * W) {                                                          \
                body(job, b, from, 4);                                                         \
                from += 4 * W;                                                                 \
            } else if (to - from >= 2 * W) {                                                   \
                body(job, b, from, 2);                                                         \
                from += 2 * W;                                                                 \
            } else {                                                                           \
                body(job, b, from, 1);                                                         \
                from += W;                                                                     \
            }                                                                                  \
        }                                                                                      \
    }

/* Add `rows` positions with the given means and squared deviations to `done` others (Chan et al.). */
INLINE void NAME(row_merge)(int64_t done, int64_t rows, int n, vec *mean, vec *m2, const vec *other,
                            const vec *other_m2) {
    float share = (float)rows / (float)(done + rows), both = (float)done * share;
    for (int k = 0; k < n; k++) {
        vec apart = other[k] - mean[k];
        mean[k] += apart * share;
        m2[k] += other_m2[k] + apart * apart * both;
    }
}
#define row_merge NAME(row_merge)

/* Statistics of one segment, chunk by chunk, each chunk in two sweeps while it is cached. */
INLINE void NAME(segment_stats)(const Job *job, int64_t b, int64_t segment, int64_t c0, int n, vec *mean, vec *m2) {
    int64_t stride = job->ask.channels, first = segment * SEGMENT, last = smaller(first + SEGMENT, job->ask.positions);
    const float *x = job->ask.x + b * job->ask.positions * stride + c0;
    for (int k = 0; k < n; k++) mean[k] = m2[k] = (vec){0};
    for (int64_t at = first; at < last; at += CHUNK) {
        int64_t rows = smaller(CHUNK, last - at);
        vec sum[4] = {{0}}, part[4] = {{0}};
        const float *p = x + at * stride;
        for (int64_t i = 0; i < rows; i++)
            for (int k = 0; k < n; k++) sum[k] += load(p + i * stride + k * W);
        for (int k = 0; k < n; k++) sum[k] *= 1.0f / (float)rows;
        for (int64_t i = 0; i < rows; i++)
            for (int k = 0; k < n; k++) {
                vec apart = load(p + i * stride + k * W) - sum[k];
                part[k] += apart * apart;
            }
        row_merge(at - first, rows, n, mean, m2, sum, part);
    }
}
#define segment_stats NAME(segment_stats)

/* Statistics of one sample, segment by segment: the same sums whether one thread computes them or several. */
INLINE void NAME(row_stats)(const Job *job, int64_t b, int64_t c0, int n, float *mean, float *m2) {
    int64_t length = job->ask.positions;
    vec centre[4] = {{0}}, square[4] = {{0}}, other[4], other_m2[4];
    for (int64_t done = 0; done < length; done += SEGMENT) {
        segment_stats(job, b, done / SEGMENT, c0, n, other, other_m2);
        row_merge(done, smaller(SEGMENT, length - done), n, centre, square, other, other_m2);
    }
    for (int k = 0; k < n; k++) {
        store(mean + k * W, centre[k]);
        store(m2 + k * W, square[k]);
    }
}
#define row_stats NAME(row_stats)

/* Normalise some positions of a sample whose statistics are known. */
INLINE void NAME(row_apply)(const Job *job, int64_t b, int64_t c0, int n, const float *mean, const float *m2,
                            int64_t first, int64_t last) {
    int64_t stride = job->ask.channels, at = (b * job->ask.positions + first) * stride + c0;
    const float *restrict x = job->ask.x + at;
    float *restrict out = job->ask.out + at;
    float centre[4 * W], scale[4 * W];
    vec c[4], s[4], bias[4];
    normaliser(job, b, c0, n * W, mean, m2, centre, scale);
    for (int k = 0; k < n; k++) {
        c[k] = load(centre + k * W);
        s[k] = load(scale + k * W);
        bias[k] = job->ask.bias ? load(job->ask.bias + layer_at(job, b, c0 + k * W)) : (vec){0};
    }
    for (int64_t i = first; i < last; i++, x += stride, out += stride)
        for (int k = 0; k < n; k++) store(out + k * W, (load(x + k * W) - c[k]) * s[k] + bias[k]);
}
#define row_apply NAME(row_apply)

INLINE void NAME(row_eval)(const Job *job, int64_t b, int64_t c0, int n) {
    float mean[4 * W], m2[4 * W];
    if (job->ask.alpha != INFINITY) row_stats(job, b, c0, n, mean, m2);
    row_apply(job, b, c0, n, mean, m2, 0, job->ask.positions);
    if (job->ask.instance_mean) {
        memcpy(job->ask.instance_mean + b * job->ask.channels + c0, mean, (size_t)(n * W) * sizeof(float));
        memcpy(job->ask.instance_m2 + b * job->ask.channels + c0, m2, (size_t)(n * W) * sizeof(float));
    }
}

INLINE void NAME(row_stats_kept)(const Job *job, int64_t b, int64_t c0, int n) {
    int64_t at = b * job->ask.channels + c0;
    row_stats(job, b, c0, n, job->ask.instance_mean + at, job->ask.instance_m2 + at);
}

INLINE void NAME(row_apply_kept)(const Job *job, int64_t b, int64_t c0, int n) {
    int64_t at = b * job->ask.channels + c0;
    row_apply(job, b, c0, n, job->ask.instance_mean + at, job->ask.instance_m2 + at, 0, job->ask.positions);
}

INLINE void NAME(row_reduce)(const Job *job, int64_t b, int64_t c0, int n) {
    int64_t length = job->ask.positions, stride = job->ask.channels, at = b * stride + c0;
    const float *x = job->ask.x + b * length * stride + c0, *grad = job->ask.grad + b * length * stride + c0;
    vec mean[4], total[4] = {{0}}, cross[4] = {{0}};
    for (int k = 0; k < n; k++) mean[k] = load(job->ask.instance_mean + at + k * W);
    for (int64_t done = 0; done < length; done += CHUNK) {
        vec sum[4] = {{0}}, product[4] = {{0}};
        for (int64_t i = done, end = smaller(done + CHUNK, length); i < end; i++)
            for (int k = 0; k < n; k++) {
                vec g = load(grad + i * stride + k * W);
                sum[k] += g;
                product[k] += g * (load(x + i * stride + k * W) - mean[k]);
            }
        for (int k = 0; k < n; k++) {
            total[k] += sum[k];
            cross[k] += product[k];
        }
    }
    for (int k = 0; k < n; k++) {
        store(job->shift + at + k * W, total[k]);
        store(job->tilt + at + k * W, cross[k]);
    }
}

INLINE void NAME(row_backward)(const Job *job, int64_t b, int64_t c0, int n) {
    int64_t length = job->ask.positions, stride = job->ask.channels, at = b * stride + c0;
    int64_t start = b * length * stride + c0;
    const float *restrict x = job->ask.x + start, *restrict grad = job->ask.grad + start;
    float *restrict out = job->ask.out + start;
    vec mean[4], slope[4], tilt[4], shift[4];
    for (int k = 0; k < n; k++) {
        mean[k] = load(job->ask.instance_mean + at + k * W);
        slope[k] = load(job->slope + at + k * W);
        tilt[k] = load(job->tilt + at + k * W);
        shift[k] = load(job->shift + at + k * W);
    }
    for (int64_t i = 0; i < length; i++, x += stride, grad += stride, out += stride)
        for (int k = 0; k < n; k++)
            store(out + k * W, load(grad + k * W) * slope[k] + ((load(x + k * W) - mean[k]) * tilt[k] + shift[k]));
}

/* Where samples are fewer than threads, a task is a segment of one: first everyone's statistics, then its answer. */
INLINE void NAME(part_stats)(const Job *job, int64_t task, int64_t c0, int n) {
    int64_t segments = pieces(job->ask.positions, SEGMENT);
    float *mean = job->parts + 2 * task * job->ask.channels + c0, *m2 = mean + job->ask.channels;
    vec centre[4], square[4];
    segment_stats(job, task / segments, task % segments, c0, n, centre, square);
    for (int k = 0; k < n; k++) {
        store(mean + k * W, centre[k]);
        store(m2 + k * W, square[k]);
    }
}

INLINE void NAME(part_eval)(const Job *job, int64_t task, int64_t c0, int n) {
    int64_t length = job->ask.positions, segments = pieces(length, SEGMENT), b = task / segments;
    const float *part = job->parts + 2 * b * segments * job->ask.channels + c0;
    vec centre[4] = {{0}}, square[4] = {{0}}, other[4], other_m2[4];
    float mean[4 * W], m2[4 * W];
    for (int64_t done = 0; done < length; done += SEGMENT, part += 2 * job->ask.channels) {
        for (int k = 0; k < n; k++) {
            other[k] = load(part + k * W);
            other_m2[k] = load(part + job->ask.channels + k * W);
        }
        row_merge(done, smaller(SEGMENT, length - done), n, centre, square, other, other_m2);
    }
    for (int k = 0; k < n; k++) {
        store(mean + k * W, centre[k]);
        store(m2 + k * W, square[k]);
    }
    int64_t first = task % segments * SEGMENT;
    row_apply(job, b, c0, n, mean, m2, first, smaller(first + SEGMENT, length));
}

FN void NAME(eval_rows)(const Job *job, int64_t first, int64_t last) { EACH_TILE(job, first, last, NAME(row_eval)) }

FN void NAME(part_stats_rows)(const Job *job, int64_t first, int64_t last) {
    EACH_TILE(job, first, last, NAME(part_stats))
}

FN void NAME(part_eval_rows)(const Job *job, int64_t first, int64_t last) {
    EACH_TILE(job, first, last, NAME(part_eval))
}

FN void NAME(stats_rows)(const Job *job, int64_t first, int64_t last) {
    EACH_TILE(job, first, last, NAME(row_stats_kept))
}

FN void NAME(apply_rows)(const Job *job, int64_t first, int64_t last) {
    EACH_TILE(job, first, last, NAME(row_apply_kept))
}

FN void NAME(reduce_rows)(const Job *job, int64_t first, int64_t last) {
    EACH_TILE(job, first, last, NAME(row_reduce))
}

FN void NAME(backward_rows)(const Job *job, int64_t first, int64_t last) {
    EACH_TILE(job, first, last, NAME(row_backward))
}

FN void NAME(merge_rows)(const Job *job, int64_t first, int64_t last) {
    for (int64_t c0 = first * TILE; c0 < smaller(last * TILE, job->ask.channels); c0 += TILE)
        merge_instances(job, c0, smaller(TILE, job->ask.channels - c0));
}

FN void NAME(chain_rows)(const Job *job, int64_t first, int64_t last) {
    for (int64_t c0 = first * TILE; c0 < smaller(last * TILE, job->ask.channels); c0 += TILE)
        chain(job, c0, (int)smaller(TILE, job->ask.channels - c0));
}

#undef W
#undef UNROLL
#undef FN
#undef INLINE
#undef IABN_TREE
#undef SWEEP
#undef EACH_TILE
#undef vec
#undef bits
#undef load
#undef store
#undef all
#undef keep_last
#undef lanes
#undef sums
#undef normaliser
#undef chain
#undef finish
#undef plane_stats
#undef plane_apply
#undef planes_apply
#undef plane_reduce
#undef row_merge
#undef segment_stats
#undef row_stats
#undef row_apply
