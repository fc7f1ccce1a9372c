"""Files in archives for fsspec, and so for pandas, pyarrow, xarray and Dask.

    fsspec.open("fiche://letters/tyger.txt::s3://bucket/poems.fiche")
    pandas.read_csv("fiche://poems.fiche/letters/index.csv")

The first names the record and, behind `::`, what any other file system has; the second an archive at
hand and a record in it.
"""

import errno
import os

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
            if target_protocol not in (None, "file", "local") or "://" in fo:
                filesystem, path = fsspec.core.url_to_fs(
                    fo, protocol=target_protocol, **(target_options or {})
                )
                fo = filesystem.open(path, "rb", cache_type="none")
        self.fo = fo
        self.archive = fiche.open(fo, cache=cache)

    @classmethod
    def _strip_protocol(cls, path):
        path = super()._strip_protocol(path).lstrip("/")
        return path[split(path)[1]:].lstrip("/")

    @staticmethod
    def _get_kwargs_from_urls(path):
        """The archive, where the URL has it before the record."""
        path = path.removeprefix("fiche://")
        end = split(path)[0]
        return {"fo": path[:end]} if end else {}

    def _record(self, path):
        record = self.archive.records.find(self._strip_protocol(path))
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
            self.dir_cache[name] = describe(record)
        for name in self._all_dirnames(list(self.dir_cache)):
            if name:
                self.dir_cache.setdefault(name, {"name": name, "size": 0, "type": "directory"})

    def info(self, path, **kwargs):
        path = self._strip_protocol(path)
        if path:
            record = self.archive.records.find(path)
            if record is not None:
                return describe(record)
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
        found = []
        for path, start, end in zip(paths, starts, ends):
            try:
                found.append(self.cat_file(path, start, end))
            except Exception as error:
                if on_error == "raise":
                    raise
                found.append(error)
        return found


def split(path):
    """Where the archive's path ends in a path that has it, and where the record's begins."""
    end = path.find(".fiche/")
    if end >= 0:
        return end + 6, end + 7
    return (len(path), len(path)) if path.endswith(".fiche") else (0, 0)


def describe(record):
    """A record as fsspec says it."""
    kinds = {"directory": "directory", "symlink": "link"}
    info = {
        "name": record.name,
        "size": len(record),
        "type": kinds.get(record.kind, "file"),
        "offset": record.offset,
    }
    if record.mtime is not None:
        info["mtime"], info["mode"] = record.mtime, record.mode
    if record.target is not None:
        info["destination"] = record.target
    return info
