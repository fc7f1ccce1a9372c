/* Writes one record of an archive to standard output: record ARCHIVE NAME.
 *
 *     cc -Wall record.c $(pkg-config --cflags --libs fiche) -o record
 */
#include <fiche.h>
#include <stdio.h>

static int failed(void)
{
    fprintf(stderr, "record: %s\n", fiche_message());
    return 1;
}

int main(int argc, char **argv)
{
    static char buf[1 << 16];
    struct fiche_archive *archive;
    struct fiche_record *record;
    uint64_t number, at, len;
    int result = 0;

    if (argc != 3) {
        fprintf(stderr, "usage: record ARCHIVE NAME\n");
        return 2;
    }
    if (fiche_archive_open(argv[1], &archive) != FICHE_STATUS_OK)
        return failed();
    if (fiche_archive_find(archive, argv[2], &number) != FICHE_STATUS_OK ||
        fiche_record_open(archive, number, &record) != FICHE_STATUS_OK) {
        result = failed();
        fiche_archive_close(archive);
        return result;
    }
    len = fiche_record_len(record);
    for (at = 0; at < len && result == 0; at += sizeof buf) {
        size_t n = len - at < sizeof buf ? (size_t)(len - at) : sizeof buf;
        if (fiche_record_read(record, at, buf, n) != FICHE_STATUS_OK)
            result = failed();
        else if (fwrite(buf, 1, n, stdout) != n) {
            perror("record: standard output");
            result = 1;
        }
    }
    if (result == 0 && fflush(stdout) != 0) {
        perror("record: standard output");
        result = 1;
    }
    fiche_record_close(record);
    fiche_archive_close(archive);
    return result;
}
