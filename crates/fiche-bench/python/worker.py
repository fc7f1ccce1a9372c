"""Takes one measurement of a Python reader of gzip files, or of fiche.

worker.py MODULE build GZIP INDEX
worker.py MODULE read GZIP INDEX QUERIES THREADS WARM
worker.py fiche read ARCHIVE CALL QUERIES THREADS WARM

QUERIES is a file of pairs of 64-bit little-endian integers: offset and length. Prints
what `fiche-bench worker` prints.
"""

import array
import ctypes
import json
import resource
import subprocess
import sys
import threading
import time
import zlib


class Htslib:
    """A BGZF file by htslib, called directly."""

    def __init__(self, path: str, index: str):
        self.lib = lib = ctypes.CDLL("libhts.so.3")
        lib.bgzf_open.restype = ctypes.c_void_p
        lib.bgzf_read.restype = ctypes.c_ssize_t
        self.file = ctypes.c_void_p(lib.bgzf_open(path.encode(), b"r"))
        if lib.bgzf_index_load(self.file, index.encode(), None) != 0:
            raise OSError("no index")
        self.room = ctypes.create_string_buffer(1 << 20)

    def seek(self, offset: int) -> None:
        if self.lib.bgzf_useek(self.file, ctypes.c_long(offset), 0) != 0:
            raise OSError("seek")

    def read(self, length: int) -> bytes:
        got = self.lib.bgzf_read(self.file, self.room, ctypes.c_size_t(length))
        return ctypes.string_at(self.room, got)


def opened(module: str, path: str, index: str, threads: int):
    if module == "htslib":
        return Htslib(path, index)
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
    elif module == "htslib":
        subprocess.run(["bgzip", "-r", "-I", index, path], check=True)
    else:
        import rapidgzip
        with rapidgzip.open(path, parallelization=2) as reader:
            while reader.read(1 << 24):
                pass
            reader.export_index(index)


def read_all(reader, queries: array.array) -> dict:
    checksum, total, times = 0, 0, []
    begin, cpu = time.perf_counter(), time.process_time()
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
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    times.sort()
    at = lambda share: times[min(int(len(times) * share), len(times) - 1)] / 1000
    return {"seconds": seconds, "bytes": total, "checksum": checksum % (1 << 64),
            "cpu_seconds": cpu, "mean": sum(times) / max(1, len(times)) / 1000,
            "p50": at(0.5), "p99": at(0.99), "max": at(1.0)}


def read_fiche(reader, call: str, queries: array.array, threads: int) -> dict:
    """Pieces by their place: read once for the time that it takes, and once for what they are."""
    timed = passed(reader, call, queries, threads, False)
    checked = passed(reader, call, queries, threads, True)
    return timed | {name: checked[name] for name in ("bytes", "checksum")}


def passed(reader, call: str, queries: array.array, threads: int, check: bool) -> dict:
    """Each thread has every so many of the pieces."""
    checksums, totals, times = [0] * threads, [0] * threads, [[] for _ in range(threads)]

    def work(thread: int) -> None:
        checksum, total, took = 0, 0, times[thread]
        buffer = bytearray(1 << 20)
        view = memoryview(buffer)
        for i in range(thread, len(queries) // 2, threads):
            offset, length = queries[2 * i], queries[2 * i + 1]
            start = time.perf_counter_ns()
            if call == "read_at":
                piece = reader.read_at(offset, length)
            else:
                piece = view[:length]
                reader.readinto_at(offset, piece)
            took.append(time.perf_counter_ns() - start)
            total += len(piece)
            # It would take the interpreter's lock twice more.
            if check:
                checksum += zlib.crc32(piece) * (2 * i + 1)
        checksums[thread], totals[thread] = checksum, total

    begin, cpu = time.perf_counter(), time.process_time()
    others = [threading.Thread(target=work, args=(thread,)) for thread in range(1, threads)]
    for other in others:
        other.start()
    work(0)
    for other in others:
        other.join()
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    times = sorted(took for some in times for took in some)
    at = lambda share: times[min(int(len(times) * share), len(times) - 1)] / 1000
    return {"seconds": seconds, "bytes": sum(totals), "checksum": sum(checksums) % (1 << 64),
            "cpu_seconds": cpu, "mean": sum(times) / max(1, len(times)) / 1000,
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
    if module != "htslib":
        __import__(module)
    before = resident()
    threads = int(arguments[5])
    if module == "fiche":
        import fiche
        # Eight blocks, as from Rust.
        reader = fiche.open(path, cache=8 << 14)
        reader.read_at(0, 1)
        measure = lambda queries: read_fiche(reader, index, queries, threads)
        files = [path]
    else:
        reader = opened(module, path, index, threads)
        reader.read(1)
        measure = lambda queries: read_all(reader, queries)
        files = [path, index]
    index_bytes = max(0, resident() - before)
    if arguments[6] == "warm":
        for name in files:
            with open(name, "rb") as file:
                while file.read(1 << 20):
                    pass
        measure(queries[:len(queries) // 20 * 2])
    report = {"pass": measure(queries)}
    report["cpu_seconds"] = report["pass"].pop("cpu_seconds")
    report["index_bytes"] = index_bytes
    report["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(report))


main(sys.argv[1:])
