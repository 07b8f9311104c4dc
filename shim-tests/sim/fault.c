/* Parses CUDASIM_FAULT (words separated by commas) and CUDASIM_MUTATE. */
#include "slots.h"

#include <stdio.h>
#include <stdlib.h>

#include "fault.h"

static bool value_of(const char *word, const char *key, const char **value)
{
    size_t length = strlen(key);
    if (strncmp(word, key, length) != 0)
        return false;
    *value = word + length;
    return true;
}

static void parse_copy(const char *value, struct fault_options *options)
{
    if (strcmp(value, "middle") == 0) {
        options->fail_at = COPY_MIDDLE;
    } else if (strcmp(value, "last-1") == 0) {
        options->fail_at = COPY_BEFORE_LAST;
    } else {
        options->fail_at = COPY_NUMBER;
        options->fail_number = strtoull(value, NULL, 10);
    }
}

static void parse_phase(const char *value, struct fault_options *options)
{
    options->in_checkpoint = strcmp(value, "restore") != 0;
    options->in_restore = strcmp(value, "checkpoint") != 0;
}

static void parse_word(const char *word, struct fault_options *options)
{
    const char *value;
    if (value_of(word, "copy:", &value)) {
        parse_copy(value, options);
    } else if (value_of(word, "phase=", &value)) {
        parse_phase(value, options);
    } else if (value_of(word, "withhold=", &value)) {
        options->withhold = strtoull(value, NULL, 10) * 1024;
    } else if (value_of(word, "device-pause=", &value)) {
        options->device_pause_ms = (uint32_t)strtoul(value, NULL, 10);
    } else if (value_of(word, "pause=", &value)) { /* MS@COPY */
        char *end;
        options->pause_ms = (uint32_t)strtoul(value, &end, 10);
        options->pause_copy = *end == '@' ? strtoull(end + 1, NULL, 10) : 0;
    } else if (value_of(word, "times=", &value)) {
        options->times = (uint32_t)strtoul(value, NULL, 10);
    } else if (strcmp(word, "unmap") == 0) {
        options->after_failure = BUFFER_UNMAP;
    } else if (strcmp(word, "keep") == 0) {
        options->after_failure = BUFFER_KEEP;
    } else if (strcmp(word, "mmap-refused") == 0) {
        options->mmap_refused = true;
    } else if (strcmp(word, "never-unmap") == 0) {
        options->never_unmap = true;
    } else if (strcmp(word, "withhold") == 0) {
        options->withhold = 300 * 1024;
    } else if (*word) {
        fprintf(stderr, "cudasim: CUDASIM_FAULT: unknown word '%s'\n", word);
    }
}

static void parse_mutation(const char *word, struct fault_options *options)
{
    const char *value;
    if (strcmp(word, "skip-copy") == 0)
        options->mutation = MUTATE_SKIP_COPY;
    else if (strcmp(word, "skip-16-bytes") == 0)
        options->mutation = MUTATE_SKIP_16;
    else if (strcmp(word, "late-copy") == 0)
        options->mutation = MUTATE_LATE_COPY;
    else if (value_of(word, "phase=", &value))
        options->mutates_restore = strcmp(value, "restore") == 0;
    else if (*word)
        fprintf(stderr, "cudasim: CUDASIM_MUTATE: unknown word '%s'\n", word);
}

static void each_word(const char *list, void (*parse)(const char *, struct fault_options *),
                      struct fault_options *options)
{
    char word[64];
    while (list && *list) {
        const size_t length = strcspn(list, ",");
        const size_t kept = length < sizeof word - 1 ? length : sizeof word - 1;
        memcpy(word, list, kept);
        word[kept] = '\0';
        parse(word, options);
        list += length + (list[length] == ',');
    }
}

void fault_parse(const char *fault, const char *mutate, struct fault_options *options)
{
    *options = (struct fault_options){.in_checkpoint = true, .in_restore = true, .times = 1};
    each_word(fault, parse_word, options);
    each_word(mutate, parse_mutation, options);
}
