/*
 * Instance-Aware BatchNorm on the CPU: forward and backward, contiguous and channels-last; float32, bfloat16 and
 * float16 in and out, float32 in between.
 *
 * The formula is in functional.py. This file computes the same in two sweeps over memory, one for the statistics and
 * one for the output, and is tested against the formula. It uses neither Python nor torch: native.py loads the shared
 * object with ctypes and passes pointers. It runs on torch's threads: native.py passes the address of the OpenMP
 * runtime that torch has loaded, so there is only one pool of threads.
 *
 * Shapes: x is [B, C, L], with L positions per channel. In the `planes` layout the positions of a channel are adjacent
 * (NCHW), in the `rows` layout the channels of a position are adjacent (NHWC). Values per instance are [B, C], values
 * per channel are [C].
 *
 * _iabn_isa.h holds the arithmetic of one instruction set, _iabn_sweeps.h the sweeps over elements of one type. Both
 * are compiled for every combination. At run time, the widest instruction set is used that the machine supports and
 * the shape can fill.
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define IABN_X86
#include <cpuid.h>
#include <immintrin.h>
#endif

#if defined(_WIN32)
#define IABN_EXPORT __declspec(dllexport)
#else
#define IABN_EXPORT __attribute__((visibility("default")))
#endif

#define INTERFACE 3                  /* version of Request; native.py expects the same number */
#define TILE 64                      /* channels that one task merges or chains together */
#define STRIP 512                    /* rows layout: the maximum number of channels per task */
#define COLUMN 4                     /* rows layout: vectors of channels whose values stay in registers */
#define ROWS 16                      /* rows layout: rows that are read for one column before the next */
#define SEGMENT 128                  /* rows layout: positions that are summed before a merge */
#define NEAR_CACHE 1024              /* elements that are swept twice in a row: few enough for the sweeps to overlap */
#define READ_AHEAD 1024              /* how many elements ahead of reading a sweep prefetches */
#define WRITE_AHEAD 512              /* the same for writing; both only in the rows layout */
#define SUSPECT 16.0f                /* squares about pivot / about mean: beyond this, digits were lost */

/* The arguments of a call. native.py packs them in this order. */
typedef struct {
    const void *x, *grad;            /* [B, C, L]; grad in the backward only */
    void *out;                       /* the output, or the gradient of x (NULL: not needed) */
    const float *weight, *bias;      /* [C] or NULL; [B, C] where `apart` is set */
    const float *mean, *var;         /* the layer's statistics, likewise */
    float *batch_mean, *batch_var;   /* output: the batch's statistics, if they are used; else NULL */
    float *instance_mean;            /* [B, C], NULL when nothing is kept for a backward */
    float *instance_m2;              /* [B, C], sums of squared deviations */
    float *grad_weight, *grad_bias;  /* [C] */
    int64_t batch, channels, positions;
    float eps, alpha;                /* alpha infinite: BatchNorm */
    int32_t rows, training, correction, threads, apart, type; /* type: an index of Variant.of */
} Request;

/* For instances so near to the layer that IABN corrects nothing: what is near, and how they are normalised. */
typedef struct {
    float *mean, *var;               /* [C]: copies of the layer's statistics */
    float *mean_limit, *var_limit;   /* [C]: how far an instance's mean and variance may be from them */
    float *scale, *bias;             /* [C]: how an instance within these limits is normalised */
} Within;

typedef struct {
    Request ask;
    Within within;                   /* in inference with one layer for all samples; else NULL */
    int64_t strip;                   /* channels of one task, in the rows layout */
    float *parts;                    /* [B, segments, 2, C] scratch: sums and squares of segments */
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

/* Channels of one task, given how many elements a channel has and how many should stay cached. */
static int64_t channels_within(int64_t elements, int64_t cache, int64_t most) {
    int64_t fit = cache / elements;
    return fit < 1 ? 1 : smaller(fit, most);
}

/* The index of the layer's values for a sample's channel: all samples share them, or each has its own. */
static int64_t layer_at(const Job *job, int64_t b, int64_t c) { return job->ask.apart ? b * job->ask.channels + c : c; }

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

static void merge(const Job *job, int64_t first, int64_t last) {
    for (int64_t c0 = first; c0 < last; c0 += TILE) merge_instances(job, c0, smaller(TILE, last - c0));
}

#define JOINED(f, isa) f##_##isa
#define JOIN(f, isa) JOINED(f, isa)

#define ISA base
#define TARGET
#define W 4
#include "_iabn_isa.h"
#undef ISA
#undef TARGET
#undef W

#ifdef IABN_X86
#define ISA avx2
#define TARGET __attribute__((target("avx2,fma,f16c")))
#define W 8
#include "_iabn_isa.h"
#undef ISA
#undef TARGET
#undef W

#define ISA avx512
#define TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,f16c")))
#define W 16
#include "_iabn_isa.h"
#undef ISA
#undef TARGET
#undef W
#endif

/* The tasks on elements of one type. */
typedef struct {
    Task eval, stats, apply, reduce, backward;
} Layout;

typedef struct {
    Layout planes, rows;
    Task part_stats_rows, part_eval_rows;
} Sweeps;

#define LAYOUT(layout, type, isa)                                                                           \
    {eval_##layout##_##type##_##isa, stats_##layout##_##type##_##isa, apply_##layout##_##type##_##isa,      \
     reduce_##layout##_##type##_##isa, backward_##layout##_##type##_##isa}
#define SWEEPS(type, isa)                                                                                   \
    {LAYOUT(planes, type, isa), LAYOUT(rows, type, isa), part_stats_rows_##type##_##isa,                    \
     part_eval_rows_##type##_##isa}

typedef struct {
    int width;
    const char *name;
    Task chain_all;
    void (*fill_within)(const Job *job);
    Sweeps of[3];                    /* float32, bfloat16, float16 */
} Variant;

#define VARIANT(width, isa)                                  \
    {width, #isa, chain_all_##isa, fill_within_##isa,       \
     {SWEEPS(float32, isa), SWEEPS(bfloat16, isa), SWEEPS(float16, isa)}}

static const Variant variants[] = {
    VARIANT(4, base),
#ifdef IABN_X86
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
#ifdef IABN_X86
    unsigned a, b, c = 0, d;
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __get_cpuid(1, &a, &b, &c, &d) &&
        (c & bit_F16C)) {
        machine = 1;
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
            __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
            machine = 2;
    }
#endif
    widest = machine;
}

/* Limit the instruction set (0: the base that every machine has; negative: no limit), so that tests can reach all of
 * them. Returns the one in use. */
IABN_EXPORT int iabn_limit(int most) {
    widest = most >= 0 && most < machine ? most : machine;
    return widest;
}

IABN_EXPORT int iabn_interface(void) { return INTERFACE; }

IABN_EXPORT const char *iabn_isa(void) { return variants[widest].name; }

static const Variant *choose(const Request *ask) {
    int64_t span = ask->rows ? ask->channels : ask->positions;
    int i = widest;
    while (i > 0 && variants[i].width > span) i--;
    return &variants[i];
}

/* A task of the rows layout is a strip of a sample's channels. Strips are narrow enough that every thread gets one. */
static int64_t rows_strip(const Request *ask, int width) {
    int64_t strip = STRIP;
    while (strip > width && ask->batch * pieces(ask->channels, strip) < ask->threads) strip /= 2;
    return strip;
}

/* Inference on fewer samples than threads would keep most threads idle, so the threads share the positions of a
 * sample. Returns whether this was done. */
static int eval_segments(Job *job, const Sweeps *sweeps) {
    const Request *ask = &job->ask;
    int64_t tasks = ask->batch * pieces(ask->positions, SEGMENT);
    if (ask->batch >= ask->threads || ask->positions <= SEGMENT || ask->instance_mean || ask->alpha == INFINITY)
        return 0;
    job->parts = malloc((size_t)(2 * tasks * ask->channels) * sizeof(float));
    if (!job->parts) return 0;
    run(sweeps->part_stats_rows, job, tasks);
    run(sweeps->part_eval_rows, job, tasks);
    free(job->parts);
    return 1;
}

/* Make `within`, which the caller frees. Without memory for it, instances are computed one by one. */
static void make_within(Job *job, const Variant *variant) {
    size_t room = (size_t)(job->ask.channels + variant->width);
    float *at = malloc(6 * room * sizeof(float));
    if (!at) return;
    job->within = (Within){at, at + room, at + 2 * room, at + 3 * room, at + 4 * room, at + 5 * room};
    variant->fill_within(job);
}

/* The number of tasks, and how large they are. */
static int64_t divide(Job *job, const Variant *variant) {
    const Request *ask = &job->ask;
    if (!ask->rows) return ask->batch * ask->channels;
    job->strip = rows_strip(ask, variant->width);
    return ask->batch * pieces(ask->channels, job->strip);
}

IABN_EXPORT void iabn_forward(const Request *ask) {
    Job job = {.ask = *ask};
    const Variant *variant = choose(ask);
    const Sweeps *sweeps = &variant->of[ask->type];
    const Layout *layout = ask->rows ? &sweeps->rows : &sweeps->planes;
    int64_t tasks = divide(&job, variant);
    if (ask->training) {
        job.ask.mean = ask->batch_mean;
        job.ask.var = ask->batch_var;
        run(layout->stats, &job, tasks);
        run(merge, &job, ask->channels);
        run(layout->apply, &job, tasks);
        return;
    }
    if (!ask->apart && ask->alpha != INFINITY) make_within(&job, variant);
    if (!ask->rows || !eval_segments(&job, sweeps)) run(layout->eval, &job, tasks);
    free(job.within.mean);
}

/* Returns 0, or 1 if there is not enough memory for the scratch. */
IABN_EXPORT int iabn_backward(const Request *ask) {
    size_t instances = (size_t)ask->batch * (size_t)ask->channels;
    float *scratch = malloc(3 * instances * sizeof(float));
    if (!scratch) return 1;
    Job job = {.ask = *ask, .slope = scratch, .tilt = scratch + instances, .shift = scratch + 2 * instances};
    const Variant *variant = choose(ask);
    const Sweeps *sweeps = &variant->of[ask->type];
    const Layout *layout = ask->rows ? &sweeps->rows : &sweeps->planes;
    int64_t tasks = divide(&job, variant);
    run(layout->reduce, &job, tasks);
    run(variant->chain_all, &job, ask->channels);
    if (ask->out) run(layout->backward, &job, tasks);
    free(scratch);
    return 0;
}
