"""Events as trees of ROOT, by uproot."""

import hashlib
import os
import re

import numpy as np

from .. import CorruptError
from . import _types
from . import open as _open
from ._whole import whole

# Bytes of events that are written together: of each branch one basket.
STEP = 32 << 20
CODECS = {"none": None, "zlib": "ZLIB", "lzma": "LZMA", "lz4": "LZ4", "zstd": "ZSTD"}
LEVELS = {"zlib": 6, "lzma": 5, "lz4": 4, "zstd": 5}


def _is_flat(what):
    """Whether a branch of a TTree may have such values, as uproot writes them."""
    inner = what
    while inner[0] == "array":
        inner = inner[1]
    if inner[0] == "list" and inner is what:
        inner = inner[1]
    return inner[0] == "number" and inner[1] != "float16" or what == ("text",)


def _shown(what):
    """The type that ROOT gets: halves are floats there, and bytes lists of numbers."""
    kind = what[0]
    if kind == "number":
        return ("number", "float32") if what[1] == "float16" else what
    if kind == "bytes":
        return ("list", ("number", "uint8"))
    if kind == "record":
        return (kind, [(name, _shown(inner)) for name, inner in what[1]])
    return (kind, *[_shown(part) if isinstance(part, tuple) else part for part in what[1:]])


def _names(names):
    """Names that ROOT may have: no two are the same."""
    found = {}
    for name in names:
        made = first = re.sub(r"[^A-Za-z0-9_]", "_", name.rsplit("/", 1)[-1]) or "_"
        number = 1
        while made in found.values():
            number += 1
            made = f"{first}_{number}"
        found[name] = made
    return found


def _columns(what, columns, count):
    """Columns of a type as ROOT gets them: halves are widened, which changes none."""
    from ._awkward import array

    def widened(what):
        kinds = _types.dtypes(what)
        for _ in kinds:
            column = next(columns)
            yield column.astype(np.float32) if column.dtype == np.float16 else column

    return array(_shown(what), widened(what), count)


class _Counters:
    """Names of the branches that count the items of lists: those that they came with, else one for all lists that have as many items."""

    def __init__(self, events, fields, renamed):
        lists = [name for name in fields if fields[name][0] == "list"]
        noted = {name: events.field_notes(name).get("counter") for name in lists}
        numbers = [name for name in dict.fromkeys(noted.values()) if name in fields and fields[name][0] == "number"]
        counts = self._counts(events, lists, numbers)
        self._of, known, taken = {}, {}, set(renamed.values())
        for name in lists:
            key = (noted[name], counts[name])
            if key not in known:
                made = noted[name] and renamed.get(noted[name], noted[name])
                if not made or noted[name] in fields and counts.get(noted[name]) != counts[name]:
                    made = f"n{renamed[name]}"
                    while made in taken:
                        made += "_"
                known[key] = made
                taken.add(made)
            self._of[renamed[name]] = known[key]

    @staticmethod
    def _counts(events, lists, numbers):
        """What tells whether the items of lists, and numbers, are as many in all events."""
        found = {name: hashlib.blake2b() for name in [*lists, *numbers]}
        for start, stop in _steps(events, list(found)):
            for name, _, some in events._columns(events._reader.read(start, stop, list(found)), list(found)):
                column = next(some)
                if column.dtype != np.uint32 and found[name] is not None:
                    same = column.astype(np.uint32)
                    # What is no such number counts nothing.
                    found[name] = found[name] if column.dtype.kind in "iu" and (same == column).all() else None
                    column = same
                if found[name] is not None:
                    found[name].update(column.tobytes())
        return {name: digest and digest.digest() for name, digest in found.items()}

    def __call__(self, name):
        return self._of.get(name, f"n{name}")

    def names(self):
        """All of them."""
        return set(self._of.values())


def export(source, output, *, tree=None, kind=None, branches=(), codec="zstd", level=None, verify=False, overwrite=False, progress=None):
    """Writes events as a tree of a file of ROOT, which appears when it is whole: a `"TTree"` where all fields have a place in one (numbers, arrays and
    lists of these, texts), else an `"RNTuple"`, which has lists of lists and records, too, or what `kind` says.

    Bytes are lists of numbers there, halves floats; names keep their last part, without what ROOT has no letters for. A field that counts the items of others, as it
    was in a TTree, does so again.
    `tree` is the name; without it that of the tree which the events came from, or `events`. Returns what there was. Raises `TypeError` for a field that cannot be written;
    `CorruptError` where `verify` finds a difference.
    """
    from .root import _uproot

    uproot = _uproot()
    if codec not in CODECS:
        raise ValueError(f"codec is one of {', '.join(CODECS)}, not {codec!r}")
    events = _open(source)
    names = events._names(list(branches) or None)
    fields = {name: events._fields[name][1] for name in names}
    flat = [name for name in names if _is_flat(fields[name])]
    if kind is None:
        kind = "TTree" if len(flat) == len(names) else "RNTuple"
    if kind not in ("TTree", "RNTuple"):
        raise ValueError(f'kind is "TTree" or "RNTuple", not {kind!r}')
    if kind == "TTree" and len(flat) < len(names):
        other = next(name for name in names if name not in flat)
        raise TypeError(f"{other} has {_types.text(fields[other])}, which a TTree has no place for")
    renamed = _names(names)
    counters = _Counters(events, fields, renamed) if kind == "TTree" else None
    tree = tree or re.sub(r";.*", "", events.notes.get("root", "").rpartition(":")[2]) or "events"
    compression = getattr(uproot, CODECS[codec])(LEVELS[codec] if level is None else level) if CODECS[codec] else None
    with whole(output, overwrite) as aside:
        with uproot.recreate(aside, compression=compression) as file:
            made = _Tree(file, tree, kind, counters)
            for start, stop in _steps(events, names):
                made.extend(_arrays(events, names, renamed, start, stop))
                if progress is not None:
                    progress(stop, len(events))
        if verify:
            _verify(uproot.open(aside)[tree], events, names, renamed, counters)
        stored = os.path.getsize(aside)
    report = {"tree": tree, "kind": kind, "events": len(events), "fields": len(names), "bytes": stored}
    report["renamed"] = {name: made for name, made in renamed.items() if name != made}
    if verify:
        report["verified"] = len(events)
    return report


def _steps(events, names):
    """Ranges of events, at least one, which may be empty."""
    step = events._step(str(STEP), 0, len(events), names)
    return [(start, min(start + step, len(events))) for start in range(0, len(events), step)] or [(0, 0)]


def _arrays(events, names, renamed, start, stop):
    """Awkward arrays of fields, by the names that they get."""
    columns = events._columns(events._reader.read(start, stop, names), names)
    return {renamed[name]: _columns(what, some, stop - start) for name, what, some in columns}


class _Tree:
    """A tree that is written, made when its first events come."""

    def __init__(self, file, name, kind, counters):
        self._file, self._name, self._kind, self._counters = file, name, kind, counters
        self._made = None

    def extend(self, arrays):
        import awkward as ak

        if self._kind == "RNTuple":
            arrays = ak.zip(arrays, depth_limit=1)
            if self._made is None:
                self._made = self._file.mkrntuple(self._name, arrays)
            else:
                self._made.extend(arrays)
            return
        if self._made is None:
            types = {name: _branch_type(array) for name, array in arrays.items() if name not in self._counters.names()}
            self._made = self._file.mktree(self._name, types, counter_name=self._counters)
        arrays = {name: array for name, array in arrays.items() if name not in self._counters.names()}
        if len(next(iter(arrays.values()), ())):
            self._made.extend({name: ak.to_numpy(array) if _is_plain(array) else array for name, array in arrays.items()})


def _is_plain(array):
    """Whether it is an array of numpy, too."""
    import awkward as ak

    inner = ak.to_layout(array)
    while inner.is_regular:
        inner = inner.content
    return inner.is_numpy and inner.parameter("__array__") is None


def _branch_type(array):
    import awkward as ak

    if not _is_plain(array):
        return ak.type(array).content
    plain = ak.to_numpy(array)
    return plain.dtype if plain.ndim == 1 else (plain.dtype, plain.shape[1:])


def _verify(tree, events, names, renamed, counters):
    """All that was written, beside what it was written from."""
    import awkward as ak

    from .root import _is_same, _records

    if int(tree.num_entries) != len(events):
        raise CorruptError(f"{int(tree.num_entries)} events were written of {len(events)}")
    for start, stop in _steps(events, names):
        if start == stop:
            continue
        wanted = _arrays(events, names, renamed, start, stop)
        for name, array in wanted.items():
            found = _records(tree[name].array(entry_start=start, entry_stop=stop, library="ak"))
            if counters is not None and name in counters.names():
                # As wide as ROOT's counters are.
                found, array = (ak.values_astype(some, np.int64) for some in (found, array))
            if not _is_same(found, array):
                raise CorruptError(f"{name} differs in events {start} to {stop}")
