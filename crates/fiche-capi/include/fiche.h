/*
 * fiche: reads any small piece of compressed data on its own.
 *
 * Functions return FICHE_STATUS_OK or why they failed; fiche_message says it in words. Bytes that are read may be anything: damage is a status, never a
 * crash. Pointers have to be what each function says of them, under Safety. Link with what pkg-config --libs fiche says.
 *
 * Made from the library's source: change that.
 */

#ifndef FICHE_H
#define FICHE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/**
 * What a function returns: what a caller does differently. fiche_message says more.
 */
enum fiche_status {
  /**
   * All is well.
   */
  FICHE_STATUS_OK = 0,
  /**
   * The operating system refused a read or a write.
   */
  FICHE_STATUS_IO = 1,
  /**
   * A read passes the end. Nothing is read.
   */
  FICHE_STATUS_OUT_OF_BOUNDS = 2,
  /**
   * There is no record of this name or number.
   */
  FICHE_STATUS_NOT_FOUND = 3,
  /**
   * The bytes are not what was written.
   */
  FICHE_STATUS_CORRUPT = 4,
  /**
   * A file that this one names, such as a dictionary, could not be found.
   */
  FICHE_STATUS_MISSING = 5,
  /**
   * The source is not the one that this was made for.
   */
  FICHE_STATUS_CHANGED = 6,
  /**
   * Written by a newer version, or for a codec that this build does not have.
   */
  FICHE_STATUS_UNSUPPORTED = 7,
  /**
   * Arguments contradict what is possible.
   */
  FICHE_STATUS_INVALID = 8,
  /**
   * More memory or space would be needed than is allowed.
   */
  FICHE_STATUS_LIMIT = 9,
  /**
   * Somebody else is writing to it.
   */
  FICHE_STATUS_BUSY = 10,
  /**
   * An earlier write failed, so nothing more is written.
   */
  FICHE_STATUS_POISONED = 11,
  /**
   * What comes of compressing has no room where it is to go. Of codecs without a bound this is how it is told that bytes do not shrink.
   */
  FICHE_STATUS_NO_ROOM = 12,
  /**
   * A defect of fiche: please report it with what fiche_message says.
   */
  FICHE_STATUS_DEFECT = 13,
};

/**
 * The codecs. lz4, bewalgo32 and bewalgo64 read and write segments and pages where they lie; for the others bytes are copied into one piece, and out of it.
 */
enum fiche_codec {
  /**
   * No compression.
   */
  FICHE_CODEC_COPY = 0,
  /**
   * LZ4, its block format. Levels -64 to 12: up to 2 fast, below 0 ever faster, from 3 on small.
   */
  FICHE_CODEC_LZ4 = 1,
  /**
   * A raw deflate stream. Levels 1 to 12.
   */
  FICHE_CODEC_DEFLATE = 2,
  /**
   * Zstandard, without magic number and checksum. Levels -7 to 22.
   */
  FICHE_CODEC_ZSTD = 3,
  /**
   * LZMA2. Levels 0 to 9.
   */
  FICHE_CODEC_LZMA = 4,
  /**
   * bzip2. Levels 1 to 9.
   */
  FICHE_CODEC_BZIP2 = 5,
  /**
   * BeWalgo with units of 4 bytes, for arrays of such. Levels -64 to 9: 1 is fast, below 0 ever faster.
   */
  FICHE_CODEC_BEWALGO32 = 6,
  /**
   * BeWalgo with units of 8 bytes. The same levels.
   */
  FICHE_CODEC_BEWALGO64 = 7,
  /**
   * LZO1X, for comparison. Level 1.
   */
  FICHE_CODEC_LZO = 8,
};

/**
 * The filters: what is alike in numbers of some bytes each is put side by side, for a codec to see. They take no byte more or less.
 */
enum fiche_filter {
  /**
   * The first bytes of all numbers, then their second ones, and so on. Of 1 to 63 bytes.
   */
  FICHE_FILTER_SHUFFLE = 0,
  /**
   * The same with bits, the lowest of the first bytes first. Of 1 to 63 bytes.
   */
  FICHE_FILTER_BITSHUFFLE = 1,
  /**
   * What each number is more than the one before, the lowest byte first. Of 1, 2, 4 or 8 bytes.
   */
  FICHE_FILTER_DELTA = 2,
};

/**
 * An archive that is open for reading. Any number of threads may use it at once.
 */
struct fiche_archive;

/**
 * A record of an archive: a file, a line, a message. Any number of threads may use it at once; it stays when its archive is closed.
 */
struct fiche_record;

/**
 * What codecs keep between calls, so that a call allocates little. One for each thread: never two calls at once.
 */
struct fiche_scratch;

/**
 * Bytes of the program's own that an archive is read from: memory, a device, an object of a store.
 */
struct fiche_source {
  /**
   * What the functions are called with.
   */
  void *context;
  /**
   * How many bytes there are.
   */
  uint64_t len;
  /**
   * Fills buf with the len bytes at offset, which are there, and returns 0; or a number of errno.h. Called from any thread, and from several at once.
   */
  int (*read_at)(void *context, uint64_t offset, void *buf, size_t len);
  /**
   * Called once, when nobody reads any more; may be NULL.
   */
  void (*close)(void *context);
};

/**
 * One of many reads.
 */
struct fiche_read {
  /**
   * The first byte of the archive's content that is wanted.
   */
  uint64_t offset;
  /**
   * Where bytes go.
   */
  void *buf;
  /**
   * How many.
   */
  size_t len;
  /**
   * What came of it: written by fiche_archive_read_many.
   */
  enum fiche_status status;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * What there is to say of the last call of this thread that failed: text in UTF-8, which is valid until this thread's next call. Empty where none has failed.
 */
const char *fiche_message(void);

/**
 * The version of this library, such as "0.1.0".
 */
const char *fiche_version(void);

/**
 * Opens the archive in a file. Dictionaries that it names are looked for beside it. Reads a few kilobytes, and the rest when it is needed; keeps 64 MiB of blocks at most.
 * fiche_archive_close closes it. Fails with FICHE_STATUS_INVALID where it is no archive of fiche's, FICHE_STATUS_CORRUPT where it is damaged or cut.
 *
 * # Safety
 * The path ends with a zero, and archive can be written to.
 */
enum fiche_status fiche_archive_open(const char *path,
                                     struct fiche_archive **archive);

/**
 * Opens the archive in bytes of the program's own, of which a cache of so many bytes of blocks is kept at most; 0 keeps none. The structure is copied. Its function close is called when
 * archive and records are closed, or here where this fails.
 *
 * # Safety
 * The source's functions can be called from any thread, with its context.
 */
enum fiche_status fiche_archive_open_source(const struct fiche_source *source,
                                            uint64_t cache,
                                            struct fiche_archive **archive);

/**
 * Closes an archive; NULL is nothing to close. Records of it stay open.
 *
 * # Safety
 * It comes from a function that opens one, and is not used again.
 */
void fiche_archive_close(struct fiche_archive *archive);

/**
 * How many bytes all of an archive's content has; 0 of NULL.
 *
 * # Safety
 * The archive is open, or NULL.
 */
uint64_t fiche_archive_len(const struct fiche_archive *archive);

/**
 * How many records an archive has, numbered from 0; 0 of NULL.
 *
 * # Safety
 * The archive is open, or NULL.
 */
uint64_t fiche_archive_records(const struct fiche_archive *archive);

/**
 * Fills buf with len bytes of an archive's content from offset on: all or none. Decodes the blocks that have them, after their checksums were verified.
 * Fails with FICHE_STATUS_OUT_OF_BOUNDS where there are not so many.
 *
 * # Safety
 * The archive is open, and buf has room for len bytes.
 */
enum fiche_status fiche_archive_read(const struct fiche_archive *archive,
                                     uint64_t offset,
                                     void *buf,
                                     size_t len);

/**
 * Does many reads, ordered so that each block is decoded once, and writes to each its status. Fails with that of the first that failed;
 * with FICHE_STATUS_INVALID, before any is done and without a status for each, where a buffer is NULL that is to have bytes.
 *
 * # Safety
 * The archive is open, there are count reads, and each buffer has room, which is its own.
 */
enum fiche_status fiche_archive_read_many(const struct fiche_archive *archive,
                                          struct fiche_read *reads,
                                          size_t count);

/**
 * Finds the record of this name, by reading a few pages of the index. Names of records within files have the file's name before them, as fiche ls shows them.
 * Fails with FICHE_STATUS_NOT_FOUND, and fiche_message may know a name that is similar.
 *
 * # Safety
 * The archive is open, the name ends with a zero, and number can be written to.
 */
enum fiche_status fiche_archive_find(const struct fiche_archive *archive,
                                     const char *name,
                                     uint64_t *number);

/**
 * Opens the record of a number. fiche_record_close closes it.
 *
 * # Safety
 * The archive is open, and record can be written to.
 */
enum fiche_status fiche_record_open(const struct fiche_archive *archive,
                                    uint64_t number,
                                    struct fiche_record **record);

/**
 * Closes a record; NULL is nothing to close.
 *
 * # Safety
 * It comes from fiche_record_open, and is not used again.
 */
void fiche_record_close(struct fiche_record *record);

/**
 * How many bytes a record has; 0 of NULL.
 *
 * # Safety
 * The record is open, or NULL.
 */
uint64_t fiche_record_len(const struct fiche_record *record);

/**
 * The name of a record, with a zero behind it, which is valid until the record is closed; its bytes are any, and so many as is said in len, which may be NULL. NULL of NULL.
 *
 * # Safety
 * The record is open, or NULL, and len NULL or can be written to.
 */
const char *fiche_record_name(const struct fiche_record *record,
                              size_t *len);

/**
 * Fills buf with len bytes of a record from offset on: all or none. Holes of sparse files are zeros.
 * Fails with FICHE_STATUS_OUT_OF_BOUNDS where there are not so many.
 *
 * # Safety
 * The record is open, and buf has room for len bytes.
 */
enum fiche_status fiche_record_read(const struct fiche_record *record,
                                    uint64_t offset,
                                    void *buf,
                                    size_t len);

/**
 * A new scratch; fiche_scratch_free frees it.
 */
struct fiche_scratch *fiche_scratch_new(void);

/**
 * Frees a scratch; NULL is nothing to free.
 *
 * # Safety
 * It comes from fiche_scratch_new, and is not used again.
 */
void fiche_scratch_free(struct fiche_scratch *scratch);

/**
 * The most bytes that so many may become, of lz4 and BeWalgo: with this room compressing does not fail with FICHE_STATUS_NO_ROOM. 0 of other codecs, of
 * which what does not shrink is better stored as it is; of what is no codec, and of more bytes than memory has.
 */
size_t fiche_bound(uint32_t codec,
                   size_t len);

/**
 * Compresses segments into the front of other segments, and says in len how many bytes that took. The same bytes come of the same content, codec, level and room, however they lie.
 * Segments may have any lengths; pages of 4 KiB on both sides are found to be such, and are read and written faster. A scratch may be NULL: then one is made for the call.
 * Fails with FICHE_STATUS_NO_ROOM where there is no room, FICHE_STATUS_INVALID for a level that there is not. What is in dst is then unspecified.
 *
 * # Safety
 * Segments are there, those of dst overlap no other, and a scratch is in use by this call alone.
 */
enum fiche_status fiche_compress(uint32_t codec,
                                 int32_t level,
                                 const struct iovec *src,
                                 size_t src_count,
                                 const struct iovec *dst,
                                 size_t dst_count,
                                 size_t *len,
                                 struct fiche_scratch *scratch);

/**
 * The same with pages of 2 to the power of shift bytes each: src_len bytes of content, in as many pages as that takes, and dst_len bytes of room.
 *
 * # Safety
 * Pages are there, those of dst overlap no other, and a scratch is in use by this call alone.
 */
enum fiche_status fiche_compress_pages(uint32_t codec,
                                       int32_t level,
                                       const void *const *src,
                                       size_t src_len,
                                       void *const *dst,
                                       size_t dst_len,
                                       uint32_t shift,
                                       size_t *len,
                                       struct fiche_scratch *scratch);

/**
 * Decodes segments into the front of other segments, and says in len how many bytes that gave. src may hold anything.
 * Fails with FICHE_STATUS_CORRUPT where src is damaged or stands for more than there is room for: of lz4 and BeWalgo fiche_message says what is wrong, and where. What is in dst is then unspecified.
 *
 * # Safety
 * As fiche_compress.
 */
enum fiche_status fiche_decompress(uint32_t codec,
                                   const struct iovec *src,
                                   size_t src_count,
                                   const struct iovec *dst,
                                   size_t dst_count,
                                   size_t *len,
                                   struct fiche_scratch *scratch);

/**
 * The same with pages of 2 to the power of shift bytes each.
 *
 * # Safety
 * As fiche_compress_pages.
 */
enum fiche_status fiche_decompress_pages(uint32_t codec,
                                         const void *const *src,
                                         size_t src_len,
                                         void *const *dst,
                                         size_t dst_len,
                                         uint32_t shift,
                                         size_t *len,
                                         struct fiche_scratch *scratch);

/**
 * Fills dst with the first bytes of what src stands for, block_len bytes, and stops there where the codec can.
 * Fails as fiche_decompress does, and with FICHE_STATUS_INVALID where dst has more than block_len bytes.
 *
 * # Safety
 * As fiche_compress.
 */
enum fiche_status fiche_decompress_front(uint32_t codec,
                                         const struct iovec *src,
                                         size_t src_count,
                                         size_t block_len,
                                         const struct iovec *dst,
                                         size_t dst_count,
                                         struct fiche_scratch *scratch);

/**
 * Filters segments into others that have as many bytes, however these and those are cut: fiche_compress then finds more in them.
 * Numbers have width bytes each; bytes behind the last whole one stay as they are. Fails with FICHE_STATUS_INVALID for another width than the filter has, or another length.
 *
 * # Safety
 * Segments are there, and those of dst overlap no other.
 */
enum fiche_status fiche_filter_apply(uint32_t filter,
                                     uint32_t width,
                                     const struct iovec *src,
                                     size_t src_count,
                                     const struct iovec *dst,
                                     size_t dst_count);

/**
 * The way back: what was filtered so.
 *
 * # Safety
 * As fiche_filter_apply.
 */
enum fiche_status fiche_filter_undo(uint32_t filter,
                                    uint32_t width,
                                    const struct iovec *src,
                                    size_t src_count,
                                    const struct iovec *dst,
                                    size_t dst_count);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FICHE_H */
