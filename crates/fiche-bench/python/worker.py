"""Takes one measurement of a Python reader of gzip files.

worker.py MODULE build GZIP INDEX
worker.py MODULE read GZIP INDEX QUERIES THREADS WARM

QUERIES is a file of pairs of 64-bit little-endian integers: offset and length. Prints
what `fiche-bench worker` prints.
"""

import array
import json
import resource
import sys
import time
import zlib


def opened(module: str, path: str, index: str, threads: int):
    if module == "indexed_gzip":
        import indexed_gzip
        return indexed_gzip.IndexedGzipFile(path, index_file=index)
    import rapidgzip
    reader = rapidgzip.open(path, parallelization=threads)
    reader.import_index(index)
    return reader


def build(module: str, path: str, index: str) -> None:
    if module == "indexed_gzip":
        import indexed_gzip
        with indexed_gzip.IndexedGzipFile(path) as reader:
            reader.build_full_index()
            reader.export_index(index)
    else:
        import rapidgzip
        with rapidgzip.open(path, parallelization=2) as reader:
            while reader.read(1 << 24):
                pass
            reader.export_index(index)


def read_all(reader, queries: array.array) -> dict:
    checksum, total, times = 0, 0, []
    begin = time.perf_counter()
    for i in range(len(queries) // 2):
        offset, length = queries[2 * i], queries[2 * i + 1]
        start = time.perf_counter_ns()
        reader.seek(offset)
        piece = reader.read(length)
        while len(piece) < length:
            more = reader.read(length - len(piece))
            if not more:
                break
            piece += more
        times.append(time.perf_counter_ns() - start)
        total += len(piece)
        checksum += zlib.crc32(piece) * (2 * i + 1)
    seconds = time.perf_counter() - begin
    times.sort()
    at = lambda share: times[min(int(len(times) * share), len(times) - 1)] / 1000
    return {"seconds": seconds, "bytes": total, "checksum": checksum % (1 << 64),
            "p50": at(0.5), "p99": at(0.99), "max": at(1.0)}


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def main(arguments: list[str]) -> None:
    module, what, path, index = arguments[:4]
    if what == "build":
        return build(module, path, index)
    queries = array.array("Q")
    with open(arguments[4], "rb") as file:
        queries.frombytes(file.read())
    __import__(module)
    before = resident()
    reader = opened(module, path, index, int(arguments[5]))
    reader.read(1)
    index_bytes = max(0, resident() - before)
    if arguments[6] == "warm":
        for name in (path, index):
            with open(name, "rb") as file:
                while file.read(1 << 20):
                    pass
        read_all(reader, queries[:len(queries) // 20 * 2])
    cpu = time.process_time()
    report = {"pass": read_all(reader, queries)}
    report["cpu_seconds"] = time.process_time() - cpu
    report["index_bytes"] = index_bytes
    report["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(report))


main(sys.argv[1:])
