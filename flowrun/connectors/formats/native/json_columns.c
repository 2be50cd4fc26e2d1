/* Reads JSON records as columns: the first reader of `JsonDecoder`, built where there is a C compiler.
 *
 * A record is read only if each of its bytes is plainly JSON and each wanted value has the type of its column in the form that is usual.
 * Any other record is in doubt: nothing is kept of it, and the parsers behind this one say what it is. So what this reader gives needs to
 * be right, but it never needs to explain anything. docs/adr/044-a-compiled-first-reader-of-json.md says why.
 *
 * Columns are a tree of nodes in preorder, node 0 being the record. A node has one slot a slot of its parent; the node below a list has a
 * slot an element. A slot is written anew if the record before it was in doubt, so nothing needs to be undone.
 */

#include "json_values.h"

/* Each column of text makes room for what is left of a record, so longer ones are left to the other parsers. */
#define MAX_RECORD (16 << 20)

#define EXPORT __attribute__((visibility("default")))

/* The same numbers as in json_compiled.py. */
enum kind { ROW, LIST, TEXT, BOOLEAN, INT8, INT16, INT32, INT64, FLOAT32, FLOAT64, DATE, TIMESTAMP, DECIMAL };
enum status { READ, BLANK, IN_DOUBT };

static const int WIDTHS[] = {0, 0, 0, 1, 1, 2, 4, 8, 4, 8, 4, 8, 16};

typedef struct {
    enum kind kind;
    int precision, scale, after; /* `after`: the node behind its last descendant */
    int name_size;
    cursor name;
    int64_t slots;  /* for how many slots there is room */
    uint8_t *valid; /* a byte a slot: 1, or 0 for NULL */
    uint8_t *values;
    int32_t *offsets; /* of texts and lists */
    uint8_t *text;
    int64_t text_size;
    int has_null;
    uint64_t seen; /* the number of the object in which the field came last */
    int position;  /* which field of its row it is */
    int fields;    /* of a row: how many there are, their nodes, and a hash table from their names to their nodes (-1: a free place) */
    int *children, *table, table_mask;
} node;

typedef struct reader {
    int count, all_fields;
    node *nodes;
    uint8_t *names;
    locale_t plain; /* numbers have a point, whatever the locale of the process */
    uint64_t objects;
    int out_of_memory;
    span span;
} reader;

static cursor read_row(reader *r, node *n, int64_t slot, cursor p);

static void *grown(reader *r, void *old, int64_t size) {
    void *found = realloc(old, (size_t)size);
    if (found == NULL)
        r->out_of_memory = 1;
    return found;
}

/* Make room for `slots` slots in a node and in what has the same slots. */
static int make_room(reader *r, int first, int64_t slots) {
    for (int i = first; i < r->nodes[first].after; i++) {
        node *n = &r->nodes[i];
        int width = WIDTHS[n->kind];
        uint8_t *valid = grown(r, n->valid, slots);
        n->valid = valid ? valid : n->valid;
        uint8_t *values = width ? grown(r, n->values, slots * width) : NULL;
        n->values = values ? values : n->values;
        if (n->kind == TEXT || n->kind == LIST) {
            int32_t *offsets = grown(r, n->offsets, (slots + 1) * (int64_t)sizeof(int32_t));
            n->offsets = offsets ? offsets : n->offsets;
            if (offsets)
                offsets[0] = 0;
        }
        if (r->out_of_memory)
            return 0;
        n->slots = slots;
        if (n->kind == LIST)
            i = n->after - 1;
    }
    return 1;
}

/* NULL in one slot of a node and of all nodes below it. */
static void write_null(reader *r, node *n, int64_t slot) {
    for (node *last = &r->nodes[n->after]; n < last; n++) {
        n->valid[slot] = 0;
        n->has_null = 1;
        if (n->kind == TEXT || n->kind == LIST)
            n->offsets[slot + 1] = n->offsets[slot];
        else if (n->kind != ROW)
            memset(n->values + slot * WIDTHS[n->kind], 0, (size_t)WIDTHS[n->kind]);
        if (n->kind == LIST)
            n = &r->nodes[n->after] - 1;
    }
}

static cursor read_text(reader *r, node *n, int64_t slot, cursor p) {
    int64_t begin = n->offsets[slot], size, room = begin + (r->span.end - p) + 16;
    if (room > n->text_size) {
        uint8_t *text = grown(r, n->text, room + room / 2);
        if (text == NULL)
            return NULL;
        n->text = text;
        n->text_size = room + room / 2;
    }
    if (at(&r->span, p) != '"' || (p = read_string(&r->span, p, n->text + begin, &size)) == NULL)
        return NULL;
    n->offsets[slot + 1] = (int32_t)(begin + size);
    return p;
}

static inline cursor read_value(reader *r, node *n, int64_t slot, cursor p);

static cursor read_list(reader *r, node *n, int64_t slot, cursor p) {
    node *element = n + 1;
    int64_t next = n->offsets[slot];
    if (at(&r->span, p) != '[')
        return NULL;
    p = skip_space(&r->span, p + 1);
    if (at(&r->span, p) != ']') {
        for (;; p = skip_space(&r->span, p + 1)) {
            if (next == element->slots && !make_room(r, (int)(element - r->nodes), next ? next * 2 : 256))
                return NULL;
            if ((p = read_value(r, element, next++, p)) == NULL)
                return NULL;
            p = skip_space(&r->span, p);
            if (at(&r->span, p) == ']')
                break;
            if (at(&r->span, p) != ',')
                return NULL;
        }
    }
    n->offsets[slot + 1] = (int32_t)next;
    return p + 1;
}

static inline cursor read_value(reader *r, node *n, int64_t slot, cursor p) {
    const span *s = &r->span;
    int64_t integer;
    if (at(s, p) == 'n') {
        write_null(r, n, slot);
        return skip_word(s, p, "null", 4);
    }
    n->valid[slot] = 1;
    switch (n->kind) {
    case ROW:
        return read_row(r, n, slot, p);
    case LIST:
        return read_list(r, n, slot, p);
    case TEXT:
        return read_text(r, n, slot, p);
    case BOOLEAN:
        n->values[slot] = at(s, p) == 't';
        return n->values[slot] ? skip_word(s, p, "true", 4) : skip_word(s, p, "false", 5);
    case INT8:
        p = read_integer(s, p, 8, &integer);
        ((int8_t *)n->values)[slot] = p ? (int8_t)integer : 0;
        return p;
    case INT16:
        p = read_integer(s, p, 16, &integer);
        ((int16_t *)n->values)[slot] = p ? (int16_t)integer : 0;
        return p;
    case INT32:
        p = read_integer(s, p, 32, &integer);
        ((int32_t *)n->values)[slot] = p ? (int32_t)integer : 0;
        return p;
    case INT64:
        return read_integer(s, p, 64, &((int64_t *)n->values)[slot]);
    case FLOAT32:
        return read_float(s, p, r->plain, &((float *)n->values)[slot]);
    case FLOAT64:
        return read_double(s, p, r->plain, &((double *)n->values)[slot]);
    case DATE:
        return read_date(s, p, &((int32_t *)n->values)[slot]);
    case TIMESTAMP:
        return read_timestamp(s, p, n->precision, n->scale, &((int64_t *)n->values)[slot]);
    case DECIMAL:
        return read_decimal(s, p, n->precision, n->scale, &((uint64_t *)n->values)[2 * slot]);
    }
    return NULL;
}

static unsigned name_hash(cursor name, int64_t size) {
    return size ? (unsigned)size * 31 + name[0] * 7u + name[size - 1] * 131u + name[size / 2] * 17u : 0;
}

static inline int is_named(const node *n, cursor name, int64_t size) {
    return n->name_size == size && memcmp(n->name, name, (size_t)size) == 0;
}

static node *field_named(reader *r, node *n, cursor name, int64_t size) {
    for (unsigned i = name_hash(name, size) & (unsigned)n->table_mask;; i = (i + 1) & (unsigned)n->table_mask) {
        if (n->table[i] < 0)
            return NULL;
        node *field = &r->nodes[n->table[i]];
        if (is_named(field, name, size))
            return field;
    }
}

/* Reads the name at `p`; `field` gets the field that it names, or NULL. Fields mostly come in the order in which they were declared, so
 * the next one in this order is `expected`. */
static inline cursor read_name(reader *r, node *n, cursor p, int *expected, node **field) {
    cursor name = p + 1;
    if (*expected < n->fields) {
        *field = &r->nodes[n->children[*expected]];
        int64_t size = (*field)->name_size;
        if (r->span.end - name > size && name[size] == '"' && is_named(*field, name, size)) {
            ++*expected;
            return name + size + 1;
        }
    }
    if ((p = skip_string(&r->span, p, 1)) == NULL)
        return NULL;
    *field = field_named(r, n, name, p - 1 - name);
    if (*field != NULL)
        *expected = (*field)->position + 1;
    return p;
}

/* Reads an object into the fields of a row. */
static cursor read_row(reader *r, node *n, int64_t slot, cursor p) {
    const span *s = &r->span;
    uint64_t object = ++r->objects;
    int expected = 0, found = 0;
    if (at(s, p) != '{')
        return NULL;
    p = skip_space(s, p + 1);
    for (int more = at(s, p) != '}'; more; p = more ? skip_space(s, p + 1) : p) {
        node *field;
        if (at(s, p) != '"' || (p = read_name(r, n, p, &expected, &field)) == NULL)
            return NULL;
        p = skip_space(s, p);
        if (at(s, p) != ':')
            return NULL;
        p = skip_space(s, p + 1);
        if (field == NULL) {
            p = skip_value(s, p, 0);
        } else {
            if (field->seen == object)
                return NULL; /* the last of several fields of one name counts */
            field->seen = object;
            found++;
            p = read_value(r, field, slot, p);
        }
        if (p == NULL)
            return NULL;
        p = skip_space(s, p);
        more = at(s, p) == ',';
        if (!more && at(s, p) != '}')
            return NULL;
    }
    if (found < n->fields) {
        if (r->all_fields && n == r->nodes)
            return NULL;
        for (int i = 0; i < n->fields; i++)
            if (r->nodes[n->children[i]].seen != object)
                write_null(r, &r->nodes[n->children[i]], slot);
    }
    return p + 1;
}

/* Reads the record data[start:stop] into slot `slot` of all columns. */
static enum status read_record(reader *r, cursor start, cursor stop, int64_t slot) {
    r->span.end = stop;
    cursor p = skip_space(&r->span, start);
    if (p == stop)
        return BLANK;
    if (stop - start > MAX_RECORD)
        return IN_DOUBT;
    p = read_row(r, r->nodes, slot, p);
    return p != NULL && skip_space(&r->span, p) == stop ? READ : IN_DOUBT;
}

/* How many slots of each node belong to the first `rows` rows. */
static void lengths_of(const reader *r, int64_t rows, int64_t *lengths) {
    lengths[0] = rows;
    for (int i = 0; i < r->count; i++) {
        const node *n = &r->nodes[i];
        if (n->kind == LIST)
            lengths[i + 1] = n->slots ? n->offsets[lengths[i]] : 0;
        for (int j = 0; j < n->fields; j++)
            lengths[n->children[j]] = lengths[i];
    }
}

/* Packs bytes that are 0 or 1 to bits, the first one lowest. */
static void pack_bits(const uint8_t *bytes, int64_t count, uint8_t *bits) {
    int64_t i = 0;
#if defined(__SSE2__)
    for (; i + 16 <= count; i += 16) {
        __m128i set = _mm_cmpgt_epi8(_mm_loadu_si128((const __m128i *)(bytes + i)), _mm_setzero_si128());
        uint16_t packed = (uint16_t)_mm_movemask_epi8(set);
        memcpy(bits + i / 8, &packed, 2);
    }
#endif
    for (; i < count; i += 8) {
        int packed = 0;
        for (int64_t j = 0; j < 8 && i + j < count; j++)
            packed |= (bytes[i + j] != 0) << j;
        bits[i / 8] = (uint8_t)packed;
    }
}

/* The number of the sources that this was built from (build.py): the library of another version has other functions. */
EXPORT int flowrun_json_sources(void) { return FLOWRUN_SOURCES; }

EXPORT void flowrun_json_close(reader *r) {
    if (r == NULL)
        return;
    for (int i = 0; r->nodes != NULL && i < r->count; i++) {
        node *n = &r->nodes[i];
        free(n->valid);
        free(n->values);
        free(n->offsets);
        free(n->text);
        free(n->children);
        free(n->table);
    }
    if (r->plain != (locale_t)0)
        freelocale(r->plain);
    free(r->nodes);
    free(r->names);
    free(r);
}

static int link_fields(reader *r, int index) {
    node *n = &r->nodes[index];
    int size = 4;
    for (int i = index + 1; i < n->after; i = r->nodes[i].after)
        n->fields++;
    while (size < 4 * n->fields)
        size *= 2;
    n->children = malloc((size_t)(n->fields + 1) * sizeof(int));
    n->table = malloc((size_t)size * sizeof(int));
    if (n->children == NULL || n->table == NULL)
        return 0;
    n->table_mask = size - 1;
    memset(n->table, -1, (size_t)size * sizeof(int));
    int position = 0;
    for (int i = index + 1; i < n->after; i = r->nodes[i].after) {
        node *field = &r->nodes[i];
        unsigned place = name_hash(field->name, field->name_size) & (unsigned)n->table_mask;
        while (n->table[place] >= 0)
            place = (place + 1) & (unsigned)n->table_mask;
        n->table[place] = i;
        field->position = position;
        n->children[position++] = i;
    }
    return 1;
}

/* A reader of records with these columns: `count` nodes in preorder, of which node i is numbers[4 * i] to numbers[4 * i + 3] (kind,
 * precision, scale, the node behind its last descendant), called names[ends[i - 1]:ends[i]]. `all_fields`: a record without one of the
 * columns is in doubt. NULL: there is no memory. */
EXPORT reader *flowrun_json_open(int count, const int32_t *numbers, const uint8_t *names, const int32_t *ends, int all_fields) {
    reader *r = calloc(1, sizeof(reader));
    if (r == NULL)
        return NULL;
    r->count = count;
    r->all_fields = all_fields;
    r->nodes = calloc((size_t)count, sizeof(node));
    r->names = malloc((size_t)ends[count - 1] + 1);
    r->plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (r->nodes == NULL || r->names == NULL || r->plain == (locale_t)0) {
        flowrun_json_close(r);
        return NULL;
    }
    memcpy(r->names, names, (size_t)ends[count - 1]);
    for (int i = 0; i < count; i++, numbers += 4) {
        int begin = i ? ends[i - 1] : 0;
        r->nodes[i] = (node){.kind = (enum kind)numbers[0], .precision = numbers[1], .scale = numbers[2], .after = numbers[3],
                             .name = r->names + begin, .name_size = ends[i] - begin};
    }
    for (int i = 0; i < count; i++)
        if (r->nodes[i].kind == ROW && !link_fields(r, i)) {
            flowrun_json_close(r);
            return NULL;
        }
    return r;
}

/* Reads the records data[starts[i]:stops[i]], whatever stands between them; data has `size` < 2^31 bytes. statuses[i] says what became
 * of record i. Gives the number of those that were read, which are the rows of the columns, or -1: there is no memory. */
EXPORT int64_t flowrun_json_read(reader *r, const uint8_t *data, int64_t size, const int64_t *starts, const int64_t *stops, int64_t count,
                                 uint8_t *statuses) {
    int64_t rows = 0;
    r->out_of_memory = 0;
    r->span.limit = data + size;
    if (r->nodes[0].slots < count && !make_room(r, 0, count))
        return -1;
    for (int i = 0; i < r->count; i++)
        r->nodes[i].has_null = 0;
    for (int64_t i = 0; i < count && !r->out_of_memory; i++) {
        statuses[i] = (uint8_t)read_record(r, data + starts[i], data + stops[i], rows);
        rows += statuses[i] == READ;
    }
    return r->out_of_memory ? -1 : rows;
}

/* For each node how many slots the first `rows` rows have, and the bytes of its validity bits (0: no NULLs), of its values or offsets,
 * and of its text. */
EXPORT void flowrun_json_sizes(const reader *r, int64_t rows, int64_t *lengths, int64_t *sizes) {
    lengths_of(r, rows, lengths);
    for (int i = 0; i < r->count; i++, sizes += 3) {
        const node *n = &r->nodes[i];
        int64_t bits = (lengths[i] + 7) / 8;
        sizes[0] = n->has_null ? bits : 0;
        sizes[1] = n->kind == BOOLEAN ? bits : lengths[i] * WIDTHS[n->kind];
        if (n->kind == TEXT || n->kind == LIST)
            sizes[1] = (lengths[i] + 1) * (int64_t)sizeof(int32_t);
        sizes[2] = n->kind == TEXT && n->slots ? n->offsets[lengths[i]] : 0;
    }
}

/* Copies what flowrun_json_sizes measured to where `targets` says, in the same order; nothing is copied for sizes of 0. */
EXPORT void flowrun_json_take(const reader *r, const int64_t *lengths, const int64_t *sizes, uint8_t *const *targets) {
    for (int i = 0; i < r->count; i++, sizes += 3, targets += 3) {
        const node *n = &r->nodes[i];
        const void *values = n->kind == TEXT || n->kind == LIST ? (const void *)n->offsets : n->values;
        if (sizes[0])
            pack_bits(n->valid, lengths[i], targets[0]);
        if (sizes[1] && n->kind == BOOLEAN)
            pack_bits(n->values, lengths[i], targets[1]);
        else if (sizes[1] && n->slots)
            memcpy(targets[1], values, (size_t)sizes[1]);
        else if (sizes[1])
            memset(targets[1], 0, (size_t)sizes[1]);
        if (sizes[2])
            memcpy(targets[2], n->text, (size_t)sizes[2]);
    }
}
