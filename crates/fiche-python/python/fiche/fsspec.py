"""Files in archives for fsspec, and so for pandas, pyarrow, xarray and Dask.

    fsspec.open("fiche://letters/tyger.txt::s3://bucket/poems.fiche")
    pandas.read_csv("fiche://poems.fiche/letters/index.csv")

The first names the record and, behind `::`, what any other file system has; the second an archive at
hand and a record in it.
"""

import errno
import os
import posixpath
from glob import has_magic

import fsspec
from fsspec.archive import AbstractArchiveFileSystem

import fiche


class FicheFileSystem(AbstractArchiveFileSystem):
    """The named records of an archive as a read-only file system.

    `fo` is what `fiche.open` takes: a path, a URL, or a file object.
    """

    root_marker = ""
    protocol = "fiche"
    cachable = False

    def __init__(self, fo="", mode="r", target_protocol=None, target_options=None, cache=64 << 20,
                 **kwargs):
        super().__init__(**kwargs)
        if mode != "r":
            raise ValueError("archives are packed by fiche.pack, and read-only here")
        self._inside = ""
        if isinstance(fo, (str, os.PathLike)):
            fo = os.fspath(fo)
            # What fiche reads by itself, it reads with fewer requests; where nothing says how else to.
            options = target_options or fsspec.config.conf.get(target_protocol or fo.split("://")[0])
            if fo.startswith(("http://", "https://")) and not options:
                pass
            elif target_protocol not in (None, "file", "local") or "://" in fo:
                filesystem, path = fsspec.core.url_to_fs(
                    fo, protocol=target_protocol, **(target_options or {})
                )
                fo = filesystem.open(path, "rb", cache_type="none")
        self.fo = fo
        self.archive = fiche.open(fo, cache=cache)

    @classmethod
    def _strip_protocol(cls, path):
        """The record's name: what a URL has behind the archive, or all of what is no URL."""
        stripped = super()._strip_protocol(path).lstrip("/")
        if not str(path).startswith("fiche://"):
            return stripped
        return stripped[split(stripped)[1]:].lstrip("/")

    @staticmethod
    def _get_kwargs_from_urls(path):
        """The archive, where the URL has it before the record."""
        path = path.removeprefix("fiche://")
        end = split(path)[0]
        return {"fo": path[:end]} if end else {}

    def _followed(self, record):
        """What a record leads to: itself, or of a link the last one; None where that is none."""
        for _ in range(40):
            if record is None or record.kind != "symlink":
                return record
            name = posixpath.normpath(posixpath.join(posixpath.dirname(record.name), record.target))
            record = self.archive.records.find(name)
        return None

    def _describe(self, record):
        return describe(record, self._followed(record))

    def _record(self, path):
        name = self._strip_protocol(path)
        record = self._followed(self.archive.records.find(name) if name else None)
        if record is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return record

    def _get_dirs(self):
        if getattr(self, "dir_cache", None) is not None:
            return
        self.dir_cache = {}
        for record in self.archive.records.values():
            name = record.name
            if not name or record.kind == "item":
                continue
            self.dir_cache[name] = self._describe(record)
        for name in self._all_dirnames(list(self.dir_cache)):
            if name:
                self.dir_cache.setdefault(name, {"name": name, "size": 0, "type": "directory"})

    def info(self, path, **kwargs):
        name = self._strip_protocol(path)
        record = self.archive.records.find(name) if name else None
        if record is not None:
            return self._describe(record)
        return super().info(path, **kwargs)

    def _open(self, path, mode="rb", **kwargs):
        if mode != "rb":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return self._record(path).file()

    def cat_file(self, path, start=None, end=None, **kwargs):
        return self._record(path)[start:end]

    def cat_ranges(self, paths, starts, ends, max_gap=None, on_error="return", **kwargs):
        if not isinstance(starts, list):
            starts = [starts] * len(paths)
        if not isinstance(ends, list):
            ends = [ends] * len(paths)
        found, reads = [None] * len(paths), []
        for number, (path, start, end) in enumerate(zip(paths, starts, ends, strict=True)):
            try:
                record = self._record(path)
                if record.range is None:
                    found[number] = record[start:end]
                    continue
                first, last, _ = slice(start, end).indices(len(record))
                reads.append((number, (record.range[0] + first, max(last - first, 0))))
            except Exception as error:
                if on_error == "raise":
                    raise
                found[number] = error
        try:
            # Together: each block is decoded once, and what is far away comes with few requests.
            some = self.archive.read_many([read for _, read in reads])
        except Exception:
            # Which of them cannot be read, they say one by one.
            some = [self._one(read, on_error) for _, read in reads]
        for (number, _), piece in zip(reads, some, strict=True):
            found[number] = piece
        return found

    def _one(self, read, on_error):
        try:
            return self.archive.read_at(*read)
        except Exception as error:
            if on_error == "raise":
                raise
            return error

    def cat(self, path, recursive=False, on_error="raise", **kwargs):
        if isinstance(path, str) and not recursive and not has_magic(path):
            return super().cat(path, on_error=on_error, **kwargs)
        paths = [name for name in self.expand_path(path, recursive=recursive) if not self.isdir(name)]
        how = "raise" if on_error == "raise" else "return"
        pieces = zip(paths, self.cat_ranges(paths, None, None, on_error=how), strict=True)
        return {
            name: piece
            for name, piece in pieces
            if on_error != "omit" or not isinstance(piece, Exception)
        }


def split(path):
    """Where the archive's path ends in a path that has it, and where the record's begins."""
    end = path.find(".fiche/")
    if end >= 0:
        return end + 6, end + 7
    return (len(path), len(path)) if path.endswith(".fiche") else (0, 0)


def describe(record, target):
    """A record as fsspec says it: a link as what it leads to."""
    if target is None:
        kind = "link"
    else:
        kind = "directory" if target.kind == "directory" else "file"
    info = {
        "name": record.name,
        "size": len(target or record),
        "type": kind,
        "offset": record.offset,
        "islink": record.kind == "symlink",
    }
    if record.mtime is not None:
        info["mtime"], info["mode"] = record.mtime, record.mode
    if record.target is not None:
        info["destination"] = record.target
    return info
