/* Just enough JSON to look values up by path in a text that a test wrote. Nothing is copied or allocated: a value is
 * the place where it begins, NULL where there is none. */
#ifndef FAKE_NVML_JSON_H
#define FAKE_NVML_JSON_H

#include <stdlib.h>
#include <string.h>

static const char *json_space(const char *at) {
    while (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r' || *at == ',' || *at == ':') at++;
    return at;
}

static const char *json_skip(const char *at) {
    at = json_space(at);
    if (*at == '"') {
        for (at++; *at && *at != '"'; at++)
            if (*at == '\\' && at[1]) at++;
        return *at ? at + 1 : at;
    }
    if (*at == '{' || *at == '[') {
        for (at = json_space(at + 1); *at && *at != '}' && *at != ']'; at = json_space(at)) at = json_skip(at);
        return *at ? at + 1 : at;
    }
    while (*at && !strchr(",]} \n\t\r", *at)) at++;
    return at;
}

static const char *json_member(const char *object, const char *key) {
    size_t length = strlen(key);
    if (!object || *(object = json_space(object)) != '{') return NULL;
    for (const char *at = json_space(object + 1); *at && *at != '}';) {
        const char *value = json_space(json_skip(at));
        if (*at == '"' && !strncmp(at + 1, key, length) && at[1 + length] == '"') return value;
        at = json_space(json_skip(value));
    }
    return NULL;
}

static const char *json_item(const char *array, unsigned index) {
    if (!array || *(array = json_space(array)) != '[') return NULL;
    const char *at = json_space(array + 1);
    for (; *at && *at != ']'; at = json_space(json_skip(at)))
        if (index-- == 0) return at;
    return NULL;
}

static unsigned json_count(const char *array) {
    unsigned count = 0;
    while (json_item(array, count)) count++;
    return count;
}

static unsigned long long json_number(const char *value, unsigned long long otherwise) {
    if (!value || (*value != '-' && (*value < '0' || *value > '9'))) return otherwise;
    return *value == '-' ? (unsigned long long)strtoll(value, NULL, 10) : strtoull(value, NULL, 10);
}

/* Copies a string; \u00XX stands for the byte XX, so that a test can say bytes that are no text. */
static int json_string(const char *value, char *into, unsigned size) {
    unsigned length = 0;
    if (!value || *value != '"') return 0;
    for (const char *at = value + 1; *at && *at != '"'; at++) {
        char byte = *at;
        if (byte == '\\' && at[1] == 'u' && strlen(at) >= 6) {
            char digits[5] = {at[2], at[3], at[4], at[5], 0};
            byte = (char)strtoul(digits, NULL, 16);
            at += 5;
        } else if (byte == '\\' && at[1]) {
            byte = *++at == 'n' ? '\n' : *at == 't' ? '\t' : *at;
        }
        if (length + 1 >= size) return -1;
        into[length++] = byte;
    }
    into[length] = 0;
    return 1;
}

#endif
