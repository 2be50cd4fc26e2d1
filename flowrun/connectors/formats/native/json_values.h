/* Reads single JSON values as numbers, moments and decimals. A function returns what follows the value, or NULL if the value is in doubt. */

#ifndef FLOWRUN_JSON_VALUES_H
#define FLOWRUN_JSON_VALUES_H

#if defined(__APPLE__)
#include <xlocale.h>
#else
#include <locale.h>
#endif
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "json_text.h"

#define MAX_DIGITS 19

/* Powers of ten that are exact in their type. */
static const double DOUBLE_POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                       1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
static const float FLOAT_POWERS[] = {1e0f, 1e1f, 1e2f, 1e3f, 1e4f, 1e5f, 1e6f, 1e7f, 1e8f, 1e9f, 1e10f};
static const int64_t INTEGER_POWERS[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000,
                                         INT64_C(10000000000), INT64_C(100000000000), INT64_C(1000000000000),
                                         INT64_C(10000000000000), INT64_C(100000000000000), INT64_C(1000000000000000),
                                         INT64_C(10000000000000000), INT64_C(100000000000000000),
                                         INT64_C(1000000000000000000)};

/* Copies a number where strtod finds its end: at most MAX_NUMBER bytes. */
static void copy_number(cursor p, cursor end, char *text) {
    memcpy(text, p, (size_t)(end - p));
    text[end - p] = 0;
}

/* An integer of `bits` bits. */
static inline cursor read_integer(const span *s, cursor p, int bits, int64_t *value) {
    number n;
    if ((p = read_number(s, p, &n)) == NULL || !n.integral || n.count > MAX_DIGITS)
        return NULL;
    uint64_t most = (UINT64_C(1) << (bits - 1)) - 1;
    if (n.digits > most + (unsigned)n.negative)
        return NULL;
    *value = n.negative ? (int64_t)(0 - n.digits) : (int64_t)n.digits;
    return p;
}

/* A double, correctly rounded: by one multiplication or division of exact numbers where that is enough (Clinger, How to Read Floating
 * Point Numbers Accurately, 1990), otherwise by the C library. */
static inline cursor read_double(const span *s, cursor p, locale_t plain, double *value) {
    number n;
    cursor begin = p;
    if ((p = read_number(s, p, &n)) == NULL)
        return NULL;
    int power = n.exponent - n.fraction;
    if (FLT_EVAL_METHOD == 0 && n.count <= MAX_DIGITS && n.digits <= UINT64_C(1) << 53 && power >= -22 && power <= 22) {
        double digits = (double)n.digits;
        digits = power < 0 ? digits / DOUBLE_POWERS[-power] : digits * DOUBLE_POWERS[power];
        *value = n.negative ? -digits : digits;
        return p;
    }
    char text[MAX_NUMBER + 1];
    copy_number(begin, p, text);
    *value = strtod_l(text, NULL, plain);
    return isinf(*value) || (*value == 0 && n.count) ? NULL : p;
}

/* The same for floats: rounded once, from the text. */
static inline cursor read_float(const span *s, cursor p, locale_t plain, float *value) {
    number n;
    cursor begin = p;
    if ((p = read_number(s, p, &n)) == NULL)
        return NULL;
    int power = n.exponent - n.fraction;
    if (FLT_EVAL_METHOD == 0 && n.count <= MAX_DIGITS && n.digits <= UINT64_C(1) << 24 && power >= -10 && power <= 10) {
        float digits = (float)n.digits;
        digits = power < 0 ? digits / FLOAT_POWERS[-power] : digits * FLOAT_POWERS[power];
        *value = n.negative ? -digits : digits;
        return p;
    }
    char text[MAX_NUMBER + 1];
    copy_number(begin, p, text);
    *value = strtof_l(text, NULL, plain);
    return isinf(*value) || (*value == 0 && n.count) ? NULL : p;
}

/* `count` digits at `p` as a number, or -1. The bytes are there. */
static inline int fixed_digits(cursor p, int count) {
    int value = 0;
    for (int i = 0; i < count; i++) {
        if (!is_digit(p[i]))
            return -1;
        value = value * 10 + p[i] - '0';
    }
    return value;
}

/* The day at `p`, written YYYY-MM-DD, counted from 1970-01-01 (Hinnant, chrono-Compatible Low-Level Date Algorithms). The bytes are there. */
static inline int read_day(cursor p, int64_t *day) {
    static const int8_t lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int y = fixed_digits(p, 4), m = fixed_digits(p + 5, 2), d = fixed_digits(p + 8, 2);
    if (y < 1 || p[4] != '-' || m < 1 || m > 12 || p[7] != '-' || d < 1)
        return 0;
    int leap = m == 2 && y % 4 == 0 && (y % 100 != 0 || y % 400 == 0);
    if (d > lengths[m - 1] + leap)
        return 0;
    y -= m <= 2;
    int era = y / 400, in_era = y - era * 400;
    int in_year = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    *day = (int64_t)era * 146097 + in_era * 365 + in_era / 4 - in_era / 100 + in_year - 719468;
    return 1;
}

/* A date: a string YYYY-MM-DD, as days since 1970. */
static inline cursor read_date(const span *s, cursor p, int32_t *value) {
    int64_t day;
    if (s->end - p < 12 || p[0] != '"' || p[11] != '"' || !read_day(p + 1, &day))
        return NULL;
    *value = (int32_t)day;
    return p + 12;
}

/* A moment: a string YYYY-MM-DD hh:mm:ss, with T or a space between, and up to `precision` digits of fraction and perhaps a Z;
 * as units of 10^-scale seconds since 1970. */
static inline cursor read_timestamp(const span *s, cursor p, int precision, int scale, int64_t *value) {
    int64_t day;
    if (s->end - p < 21 || p[0] != '"' || (p[11] != ' ' && p[11] != 'T') || p[14] != ':' || p[17] != ':')
        return NULL;
    int hour = fixed_digits(p + 12, 2), minute = fixed_digits(p + 15, 2), second = fixed_digits(p + 18, 2);
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59 || !read_day(p + 1, &day))
        return NULL;
    if (scale == 9 && (day < -106000 || day > 106000)) /* about as far as nanoseconds reach in 64 bits */
        return NULL;
    int64_t fraction = 0;
    int places = 0;
    p += 20;
    if (*p == '.') {
        for (p++; places < precision && is_digit(at(s, p)); places++)
            fraction = fraction * 10 + *p++ - '0';
        if (places == 0)
            return NULL;
    }
    p += at(s, p) == 'Z';
    if (at(s, p) != '"')
        return NULL;
    int64_t seconds = day * 86400 + hour * 3600 + minute * 60 + second;
    *value = seconds * INTEGER_POWERS[scale] + fraction * INTEGER_POWERS[scale - places];
    return p + 1;
}

/* A decimal of up to 18 digits, as a number or a string of one: as two words, the lower first, that are units of 10^-scale. */
static inline cursor read_decimal(const span *s, cursor p, int precision, int scale, uint64_t *words) {
    number n;
    int quoted = at(s, p) == '"';
    if ((p = read_number(s, p + quoted, &n)) == NULL || (quoted && at(s, p) != '"'))
        return NULL;
    int zeros = n.count ? scale - n.fraction : 0;
    if (n.exponent || n.fraction > scale || n.count + zeros > 18 || n.count + zeros > precision)
        return NULL;
    int64_t units = (int64_t)n.digits * INTEGER_POWERS[zeros];
    units = n.negative ? -units : units;
    words[0] = (uint64_t)units;
    words[1] = units < 0 ? UINT64_MAX : 0;
    return p + quoted;
}

#endif
