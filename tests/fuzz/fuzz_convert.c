/* SPDX-License-Identifier: BSD-3-Clause */
/* Directories that a conversion takes: training checkpoints of other frameworks, quantized models,
 * rules. The input is written as files, read as it is and converted as a whole, with little memory.
 *
 * Its first line has letters, which choose options. Each file begins with a line
 *
 *     === NAME SIZE,SIZE...
 *
 * and is what follows, as it is, but for a pickle with sizes, which becomes a file of torch.save
 * with storages of as many bytes, and a JSON object with a size, which becomes a safetensors file
 * with so many bytes of data. pack_checkpoint.py makes such inputs of directories. */
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../format/zip_builder.h"
#include "dcp/checkpoint.h"
#include "dcp/convert.h"
#include "dcp/environment.h"
#include "fault/limited_allocator.h"
#include "fuzz_target.h"

enum { MEMORY_MAX = 256 << 20, BYTES_MAX = 4 << 20, FILES_MAX = 64, STORAGE_MAX = 1 << 18 };

static const char mark[] = "\n=== ";

/* ---- the files ---- */

struct scene {
    char directory[64]; /* "from" is in it, and "to" will be */
};

/* A name that stays inside of the directory. */
static bool is_usable(const char *name, size_t length)
{
    if (length == 0 || length > 200 || memchr(name, '\0', length) || name[0] == '/' ||
        name[length - 1] == '/')
        return false;
    for (size_t i = 0; i + 1 < length; i++)
        if ((name[i] == '.' && name[i + 1] == '.') || (name[i] == '/' && name[i + 1] == '/'))
            return false;
    return true;
}

/* Opens a file after making the directories that it is in. */
static FILE *make_file(const struct scene *scene, const char *name, size_t length)
{
    char path[512];
    for (size_t i = 0; i <= length; i++) {
        snprintf(path, sizeof path, "%s/from/%.*s", scene->directory, (int)i, name);
        if (i < length && name[i] == '/' && mkdir(path, 0700) != 0 && errno != EEXIST)
            return NULL;
    }
    return access(path, F_OK) != 0 ? fopen(path, "wb") : NULL;
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *place)
{
    (void)about, (void)kind, (void)place;
    return remove(path);
}

/* The next number of a list, at most STORAGE_MAX. */
static bool next_size(const char **sizes, const char *end, size_t *size)
{
    if (*sizes == end || **sizes < '0' || **sizes > '9')
        return false;
    for (*size = 0; *sizes < end && **sizes >= '0' && **sizes <= '9'; ++*sizes)
        if (*size < STORAGE_MAX)
            *size = *size * 10 + (size_t)(**sizes - '0');
    *size = *size < STORAGE_MAX ? *size : STORAGE_MAX;
    *sizes += *sizes < end;
    return true;
}

static const unsigned char *elements(void)
{
    static unsigned char made[STORAGE_MAX];
    for (size_t i = 0; made[1] == 0 && i < sizeof made; i++)
        made[i] = (unsigned char)(i * 37);
    return made;
}

static void write_torch_file(FILE *file, const uint8_t *pickle, size_t size, const char *sizes,
                             const char *end)
{
    struct zip_builder builder;
    char names[ZIP_BUILDER_RECORDS][32];
    size_t length;
    zip_builder_init(&builder);
    zip_builder_add_container(&builder, pickle, size);
    for (size_t i = 0; builder.count < ZIP_BUILDER_RECORDS && next_size(&sizes, end, &length);
         i++) {
        snprintf(names[i], sizeof names[i], "archive/data/%zu", i);
        zip_builder_add(&builder, names[i], elements(), length);
    }
    zip_builder_finish(&builder);
    fwrite(builder.out.data, 1, builder.out.size, file);
    zip_builder_free(&builder);
}

static void write_file(const struct scene *scene, const char *line, const char *line_end,
                       const uint8_t *bytes, size_t size)
{
    const char *space = memchr(line, ' ', (size_t)(line_end - line));
    size_t length = (size_t)((space ? space : line_end) - line), data = 0;
    const char *sizes = space ? space + 1 : line_end;
    FILE *file = is_usable(line, length) ? make_file(scene, line, length) : NULL;
    if (!file)
        return;
    if (space && size > 0 && bytes[0] == 0x80) {
        write_torch_file(file, bytes, size, sizes, line_end);
    } else if (space && size > 0 && bytes[0] == '{' && next_size(&sizes, line_end, &data)) {
        unsigned char head[8];
        for (size_t i = 0; i < sizeof head; i++)
            head[i] = (unsigned char)((uint64_t)size >> 8 * i);
        fwrite(head, 1, sizeof head, file);
        fwrite(bytes, 1, size, file);
        fwrite(elements(), 1, data, file);
    } else {
        fwrite(bytes, 1, size, file);
    }
    fclose(file);
}

static const uint8_t *find_mark(const uint8_t *data, const uint8_t *end)
{
    const uint8_t *found =
        data < end ? memmem(data, (size_t)(end - data), mark, sizeof mark - 1) : NULL;
    return found ? found : end;
}

static void write_scene(const struct scene *scene, const uint8_t *data, const uint8_t *end)
{
    for (size_t i = 0; i < FILES_MAX; i++) {
        data = find_mark(data, end);
        if (data == end)
            break;
        data += sizeof mark - 1;
        const uint8_t *line = data, *line_end = memchr(data, '\n', (size_t)(end - data));
        if (!line_end)
            break;
        data = find_mark(line_end, end);
        const uint8_t *begin = line_end + 1 < data ? line_end + 1 : data;
        write_file(scene, (const char *)line, (const char *)line_end, begin,
                   (size_t)(data - begin));
    }
}

/* ---- the conversion ---- */

/* A tensor may repeat few elements as often as it likes. */
static bool goes_on(void *context, const dcp_progress *progress)
{
    (void)context;
    return progress->bytes_total <= BYTES_MAX;
}

static bool has(const uint8_t *data, size_t size, char letter)
{
    const uint8_t *end = memchr(data, '\n', size);
    return memchr(data, letter, end ? (size_t)(end - data) : size) != NULL;
}

/* What is there as it is: described, read as far as it is small, and checked. */
static void read_in_place(const char *path, dcp_take take)
{
    dcp_checkpoint *checkpoint;
    uint64_t faults;
    const dcp_open_options options = {.take = take};
    if (dcp_checkpoint_open(path, &options, &checkpoint) != DCP_OK) {
        if (!*dcp_error_message())
            abort();
        return;
    }
    for (size_t i = 0; i < dcp_checkpoint_count(checkpoint); i++) {
        dcp_entry entry;
        if (dcp_checkpoint_entry(checkpoint, i, &entry) != DCP_OK)
            abort();
        dcp_tensor tensor = {.dtype = entry.dtype, .ndim = entry.ndim};
        if (!entry.is_tensor || entry.bytes > BYTES_MAX)
            continue;
        memcpy(tensor.global_shape, entry.global_shape, (size_t)entry.ndim * sizeof(int64_t));
        tensor.data = calloc(1, (size_t)entry.bytes + 1);
        if (!tensor.data)
            abort();
        if (dcp_checkpoint_read_tensor(checkpoint, i, &tensor, NULL) == DCP_ERR_INTERNAL)
            abort();
        free(tensor.data);
    }
    dcp_checkpoint_close(checkpoint);
    if (dcp_verify(path, &options, NULL, NULL, &faults) == DCP_ERR_INTERNAL)
        abort();
}

static void run(const struct scene *scene, const uint8_t *data, size_t size)
{
    static const struct {
        char letter;
        dcp_form form;
    } forms[] = {{'s', DCP_FORM_SAFETENSORS}, {'h', DCP_FORM_HF}, {'g', DCP_FORM_GGUF}};
    char from[96], to[96], rules[96];
    dcp_convert_options options = {.form = DCP_FORM_PT,
                                   .skip_sync = true,
                                   .thread_count = 1,
                                   .progress = goes_on,
                                   .unstack = has(data, size, 'u')};
    snprintf(from, sizeof from, "%s/from", scene->directory);
    snprintf(to, sizeof to, "%s/to", scene->directory);
    snprintf(rules, sizeof rules, "%s/from/rules.json", scene->directory);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (has(data, size, forms[i].letter))
            options.form = forms[i].form;
    options.take = has(data, size, 'a')   ? DCP_TAKE_ALL
                   : has(data, size, 'm') ? DCP_TAKE_MASTERS
                                          : DCP_TAKE_MODEL;
    options.dequantize = has(data, size, 'd') ? DCP_BF16 : DCP_DTYPE_NONE;
    options.transform = has(data, size, 't') ? rules : NULL;
    options.transform_inverse = has(data, size, 'i');
    read_in_place(from, options.take);
    dcp_status status = dcp_convert(from, to, &options, NULL);
    if (getenv("FUZZ_CONVERT_SHOW"))
        fprintf(stderr, "%s: %s\n", dcp_status_string(status),
                status == DCP_OK ? "" : dcp_error_message());
    if (status == DCP_ERR_INTERNAL || status == DCP_ERR_NO_MEMORY ||
        (status != DCP_OK && (!*dcp_error_message() || access(to, F_OK) == 0)) ||
        limited_allocator_held() != 0) {
        fprintf(stderr, "%s: %s, %zu bytes held\n", dcp_status_string(status), dcp_error_message(),
                limited_allocator_held());
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct scene scene;
    char from[96];
    snprintf(scene.directory, sizeof scene.directory, "%s/dcp-fuzz-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(scene.directory))
        abort();
    snprintf(from, sizeof from, "%s/from", scene.directory);
    if (mkdir(from, 0700) != 0)
        abort();
    write_scene(&scene, data, data + size);
    limited_allocator_install(MEMORY_MAX);
    run(&scene, data, size);
    dcp_set_allocator(NULL);
    if (nftw(scene.directory, remove_one, 8, FTW_DEPTH | FTW_PHYS) != 0)
        abort();
    return 0;
}
