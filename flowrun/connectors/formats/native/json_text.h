/* Reads the tokens of JSON texts: white space, strings, numbers and values that nobody asked for.
 *
 * Everything here is stricter than the parsers behind it: what is not plainly JSON by RFC 8259 is in doubt, which a function says by
 * returning NULL. Whoever called then leaves the record to those parsers.
 */

#ifndef FLOWRUN_JSON_TEXT_H
#define FLOWRUN_JSON_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* More levels or longer numbers are left to the parsers that have limits of their own for them. */
#define MAX_DEPTH 64
#define MAX_NUMBER 40

typedef const uint8_t *cursor;

/* A record, and where bytes that may be loaded end: wide loads pass the end of the record, but never `limit`. */
typedef struct {
    cursor end;
    cursor limit;
} span;

static inline int at(const span *s, cursor p) { return p < s->end ? *p : 0; }

static inline int is_digit(int byte) { return (unsigned)byte - '0' < 10; }

static inline cursor skip_space(const span *s, cursor p) {
    while (p < s->end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r'))
        p++;
    return p;
}

/* Whether the bytes are UTF-8, without surrogates and overlong forms (The Unicode Standard, table 3-7). */
static int is_utf8(cursor p, cursor end) {
    while (p < end) {
        uint64_t word;
        if (end - p >= 8 && (memcpy(&word, p, 8), !(word & UINT64_C(0x8080808080808080)))) {
            p += 8;
            continue;
        }
        int lead = *p++;
        if (lead < 0x80)
            continue;
        int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
        if (lead < 0xC2 || lead > 0xF4 || end - p < more)
            return 0;
        int least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
        int most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
        if (*p < least || *p > most)
            return 0;
        for (int i = 1; i < more; i++)
            if ((p[i] & 0xC0) != 0x80)
                return 0;
        p += more;
    }
    return 1;
}

/* The first byte from `p` on that ends a run of plain characters (a quote, a backslash, a control character), or the end of the record;
 * `out`, if there is one, gets a copy of the run and may get up to 16 bytes more. `high` gets a bit if some byte of the run is no ASCII. */
static inline cursor plain_run(const span *s, cursor p, uint8_t *out, unsigned *high) {
#if defined(__SSE2__)
    const __m128i quote = _mm_set1_epi8('"'), escape = _mm_set1_epi8('\\'), control = _mm_set1_epi8(0x1F);
    while (p < s->end && s->limit - p >= 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)p);
        if (out != NULL)
            _mm_storeu_si128((__m128i *)out, bytes);
        __m128i ends = _mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, escape));
        ends = _mm_or_si128(ends, _mm_cmpeq_epi8(_mm_min_epu8(bytes, control), bytes));
        unsigned stop = (unsigned)_mm_movemask_epi8(ends), above = (unsigned)_mm_movemask_epi8(bytes);
        if (stop) {
            int run = __builtin_ctz(stop);
            *high |= above & ((1u << run) - 1);
            return p + run < s->end ? p + run : s->end;
        }
        *high |= above;
        p += 16;
        if (out != NULL)
            out += 16;
    }
#endif
    for (; p < s->end && *p != '"' && *p != '\\' && *p >= 0x20; p++) {
        *high |= *p & 0x80u;
        if (out != NULL)
            *out++ = *p;
    }
    return p < s->end ? p : s->end;
}

static int hex4(const span *s, cursor p) {
    int code = 0;
    if (s->end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int digit = p[i], lower = digit | 0x20;
        if (is_digit(digit))
            code = code * 16 + digit - '0';
        else if (lower >= 'a' && lower <= 'f')
            code = code * 16 + lower - 'a' + 10;
        else
            return -1;
    }
    return code;
}

/* Reads the escape at the backslash `p` and writes what it stands for, at most 4 bytes; gives what follows. */
static cursor read_escape(const span *s, cursor p, uint8_t *out, int *written) {
    static const char names[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    int name = at(s, p + 1);
    if (name != 'u') {
        const char *found = name ? strchr(names, name) : NULL;
        if (found == NULL)
            return NULL;
        out[0] = (uint8_t)meanings[found - names];
        *written = 1;
        return p + 2;
    }
    int code = hex4(s, p + 2);
    p += 6;
    if (code < 0 || (code >= 0xDC00 && code < 0xE000))
        return NULL;
    if (code >= 0xD800 && code < 0xDC00) {
        int low = at(s, p) == '\\' && at(s, p + 1) == 'u' ? hex4(s, p + 2) : -1;
        if (low < 0xDC00 || low >= 0xE000)
            return NULL;
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        p += 6;
    }
    int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const uint8_t leads[] = {0, 0xC0, 0xE0, 0xF0};
    for (int i = more; i > 0; i--, code >>= 6)
        out[i] = (uint8_t)(0x80 | (code & 0x3F));
    out[0] = (uint8_t)(leads[more] | code);
    *written = more + 1;
    return p;
}

/* Reads the string whose opening quote is at `p`; gives what follows its closing quote. `out` gets its text, for which it has room for as
 * many bytes as are left of the record and 16 more; `size` gets the length of the text. */
static inline cursor read_string(const span *s, cursor p, uint8_t *out, int64_t *size) {
    uint8_t *begin = out;
    unsigned high = 0;
    for (p++;;) {
        cursor stop = plain_run(s, p, out, &high);
        out += stop - p;
        p = stop;
        int byte = at(s, p), written = 0;
        if (byte == '"')
            break;
        if (byte != '\\' || (p = read_escape(s, p, out, &written)) == NULL)
            return NULL;
        out += written;
    }
    if (high && !is_utf8(begin, out))
        return NULL;
    *size = out - begin;
    return p + 1;
}

/* Checks the string whose opening quote is at `p` and gives what follows its closing quote. `plain`: one with escapes is in doubt. */
static inline cursor skip_string(const span *s, cursor p, int plain) {
    cursor begin = ++p;
    unsigned high = 0;
    uint8_t meaning[4];
    int written;
    while (at(s, p = plain_run(s, p, NULL, &high)) != '"')
        if (plain || at(s, p) != '\\' || (p = read_escape(s, p, meaning, &written)) == NULL)
            return NULL;
    if (high && !is_utf8(begin, p))
        return NULL;
    return p + 1;
}

/* A number as it is written: up to 19 digits of it as one integer, and what the digits have to be multiplied with. */
typedef struct {
    uint64_t digits;
    int count;    /* how many digits there are, without leading zeros; if there are more than 19, `digits` is meaningless */
    int fraction; /* how many of all digits stand behind the point */
    int exponent;
    int negative;
    int integral; /* there is neither point nor exponent */
} number;

static inline cursor read_digits(const span *s, cursor p, number *n) {
    for (; p < s->end && is_digit(*p); p++) {
        n->digits = n->digits * 10 + (unsigned)(*p - '0');
        n->count += n->count || *p != '0';
    }
    return p;
}

/* Reads the number at `p` by the grammar of JSON; gives what follows. */
static inline cursor read_number(const span *s, cursor p, number *n) {
    cursor begin = p;
    *n = (number){.integral = 1};
    if (at(s, p) == '-') {
        n->negative = 1;
        p++;
    }
    cursor first = p;
    p = read_digits(s, p, n);
    if (p == first || (*first == '0' && p - first > 1))
        return NULL;
    if (at(s, p) == '.') {
        first = ++p;
        p = read_digits(s, p, n);
        if (p == first)
            return NULL;
        n->fraction = (int)(p - first);
        n->integral = 0;
    }
    if ((at(s, p) | 0x20) == 'e') {
        int sign = at(s, p + 1), below = sign == '-';
        first = p += sign == '-' || sign == '+' ? 2 : 1;
        for (; p < s->end && is_digit(*p) && p - first < 8; p++)
            n->exponent = n->exponent * 10 + (*p - '0');
        if (p == first)
            return NULL;
        if (below)
            n->exponent = -n->exponent;
        n->integral = 0;
    }
    return p - begin > MAX_NUMBER || is_digit(at(s, p)) ? NULL : p;
}

static inline cursor skip_word(const span *s, cursor p, const char *word, size_t size) {
    return (size_t)(s->end - p) >= size && memcmp(p, word, size) == 0 ? p + size : NULL;
}

/* Checks the value at `p` and gives what follows. */
static cursor skip_value(const span *s, cursor p, int depth) {
    number ignored;
    int open = at(s, p), close = open == '{' ? '}' : ']';
    switch (open) {
    case '"':
        return skip_string(s, p, 0);
    case 't':
        return skip_word(s, p, "true", 4);
    case 'f':
        return skip_word(s, p, "false", 5);
    case 'n':
        return skip_word(s, p, "null", 4);
    case '{':
    case '[':
        break;
    default:
        return read_number(s, p, &ignored);
    }
    if (depth == MAX_DEPTH)
        return NULL;
    p = skip_space(s, p + 1);
    if (at(s, p) == close)
        return p + 1;
    for (;;) {
        if (open == '{') {
            if (at(s, p) != '"' || (p = skip_string(s, p, 0)) == NULL)
                return NULL;
            p = skip_space(s, p);
            if (at(s, p) != ':')
                return NULL;
            p = skip_space(s, p + 1);
        }
        if ((p = skip_value(s, p, depth + 1)) == NULL)
            return NULL;
        p = skip_space(s, p);
        if (at(s, p) == close)
            return p + 1;
        if (at(s, p) != ',')
            return NULL;
        p = skip_space(s, p + 1);
    }
}

#endif
