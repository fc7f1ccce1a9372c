"""Events: records with columns, of which any one is read on its own.

>>> import fiche.events, tempfile, pathlib
>>> import numpy as np
>>> path = pathlib.Path(tempfile.mkdtemp()) / "run.fiche"
>>> with fiche.events.create(path) as writer:
...     writer.extend({"run": np.arange(1000) // 100, "pt": [np.full(i % 3, 0.5, "f4") for i in range(1000)]})
>>> events = fiche.events.open(path)
>>> len(events), events.typenames()
(1000, {'run': 'int64', 'pt': 'var * float32'})
>>> events[722]
{'run': 7, 'pt': [0.5, 0.5]}
>>> events.take([9, 722], library="np")["run"]
array([0, 7])

Names are uproot's where it has them: `keys`, `typenames`, `num_entries`, `show`, `arrays`, `iterate`, `extend`.
"""

import collections.abc
import functools
import json as _json
import os
import re
import sys

import numpy as np

from .. import _fiche
from . import _types

__all__ = ["Reader", "Writer", "append", "create", "open", "recreate"]

def open(source, *, threads=None):
    """Opens a file of events: a path, a URL, an object with `read` and `seek`, or bytes.

    Where many events are asked for together, as many `threads` decode them; all cores unless this says otherwise.

    Raises `OSError`; `CorruptError` for what is none; `UnsupportedError` for a newer one.
    """
    return Reader(source, threads=threads)


def create(output, fields=None, *, access="event", packet=None, key=(), threads=None, notes=None, overwrite=False):
    """Begins a file of events at a path, where it appears when it is whole, or into an object with `write`.

    `fields` are names and types, as `{"run": "uint32", "pt": "var * float32"}`; without them they are those of the first events
    that come. Types are numbers by numpy's names, `var * T`, `3 * T`, `?T`, `{name: T}`, `string`, `bytes`.

    `access` is what reads are to be fast: of an `"event"`, of a `"block"` of some, or of all in a `"scan"`; the less is read at once, the more
    bytes the file has. `packet`: how many events are decoded for one, instead. `key`: names of fields, numbers or texts, that events are to be
    found by (`Reader.find`), at some three bytes for each event. `notes`: texts that are kept with the file.
    """
    return Writer(
        output,
        fields,
        access=access,
        packet=packet,
        key=key,
        threads=threads,
        notes=notes,
        overwrite=overwrite,
    )


def append(path, *, threads=None):
    """Goes on behind the events of the file at a path, which is valid at every moment: what is added counts, and is durable, when the writer is closed.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "log.fiche"
    >>> with create(path, {"run": "int32"}) as writer:
    ...     writer.extend({"run": [1, 2]})
    >>> with append(path) as writer:
    ...     writer.extend({"run": [3]})
    >>> len(open(path))
    3

    Where something fails, or the process does, the file is what it was. Readers that were opened before see what was there then. Raises `OSError`, `BusyError` when
    another process is appending to it, and what `open` does.
    """
    return Writer._behind(os.fspath(path), threads)


def recreate(output, fields=None, **options):
    """As `create`, but what is there under the name is replaced."""
    return create(output, fields, overwrite=True, **options)


def _library(library):
    """The library that is meant; awkward, or numpy where that is not installed, when nothing is said."""
    if library is None:
        try:
            import awkward  # noqa: F401
        except ImportError:
            return "np"
        return "ak"
    if library not in ("np", "ak", "pa", "pd"):
        raise ValueError(f'library is "np", "ak", "pa" or "pd", not {library!r}')
    return library


def _opened(source, threads):
    return Reader(source, threads=threads)


class Reader(_fiche._EventItems, collections.abc.Sequence):
    """Events that are open for reading. Any number of threads may read at once; a reader of a path or URL can be pickled."""

    def __init__(self, source, *, threads=None):
        self._source = os.fspath(source) if isinstance(source, os.PathLike) else source
        if isinstance(self._source, str) and "://" not in self._source:
            # Wherever it is opened again, it is the same file.
            self._source = os.path.abspath(self._source)
        self._threads = threads

    # Who reads an event by its number needs none of these, and of a thousand fields they take longer than opening.
    @functools.cached_property
    def _about(self):
        return self._reader.fields()

    @functools.cached_property
    def _fields(self):
        return {name: (text, what, dict(some)) for name, text, what, some in self._about[0]}

    @functools.cached_property
    def _numbers(self):
        return {name: i for i, name in enumerate(self._fields)}

    @functools.cached_property
    def notes(self):
        """Texts that are kept with the file."""
        return dict(self._about[1])

    def __reduce__(self):
        if not isinstance(self._source, str):
            raise TypeError("only events of a path or a URL can be pickled")
        return _opened, (self._source, self._threads)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def __len__(self):
        return len(self._reader)

    def __repr__(self):
        return f"<fiche.events.Reader of {len(self):,} events, {len(self._fields)} fields>"

    @property
    def num_entries(self):
        """How many events there are."""
        return len(self)

    def keys(self):
        """The names of all fields."""
        return list(self._fields)

    def typenames(self):
        """The types of all fields, by their names."""
        return {name: text for name, (text, _, _) in self._fields.items()}

    def field_notes(self, name):
        """What is kept with a field, as texts by what they are about."""
        return dict(self._fields[name][2])

    def show(self, stream=sys.stdout):
        """Prints names and types."""
        width = max([len(name) for name in self._fields] + [4])
        print(f"{'name':{width}} | type", file=stream)
        print(f"{'-' * width}-+-----", file=stream)
        for name, (text, _, _) in self._fields.items():
            print(f"{name:{width}} | {text}", file=stream)

    def _items(self, which):
        # What `[]` gives for anything but a number from 0 on, which takes no Python on its way.
        if isinstance(which, str):
            return self.arrays([which])[which]
        if isinstance(which, slice):
            start, stop, step = which.indices(len(self))
            if step == 1:
                return self.arrays(entry_start=start, entry_stop=max(start, stop))
            return self.take(range(start, stop, step))
        try:
            number = which.__index__()
        except (AttributeError, TypeError):
            return self.take(which)
        return self.event(number)

    def event(self, number, names=None):
        """An event as a dictionary of values, lists, texts; of all fields, or some. Numbers below 0 count from the end."""
        asked = number
        if number < 0:
            number += len(self)
        if not 0 <= number < len(self):
            raise IndexError(f"there is no event {asked}: there are {len(self)}")
        if names is None:
            return self._reader.event(number)
        return self._reader.event(number, [self._numbers[name] for name in self._names(names)])

    def __contains__(self, what):
        # As of a tree, a name is in it where it has such a field.
        return what in self._fields if isinstance(what, str) else super().__contains__(what)

    def _names(self, names):
        """Names of fields, some of which may have been given as patterns."""
        if names is None:
            return list(self._fields)
        names = [names] if isinstance(names, str) else list(names)
        chosen = {}
        for name in names:
            if name in self._fields:
                chosen[name] = None
                continue
            import fnmatch

            found = [field for field in self._fields if fnmatch.fnmatchcase(field, name)]
            if not found:
                raise KeyError(f"there is no field {name!r}")
            chosen.update(dict.fromkeys(found))
        return list(chosen)

    def arrays(self, names=None, *, entry_start=None, entry_stop=None, library=None):
        """Fields of events of a range, all unless this says otherwise.

        `library`: `"ak"` for an awkward array of records; `"np"` for a dictionary of arrays, of jagged fields with arrays in them; `"pa"` for a
        table of Arrow; `"pd"` for a frame of pandas. Patterns with `*` in `names` stand for all fields that fit.
        """
        start, stop, _ = slice(entry_start, entry_stop).indices(len(self))
        stop = max(start, stop)
        names = self._names(names)
        columns = self._reader.read(start, stop, names)
        return self._made(columns, names, stop - start, library)

    def take(self, indices, names=None, *, library=None, out=None):
        """Events by their numbers, in this order, as `arrays` gives them. Each packet is decoded once; numbers below 0 count from the end.

        With `out`, arrays of numpy by the names of fields, their values are put in there: those fields, which are numbers or arrays of numbers, and no others.
        """
        if out is not None:
            if names is not None:
                raise ValueError("the fields are those of `out`: `names` and `out` are not given together")
            for name, array in out.items():
                if not isinstance(array, np.ndarray):
                    raise TypeError(f"{name}: what values are put into is an array of numpy, not {type(array).__name__}")
            made = self.take(indices, list(out), library="np")
            for name, array in made.items():
                if array.dtype == object or isinstance(array, np.ma.MaskedArray):
                    raise TypeError(f"{name} is no array of numbers")
                if array.dtype.kind in "iu" and out[name].dtype.kind == "f":
                    # Safe for numpy, but not for all whole numbers.
                    if (array.astype(out[name].dtype).astype(array.dtype) != array).any():
                        raise ValueError(f"{name} has numbers of {array.dtype} that {out[name].dtype} does not have")
                if out[name].shape != array.shape:
                    raise ValueError(f"{name} has the shape {array.shape}, not {out[name].shape}")
                np.copyto(out[name], array, casting="safe")
            return out
        if isinstance(indices, range | list | tuple) and len(indices) == 0:
            indices = np.zeros(0, np.int64)
        numbers = np.asarray(indices)
        if numbers.dtype == bool:
            if numbers.shape != (len(self),):
                raise ValueError("a mask has as many items as there are events")
            numbers = np.flatnonzero(numbers)
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
            raise TypeError("numbers of events are a list of integers")
        if numbers.dtype.kind == "i":
            numbers = numbers.astype(np.int64)
            numbers = np.where(numbers < 0, numbers + len(self), numbers)
        if numbers.size and (numbers.min() < 0 or numbers.max() >= len(self)):
            raise IndexError(f"numbers of events are below {len(self)}")
        names = self._names(names)
        columns = self._reader.take(np.ascontiguousarray(numbers, np.uint64), names)
        return self._made(columns, names, len(numbers), library)

    @property
    def key(self):
        """The fields that events are found by, if the file was written so."""
        return self._reader.key()

    def find(self, **fields):
        """Numbers of the events in which these fields, numbers or texts, have these values.

        With the fields of `key` it takes some microseconds for each event that is found; with others all events are read. Floating point
        numbers are compared by their bits, rounded to what the field has: 0.0 is not -0.0. What is missing has no value, and is not found.
        """
        key, optional = [], []
        for name, value in fields.items():
            if name not in self._fields:
                raise KeyError(name)
            what = self._fields[name][1]
            is_optional = what[0] == "optional"
            what = what[1] if is_optional else what
            if what[0] == "number":
                array = np.asarray(value)
                made = array.astype(what[1]) if array.shape == () and array.dtype.kind in "biuf" else None
                # Numbers with a point are rounded to those of the field, as literals are.
                if made is None or made != array and array == array and np.dtype(what[1]).kind != "f":
                    raise ValueError(f"{name} is {what[1]}, and never {value!r}")
                (optional if is_optional else key).append((name, made.tobytes()))
            elif what[0] in ("text", "bytes"):
                if not isinstance(value, str | bytes | bytearray | memoryview):
                    raise ValueError(f"{name} is {what[0]}, and never {value!r}")
                text = value.encode(errors="surrogateescape") if isinstance(value, str) else bytes(value)
                (optional if is_optional else key).append((name, text))
            else:
                raise ValueError(f"{name} is neither a number nor a text")
        found = np.array(self._reader.find(key), np.uint64) if key or not optional else None
        for name, value in optional:
            some = self._find_there(name, value)
            found = some if found is None else np.intersect1d(found, some, assume_unique=True)
        return found

    def _find_there(self, name, value):
        # Numbers of the events in which a field that may be missing has these bytes.
        found = [np.zeros(0, np.uint64)]
        step = self._step("32 MB", 0, len(self), [name])
        for start in range(0, len(self), step):
            columns = self._reader.read(start, min(start + step, len(self)), [name])
            _, what, some = self._columns(columns, [name])[0]
            there, inner = np.flatnonzero(next(some)), next(some)
            if what[1][0] == "number":
                is_it = inner.view(f"u{inner.itemsize}") == np.frombuffer(value, f"u{inner.itemsize}")
            else:
                ends, data = _types.offsets(inner), next(some)
                is_it = inner == len(value)
                places = ends[:-1][is_it, None] + np.arange(len(value))
                is_it[is_it] = (data[places] == np.frombuffer(value, np.uint8)).all(axis=1)
            found.append(there[is_it].astype(np.uint64) + np.uint64(start))
        return np.concatenate(found)

    def verify(self, *, threads=None, progress=None):
        """Reads all events, checks every checksum, and that each is found by its key.

        Returns a dict: how many `events` were read, and `damage`, a list of dicts: `what`, and as `events` the
        first that is lost and the one behind the last; None where events are found no longer by their key.
        `progress` is called with events done and events in all; True shows a bar.

        >>> import fiche.events, io
        >>> out = io.BytesIO()
        >>> with fiche.events.create(out, {"n": "uint16"}) as writer:
        ...     writer.extend({"n": [1, 2, 3]})
        >>> fiche.events.open(out.getvalue()).verify()
        {'events': 3, 'damage': []}
        """
        if progress is True:
            from .._progress import Bar

            with Bar("verifying", "event") as bar:
                events, damage = self._reader.verify(threads, bar)
        else:
            events, damage = self._reader.verify(threads, progress or None)
        return {"events": events, "damage": damage}

    def report(self):
        """How each column is coded, and the bytes that it takes, as a dictionary: all events are read for that."""
        return self._reader.report()

    def iterate(self, names=None, *, step_size="100 MB", library=None, report=False, entry_start=None, entry_stop=None):
        """Fields of some events at a time: of so many, or of so many bytes of memory, as `"100 MB"` or `"1 MiB"`.

        With `report`, pairs of these and the numbers of the first event and the one behind the last.
        """
        start, stop, _ = slice(entry_start, entry_stop).indices(len(self))
        names, library = self._names(names), _library(library)
        step = self._step(step_size, start, stop, names)

        def steps():
            for first in range(start, stop, step):
                last = min(first + step, stop)
                some = self.arrays(names, entry_start=first, entry_stop=last, library=library)
                yield (some, (first, last)) if report else some

        return steps()

    def _step(self, step_size, start, stop, names):
        if not isinstance(step_size, str):
            if step_size < 1:
                raise ValueError(f"a step has one event at least, not {step_size}")
            return int(step_size)
        found = re.fullmatch(r"([0-9.]+)\s*([kmgt]?)(i?)b?", step_size.strip().lower())
        try:
            size = float(found[1]) * (1024 if found[3] else 1000) ** " kmgt".index(found[2] or " ")
        except (TypeError, ValueError):
            raise ValueError(f'a step is a number of events or of bytes, as "100 MB", not {step_size!r}') from None
        some = min(stop, start + 256)
        if some <= start:
            return 1
        seen = self._reader.read(start, some, names)
        each = sum(len(column) for column in seen if column is not None) / (some - start)
        return max(1, int(size / max(each, 1)))

    def _columns(self, columns, names):
        """Of each of these fields its type and its columns as arrays."""
        at, wanted = 0, set(names)
        found = {}
        for name, (_, what, _) in self._fields.items():
            kinds = _types.dtypes(what)
            if name in wanted:
                pairs = zip(columns[at : at + len(kinds)], kinds, strict=True)
                found[name] = what, iter([np.frombuffer(column, kind) for column, kind in pairs])
            at += len(kinds)
        return [(name, *found[name]) for name in names]

    def _made(self, columns, names, count, library):
        library = _library(library)
        columns = self._columns(columns, names)
        if library == "ak":
            import awkward as ak

            from ._awkward import _layout

            layouts = [_layout(what, some, count) for _, what, some in columns]
            return ak.Array(ak.contents.RecordArray(layouts, names, count))
        is_plain = all(what[0] == "number" and "arrow" not in self._fields[name][2] for name, what, _ in columns)
        if library == "np" or library == "pd" and is_plain:
            from ._numpy import array, noted

            made = {name: noted(array(what, some, count), what, self._fields[name][2]) for name, what, some in columns}
            if library == "np":
                return made
            import pandas as pd

            return pd.DataFrame(made, index=range(count))
        import pyarrow as pa

        from ._arrow import array as of_arrow
        from ._arrow import noted

        made = [noted(of_arrow(what, some, count), self._fields[name][2]) for name, what, some in columns]
        table = pa.table(made, names=names) if made else pa.table({})
        if library == "pa":
            return table
        frame = table.to_pandas()
        import pandas as pd

        for name, what, _ in columns:
            # Where whole numbers may be missing, pandas would make others of them that have no room for all.
            if what[0] == "optional" and what[1][0] == "number" and "arrow" not in self._fields[name][2]:
                kind = np.dtype(what[1][1])
                of = {"b": "boolean", "i": f"Int{8 * kind.itemsize}", "u": f"UInt{8 * kind.itemsize}"}.get(kind.kind)
                if of is not None:
                    of = pd.api.types.pandas_dtype(of)
                    frame[name] = table[name].to_pandas(types_mapper=lambda _, of=of: of)
        return frame

    def __arrow_c_stream__(self, requested_schema=None):
        import pyarrow as pa

        first = self.arrays(entry_stop=0, library="pa")
        batches = (
            batch for table in self.iterate(library="pa") for batch in table.combine_chunks().to_batches()
        )
        reader = pa.RecordBatchReader.from_batches(first.schema, batches)
        return reader.__arrow_c_stream__(requested_schema)


def _fields_of(events):
    """Names, and types and columns of what was given; how many events it has; and notes of fields."""
    module = type(events).__module__.partition(".")[0]
    if module == "awkward":
        import awkward as ak

        from ._awkward import columns

        if not events.fields:
            raise TypeError("an awkward array of events has fields")
        found = {name: columns(ak.to_layout(events)[name], name) for name in events.fields}
        return found, len(events), {}
    if module == "pandas":
        if events.index.name is not None or type(events.index).__name__ != "RangeIndex":
            raise ValueError("a frame with an index of its own: reset_index() makes a column of it")
        _different(map(str, events.columns))
        events = {str(name): events[name] for name in events.columns}
    elif hasattr(events, "__arrow_c_stream__") and module != "pyarrow":
        import pyarrow as pa

        events = pa.table(events)
    elif hasattr(events, "__arrow_c_array__") and module != "pyarrow":
        import pyarrow as pa

        events = pa.record_batch(events)
    elif module == "pyarrow":
        from ._arrow import table

        events = table(events)
    if type(events).__module__.partition(".")[0] == "pyarrow":
        from ._arrow import field as of_arrow

        names = _different(events.schema.names)
        parts = {name: of_arrow(events.column(i), name) for i, name in enumerate(names)}
        return {name: part[:2] for name, part in parts.items()}, events.num_rows, {name: part[2] for name, part in parts.items()}
    if isinstance(events, np.ndarray) and events.dtype.names is not None:
        events = {name: events[name] for name in events.dtype.names}
    if not isinstance(events, collections.abc.Mapping):
        raise TypeError("events are a mapping of names to arrays, an awkward array, a frame or a table")
    found, counts, notes = {}, {}, {}
    for name, array in events.items():
        module = type(array).__module__.partition(".")[0]
        if module == "awkward":
            from ._awkward import columns as of_awkward

            found[name] = of_awkward(array, name)
        elif module == "pyarrow" or _is_arrow(array) or _is_time(array):
            import pyarrow as pa

            from ._arrow import field as of_arrow

            if module == "pandas":
                made = pa.array(array, from_pandas=array.dtype.kind not in "fc" or not isinstance(array.dtype, np.dtype))
            elif module == "numpy":
                made = pa.array(array)
            elif module == "pyarrow":
                made = array
            else:
                made = pa.chunked_array(array) if hasattr(array, "__arrow_c_stream__") else pa.array(array)
            array = made
            *found[name], notes[name] = of_arrow(made, name)
        else:
            from ._numpy import columns as of_numpy

            if isinstance(array, str | bytes | bytearray):
                raise TypeError(f"{name}: one {type(array).__name__} for all events, where a list of them is meant")
            if isinstance(array, list | tuple):
                made = np.empty(len(array), object)
                made[:] = array
                array = made
            found[name] = of_numpy(array, name)
        counts[name] = len(array)
    if len(set(counts.values())) > 1:
        raise ValueError(f"fields of other numbers of events: {counts}")
    return found, next(iter(counts.values()), 0), notes


def _different(names):
    """Names, no two of which are the same: which column is meant nobody could say."""
    names = list(names)
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise ValueError(f"two fields are called {twice!r}")
    return names


def _is_arrow(array):
    return any(hasattr(array, name) for name in ("__arrow_c_array__", "__arrow_c_stream__", "__arrow_array__"))


def _is_time(array):
    return isinstance(array, np.ndarray) and array.ndim == 1 and array.dtype.kind in "mM"


class Writer:
    """Writes events, some at a time. A file appears under its name when all went well, and not before."""

    def __init__(self, output, fields, *, access, packet, key, threads, notes, overwrite):
        self._options = output, access, packet, threads, overwrite, [key] if isinstance(key, str) else list(key)
        self._notes = notes or {}
        self._writer = None
        # Events that came before it was known of what types all fields are, and the types as far as they are.
        self._waiting = []
        self._types = None
        self._is_over = False
        self._field_notes = {}
        self.num_entries = 0
        if access not in ("event", "block", "scan"):
            raise ValueError(f'access is "event", "block" or "scan", not {access!r}')
        if fields is not None:
            self._begin({name: _fiche._event_type(what) for name, what in dict(fields).items()})

    @classmethod
    def _behind(cls, path, threads):
        writer = cls(path, None, access="event", packet=None, key=(), threads=threads, notes=None, overwrite=False)
        writer._writer, writer.num_entries = _fiche._EventWriter.append(path, threads)
        fields = writer._writer.fields()
        writer._types = {name: what for name, what, _ in fields}
        writer._field_notes = {name: dict(notes) for name, _, notes in fields}
        return writer

    def _begin(self, types):
        output, access, packet, threads, overwrite, key = self._options
        fields = [
            (name, _types.text(what), list(self._field_notes.get(name, {}).items()))
            for name, what in types.items()
        ]
        notes = [(str(name), value if isinstance(value, str) else _json.dumps(value)) for name, value in self._notes.items()]
        self._writer = _fiche._EventWriter(output, fields, notes, access, packet, threads, overwrite, key)
        self._types = types

    def extend(self, events):
        """Adds events: a mapping of names to arrays of numpy or awkward or to lists, an awkward array with fields, a frame of
        pandas, or what has tables of Arrow.

        Without `fields`, their types are those of the first events that have any values: as long as some field had none, as a list that was always empty,
        events wait in memory.

        Raises `TypeError` for what is none of our types, `ValueError` where fields are not those of the file.
        """
        if self._is_over:
            raise ValueError("the file is finished")
        found, count, notes = _fields_of(events)
        if self._writer is None:
            types = {name: what for name, (what, _) in found.items()}
            self._types = types if self._types is None else {
                name: _types.merged(what, types.get(name, what)) for name, what in self._types.items()
            }
            self._field_notes = {
                name: {**notes.get(name, {}), **self._field_notes.get(name, {})} for name in self._types
            }
        columns = self._fitted(found, count, notes)
        if self._writer is None:
            if any(_types.is_unknown(what) for what in self._types.values()):
                self._waiting.append((found, count, notes))
                self.num_entries += count
                return
            self._start()
        self._writer.extend(count, columns)
        self.num_entries += count

    def _start(self):
        # Of what nothing was ever there may be anything.
        self._begin({name: _types.known(what) for name, what in (self._types or {}).items()})
        for found, count, notes in self._waiting:
            self._writer.extend(count, self._fitted(found, count, notes))
        self._waiting = []

    def _fitted(self, found, count, notes):
        # Columns as the file has them.
        missing = [name for name in self._types if name not in found]
        more = [name for name in found if name not in self._types]
        if missing or more:
            raise ValueError(f"fields are not those of the file: {missing} missing, {more} are new")
        columns = []
        for name, what in self._types.items():
            kind, known = notes.get(name, {}).get("arrow"), self._field_notes.get(name, {}).get("arrow")
            if kind is not None and kind != known:
                raise ValueError(f"{name} has {kind}, not {known or _types.text(what)}")
            columns += _fitted(name, *found[name], what, count)
        return columns

    def close(self):
        """Ends the file, which appears under its name; returns its bytes."""
        if self._is_over:
            raise ValueError("the file is finished")
        if self._writer is None:
            self._start()
        self._is_over = True
        return self._writer.finish()

    def abort(self):
        """Forgets all: no file appears, and one that was there is what it was."""
        self._is_over = True
        if self._writer is not None:
            self._writer.abort()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self._is_over:
            return
        if kind is None:
            self.close()
        else:
            self.abort()


def _fitted(name, found, columns, wanted, count):
    """Columns of one type as those of another that has room for all of it."""
    if found == wanted:
        return columns
    if wanted[0] == "optional" and found[0] != "optional":
        return [np.ones(count, bool), *_fitted(name, found, columns, wanted[1], count)]
    if found[0] == wanted[0]:
        kind = found[0]
        # Whole numbers go where there is room for them.
        is_whole = kind == "number" and np.dtype(found[1]).kind in "iu" and np.dtype(wanted[1]).kind in "iuf"
        if kind == "number" and (is_whole or np.can_cast(found[1], wanted[1], "safe")):
            made = columns[0].astype(wanted[1])
            # Nothing may be lost by it, not even of what is no number.
            is_turned = is_whole and ((made < 0) != (columns[0] < 0)).any()
            if is_turned or made.astype(found[1]).tobytes() != columns[0].tobytes():
                raise ValueError(f"{name} has numbers of {found[1]} that {wanted[1]} does not have")
            return [made]
        if kind == "optional":
            there = int(columns[0].sum())
            return [columns[0], *_fitted(name, found[1], columns[1:], wanted[1], there)]
        if kind == "list":
            items = int(columns[0].sum(dtype=np.uint64))
            return [columns[0], *_fitted(f"{name}[]", found[1], columns[1:], wanted[1], items)]
        if kind == "array" and found[2] == wanted[2]:
            return _fitted(f"{name}[]", found[1], columns, wanted[1], count * found[2])
        if kind == "record" and {field for field, _ in found[1]} == {field for field, _ in wanted[1]}:
            there, at = {}, 0
            for field, inner in found[1]:
                end = at + _types.width(inner)
                there[field] = inner, columns[at:end]
                at = end
            fitted = []
            for field, other in wanted[1]:
                fitted += _fitted(f"{name}.{field}", *there[field], other, count)
            return fitted
    # What has no items may be of any type.
    if found[0] == "unknown" or count == 0 and all(len(column) == 0 for column in columns):
        return [np.zeros(0, kind) for kind in _types.dtypes(wanted)]
    raise ValueError(f"{name} has {_types.text(found)}, not {_types.text(wanted)}")
