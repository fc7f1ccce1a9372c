/* Everything that fiche.h has, as C sees it: smoke ARCHIVE NAME FILE, for an archive of at least two dozen records, of which NAME holds what FILE does. */
#include <fiche.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                                  \
    do {                                                                                             \
        if (!(what)) {                                                                               \
            fprintf(stderr, "%s:%d: %s does not hold; %s\n", __FILE__, __LINE__, #what, fiche_message()); \
            exit(1);                                                                                 \
        }                                                                                            \
    } while (0)
#define OK(call) CHECK((call) == FICHE_STATUS_OK)

struct bytes {
    unsigned char *at;
    size_t len;
    int closed;
    int error;
};

static struct bytes file(const char *path)
{
    struct bytes all = {NULL, 0, 0, 0};
    FILE *in = fopen(path, "rb");
    CHECK(in != NULL && fseek(in, 0, SEEK_END) == 0);
    all.len = (size_t)ftell(in);
    all.at = malloc(all.len + 1);
    CHECK(all.at != NULL && fseek(in, 0, SEEK_SET) == 0 && fread(all.at, 1, all.len, in) == all.len);
    fclose(in);
    return all;
}

static int read_memory(void *context, uint64_t offset, void *buf, size_t len)
{
    struct bytes *all = context;
    if (all->error != 0)
        return all->error;
    if (offset > all->len || len > all->len - offset)
        return EINVAL;
    memcpy(buf, all->at + offset, len);
    return 0;
}

static void close_memory(void *context)
{
    ((struct bytes *)context)->closed++;
}

static void archives(const char *path, const char *name, const struct bytes *want)
{
    struct bytes memory = file(path);
    struct fiche_source source = {&memory, memory.len, read_memory, close_memory};
    struct fiche_archive *archive = NULL, *other = NULL;
    struct fiche_record *record = NULL;
    struct fiche_read reads[3];
    unsigned char *back = malloc(want->len + 1), pieces[3][100];
    uint64_t number = 77;
    size_t len = 0, i;

    CHECK(back != NULL);
    CHECK(fiche_archive_open("/nowhere/at/all", &archive) == FICHE_STATUS_IO && archive == NULL);
    CHECK(strstr(fiche_message(), "/nowhere/at/all") != NULL);
    CHECK(fiche_archive_open(__FILE__, NULL) == FICHE_STATUS_INVALID);
    CHECK(fiche_archive_open(NULL, &archive) == FICHE_STATUS_INVALID);
    CHECK(strcmp(fiche_message(), "path is NULL") == 0);

    OK(fiche_archive_open(path, &archive));
    CHECK(fiche_archive_records(archive) >= 24 && fiche_archive_records(NULL) == 0);
    CHECK(fiche_archive_find(archive, "no such name", &number) == FICHE_STATUS_NOT_FOUND && number == 77);
    CHECK(strstr(fiche_message(), "no such name") != NULL);
    OK(fiche_archive_find(archive, name, &number));
    CHECK(fiche_record_open(archive, fiche_archive_records(archive), &record) == FICHE_STATUS_NOT_FOUND);
    CHECK(record == NULL);
    OK(fiche_record_open(archive, number, &record));
    CHECK(strcmp(fiche_record_name(record, &len), name) == 0 && len == strlen(name));
    CHECK(fiche_record_len(record) == want->len);

    /* Many at once, of which one is not there. */
    for (i = 0; i < 3; i++) {
        reads[i].offset = (2 - i) * 50;
        reads[i].buf = pieces[i];
        reads[i].len = 100;
    }
    reads[1].offset = fiche_archive_len(archive) - 99;
    CHECK(fiche_archive_read_many(archive, reads, 3) == FICHE_STATUS_OUT_OF_BOUNDS);
    CHECK(reads[0].status == FICHE_STATUS_OK && reads[2].status == FICHE_STATUS_OK);
    CHECK(reads[1].status == FICHE_STATUS_OUT_OF_BOUNDS);
    OK(fiche_archive_read(archive, 50, back, 100));
    CHECK(memcmp(back, pieces[2] + 50, 50) == 0 && memcmp(back + 50, pieces[0], 50) == 0);
    OK(fiche_archive_read_many(archive, NULL, 0));
    CHECK(fiche_archive_read_many(archive, NULL, 1) == FICHE_STATUS_INVALID);
    reads[2].buf = NULL;
    CHECK(fiche_archive_read_many(archive, reads, 3) == FICHE_STATUS_INVALID);
    OK(fiche_archive_read(archive, fiche_archive_len(archive), NULL, 0));
    CHECK(fiche_archive_read(archive, 0, NULL, 1) == FICHE_STATUS_INVALID);

    /* A record outlives its archive. */
    fiche_archive_close(archive);
    OK(fiche_record_read(record, 0, back, want->len));
    CHECK(memcmp(back, want->at, want->len) == 0);
    OK(fiche_record_read(record, want->len / 2, back, want->len / 3));
    CHECK(memcmp(back, want->at + want->len / 2, want->len / 3) == 0);
    CHECK(fiche_record_read(record, want->len, back, 1) == FICHE_STATUS_OUT_OF_BOUNDS);
    CHECK(fiche_record_read(record, UINT64_MAX, back, 2) == FICHE_STATUS_OUT_OF_BOUNDS);
    fiche_record_close(record);

    /* Bytes of our own, which fail, are damaged, and are closed once. */
    OK(fiche_archive_open_source(&source, 0, &other));
    OK(fiche_record_open(other, number, &record));
    fiche_archive_close(other);
    CHECK(memory.closed == 0);
    memory.error = ENODEV;
    CHECK(fiche_record_read(record, 0, back, want->len) == FICHE_STATUS_IO);
    memory.error = 0;
    OK(fiche_record_read(record, 0, back, want->len));
    CHECK(memcmp(back, want->at, want->len) == 0);
    fiche_record_close(record);
    CHECK(memory.closed == 1);
    for (i = 64; i < memory.len - 64; i += 1 + i / 16)
        memory.at[i] ^= 0x55;
    if (fiche_archive_open_source(&source, 1 << 20, &other) == FICHE_STATUS_OK) {
        CHECK(fiche_archive_read(other, 0, back, 100) == FICHE_STATUS_CORRUPT);
        fiche_archive_close(other);
    }
    CHECK(memory.closed == 2);
    source.len = 10;
    CHECK(fiche_archive_open_source(&source, 0, &other) != FICHE_STATUS_OK && other == NULL && memory.closed == 3);
    free(back);
    free(memory.at);
}

/* The same bytes, whatever they lie in: one piece, pages, and segments of few bytes. */
static void codecs(const struct bytes *content)
{
    enum { SHIFT = 12, PAGE = 1 << SHIFT };
    size_t len = content->len < 300000 ? content->len : 300000, room = len + len / 8 + 1024, n, i, at;
    unsigned char *packed = malloc(room), *back = malloc(len), *other = malloc(room);
    struct iovec one = {content->at, len}, to = {packed, room}, into = {back, len}, from;
    struct iovec *pieces = malloc((len + 1) * sizeof *pieces);
    const void **pages = malloc((room / PAGE + 1) * sizeof *pages);
    void **spread = malloc((room / PAGE + 1) * sizeof *spread);
    struct fiche_scratch *scratch = fiche_scratch_new();
    uint32_t codec;

    CHECK(packed && back && other && pieces && pages && spread && scratch);
    for (codec = FICHE_CODEC_COPY; codec <= FICHE_CODEC_BEWALGO64; codec++) {
        int level = codec == FICHE_CODEC_COPY ? 0 : 1;
        size_t packed_len = 0, other_len = 0, back_len = 0;

        OK(fiche_compress(codec, level, &one, 1, &to, 1, &packed_len, scratch));
        CHECK(codec == FICHE_CODEC_COPY ? packed_len == len : packed_len > 0);
        CHECK(fiche_bound(codec, len) == 0 || packed_len <= fiche_bound(codec, len));

        /* Segments of 1, 2, 3, ... bytes, with some of none between. */
        for (n = 0, at = 0; at < len; n++) {
            size_t most = n % 5 == 4 ? 0 : n % 1000 + 1;
            pieces[n].iov_base = most ? content->at + at : NULL;
            pieces[n].iov_len = most < len - at ? most : len - at;
            at += pieces[n].iov_len;
        }
        to.iov_base = other;
        OK(fiche_compress(codec, level, pieces, n, &to, 1, &other_len, NULL));
        to.iov_base = packed;
        CHECK(other_len == packed_len && memcmp(other, packed, packed_len) == 0);

        /* Pages that lie in the other order. */
        for (i = 0; i * PAGE < room; i++) {
            spread[i] = malloc(PAGE);
            CHECK(spread[i] != NULL);
        }
        for (i = 0; i * PAGE < len; i++)
            pages[i] = content->at + i * PAGE;
        OK(fiche_compress_pages(codec, level, pages, len, spread, room, SHIFT, &other_len, scratch));
        CHECK(other_len == packed_len);
        for (i = 0; i * PAGE < packed_len; i++)
            CHECK(memcmp(spread[i], packed + i * PAGE, packed_len - i * PAGE < PAGE ? packed_len - i * PAGE : PAGE) == 0);
        for (i = 0; i * PAGE < room; i++)
            pages[i] = spread[i];

        from.iov_base = packed;
        from.iov_len = packed_len;
        memset(back, 0xaa, len);
        OK(fiche_decompress(codec, &from, 1, &into, 1, &back_len, scratch));
        CHECK(back_len == len && memcmp(back, content->at, len) == 0);
        memset(back, 0x55, len);
        for (i = 0; i < n; i++)
            if (pieces[i].iov_base != NULL)
                pieces[i].iov_base = back + ((unsigned char *)pieces[i].iov_base - content->at);
        OK(fiche_decompress(codec, &from, 1, pieces, n, &back_len, scratch));
        CHECK(back_len == len && memcmp(back, content->at, len) == 0);
        memset(back, 0, len);
        OK(fiche_decompress_front(codec, &from, 1, len, (struct iovec[]){{back, len / 3}}, 1, scratch));
        CHECK(memcmp(back, content->at, len / 3) == 0 && back[len / 3] == 0);
        CHECK(fiche_decompress_front(codec, &from, 1, len / 3, &into, 1, scratch) == FICHE_STATUS_INVALID);

        /* Out of pages into pages. */
        {
            void **rows = malloc((len / PAGE + 1) * sizeof *rows);
            CHECK(rows != NULL);
            memset(back, 0xff, len);
            for (i = 0; i * PAGE < len; i++)
                rows[i] = back + i * PAGE;
            OK(fiche_decompress_pages(codec, pages, packed_len, rows, len, SHIFT, &back_len, scratch));
            CHECK(back_len == len && memcmp(back, content->at, len) == 0);
            free(rows);
        }
        for (i = 0; i * PAGE < room; i++)
            free(spread[i]);

        /* Too little room, and too little of a stream. */
        into.iov_len = len - 1;
        CHECK(fiche_decompress(codec, &from, 1, &into, 1, &back_len, scratch) == FICHE_STATUS_CORRUPT);
        CHECK(fiche_message()[0] != 0);
        into.iov_len = len;
        to.iov_len = packed_len / 2;
        CHECK(fiche_compress(codec, level, &one, 1, &to, 1, &other_len, scratch) == FICHE_STATUS_NO_ROOM);
        to.iov_len = room;
        CHECK(fiche_compress(codec, 1000, &one, 1, &to, 1, &other_len, scratch) == FICHE_STATUS_INVALID);
    }
    to.iov_base = NULL;
    CHECK(fiche_compress(FICHE_CODEC_LZ4, 1, &one, 1, &to, 1, &n, scratch) == FICHE_STATUS_INVALID);
    CHECK(fiche_compress(FICHE_CODEC_LZ4, 1, NULL, 1, &to, 1, &n, scratch) == FICHE_STATUS_INVALID);
    CHECK(fiche_compress(9, 1, &one, 1, &to, 1, &n, scratch) == FICHE_STATUS_UNSUPPORTED);
    CHECK(fiche_compress(256, 1, &one, 1, &to, 1, &n, scratch) == FICHE_STATUS_UNSUPPORTED);
    CHECK(fiche_compress_pages(FICHE_CODEC_LZ4, 1, pages, len, spread, room, 60, &n, scratch) == FICHE_STATUS_INVALID);
    CHECK(fiche_bound(FICHE_CODEC_LZ4, SIZE_MAX) == 0 && fiche_bound(FICHE_CODEC_BEWALGO32, SIZE_MAX) == 0);
    CHECK(fiche_bound(8, 100) == 0 && fiche_bound(FICHE_CODEC_LZ4, 100) > 100);
    fiche_scratch_free(scratch);
    fiche_scratch_free(NULL);
    free(spread);
    free(pages);
    free(pieces);
    free(other);
    free(back);
    free(packed);
}

/* Segments are filtered as one piece is, and come back. */
static void filters(const struct bytes *content)
{
    enum { MOST = 30001 };
    static unsigned char planes[MOST], cut[MOST], back[MOST];
    static const uint32_t widths[] = {1, 2, 3, 4, 8, 63};
    size_t len = content->len < MOST ? content->len : MOST, n = 0, at, i;
    struct iovec one = {content->at, len}, to = {planes, len}, from[MOST], into[MOST];
    uint32_t filter;

    for (at = 0; at < len; n++) {
        size_t some = n % 7 * 11 + (n % 50 == 9 ? 4096 : 0);
        if (some > len - at)
            some = len - at;
        from[n] = (struct iovec){some ? content->at + at : NULL, some};
        into[n] = (struct iovec){some ? cut + at : NULL, some};
        at += some;
    }
    for (filter = FICHE_FILTER_SHUFFLE; filter <= FICHE_FILTER_DELTA; filter++)
        for (i = 0; i < sizeof widths / sizeof *widths; i++) {
            uint32_t width = widths[i];
            if (filter == FICHE_FILTER_DELTA && (width == 3 || width > 8)) {
                CHECK(fiche_filter_apply(filter, width, &one, 1, &to, 1) == FICHE_STATUS_INVALID);
                continue;
            }
            memset(planes, 0xff, len);
            memset(cut, 0, len);
            memset(back, 0xaa, len);
            OK(fiche_filter_apply(filter, width, &one, 1, &to, 1));
            OK(fiche_filter_apply(filter, width, from, n, into, n));
            CHECK(memcmp(planes, cut, len) == 0);
            CHECK(width == 1 && filter == FICHE_FILTER_SHUFFLE ? memcmp(planes, content->at, len) == 0
                                                               : memcmp(planes, content->at, len) != 0);
            OK(fiche_filter_undo(filter, width, into, n, &(struct iovec){back, len}, 1));
            CHECK(memcmp(back, content->at, len) == 0);
        }
    CHECK(fiche_filter_apply(FICHE_FILTER_SHUFFLE, 0, &one, 1, &to, 1) == FICHE_STATUS_INVALID);
    CHECK(fiche_filter_apply(FICHE_FILTER_SHUFFLE, 260, &one, 1, &to, 1) == FICHE_STATUS_INVALID);
    CHECK(fiche_filter_apply(3, 4, &one, 1, &to, 1) == FICHE_STATUS_UNSUPPORTED);
    CHECK(fiche_filter_undo(FICHE_FILTER_DELTA, 4, &one, 1, &to, 0) == FICHE_STATUS_INVALID);
    to.iov_len = len - 1;
    CHECK(fiche_filter_undo(FICHE_FILTER_DELTA, 4, &one, 1, &to, 1) == FICHE_STATUS_INVALID);
    CHECK(strstr(fiche_message(), "bytes") != NULL);
    OK(fiche_filter_apply(FICHE_FILTER_BITSHUFFLE, 4, NULL, 0, NULL, 0));
}

/* What there is to say is each thread's own. */
static void *alone(void *nothing)
{
    CHECK(fiche_message()[0] == 0);
    CHECK(fiche_record_read(NULL, 0, NULL, 0) == FICHE_STATUS_INVALID);
    CHECK(strcmp(fiche_message(), "record is NULL") == 0);
    return nothing;
}

int main(int argc, char **argv)
{
    struct bytes content;
    pthread_t thread;

    CHECK(argc == 4);
    CHECK(fiche_version()[0] != 0 && fiche_message()[0] == 0);
    content = file(argv[3]);
    archives(argv[1], argv[2], &content);
    codecs(&content);
    filters(&content);
    CHECK(pthread_create(&thread, NULL, alone, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(strcmp(fiche_message(), "record is NULL") != 0);
    fiche_archive_close(NULL);
    fiche_record_close(NULL);
    free(content.at);
    puts("all that fiche.h has does what it says");
    return 0;
}
