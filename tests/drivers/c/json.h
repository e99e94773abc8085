/* As much of JSON as the protocol of the drivers needs: flat objects in, text out. */
#ifndef JSON_H
#define JSON_H

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIELDS = 40, TEXTS = 8192 };

typedef enum { ABSENT, NUL, BOOLEAN, NUMBER, TEXT } json_type;

typedef struct {
    char *key;
    json_type type;
    double number; /* a boolean is 0 or 1 */
    char *text;    /* NUL-terminated, but may hold NULs itself */
    size_t length;
} json_value;

/* An object whose members are plain values, {"hex": "..."}, or one object called "args", whose members follow. */
typedef struct {
    json_value values[FIELDS];
    int count;
    char texts[TEXTS];
    size_t used;
    const char *at;
    bool bad;
} json_object;

static void json_space(json_object *o) {
    while (isspace((unsigned char)*o->at)) o->at++;
}

static bool json_skip(json_object *o, char wanted) {
    json_space(o);
    if (*o->at != wanted) return false;
    o->at++;
    return true;
}

static void json_put(json_object *o, unsigned byte) {
    if (o->used + 1 >= TEXTS) o->bad = true;
    else o->texts[o->used++] = (char)byte;
}

static unsigned json_hex(json_object *o) {
    unsigned code = 0;
    for (int i = 0; i < 4; i++) {
        char digit[2] = {*o->at, 0};
        if (!isxdigit((unsigned char)*digit)) { o->bad = true; return 0; }
        code = code << 4 | (unsigned)strtoul(digit, NULL, 16);
        o->at++;
    }
    return code;
}

/* A code point as UTF-8. */
static void json_utf8(json_object *o, unsigned code) {
    if (code < 0x80) {
        json_put(o, code);
    } else if (code < 0x800) {
        json_put(o, 0xC0 | code >> 6);
        json_put(o, 0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
        json_put(o, 0xE0 | code >> 12);
        json_put(o, 0x80 | (code >> 6 & 0x3F));
        json_put(o, 0x80 | (code & 0x3F));
    } else {
        json_put(o, 0xF0 | code >> 18);
        json_put(o, 0x80 | (code >> 12 & 0x3F));
        json_put(o, 0x80 | (code >> 6 & 0x3F));
        json_put(o, 0x80 | (code & 0x3F));
    }
}

static char *json_text(json_object *o, size_t *length) {
    char *begin = o->texts + o->used;
    if (!json_skip(o, '"')) o->bad = true;
    while (!o->bad && *o->at != '"') {
        if (*o->at == 0) { o->bad = true; break; }
        if (*o->at != '\\') { json_put(o, (unsigned char)*o->at++); continue; }
        o->at++;
        switch (*o->at++) {
            case 'n': json_put(o, '\n'); break;
            case 't': json_put(o, '\t'); break;
            case 'r': json_put(o, '\r'); break;
            case 'b': json_put(o, '\b'); break;
            case 'f': json_put(o, '\f'); break;
            case 'u': {
                unsigned code = json_hex(o);
                if (code >= 0xD800 && code < 0xDC00 && o->at[0] == '\\' && o->at[1] == 'u') {
                    o->at += 2;
                    code = 0x10000 + ((code - 0xD800) << 10) + (json_hex(o) - 0xDC00);
                }
                json_utf8(o, code);
                break;
            }
            default: json_put(o, (unsigned char)o->at[-1]);
        }
    }
    if (!o->bad) o->at++;
    *length = (size_t)(o->texts + o->used - begin);
    json_put(o, 0);
    return begin;
}

static void json_members(json_object *o);

static void json_value_of(json_object *o, json_value *value) {
    json_space(o);
    if (*o->at == '"') {
        value->type = TEXT;
        value->text = json_text(o, &value->length);
    } else if (strncmp(o->at, "null", 4) == 0) {
        value->type = NUL;
        o->at += 4;
    } else if (strncmp(o->at, "true", 4) == 0 || strncmp(o->at, "false", 5) == 0) {
        value->type = BOOLEAN;
        value->number = *o->at == 't';
        o->at += *o->at == 't' ? 4 : 5;
    } else if (*o->at == '{') {
        /* bytes that are no text */
        size_t length = 0;
        o->at++;
        if (strcmp(json_text(o, &length), "hex") != 0 || !json_skip(o, ':')) o->bad = true;
        char *hex = json_text(o, &length);
        value->type = TEXT;
        value->text = hex;
        value->length = length / 2;
        for (size_t i = 0; i < length / 2; i++) {
            char pair[3] = {hex[2 * i], hex[2 * i + 1], 0};
            hex[i] = (char)strtoul(pair, NULL, 16);
        }
        hex[length / 2] = 0;
        if (!json_skip(o, '}')) o->bad = true;
    } else {
        char *end;
        value->type = NUMBER;
        value->number = strtod(o->at, &end);
        if (end == o->at) o->bad = true;
        o->at = end;
    }
}

static void json_members(json_object *o) {
    if (!json_skip(o, '{')) { o->bad = true; return; }
    if (json_skip(o, '}')) return;
    do {
        size_t length = 0;
        json_space(o);
        char *key = json_text(o, &length);
        if (o->bad || !json_skip(o, ':')) { o->bad = true; return; }
        if (strcmp(key, "args") == 0) {
            json_members(o);
        } else if (o->count == FIELDS) {
            o->bad = true;
        } else {
            json_value *value = &o->values[o->count++];
            value->key = key;
            json_value_of(o, value);
        }
    } while (!o->bad && json_skip(o, ','));
    if (!json_skip(o, '}')) o->bad = true;
}

/* NULL for what is no such object. The caller frees it. */
static json_object *json_read(const char *line) {
    json_object *o = calloc(1, sizeof *o);
    if (o == NULL) return NULL;
    o->at = line;
    json_members(o);
    if (o->bad) { free(o); return NULL; }
    return o;
}

static const json_value *json_get(const json_object *o, const char *key) {
    static const json_value absent = {"", ABSENT, 0, "", 0};
    for (int i = 0; i < o->count; i++) {
        if (strcmp(o->values[i].key, key) == 0 && o->values[i].type != NUL) return &o->values[i];
    }
    return &absent;
}

/* Writes a text with its quotes; bytes that are no UTF-8 become U+FFFD. */
static void json_print(FILE *out, const char *text, size_t length) {
    putc('"', out);
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        size_t more = byte < 0x80 ? 0 : byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : byte >= 0xC2 ? 1 : 9;
        bool whole = more < 9 && i + more < length;
        for (size_t j = 1; whole && j <= more; j++) whole = ((unsigned char)text[i + j] & 0xC0) == 0x80;
        if (byte < 0x20 || byte == '"' || byte == '\\') fprintf(out, "\\u%04x", byte);
        else if (!whole) fputs("\\ufffd", out);
        else { fwrite(text + i, 1, more + 1, out); i += more; }
    }
    putc('"', out);
}

#endif
