/* The copy of a product of runs, as compiled code: what packing.py does with strided views.

   A product of runs is a list of families for each axis, outermost axis first. Every combination of
   one index of each axis but the last, and one run of the last, is a stretch of bytes to be copied.
   Offsets and steps are bytes. */

#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

/* Told to Python, which does not use what it does not understand. */
#define INTERFACE 3

#define LINE 64

/* Compiled more than once, for the vectors of older and newer processors; the loader chooses. */
#if defined(__x86_64__) && defined(__GLIBC__) && __GNUC__ >= 12 && !defined(__clang__)
#define FOR_EACH_PROCESSOR \
    __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define FOR_EACH_PROCESSOR
#endif

/* A core that waits for one line after another copies at half of the speed: runs are no streams that
   it would fetch ahead by itself. So it is told what to fetch, this many bytes before they are
   copied, a group of runs of about this many bytes at a time. */
#define AHEAD 4096
#define GROUP 1024

/* Rows through which the fetching goes on without a break. */
#define ROWS 512

typedef struct {
    int64_t length;  /* indices of a run; on the last axis its bytes */
    int64_t repeats; /* runs */
    int64_t source, source_step, source_stride; /* first run, run to run, index to index */
    int64_t target, target_step, target_stride;
} Family;

/* Rows are the combinations of indices of all axes but the last, whose families they share. */
typedef struct {
    const Family *families, *end;
    int streaming, fetching;
    int64_t rows;
    const char *from[ROWS];
    char *to[ROWS];
} Rows;

/* How far a walk through rows has come: into which run of which family, how many bytes. */
typedef struct {
    const Family *family;
    int64_t row, run, at;
} Walk;

/* Runs of one family, or a part of a single one. */
typedef struct {
    const char *from;
    char *to;
    int64_t runs, length, step, target_step;
} Group;

int copy_interface(void) { return INTERFACE; }

/* What comes next; 0 at the end. */
static inline int next(const Rows *rows, Walk *walk, Group *group)
{
    const Family *family = walk->family;
    if (walk->row == rows->rows)
        return 0;
    group->from = rows->from[walk->row] + family->source + walk->run * family->source_step + walk->at;
    group->to = rows->to[walk->row] + family->target + walk->run * family->target_step + walk->at;
    group->step = family->source_step;
    group->target_step = family->target_step;
    group->length = family->length - walk->at;
    group->runs = 1;
    if (group->length > GROUP) {
        group->length = GROUP;
        walk->at += GROUP;
        return 1;
    }
    walk->at = 0;
    if (2 * family->length <= GROUP) {
        const int64_t left = family->repeats - walk->run, fit = GROUP / family->length;
        group->runs = fit < left ? fit : left;
    }
    walk->run += group->runs;
    if (walk->run == family->repeats) {
        walk->run = 0;
        if (++walk->family == rows->end) {
            walk->family = rows->families;
            walk->row++;
        }
    }
    return 1;
}

static inline void copy(char *to, const char *from, int64_t bytes)
{
    if (bytes >= 16) {
        int64_t at = 0;
        for (; at + LINE <= bytes; at += LINE)
            memcpy(to + at, from + at, LINE);
        for (; at + 16 <= bytes; at += 16)
            memcpy(to + at, from + at, 16);
        memcpy(to + bytes - 16, from + bytes - 16, 16);
    } else if (bytes >= 8) {
        uint64_t first, last; /* they may overlap */
        memcpy(&first, from, 8);
        memcpy(&last, from + bytes - 8, 8);
        memcpy(to, &first, 8);
        memcpy(to + bytes - 8, &last, 8);
    } else {
        while (bytes-- > 0)
            *to++ = *from++;
    }
}

#if defined(__x86_64__)
/* A part of a line, past the caches, too: what the next run adds to it is written along with it. */
static inline void stream_words(char *to, const char *from, int64_t bytes)
{
    if (((intptr_t)to | bytes) & 7) {
        copy(to, from, bytes);
        return;
    }
    for (int64_t at = 0; at < bytes; at += 8) {
        long long word;
        memcpy(&word, from + at, 8);
        _mm_stream_si64((long long *)(to + at), word);
    }
}

/* Copy past the caches: whole lines are written without being read first. */
static inline void stream(char *to, const char *from, int64_t bytes)
{
    int64_t head = -(intptr_t)to & (LINE - 1);
    if (bytes >= head + LINE) {
        stream_words(to, from, head);
        to += head, from += head, bytes -= head;
        for (; bytes >= LINE; bytes -= LINE, to += LINE, from += LINE) {
            __m128i a = _mm_loadu_si128((const __m128i *)from);
            __m128i b = _mm_loadu_si128((const __m128i *)from + 1);
            __m128i c = _mm_loadu_si128((const __m128i *)from + 2);
            __m128i d = _mm_loadu_si128((const __m128i *)from + 3);
            _mm_stream_si128((__m128i *)to, a);
            _mm_stream_si128((__m128i *)to + 1, b);
            _mm_stream_si128((__m128i *)to + 2, c);
            _mm_stream_si128((__m128i *)to + 3, d);
        }
    }
    stream_words(to, from, bytes);
}
#else
static inline void stream(char *to, const char *from, int64_t bytes) { copy(to, from, bytes); }
#endif

static inline void fetch(const Group *group)
{
#if defined(__x86_64__)
    const char *from = group->from;
    for (int64_t k = 0; k < group->runs; k++, from += group->step)
        for (int64_t at = 0; at < group->length; at += LINE)
            _mm_prefetch(from + at, _MM_HINT_T0);
#endif
}

static inline void copy_group(const Group *group, int streaming)
{
    const char *from = group->from;
    char *to = group->to;
    for (int64_t k = 0; k < group->runs; k++) {
        if (streaming)
            stream(to, from, group->length);
        else
            copy(to, from, group->length);
        from += group->step, to += group->target_step;
    }
}

FOR_EACH_PROCESSOR static void copy_rows(Rows *rows)
{
    Walk fetching = {rows->families, 0, 0, 0}, copying = fetching;
    Group group;
    int64_t ahead = 0;

    do {
        while (rows->fetching && ahead < AHEAD && next(rows, &fetching, &group)) {
            fetch(&group);
            ahead += group.runs * group.length;
        }
        if (next(rows, &copying, &group)) {
            copy_group(&group, rows->streaming);
            ahead -= group.runs * group.length;
        }
    } while (copying.row < rows->rows);
    rows->rows = 0;
}

static void copy_axes(
    int64_t axes, const int64_t *counts, const Family *families, const char *source, char *target,
    Rows *rows)
{
    if (axes == 1) {
        rows->from[rows->rows] = source;
        rows->to[rows->rows] = target;
        if (++rows->rows == ROWS)
            copy_rows(rows);
        return;
    }
    const Family *end = families + *counts;
    for (const Family *family = families; family < end; family++)
        for (int64_t k = 0; k < family->repeats; k++) {
            const char *from = source + family->source + k * family->source_step;
            char *to = target + family->target + k * family->target_step;
            for (int64_t i = 0; i < family->length; i++)
                copy_axes(
                    axes - 1, counts + 1, end, from + i * family->source_stride,
                    to + i * family->target_stride, rows);
        }
}

/* A copy, ready to be made: counts are the families of each axis, families those of all axes, one
   after another. Numbers are 64 bits wide, as Python lays them out. */
typedef struct {
    int64_t axes;
    const int64_t *counts;
    const Family *families;
    const char *source;
    char *target;
    int64_t streaming, fetching;
} Copy;

void copy_product(const Copy *what)
{
    Rows rows;
    rows.rows = 0;
    rows.streaming = what->streaming != 0;
    rows.fetching = what->fetching != 0;
    rows.families = what->families;
    for (int64_t axis = 0; axis + 1 < what->axes; axis++)
        rows.families += what->counts[axis];
    rows.end = rows.families + what->counts[what->axes - 1];
    copy_axes(what->axes, what->counts, what->families, what->source, what->target, &rows);
    if (rows.rows)
        copy_rows(&rows);
#if defined(__x86_64__)
    if (rows.streaming)
        _mm_sfence();
#endif
}
