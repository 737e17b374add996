/* The copy of a product of runs, as compiled code: what packing.py does with strided views.

   A product of runs is a list of families for each axis, outermost axis first. Every combination of
   one index of each axis but the last, and one run of the last, is a stretch of bytes to be copied.
   Offsets and steps are bytes. */

#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* Told to Python, which does not use what it does not understand. */
#define INTERFACE 1

#define LINE 64

/* A gap between two runs is read like the runs if it is hardly longer: the processor fetches ahead
   as long as it sees one unbroken stream, and several times as slowly otherwise. Beyond longer gaps
   it is told what to fetch, this far ahead. */
#define AHEAD 16384

/* Shorter runs are hardly worth a call of memcpy. */
#define INLINE 512

typedef struct {
    int64_t length;  /* indices of a run; on the last axis its bytes */
    int64_t repeats; /* runs */
    int64_t source, source_step, source_stride; /* first run, run to run, index to index */
    int64_t target, target_step, target_stride;
} Family;

int copy_interface(void) { return INTERFACE; }

static inline void copy(char *to, const char *from, int64_t bytes)
{
    if (bytes > INLINE) {
        memcpy(to, from, bytes);
    } else if (bytes >= 16) {
        int64_t at = 0;
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

/* Copy past the caches: whole lines are written without being read first. */
static inline void stream(char *to, const char *from, int64_t bytes)
{
#if defined(__SSE2__)
    int64_t head = -(intptr_t)to & (LINE - 1);
    if (bytes >= head + LINE) {
        copy(to, from, head);
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
#endif
    copy(to, from, bytes);
}

/* All runs of one family of the last axis. */
static void copy_family(const Family *family, const char *from, char *to, int streaming)
{
    const int64_t length = family->length, step = family->source_step;
    const int64_t gap = step - length;
    /* Short families, or those that are read backwards, are left to the processor. */
    const int is_long = family->repeats * step > AHEAD && length < AHEAD && gap > 0;
    const int through = is_long && gap <= length, ahead = is_long && gap > length;
    const int64_t runs_ahead = ahead ? (AHEAD + step - 1) / step : 0;
    volatile char seen;

    for (int64_t k = 0; k < family->repeats; k++) {
        if (ahead && k + runs_ahead < family->repeats)
            for (int64_t at = 0; at < length; at += LINE)
                __builtin_prefetch(from + runs_ahead * step + at, 0, 2);
        if (streaming)
            stream(to, from, length);
        else
            copy(to, from, length);
        if (through && k + 1 < family->repeats)
            for (int64_t at = length; at < step; at += LINE)
                seen = *(volatile const char *)(from + at);
        from += step, to += family->target_step;
    }
    (void)seen;
}

static void copy_axes(
    int64_t axes, const int64_t *counts, const Family *families, const char *source, char *target,
    int streaming)
{
    const Family *end = families + *counts;
    for (const Family *family = families; family < end; family++) {
        const char *from = source + family->source;
        char *to = target + family->target;
        if (axes == 1) {
            copy_family(family, from, to, streaming);
            continue;
        }
        for (int64_t k = 0; k < family->repeats; k++) {
            for (int64_t i = 0; i < family->length; i++)
                copy_axes(
                    axes - 1, counts + 1, end, from + i * family->source_stride,
                    to + i * family->target_stride, streaming);
            from += family->source_step, to += family->target_step;
        }
    }
}

/* counts: families of each axis. families: of all axes, one after another. */
void copy_product(
    int64_t axes, const int64_t *counts, const Family *families, const char *source, char *target,
    int streaming)
{
    copy_axes(axes, counts, families, source, target, streaming);
#if defined(__SSE2__)
    if (streaming)
        _mm_sfence();
#endif
}
