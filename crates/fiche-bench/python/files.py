"""Files of archives, from disk and from a web server, read by those who can read one of many.

files.py build KIND FOLDER FILE      packs the files of a folder
files.py read KIND URL FILE NAMES    reads the first of these, the second, and then all others at once; prints after
                                     each how many seconds that took and a checksum, and waits for a line
files.py time KIND FILE FILE NAMES   reads these one by one; prints seconds to open, microseconds for a file in the median
                                     and of the slowest hundredth, peak memory in KiB, and a checksum
"""

import gzip
import json
import os
import resource
import sys
import tarfile
import time
import zipfile
import zlib


def files(folder):
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(root, name)
            yield os.path.relpath(path, os.path.dirname(folder)), path


def build_zip(folder, out):
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, path in files(folder):
            archive.write(path, name)


def build_targz(folder, out):
    import indexed_gzip

    where = {}
    with gzip.open(out, "wb", 9) as stream, tarfile.open(fileobj=stream, mode="w") as archive:
        for name, path in files(folder):
            archive.add(path, name)
            size = os.path.getsize(path)
            where[name] = (archive.offset - -(-size // 512) * 512, size)
    with indexed_gzip.IndexedGzipFile(out, spacing=1 << 20) as stream:
        stream.build_full_index()
        stream.export_index(out + ".index")
    # As ratarmount does: what is where is known beside it, too.
    with open(out + ".json", "w") as listing:
        json.dump(where, listing)


def build_zst(folder, out):
    import zstandard

    texts = {name: open(path, "rb").read() for name, path in files(folder)}
    # 1 MiB at most, of a sample of the files, as its documentation has it.
    sample = [text[: 128 << 10] for text in list(texts.values())[::8]]
    dictionary = zstandard.train_dictionary(1 << 20, sample)
    compressor = zstandard.ZstdCompressor(level=19, dict_data=dictionary)
    where, at = {}, dictionary.as_bytes()
    with open(out, "wb") as stream:
        stream.write(at)
        at = len(at)
        where[""] = (0, at)
        for name, text in texts.items():
            packed = compressor.compress(text)
            stream.write(packed)
            where[name] = (at, len(packed))
            at += len(packed)
    with open(out + ".json", "w") as listing:
        json.dump(where, listing)


def time_fiche(path):
    import fiche

    records = fiche.open(path).records
    return lambda name: records[name].read()


def time_zip(path):
    archive = zipfile.ZipFile(path)
    return archive.read


def time_targz(path):
    from ratarmountcore.mountsource.factory import open_mount_source

    source = open_mount_source(path, recursive=False, lazyMounting=False)

    def read(name):
        with source.open(source.lookup("/" + name)) as file:
            return file.read()

    return read


def time_zst(path):
    import zstandard

    where = json.load(open(path + ".json"))
    file = open(path, "rb")
    dictionary = zstandard.ZstdCompressionDict(file.read(where[""][1]))
    decompressor = zstandard.ZstdDecompressor(dict_data=dictionary)

    def read(name):
        at, size = where[name]
        return decompressor.decompress(os.pread(file.fileno(), size, at))

    return read


def measure(kind, path, names):
    opener = {"fiche": time_fiche, "zip": time_zip, "tar.gz": time_targz, "zst": time_zst}[kind]
    import fiche, zstandard  # noqa: E401, F401

    begin = time.perf_counter()
    read = opener(path)
    opened = time.perf_counter() - begin
    took, crc = [], 0
    for name in names:
        begin = time.perf_counter()
        text = read(name)
        took.append(time.perf_counter() - begin)
        crc = zlib.crc32(text, crc)
    took.sort()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    middle, late = (1e6 * took[int(len(took) * part)] for part in (0.5, 0.99))
    print(opened, middle, late, peak, crc)


def open_fiche(url, path):
    import fiche

    archive = fiche.open(url)

    def read(names):
        records = [archive.records[name] for name in names]
        return archive.read_many([(record.offset, len(record)) for record in records])

    return read


def open_zip(url, path):
    import fsspec

    # Its usual cache reads 5 MiB ahead; this one only what is asked for.
    file = fsspec.open(url, "rb", block_size=64 << 10, cache_type="bytes").open()
    archive = zipfile.ZipFile(file)
    return lambda names: [archive.read(name) for name in names]


def open_targz(url, path):
    import fsspec
    import indexed_gzip

    file = fsspec.open(url, "rb", block_size=64 << 10, cache_type="bytes").open()
    stream = indexed_gzip.IndexedGzipFile(fileobj=file, index_file=path + ".index")
    where = json.load(open(path + ".json"))

    def read(names):
        found = []
        for name in names:
            offset, size = where[name]
            stream.seek(offset)
            found.append(stream.read(size))
        return found

    return read


def main():
    what, kind, place, path, *names = sys.argv[1:]
    if what == "build":
        {"zip": build_zip, "tar.gz": build_targz, "zst": build_zst}[kind](place.rstrip("/"), path)
        return
    names = json.loads(names[0])
    if what == "time":
        measure(kind, path, names)
        return
    opener = {"fiche": open_fiche, "zip": open_zip, "tar.gz": open_targz}[kind]
    # What is imported is not what is measured.
    import fiche, fsspec.implementations.http, indexed_gzip  # noqa: E401, F401

    read = None
    for some in (names[:1], names[1:2], names[2:]):
        begin = time.perf_counter()
        read = read or opener(place, path)
        pieces = read(some)
        took = time.perf_counter() - begin
        print(took, zlib.crc32(b"".join(pieces)), flush=True)
        sys.stdin.readline()


main()
