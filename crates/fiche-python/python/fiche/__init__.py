"""Reads any small piece of compressed data on its own.

>>> import fiche, tempfile, pathlib
>>> path = pathlib.Path(tempfile.mkdtemp()) / "letters.fiche"
>>> with fiche.Writer(path) as writer:
...     number = writer.add("tyger", b"Tyger Tyger, burning bright")
>>> archive = fiche.open(path)
>>> archive.records["tyger"][13:20]
b'burning'

`open` reads an archive or a gzip file, `pack` packs files and folders, `Writer` takes records one by one, `advise` says how to pack. What can go
wrong has classes of its own where Python has none: `CorruptError`, `UnsupportedError`,
`MissingError`, `ChangedError`, `BusyError`, `PoisonedError`.
"""

import collections.abc as _abc
import os as _os

from . import codec
from ._errors import (
    BusyError,
    ChangedError,
    CorruptError,
    MissingError,
    PoisonedError,
    UnsupportedError,
)
from ._fiche import Reader, Record, Records, Stream, Writer, __version__, _forked
from ._fiche import advise as _advise
from ._fiche import dict_build as _dict_build
from ._fiche import open as _open
from ._fiche import pack as _pack
from ._file import File

__all__ = [
    "BusyError",
    "ChangedError",
    "CorruptError",
    "File",
    "MissingError",
    "PoisonedError",
    "Reader",
    "Record",
    "Records",
    "Stream",
    "UnsupportedError",
    "Writer",
    "advise",
    "codec",
    "dict_build",
    "open",
    "pack",
]

_abc.Mapping.register(Records)
_os.register_at_fork(after_in_child=_forked)


def open(source, *, cache=64 << 20, dicts=(), keep=None, index=None):
    """Opens an archive to read from it, as a `Reader`, or a gzip file, as a `Stream`.

    `source` is a path, a URL, an object with `read` and `seek`, or the archive itself as bytes. `cache` is
    how many bytes of decoded blocks are kept for the next read; `dicts` are dictionary files that the archive
    needs and that are not beside it.

    URLs of web servers and of S3 are read by ranges, in parallel where a call needs several: prefer
    `read_many` to many calls. The object is pinned: one that is replaced while it is read is a `ChangedError`. Credentials for
    S3 are those of the environment or of ~/.aws. What is fetched is kept in the folder `keep`, up to
    1 GiB, or that of the variable FICHE_CACHE, for whoever reads the same later. Other URLs are read by fsspec, where that
    is installed.

    Of a gzip file `index` is the index that `fiche index` made of it: a path, a URL, an object or bytes. Without it, it is found
    inside (files of `fiche gzip` have one), beside the file under its name with .fidx behind, or made, which
    takes as long as to inflate all of it; a file that is far away has to have one.

    Reads the end of the file and nothing else yet. The reader may be used from many threads at
    once, pickled, and used behind a fork (a `Stream` only from threads); a file object has one position, and so only one thread
    reads at a time.

    Raises `OSError`; `ValueError` where it is neither; `CorruptError`; `UnsupportedError`.

    >>> import fiche
    >>> fiche.open("no/such/file")
    Traceback (most recent call last):
    ...
    FileNotFoundError: [Errno 2] No such file or directory: 'no/such/file'
    """
    return _open(source, cache=cache, dicts=_some(dicts), keep=keep, index=index)


def _some(given):
    """What may be given as several, or as one."""
    return [given] if isinstance(given, str | bytes | _os.PathLike) else list(given)


def pack(
    input,
    output,
    *,
    method=None,
    level=None,
    filters=(),
    block=16 << 10,
    dict=None,
    records="files",
    align_records=False,
    exclude=(),
    keep_going=False,
    threads=None,
    overwrite=False,
    progress=None,
):
    """Packs files and folders into an archive, or records that are at hand.

    `input` is a path, a list of paths, or a mapping of names to bytes. `output` is a path, which is there
    when all of it is, or a file object, which is written from its position on.

    `method` is one of hybrid (the default), rlz-uv, rlz-pv, rlz-zz, rlz-zzz, rlz-zz-primed, zlib-primed,
    zstd-dict, zstd, zlib, lz4, lzma, bzip2, lzo, bewalgo32, bewalgo64 and copy, and `level` one that it has. `filters`, of up
    to three, are for arrays of numbers, and with methods without a dictionary: "shuffle:4", "bitshuffle:4" and "delta:4",
    with the bytes of a number; zstd is then the method where none is said. `block` is what a
    read decodes at least, in bytes. `dict` is "auto", "none", a size in bytes, or a dictionary
    file. `records` says what is a record: "files", or in them "lines", "json:FIELD", "mbox", "warc",
    "tar" or "fixed:BYTES"; with `align_records` blocks end where records do. What matches one of
    `exclude` is left out. With `keep_going`, what cannot be read is left out and named in the result.

    `progress` is called with bytes done and bytes in all; True shows a bar, with tqdm where that is
    installed.

    Returns what was packed as a dict: records, input_bytes, logical_bytes, stored_bytes, equal_files,
    equal_bytes, skipped, changed, sockets, seconds. The bytes of the archive are the same for any number of threads.

    Raises `FileExistsError` unless `overwrite`; `ValueError`; `OSError`. Then nothing is left of it.

    >>> import fiche, io
    >>> out = io.BytesIO()
    >>> fiche.pack({"a": b"first", "b": b"second"}, out)["records"]
    2
    >>> fiche.open(out.getvalue()).records["b"].read()
    b'second'
    """
    options = {
        "method": method,
        "level": level,
        "filters": _some(filters),
        "block": block,
        "dict": dict,
        "records": records,
        "align_records": align_records,
        "exclude": _some(exclude),
        "keep_going": keep_going,
        "threads": threads,
        "overwrite": overwrite,
    }
    if progress is not True:
        return _pack(input, output, progress=progress or None, **options)
    from ._progress import Bar

    with Bar("packing") as bar:
        return _pack(input, output, progress=bar, **options)


def advise(
    input,
    *,
    methods=(),
    blocks=(),
    dicts=(),
    read=16 << 10,
    records="files",
    exclude=(),
    threads=None,
    progress=None,
):
    """Measures a sample over methods, block lengths and dictionaries: how `input` is best packed.

    `input`, `records` and `exclude` are what `pack` takes. `methods` are names or pairs of a name and a
    level, `blocks` lengths of blocks, `dicts` lengths of dictionaries, "auto" or "none": those not said are the
    usual ones, 25 ways in a minute or two. `read` is the length of the pieces whose random reading is timed.

    Returns a dict: content_bytes, threads, read_bytes and `ways`, the smallest first. Each way is a dict:
    `options` for `pack`, stored_bytes and stored_error (by what part that may be wrong),
    reads_per_second, bytes_per_read, pack_seconds, best_to_read and best_to_write (no other way is
    both smaller and faster), and `recommended`: a list of "small", "fast to read", "fast to write".

    >>> import fiche, io
    >>> poems = {str(n): b"Rain on the roof, number %d. " % n * 50 for n in range(100)}
    >>> advice = fiche.advise(poems, methods=["lz4", ("zstd", 19)])
    >>> best = [way for way in advice["ways"] if "small" in way["recommended"]][0]
    >>> best["options"]
    {'method': 'zstd', 'level': 19, 'block': 16384}
    >>> fiche.pack(poems, io.BytesIO(), **best["options"])["records"]
    100
    """
    methods = [(method, None) if isinstance(method, str) else tuple(method) for method in _some(methods)]
    options = {
        "methods": methods,
        "blocks": list(blocks),
        "dicts": [dicts] if isinstance(dicts, str) else list(dicts),
        "read": read,
        "records": records,
        "exclude": _some(exclude),
        "threads": threads,
    }
    if progress is not True:
        return _advise(input, progress=progress or None, **options)
    from ._progress import Bar

    with Bar("measuring", "way") as bar:
        return _advise(input, progress=bar, **options)


def dict_build(
    input, output, *, size=4 << 20, sample=1024, cover=False, exclude=(), overwrite=False
):
    """Samples files and folders into a dictionary file that many archives share.

    `input` is what `pack` takes. The dictionary has `size` bytes at most, in samples of `sample`
    bytes: evenly spaced ones, or with `cover` those that cover most of what the input has in common.
    `pack(..., dict=output)` packs with it; for reading, it stands beside the archive under its name, or is
    among `open(..., dicts=[...])`.

    Returns the dictionary's digest.
    """
    return _dict_build(
        input,
        output,
        size=size,
        sample=sample,
        cover=cover,
        exclude=_some(exclude),
        overwrite=overwrite,
    )
