"""Blosc2 on chunks of a file, by one thread: a line for each way.

blosc.py FILE CHUNK ROUNDS    prints, separated by tabs: what it is, bytes that it takes, seconds to compress, to decode
"""

import statistics
import sys
import time

import blosc2

# Blosc2 has blocks within what it is given, that fit a cache, and a header of 32 bytes.
CODECS = {"lz4": blosc2.Codec.LZ4, "blosclz": blosc2.Codec.BLOSCLZ}
FILTERS = {"": blosc2.Filter.NOFILTER, "shuffle": blosc2.Filter.SHUFFLE, "bitshuffle": blosc2.Filter.BITSHUFFLE}


def ways():
    yield "memcpy", None
    for codec in CODECS:
        yield f"blosc2 {codec}", (CODECS[codec], FILTERS[""], 1)
        for name in ("shuffle", "bitshuffle"):
            for width in (4, 8):
                yield f"blosc2 {name}:{width}, {codec}", (CODECS[codec], FILTERS[name], width)


def once(way, chunks):
    """Bytes, and seconds of each direction."""
    if way is None:
        start = time.perf_counter()
        stored = [bytes(memoryview(chunk)) for chunk in chunks]
        took = time.perf_counter() - start
        return sum(map(len, stored)), took, took
    codec, filter, width = way
    told = {"codec": codec, "clevel": 5, "typesize": width, "filters": [filter], "nthreads": 1}
    start = time.perf_counter()
    stored = [blosc2.compress2(chunk, **told) for chunk in chunks]
    between = time.perf_counter()
    back = [blosc2.decompress2(packed, nthreads=1) for packed in stored]
    took = time.perf_counter() - between
    if back != chunks:
        sys.exit("other bytes came back")
    return sum(map(len, stored)), between - start, took


def main(path, chunk, rounds):
    with open(path, "rb") as file:
        all = file.read()
    chunks = [all[at : at + chunk] for at in range(0, len(all), chunk)]
    times = {}
    for _ in range(rounds):
        for name, way in ways():
            times.setdefault(name, []).append(once(way, chunks))
    for name, found in times.items():
        stored, *both = zip(*found)
        print(name, stored[0], *(statistics.median(seconds) for seconds in both), sep="\t")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
