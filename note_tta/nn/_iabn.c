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
 * _iabn_isa.h holds the arithmetic and is compiled once an instruction set, each time with another vector width;
 * the widest one that the machine has and the shape fills is taken at run time.
 */
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
#define SEGMENT 128                  /* positions that one task looks at where samples are few, likewise */
#define NEAR_CACHE (6 * 1024)        /* floats that stay in the first-level cache between two sweeps */
#define FAR_CACHE (160 * 1024)       /* floats that stay in the second-level cache */

#define INTERFACE 2                  /* counts the changes of Request; native.py asks for the same number */

/* What kernels.py asks for, packed by it field by field (native.py holds the same list). */
typedef struct {
    const float *x, *grad;           /* [B, C, L]; grad in the backward only */
    float *out;                      /* the answer, or the gradient of x (NULL: not wanted) */
    const float *weight, *bias;      /* [C] or NULL; [B, C] where `apart` is set */
    const float *mean, *var;         /* the layer's statistics, likewise */
    float *batch_mean, *batch_var;   /* where to write them when they are the batch's own, else NULL */
    float *instance_mean;            /* [B, C], NULL when nothing is kept for a backward */
    float *instance_m2;              /* [B, C], sums of squared deviations */
    float *grad_weight, *grad_bias;  /* [C] */
    int64_t batch, channels, positions;
    float eps, alpha;
    int32_t rows, training, correction, threads, apart;
} Request;

typedef struct {
    Request ask;
    int64_t tile;                    /* channels of one task, in the rows layout */
    float *parts;                    /* [B, segments, 2, C] scratch: means and squared deviations of segments */
    float *slope, *tilt, *shift;     /* [B, C] scratch of the backward: dx = slope*grad + tilt*(x-mean) + shift */
} Job;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t pieces(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

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

static void run(Task task, const Job *job, int64_t count) {
    int64_t threads = smaller(job->ask.threads, count);
    if (threads > 1 && runtime.parallel) {
        Region region = {task, job, count};
        runtime.parallel(region_body, &region, (unsigned)threads, 0);
    } else {
        task(job, 0, count);
    }
}

/* Channels of one task, given how many floats a channel has and how many should stay cached. */
static int64_t channels_within(int64_t floats, int64_t cache, int64_t most) {
    int64_t fit = cache / floats;
    return fit < 1 ? 1 : smaller(fit, most);
}

/* Where the layer's numbers of a sample's channel lie: all samples share them, or each has its own. */
static int64_t layer_at(const Job *job, int64_t b, int64_t c) { return job->ask.apart ? b * job->ask.channels + c : c; }

static float weight_at(const Job *job, int64_t c) { return job->ask.weight ? job->ask.weight[c] : 1.0f; }

static float bias_at(const Job *job, int64_t c) { return job->ask.bias ? job->ask.bias[c] : 0.0f; }

/* The batch's statistics of some channels from those of its instances. */
static void merge_instances(const Job *job, int64_t c0, int64_t n) {
    double mean[TILE] = {0}, m2[TILE] = {0}, length = (double)job->ask.positions;
    for (int64_t b = 0; b < job->ask.batch; b++)
        for (int64_t j = 0; j < n; j++) mean[j] += job->ask.instance_mean[b * job->ask.channels + c0 + j];
    for (int64_t j = 0; j < n; j++) mean[j] /= (double)job->ask.batch;
    for (int64_t b = 0; b < job->ask.batch; b++)
        for (int64_t j = 0; j < n; j++) {
            double apart = job->ask.instance_mean[b * job->ask.channels + c0 + j] - mean[j];
            m2[j] += job->ask.instance_m2[b * job->ask.channels + c0 + j] + length * apart * apart;
        }
    for (int64_t j = 0; j < n; j++) {
        job->ask.batch_mean[c0 + j] = (float)mean[j];
        job->ask.batch_var[c0 + j] = (float)(m2[j] / (length * (double)job->ask.batch - job->ask.correction));
    }
}

#define TARGET
#define IABN_WIDTH 4
#define NAME(f) f##_base
#include "_iabn_isa.h"
#undef TARGET
#undef IABN_WIDTH
#undef NAME

#if defined(__x86_64__) && defined(__GNUC__)
#define TARGET __attribute__((target("avx2,fma")))
#define IABN_WIDTH 8
#define NAME(f) f##_avx2
#include "_iabn_isa.h"
#undef TARGET
#undef IABN_WIDTH
#undef NAME

#define TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")))
#define IABN_WIDTH 16
#define NAME(f) f##_avx512
#include "_iabn_isa.h"
#undef TARGET
#undef IABN_WIDTH
#undef NAME
#endif

typedef struct {
    int width;
    const char *name;
    Task eval_planes, train_planes, backward_planes;
    Task eval_rows, part_stats_rows, part_eval_rows;
    Task stats_rows, merge_rows, apply_rows;
    Task reduce_rows, chain_rows, backward_rows;
} Variant;

#define VARIANT(width, isa)                                                \
    {width, #isa,                                                          \
     eval_planes_##isa, train_planes_##isa, backward_planes_##isa,         \
     eval_rows_##isa, part_stats_rows_##isa, part_eval_rows_##isa,         \
     stats_rows_##isa, merge_rows_##isa, apply_rows_##isa,                 \
     reduce_rows_##isa, chain_rows_##isa, backward_rows_##isa}

static const Variant variants[] = {
    VARIANT(4, base),
#if defined(__x86_64__) && defined(__GNUC__)
    VARIANT(8, avx2),
    VARIANT(16, avx512),
#endif
};
static int machine, widest;

IABN_EXPORT void iabn_setup(Parallel parallel, int (*thread)(void), int (*team)(void)) {
    runtime.parallel = parallel;
    runtime.thread = thread;
    runtime.team = team;
    machine = 0;
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        machine = 1;
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
            __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
            machine = 2;
    }
#endif
    widest = machine;
}

/* Use nothing wider than the given instruction set (0: what every machine has; negative: no limit), so that tests
 * reach them all. Returns the one in use. */
IABN_EXPORT int iabn_limit(int most) {
    widest = most >= 0 && most < machine ? most : machine;
    return widest;
}

IABN_EXPORT int iabn_interface(void) { return INTERFACE; }

IABN_EXPORT const char *iabn_isa(void) { return variants[widest].name; }

static const Variant *choose(const Job *job) {
    int64_t span = job->ask.rows ? job->ask.channels : job->ask.positions;
    int i = widest;
    while (i > 0 && variants[i].width > span) i--;
    return &variants[i];
}

/* A task of the rows layout is a sample's tile of channels; narrow enough that every thread gets one. */
static int64_t rows_tile(const Job *job, int width) {
    int64_t tile = 4 * width;
    while (tile > width && job->ask.batch * pieces(job->ask.channels, tile) < job->ask.threads) tile /= 2;
    return tile;
}

/* Inference on fewer samples than threads, which would keep most threads idle: share a sample's positions. Returns
 * whether it was done. */
static int eval_segments(Job *job, const Variant *v) {
    int64_t tasks = job->ask.batch * pieces(job->ask.positions, SEGMENT), tile = job->tile;
    if (job->ask.batch >= job->ask.threads || job->ask.positions <= SEGMENT || job->ask.instance_mean ||
        job->ask.alpha == INFINITY)
        return 0;
    job->parts = malloc((size_t)(2 * tasks * job->ask.channels) * sizeof(float));
    if (!job->parts) return 0;
    job->tile = job->ask.channels; /* a task takes all channels of its positions */
    run(v->part_stats_rows, job, tasks);
    run(v->part_eval_rows, job, tasks);
    free(job->parts);
    job->tile = tile;
    return 1;
}

IABN_EXPORT void iabn_forward(const Request *ask) {
    Job job = {.ask = *ask};
    const Variant *v = choose(&job);
    if (ask->training) {
        job.ask.mean = ask->batch_mean;
        job.ask.var = ask->batch_var;
    }
    if (ask->rows) {
        job.tile = rows_tile(&job, v->width);
        int64_t tasks = ask->batch * pieces(ask->channels, job.tile);
        if (ask->training) {
            run(v->stats_rows, &job, tasks);
            run(v->merge_rows, &job, pieces(ask->channels, TILE));
            run(v->apply_rows, &job, tasks);
        } else if (!eval_segments(&job, v)) {
            run(v->eval_rows, &job, tasks);
        }
    } else if (ask->training) {
        run(v->train_planes, &job, ask->channels);
    } else {
        run(v->eval_planes, &job, ask->batch * ask->channels);
    }
}

/* Returns 0, or 1 when there is no memory for the scratch. */
IABN_EXPORT int iabn_backward(const Request *ask) {
    size_t instances = (size_t)ask->batch * (size_t)ask->channels;
    float *scratch = malloc(3 * instances * sizeof(float));
    if (!scratch) return 1;
    Job job = {.ask = *ask, .slope = scratch, .tilt = scratch + instances, .shift = scratch + 2 * instances};
    const Variant *v = choose(&job);
    if (ask->rows) {
        job.tile = rows_tile(&job, v->width);
        int64_t tasks = ask->batch * pieces(ask->channels, job.tile);
        run(v->reduce_rows, &job, tasks);
        run(v->chain_rows, &job, pieces(ask->channels, TILE));
        if (ask->out) run(v->backward_rows, &job, tasks);
    } else {
        run(v->backward_planes, &job, ask->channels);
    }
    free(scratch);
    return 0;
}
