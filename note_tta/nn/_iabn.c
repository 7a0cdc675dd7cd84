/*
 * Instance-Aware BatchNorm on the CPU, float32: forward and backward, contiguous and channels-last.
 *
 * The formula is written in functional.py; this file computes the same in two sweeps over memory (one for
 * statistics, one for the answer) and is tested against it. There is no Python and no torch in here: kernels.py
 * loads the shared object with ctypes and passes pointers. Threads are torch's own: kernels.py hands over the
 * address of the OpenMP runtime that torch loaded, so there is one pool of threads and never two.
 *
 * Shapes: x is [B, C, L], L positions a channel. `planes` layout keeps a channel's positions together (NCHW),
 * `rows` layout keeps a position's channels together (NHWC). Per-instance numbers are [B, C], per-channel are [C].
 *
 * The second half of the file is compiled once an instruction set (it includes itself), each time with another
 * vector width; the widest one that the machine has and the shape fills is taken at run time.
 */
#ifndef IABN_WIDTH

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#define IABN_EXPORT __declspec(dllexport)
#else
#define IABN_EXPORT __attribute__((visibility("default")))
#endif

#define MAX_WIDTH 16                 /* floats in the widest vector */
#define TILE (4 * MAX_WIDTH)         /* most channels that one task looks at together */
#define CHUNK 32                     /* positions summed before a merge, in the rows layout */
#define NEAR_CACHE (6 * 1024)        /* floats that stay in the first-level cache between two sweeps */
#define FAR_CACHE (160 * 1024)       /* floats that stay in the second-level cache */

typedef struct {
    const float *x, *grad;           /* [B, C, L]; grad in the backward only */
    float *out;                      /* the answer, or the gradient of x (NULL: not wanted) */
    const float *weight, *bias;      /* [C] or NULL */
    const float *mean, *var;         /* the layer's statistics, [C] */
    float *batch_mean, *batch_var;   /* where to write them when they are the batch's own, else NULL */
    float *instance_mean;            /* [B, C], NULL when nothing is kept for a backward */
    float *instance_m2;              /* [B, C], sums of squared deviations */
    float *grad_weight, *grad_bias;  /* [C] */
    float *slope, *tilt, *shift;     /* [B, C] scratch of the backward: dx = slope*grad + tilt*(x-mean) + shift */
    int64_t batch, channels, positions;
    int rows, training, correction;
    float eps, alpha;
} Job;

typedef void (*Task)(const Job *job, int64_t first, int64_t last);
typedef void (*Parallel)(void (*body)(void *), void *data, unsigned threads, unsigned flags);

static struct {
    Parallel parallel;
    int (*thread)(void);
    int (*team)(void);
} runtime;

typedef struct {
    Task task;
    const Job *job;
    int64_t count;
} Region;

static void region_body(void *data) {
    const Region *region = data;
    int64_t thread = runtime.thread(), team = runtime.team();
    int64_t first = region->count * thread / team, last = region->count * (thread + 1) / team;
    if (first < last) region->task(region->job, first, last);
}

static void run(Task task, const Job *job, int64_t count, int threads) {
    if (threads > count) threads = (int)count;
    if (threads > 1 && runtime.parallel) {
        Region region = {task, job, count};
        runtime.parallel(region_body, &region, (unsigned)threads, 0);
    } else {
        task(job, 0, count);
    }
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t pieces(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

/* Channels of one task, given how many floats a channel has and how many should stay cached. */
static int64_t channels_within(int64_t floats, int64_t cache, int64_t most) {
    int64_t fit = cache / floats;
    return fit < 1 ? 1 : smaller(fit, most);
}

static float weight_at(const Job *job, int64_t c) { return job->weight ? job->weight[c] : 1.0f; }

static float bias_at(const Job *job, int64_t c) { return job->bias ? job->bias[c] : 0.0f; }

/* The batch's statistics of some channels from those of its instances. */
static void merge_instances(const Job *job, int64_t c0, int64_t n) {
    double mean[TILE] = {0}, m2[TILE] = {0}, length = (double)job->positions;
    for (int64_t b = 0; b < job->batch; b++)
        for (int64_t j = 0; j < n; j++) mean[j] += job->instance_mean[b * job->channels + c0 + j];
    for (int64_t j = 0; j < n; j++) mean[j] /= (double)job->batch;
    for (int64_t b = 0; b < job->batch; b++)
        for (int64_t j = 0; j < n; j++) {
            double apart = job->instance_mean[b * job->channels + c0 + j] - mean[j];
            m2[j] += job->instance_m2[b * job->channels + c0 + j] + length * apart * apart;
        }
    for (int64_t j = 0; j < n; j++) {
        job->batch_mean[c0 + j] = (float)mean[j];
        job->batch_var[c0 + j] = (float)(m2[j] / (length * (double)job->batch - job->correction));
    }
}

#define TARGET
#define IABN_WIDTH 4
#define NAME(f) f##_base
#include "_iabn.c"
#undef TARGET
#undef IABN_WIDTH
#undef NAME

#if defined(__x86_64__) && defined(__GNUC__)
#define TARGET __attribute__((target("avx2,fma")))
#define IABN_WIDTH 8
#define NAME(f) f##_avx2
#include "_iabn.c"
#undef TARGET
#undef IABN_WIDTH
#undef NAME

#define TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")))
#define IABN_WIDTH 16
#define NAME(f) f##_avx512
#include "_iabn.c"
#undef TARGET
#undef IABN_WIDTH
#undef NAME
#endif

typedef struct {
    int width;
    const char *name;
    Task eval_planes, train_planes, backward_planes;
    Task eval_rows, stats_rows, merge_rows, apply_rows, reduce_rows, chain_rows, backward_rows;
} Variant;

#define VARIANT(width, isa) \
    {width, #isa, eval_planes_##isa, train_planes_##isa, backward_planes_##isa, eval_rows_##isa, \
     stats_rows_##isa, merge_rows_##isa, apply_rows_##isa, reduce_rows_##isa, chain_rows_##isa, backward_rows_##isa}

static const Variant variants[] = {
    VARIANT(4, base),
#if defined(__x86_64__) && defined(__GNUC__)
    VARIANT(8, avx2),
    VARIANT(16, avx512),
#endif
};
static int widest;

IABN_EXPORT void iabn_setup(Parallel parallel, int (*thread)(void), int (*team)(void)) {
    runtime.parallel = parallel;
    runtime.thread = thread;
    runtime.team = team;
    widest = 0;
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        widest = 1;
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
            __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
            widest = 2;
    }
#endif
}

/* Keep to the narrower instruction sets: 0 is what every machine has. For tests. Returns the one in use. */
IABN_EXPORT int iabn_limit(int most) {
    if (most >= 0 && most < widest) widest = most;
    return widest;
}

IABN_EXPORT const char *iabn_isa(void) { return variants[widest].name; }

static const Variant *choose(const Job *job) {
    int64_t span = job->rows ? job->channels : job->positions;
    int i = widest;
    while (i > 0 && variants[i].width > span) i--;
    return &variants[i];
}

/* A task of the rows layout is a sample's tile of channels; narrow enough that every thread gets one. */
static int64_t rows_tile(const Job *job, int width, int threads) {
    int64_t tile = 4 * width;
    while (tile > width && job->batch * pieces(job->channels, tile) < threads) tile /= 2;
    return tile;
}

IABN_EXPORT void iabn_forward(const float *x, float *out, const float *weight, const float *bias, const float *mean,
                              const float *var, float *instance_mean, float *instance_m2, float *batch_mean,
                              float *batch_var, int64_t batch, int64_t channels, int64_t positions, int rows,
                              int correction, float eps, float alpha, int threads) {
    Job job = {.x = x, .out = out, .weight = weight, .bias = bias, .mean = mean, .var = var,
               .batch_mean = batch_mean, .batch_var = batch_var, .instance_mean = instance_mean,
               .instance_m2 = instance_m2, .batch = batch, .channels = channels, .positions = positions,
               .rows = rows, .training = batch_mean != NULL, .correction = correction, .eps = eps, .alpha = alpha};
    const Variant *v = choose(&job);
    if (job.training) {
        job.mean = batch_mean;
        job.var = batch_var;
    }
    if (rows) {
        job.rows = (int)rows_tile(&job, v->width, threads);
        int64_t tasks = batch * pieces(channels, job.rows);
        if (job.training) {
            run(v->stats_rows, &job, tasks, threads);
            run(v->merge_rows, &job, pieces(channels, TILE), threads);
            run(v->apply_rows, &job, tasks, threads);
        } else {
            run(v->eval_rows, &job, tasks, threads);
        }
    } else if (job.training) {
        run(v->train_planes, &job, channels, threads);
    } else {
        run(v->eval_planes, &job, batch * channels, threads);
    }
}

/* Returns 0, or 1 when there is no memory for the scratch. */
IABN_EXPORT int iabn_backward(const float *grad, const float *x, const float *weight, const float *mean,
                              const float *var, const float *instance_mean, const float *instance_m2, float *grad_x,
                              float *grad_weight, float *grad_bias, int64_t batch, int64_t channels,
                              int64_t positions, int rows, int training, int correction, float eps, float alpha,
                              int threads) {
    size_t instances = (size_t)batch * (size_t)channels;
    float *scratch = malloc(3 * instances * sizeof(float));
    if (!scratch) return 1;
    Job job = {.x = x, .grad = grad, .out = grad_x, .weight = weight, .mean = mean, .var = var,
               .instance_mean = (float *)instance_mean, .instance_m2 = (float *)instance_m2,
               .grad_weight = grad_weight, .grad_bias = grad_bias, .slope = scratch, .tilt = scratch + instances,
               .shift = scratch + 2 * instances, .batch = batch, .channels = channels, .positions = positions,
               .rows = rows, .training = training, .correction = correction, .eps = eps, .alpha = alpha};
    const Variant *v = choose(&job);
    if (rows) {
        job.rows = (int)rows_tile(&job, v->width, threads);
        int64_t tasks = batch * pieces(channels, job.rows);
        run(v->reduce_rows, &job, tasks, threads);
        run(v->chain_rows, &job, pieces(channels, TILE), threads);
        if (grad_x) run(v->backward_rows, &job, tasks, threads);
    } else {
        run(v->backward_planes, &job, channels, threads);
    }
    free(scratch);
    return 0;
}

#else /* ---- from here on: once an instruction set ---------------------------------------------------------- */

#define W IABN_WIDTH
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

INLINE float NAME(lanes)(vec v) {
    float part[W];
    store(part, v);
    for (int half = W / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) part[i] += part[i + half];
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
INLINE void NAME(normaliser)(const Job *job, int64_t c0, int n, const float *mean, const float *m2, float *centre,
                             float *scale) {
    float length = (float)job->positions, eps = job->eps;
    float spread = job->alpha * sqrtf(2.0f / (length - 1.0f)), inverse = 1.0f / (length - (float)job->correction);
    float alpha = job->alpha, part = 1.0f / length;
    const float *restrict layer_mean = job->mean + c0, *restrict layer_var = job->var + c0;
    for (int j = 0; j < n; j++) {
        float room = layer_var[j] + eps, limit = alpha * sqrtf(room * part), far = room * spread;
        float own = m2[j] * inverse, apart = mean[j] - layer_mean[j], wider = own - layer_var[j];
        float variance = wider > far ? own - far : wider < -far ? own + far : layer_var[j];
        variance = variance < 0.0f ? 0.0f : variance;
        variance = wider == wider ? variance : wider; /* a NaN stays one */
        centre[j] = apart > limit ? mean[j] - limit : apart < -limit ? mean[j] + limit : layer_mean[j];
        centre[j] = apart == apart ? centre[j] : apart;
        scale[j] = 1.0f / sqrtf(variance + eps);
    }
    if (job->weight)
        for (int j = 0; j < n; j++) scale[j] *= job->weight[c0 + j];
}
#define normaliser NAME(normaliser)

/* The chain rule between the two sweeps of the backward, for n channels and all samples. On entry tilt and shift
 * hold, for every instance, sum(grad * (x - mean)) and sum(grad). */
FN void NAME(chain)(const Job *job, int64_t c0, int n) {
    float length = (float)job->positions, eps = job->eps, alpha = job->alpha;
    float root = sqrtf(2.0f / (length - 1.0f)), inverse = 1.0f / (length - (float)job->correction);
    double all_mean[TILE] = {0}, all_var[TILE] = {0}, weight_sum[TILE] = {0}, bias_sum[TILE] = {0};
    const float *restrict layer_mean = job->mean + c0, *restrict layer_var = job->var + c0;
    float weight[TILE], per_mean[TILE], per_var[TILE];
    for (int j = 0; j < n; j++) weight[j] = weight_at(job, c0 + j);
    for (int64_t b = 0; b < job->batch; b++) {
        int64_t at = b * job->channels + c0;
        const float *restrict mean = job->instance_mean + at, *restrict m2 = job->instance_m2 + at;
        float *restrict slope = job->slope + at, *restrict tilt = job->tilt + at, *restrict shift = job->shift + at;
        for (int j = 0; j < n; j++) {
            float room = layer_var[j] + eps, deviation = sqrtf(room / length);
            float limit = alpha * deviation, far = alpha * root * room;
            float own = m2[j] * inverse, apart = mean[j] - layer_mean[j], wider = own - layer_var[j];
            float side = apart > limit ? 1.0f : apart < -limit ? -1.0f : 0.0f;
            float edge = wider > far ? 1.0f : wider < -far ? -1.0f : 0.0f;
            float clamped = side != 0.0f ? side * limit : apart;
            float raw = edge != 0.0f ? own - edge * far : layer_var[j];
            float alive = raw >= 0.0f ? 1.0f : 0.0f, variance = raw < 0.0f ? 0.0f : raw;
            float scale = 1.0f / sqrtf(variance + eps), total = shift[j];
            float cross = tilt[j] + clamped * total; /* sum(grad * (x - corrected mean)) */
            float to_mean = -weight[j] * scale * total;
            float to_var = -0.5f * weight[j] * scale * scale * scale * cross * alive;
            weight_sum[j] += scale * cross;
            bias_sum[j] += total;
            all_mean[j] += side == 0.0f ? to_mean : 0.0f;
            all_var[j] += to_var * ((edge == 0.0f ? 1.0f : 0.0f) - edge * alpha * root) -
                          to_mean * side * 0.5f * limit / room;
            slope[j] = weight[j] * scale;
            tilt[j] = edge != 0.0f ? 2.0f * inverse * to_var : 0.0f;
            shift[j] = side != 0.0f ? to_mean / length : 0.0f;
        }
    }
    for (int j = 0; j < n; j++) {
        job->grad_weight[c0 + j] = (float)weight_sum[j];
        job->grad_bias[c0 + j] = (float)bias_sum[j];
    }
    if (!job->training || !job->out) return;
    double count = (double)job->batch * (double)job->positions;
    for (int j = 0; j < n; j++) {
        per_mean[j] = (float)(all_mean[j] / count);
        per_var[j] = (float)(2.0 * all_var[j] / (count - job->correction));
    }
    for (int64_t b = 0; b < job->batch; b++) {
        int64_t at = b * job->channels + c0;
        for (int j = 0; j < n; j++) {
            job->tilt[at + j] += per_var[j];
            job->shift[at + j] += per_mean[j] + per_var[j] * (job->instance_mean[at + j] - layer_mean[j]);
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
    int64_t length = job->positions, at = (b * job->channels + c0) * length;
    float centre[W], scale[W];
    normaliser(job, c0, n, mean, m2, centre, scale);
    for (int j = 0; j < n; j++)
        plane_apply(job->x + at + j * length, job->out + at + j * length, length, centre[j], scale[j],
                    bias_at(job, c0 + j));
}
#define planes_apply NAME(planes_apply)

/* Tasks are instances (sample, channel), in memory's order. */
FN void NAME(eval_planes)(const Job *job, int64_t first, int64_t last) {
    int64_t together = channels_within(job->positions, NEAR_CACHE, W);
    while (first < last) {
        int64_t b = first / job->channels, c0 = first % job->channels;
        int n = (int)smaller(smaller(together, job->channels - c0), last - first);
        float mean[W], m2[W];
        plane_stats(job->x + first * job->positions, job->positions, n, mean, m2);
        planes_apply(job, b, c0, n, mean, m2);
        if (job->instance_mean) {
            memcpy(job->instance_mean + first, mean, (size_t)n * sizeof(float));
            memcpy(job->instance_m2 + first, m2, (size_t)n * sizeof(float));
        }
        first += n;
    }
}

/* Tasks are channels: a channel's whole batch is still cached when its statistics are known. */
FN void NAME(train_planes)(const Job *job, int64_t first, int64_t last) {
    int64_t together = channels_within(job->batch * job->positions, FAR_CACHE, W);
    for (int64_t c0 = first; c0 < last; c0 += together) {
        int n = (int)smaller(together, last - c0);
        for (int64_t b = 0; b < job->batch; b++) {
            int64_t at = b * job->channels + c0;
            plane_stats(job->x + at * job->positions, job->positions, n, job->instance_mean + at,
                        job->instance_m2 + at);
        }
        merge_instances(job, c0, n);
        for (int64_t b = 0; b < job->batch; b++) {
            int64_t at = b * job->channels + c0;
            planes_apply(job, b, c0, n, job->instance_mean + at, job->instance_m2 + at);
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
    int64_t length = job->positions, together = channels_within(2 * job->batch * length, FAR_CACHE, W);
    for (int64_t c0 = first; c0 < last; c0 += together) {
        int n = (int)smaller(together, last - c0);
        for (int64_t b = 0; b < job->batch; b++) {
            int64_t at = b * job->channels + c0;
            plane_reduce(job->grad + at * length, job->x + at * length, length, n, job->instance_mean + at,
                         job->shift + at, job->tilt + at);
        }
        chain(job, c0, n);
        if (!job->out) continue;
        for (int64_t b = 0; b < job->batch; b++) {
            for (int64_t at = b * job->channels + c0, end = at + n; at < end; at++) {
                const float *restrict x = job->x + at * length, *restrict grad = job->grad + at * length;
                float *restrict out = job->out + at * length;
                float mean = job->instance_mean[at], slope = job->slope[at], tilt = job->tilt[at];
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
    for (int64_t task = (first), tiles = pieces((job)->channels, (job)->rows); task < (last); task++) { \
        int64_t b = task / tiles, from = task % tiles * (job)->rows;                           \
        int64_t to = smaller(from + (job)->rows, (job)->channels);                             \
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

/* Statistics in chunks of positions, each in two sweeps while it is cached, merged as they come (Chan et al.). */
INLINE void NAME(row_stats)(const Job *job, int64_t b, int64_t c0, int n, float *mean, float *m2) {
    int64_t length = job->positions, stride = job->channels;
    const float *x = job->x + b * length * stride + c0;
    vec centre[4] = {{0}}, square[4] = {{0}};
    for (int64_t done = 0; done < length; done += CHUNK) {
        int64_t rows = smaller(CHUNK, length - done);
        vec sum[4] = {{0}}, part[4] = {{0}};
        const float *p = x + done * stride;
        for (int64_t i = 0; i < rows; i++)
            for (int k = 0; k < n; k++) sum[k] += load(p + i * stride + k * W);
        for (int k = 0; k < n; k++) sum[k] *= 1.0f / (float)rows;
        for (int64_t i = 0; i < rows; i++)
            for (int k = 0; k < n; k++) {
                vec apart = load(p + i * stride + k * W) - sum[k];
                part[k] += apart * apart;
            }
        float share = (float)rows / (float)(done + rows), both = (float)done * share;
        for (int k = 0; k < n; k++) {
            vec apart = sum[k] - centre[k];
            centre[k] += apart * share;
            square[k] += part[k] + apart * apart * both;
        }
    }
    for (int k = 0; k < n; k++) {
        store(mean + k * W, centre[k]);
        store(m2 + k * W, square[k]);
    }
}
#define row_stats NAME(row_stats)

INLINE void NAME(row_apply)(const Job *job, int64_t b, int64_t c0, int n, const float *mean, const float *m2) {
    int64_t length = job->positions, stride = job->channels, at = b * length * stride + c0;
    const float *restrict x = job->x + at;
    float *restrict out = job->out + at;
    float centre[4 * W], scale[4 * W];
    vec c[4], s[4], bias[4];
    normaliser(job, c0, n * W, mean, m2, centre, scale);
    for (int k = 0; k < n; k++) {
        c[k] = load(centre + k * W);
        s[k] = load(scale + k * W);
        bias[k] = job->bias ? load(job->bias + c0 + k * W) : (vec){0};
    }
    for (int64_t i = 0; i < length; i++, x += stride, out += stride)
        for (int k = 0; k < n; k++) store(out + k * W, (load(x + k * W) - c[k]) * s[k] + bias[k]);
}
#define row_apply NAME(row_apply)

INLINE void NAME(row_eval)(const Job *job, int64_t b, int64_t c0, int n) {
    float mean[4 * W], m2[4 * W];
    row_stats(job, b, c0, n, mean, m2);
    row_apply(job, b, c0, n, mean, m2);
    if (job->instance_mean) {
        memcpy(job->instance_mean + b * job->channels + c0, mean, (size_t)(n * W) * sizeof(float));
        memcpy(job->instance_m2 + b * job->channels + c0, m2, (size_t)(n * W) * sizeof(float));
    }
}

INLINE void NAME(row_stats_kept)(const Job *job, int64_t b, int64_t c0, int n) {
    int64_t at = b * job->channels + c0;
    row_stats(job, b, c0, n, job->instance_mean + at, job->instance_m2 + at);
}

INLINE void NAME(row_apply_kept)(const Job *job, int64_t b, int64_t c0, int n) {
    int64_t at = b * job->channels + c0;
    row_apply(job, b, c0, n, job->instance_mean + at, job->instance_m2 + at);
}

INLINE void NAME(row_reduce)(const Job *job, int64_t b, int64_t c0, int n) {
    int64_t length = job->positions, stride = job->channels, at = b * stride + c0;
    const float *x = job->x + b * length * stride + c0, *grad = job->grad + b * length * stride + c0;
    vec mean[4], total[4] = {{0}}, cross[4] = {{0}};
    for (int k = 0; k < n; k++) mean[k] = load(job->instance_mean + at + k * W);
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
    int64_t length = job->positions, stride = job->channels, at = b * stride + c0, start = b * length * stride + c0;
    const float *restrict x = job->x + start, *restrict grad = job->grad + start;
    float *restrict out = job->out + start;
    vec mean[4], slope[4], tilt[4], shift[4];
    for (int k = 0; k < n; k++) {
        mean[k] = load(job->instance_mean + at + k * W);
        slope[k] = load(job->slope + at + k * W);
        tilt[k] = load(job->tilt + at + k * W);
        shift[k] = load(job->shift + at + k * W);
    }
    for (int64_t i = 0; i < length; i++, x += stride, grad += stride, out += stride)
        for (int k = 0; k < n; k++)
            store(out + k * W, load(grad + k * W) * slope[k] + ((load(x + k * W) - mean[k]) * tilt[k] + shift[k]));
}

FN void NAME(eval_rows)(const Job *job, int64_t first, int64_t last) { EACH_TILE(job, first, last, NAME(row_eval)) }

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
    for (int64_t c0 = first * TILE; c0 < smaller(last * TILE, job->channels); c0 += TILE)
        merge_instances(job, c0, smaller(TILE, job->channels - c0));
}

FN void NAME(chain_rows)(const Job *job, int64_t first, int64_t last) {
    for (int64_t c0 = first * TILE; c0 < smaller(last * TILE, job->channels); c0 += TILE)
        chain(job, c0, (int)smaller(TILE, job->channels - c0));
}

#undef W
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
#undef row_stats
#undef row_apply

#endif
