/* The copy of products of runs, as compiled code: what strided.py does with views. At the end, the sum
   of the hashes of a checksum, and how ranks of one host meet in memory that they share.

   A product of runs is a list of families for each axis, the outermost axis first. Every combination
   of one index of each outer axis and one run of the last axis is a contiguous range of bytes to be
   copied. Offsets and steps are in bytes. */

#define _GNU_SOURCE

#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#endif
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

/* Version of the interface; Python does not load a library with another one. */
#define INTERFACE 7

#define LINE 64

/* Compiled for several generations of vector instructions; the dynamic loader chooses. */
#if defined(__x86_64__) && defined(__GLIBC__) && __GNUC__ >= 12 && !defined(__clang__)
#define FOR_EACH_PROCESSOR \
    __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define FOR_EACH_PROCESSOR
#endif

/* The hardware prefetcher does not recognise runs as one stream, and a copy without prefetching takes
   twice as long. So lines are prefetched this many bytes before they are copied, for a group of runs
   of about this many bytes at a time. */
#define AHEAD 4096
#define GROUP 1024

/* Runs of fewer bytes on average are short, and are fetched this many bytes ahead within their row. */
#define SHORT 256
#define NEAR_AHEAD 1024

/* Rows across which prefetching continues. */
#define ROWS 512

/* Most products that are copied in turn, and most axes they have. */
#define IN_TURN 8
#define AXES 64

/* Bytes of the largest product that are copied before the next product has its turn. */
#define TURN (1 << 17)

typedef struct {
    int64_t length;  /* indices of a run; on the last axis its bytes */
    int64_t repeats; /* runs */
    int64_t source, source_step, source_stride; /* first run, run to run, index to index */
    int64_t target, target_step, target_stride;
} Family;

/* A row is one combination of indices of the outer axes. All rows have the families of the last. */
typedef struct {
    const Family *families, *end;
    int streaming, fetching, are_short;
    int64_t rows;
    const char *from[ROWS];
    char *to[ROWS];
} Rows;

/* Position in a sequence of rows: row, family, run, and bytes within the run. */
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

/* Get the next group and advance the position; 0 at the end. */
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

/* Copy the first and the last bytes, `width` each, which overlap if there are fewer than twice as
   many. Both are read before one is written. */
#define COPY_ENDS(width)                              \
    do {                                              \
        char first[width], last[width];               \
        memcpy(first, from, width);                   \
        memcpy(last, from + bytes - (width), width);  \
        memcpy(to, first, width);                     \
        memcpy(to + bytes - (width), last, width);    \
    } while (0)

/* Few branches: the lengths of short runs vary. */
static inline void copy(char *to, const char *from, int64_t bytes)
{
    if (bytes > LINE) {
        int64_t at = 0;
        for (; at + LINE < bytes; at += LINE)
            memcpy(to + at, from + at, LINE);
        memcpy(to + bytes - LINE, from + bytes - LINE, LINE);
    } else if (bytes > 32) {
        COPY_ENDS(32);
    } else if (bytes > 16) {
        COPY_ENDS(16);
    } else if (bytes >= 8) {
        COPY_ENDS(8);
    } else if (bytes >= 4) {
        COPY_ENDS(4);
    } else {
        while (bytes-- > 0)
            *to++ = *from++;
    }
}

#if defined(__x86_64__)
/* Write a part of a line past the caches; the next run may complete the line before it is written. */
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

/* Copy past the caches: whole lines are written without having been read. */
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

/* Runs so short that finding the next group takes longer than copying it. What is fetched ahead is
   what lies ahead in the row: the runs follow each other closely. */
static inline void copy_short_runs(const Rows *rows)
{
    for (int64_t row = 0; row < rows->rows; row++)
        for (const Family *family = rows->families; family < rows->end; family++) {
            const char *from = rows->from[row] + family->source;
            char *to = rows->to[row] + family->target;
            for (int64_t run = family->repeats; run > 0; run--) {
#if defined(__x86_64__)
                if (rows->fetching) {
                    _mm_prefetch(from + NEAR_AHEAD, _MM_HINT_T0);
                    if (family->length > LINE)
                        _mm_prefetch(from + NEAR_AHEAD + LINE, _MM_HINT_T0);
                }
#endif
                copy(to, from, family->length);
                from += family->source_step, to += family->target_step;
            }
        }
}

FOR_EACH_PROCESSOR static void copy_rows(Rows *rows)
{
    if (rows->are_short && !rows->streaming) {
        copy_short_runs(rows);
        rows->rows = 0;
        return;
    }
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

/* A prepared copy: the number of families of each axis, and the families of all axes in sequence.
   All numbers have 64 bits, as in the array that Python passes. */
typedef struct Copy {
    int64_t axes;
    const int64_t *counts;
    const Family *families;
    const char *source;
    char *target;
    int64_t streaming, fetching;
    const struct Copy *next; /* copied in turn with this one */
} Copy;

/* An index of an axis: its family, run and index within the run. The addresses are the sums over this
   axis and all outer ones. */
typedef struct {
    const Family *family, *first, *end;
    int64_t run, index;
    const char *from;
    char *to;
} Place;

/* Position of a copy. The first place is the origin, the last one is that of a row. */
typedef struct {
    Place places[AXES];
    int64_t depth, rows, bytes; /* bytes of a row */
    Rows row;
} Progress;

static inline void locate(Place *place)
{
    const Family *family = place->family;
    place->from = place[-1].from + family->source + place->run * family->source_step
        + place->index * family->source_stride;
    place->to = place[-1].to + family->target + place->run * family->target_step
        + place->index * family->target_stride;
}

/* Advance an index; 0 if it was the last one and is now the first one again. */
static inline int count_up(Place *place)
{
    if (++place->index < place->family->length)
        return 1;
    place->index = 0;
    if (++place->run < place->family->repeats)
        return 1;
    place->run = 0;
    if (++place->family < place->end)
        return 1;
    place->family = place->first;
    return 0;
}

static int64_t extent(const Family *family, const Family *end)
{
    int64_t sum = 0;
    for (; family < end; family++)
        sum += family->length * family->repeats;
    return sum;
}

static void start(Progress *progress, const Copy *what)
{
    const Family *family = what->families;
    Place *place = progress->places;
    place->from = what->source;
    place->to = what->target;
    progress->depth = what->axes - 1;
    progress->rows = 1;
    for (int64_t axis = 0; axis < progress->depth; axis++) {
        place++;
        place->family = place->first = family;
        place->end = family += what->counts[axis];
        place->run = place->index = 0;
        locate(place);
        progress->rows *= extent(place->first, place->end);
    }
    progress->row.families = family;
    progress->row.end = family + what->counts[progress->depth];
    progress->row.streaming = what->streaming != 0;
    progress->row.fetching = what->fetching != 0;
    progress->row.rows = 0;
    progress->bytes = extent(family, progress->row.end);
    int64_t runs = 0;
    for (; family < progress->row.end; family++)
        runs += family->repeats;
    progress->row.are_short = progress->bytes < SHORT * runs;
}

static void copy_next_rows(Progress *progress, int64_t rows)
{
    Place *const last = progress->places + progress->depth;
    Rows *row = &progress->row;
    while (rows-- > 0) {
        row->from[row->rows] = last->from;
        row->to[row->rows] = last->to;
        if (++row->rows == ROWS)
            copy_rows(row);
        Place *place = last;
        while (place > progress->places && !count_up(place))
            place--;
        for (place += place == progress->places; place <= last; place++)
            locate(place);
    }
    if (row->rows)
        copy_rows(row);
}

/* Make copies in turn, a part of each: copies that access neighbouring memory then find it in the
   cache. */
void copy_products(const Copy *what)
{
    Progress progress[IN_TURN];
    while (what) {
        int64_t copies = 0, turns = 1;
        int streaming = 0;
        for (; what && copies < IN_TURN; copies++, what = what->next) {
            Progress *each = progress + copies;
            start(each, what);
            streaming |= each->row.streaming;
            if (each->rows * each->bytes / TURN > turns)
                turns = each->rows * each->bytes / TURN;
        }
        if (copies == 1)
            turns = 1;
        for (int64_t turn = 0; turn < turns; turn++)
            for (Progress *each = progress; each < progress + copies; each++)
                copy_next_rows(each, each->rows * (turn + 1) / turns - each->rows * turn / turns);
#if defined(__x86_64__)
        if (streaming)
            _mm_sfence();
#endif
    }
}

/* Sum of the hashes of the elements of a matrix (redistribution/checksum.py): of each word of an
   element, the finaliser of SplitMix64 of the word, plus the keys of its row and its column, plus a
   constant for the word. */
FOR_EACH_PROCESSOR uint64_t hash_sum(const uint64_t *row_keys, int64_t rows,
    const uint64_t *column_keys, int64_t columns, const char *words, int64_t words_each)
{
    uint64_t sum = 0;
    for (int64_t row = 0; row < rows; row++, words += 8 * columns * words_each)
        for (int64_t k = 0; k < words_each; k++) {
            const uint64_t key = row_keys[row] + (uint64_t)k * 0xBF58476D1CE4E5B9u;
            for (int64_t column = 0; column < columns; column++) {
                uint64_t mixed;
                memcpy(&mixed, words + 8 * (column * words_each + k), 8); /* any alignment */
                mixed += key + column_keys[column];
                mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9u;
                mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EBu;
                sum += mixed ^ mixed >> 31;
            }
        }
    return sum;
}

/* Copy a word out of the memory of another process; 0 if the system does not permit it. */
int read_word(int64_t process, const void *from, void *to)
{
#if defined(__linux__)
    const struct iovec here = {to, 8}, there = {(void *)from, 8};
    return process_vm_readv((pid_t)process, &here, 1, &there, 1, 0) == 8;
#else
    (void)process, (void)from, (void)to;
    return 0;
#endif
}

/* Where ranks combine one word of each by a bitwise or. Turns are numbered modulo three. While a rank
   reads the result of a turn, others can be one turn ahead; the last rank of that turn clears what the
   turn after it needs, which nobody reads any more. */
typedef struct {
    uint64_t words[3];
    uint32_t arrived[3];
    uint32_t turn;
} Meeting;

static int64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return INT64_C(1000000000) * now.tv_sec + now.tv_nsec;
}

static int has_ended(Meeting *meeting, uint32_t turn)
{
    return __atomic_load_n(&meeting->turn, __ATOMIC_ACQUIRE) != turn;
}

/* Arrive with a word, and yield the core until the turn ends, for at most `yielding` nanoseconds; 0 if
   it has not ended then. What this rank wrote before is visible to all ranks after the turn. */
int meet(Meeting *meeting, uint32_t turn, uint32_t ranks, uint64_t word, int64_t yielding)
{
    const uint32_t next_turn = (turn + 1) % 3;
    __atomic_fetch_or(&meeting->words[turn], word, __ATOMIC_RELAXED);
    if (__atomic_add_fetch(&meeting->arrived[turn], 1, __ATOMIC_ACQ_REL) == ranks) {
        meeting->words[next_turn] = 0;
        meeting->arrived[next_turn] = 0;
        __atomic_store_n(&meeting->turn, next_turn, __ATOMIC_SEQ_CST);
#if defined(__linux__)
        syscall(SYS_futex, &meeting->turn, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
#endif
        return 1;
    }
    for (const int64_t end = nanoseconds() + yielding; !has_ended(meeting, turn); sched_yield())
        if (nanoseconds() > end)
            return 0;
    return 1;
}

/* Sleep until the turn ends, for at most `longest` nanoseconds, less than a second; 0 if it has not
   ended then. */
int await_turn(Meeting *meeting, uint32_t turn, int64_t longest)
{
    const struct timespec most = {0, longest};
#if defined(__linux__)
    syscall(SYS_futex, &meeting->turn, FUTEX_WAIT, turn, &most, NULL, 0);
#else
    nanosleep(&most, NULL);
#endif
    return has_ended(meeting, turn);
}
