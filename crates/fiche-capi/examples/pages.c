/* Compresses standard input, which is read into pages that lie anywhere, and says what comes of it: pages [LEVEL].
 * Nothing is copied into one piece, neither before nor behind.
 *
 *     cc -Wall pages.c $(pkg-config --cflags --libs fiche) -o pages
 */
#include <fiche.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHIFT = 12, PAGE = 1 << SHIFT, MOST = 4096 };

static void *page(void)
{
    void *new = malloc(PAGE);
    if (new == NULL) {
        perror("pages");
        exit(1);
    }
    return new;
}

int main(int argc, char **argv)
{
    static void *content[MOST], *packed[MOST + MOST / 64], *back[MOST];
    struct fiche_scratch *scratch = fiche_scratch_new();
    int level = argc > 1 ? atoi(argv[1]) : 1;
    size_t len = 0, n = 0, got, room, packed_len, back_len, i;
    int result = 1;

    while (n < MOST) {
        content[n] = page();
        got = fread(content[n++], 1, PAGE, stdin);
        len += got;
        if (got < PAGE)
            break;
    }
    if (n == MOST && getc(stdin) != EOF) {
        fprintf(stderr, "pages: more than %d pages\n", MOST);
        return 1;
    }
    room = fiche_bound(FICHE_CODEC_BEWALGO64, len);
    for (i = 0; i * PAGE < room; i++)
        packed[i] = page();
    for (i = 0; i < n; i++)
        back[i] = page();

    if (fiche_compress_pages(FICHE_CODEC_BEWALGO64, level, (const void *const *)content, len, packed, room, SHIFT,
                             &packed_len, scratch) != FICHE_STATUS_OK ||
        fiche_decompress_pages(FICHE_CODEC_BEWALGO64, (const void *const *)packed, packed_len, back, len, SHIFT,
                               &back_len, scratch) != FICHE_STATUS_OK) {
        fprintf(stderr, "pages: %s\n", fiche_message());
    } else {
        result = back_len != len;
        for (i = 0; i * PAGE < len; i++)
            result |= memcmp(content[i], back[i], len - i * PAGE < PAGE ? len - i * PAGE : PAGE) != 0;
        printf("%zu bytes in %zu pages became %zu, and %s\n", len, (len + PAGE - 1) / PAGE, packed_len,
               result ? "did not come back" : "came back");
    }
    for (i = 0; i < n; i++) {
        free(content[i]);
        free(back[i]);
    }
    for (i = 0; i * PAGE < room; i++)
        free(packed[i]);
    fiche_scratch_free(scratch);
    return result;
}
