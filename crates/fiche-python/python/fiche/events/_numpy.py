"""Arrays of numpy as columns, and back."""

import numpy as np

from ._types import counts_of, number, offsets


def columns(array, where):
    """The type and the columns of an array, of whose first axis each event has one item."""
    if not isinstance(array, np.ma.MaskedArray):
        array = np.asarray(array)
    if array.dtype.names is not None:
        parts = [(name, columns(array[name], f"{where}.{name}")) for name in array.dtype.names]
        fields = [(name, what) for name, (what, _) in parts]
        return ("record", fields), [column for _, (_, some) in parts for column in some]
    if array.ndim > 1:
        what, rest = columns(array.reshape(-1), where)
        for length in reversed(array.shape[1:]):
            if length == 0:
                raise TypeError(f"{where}: arrays without items")
            what = ("array", what, length)
        return what, rest
    if isinstance(array, np.ma.MaskedArray):
        there = ~np.ma.getmaskarray(array)
        what, rest = columns(array.data[there], where)
        return ("optional", what), [there, *rest]
    if array.dtype.kind in "OU":
        return _objects(array.tolist(), where)
    if array.dtype.kind == "S":
        # Zeros at their ends are theirs.
        size = array.dtype.itemsize
        return ("array", ("number", "uint8"), size), [np.ascontiguousarray(array).view(np.uint8)]
    values, name = number(array, where)
    return ("number", name), [values]


def _is(kinds, items):
    return all(isinstance(item, kinds) for item in items)


def _objects(items, where):
    """Of any things of Python's: all texts, all bytes, all numbers of a kind, or all lists or arrays; some may be missing."""
    there = np.array([item is not None for item in items], bool)
    if not there.all():
        what, rest = _objects([item for item in items if item is not None], where)
        return ("optional", what), [there, *rest]
    if not items:
        return ("unknown",), []
    if _is(str, items):
        return ("text",), _joined([item.encode("utf-8", "surrogateescape") for item in items], where)
    if _is((bytes, bytearray, memoryview), items):
        return ("bytes",), _joined([bytes(item) for item in items], where)
    if _is((bool, np.bool_), items):
        return ("number", "bool"), [np.array(items, bool)]
    if _is((int, np.integer), items) and not any(isinstance(item, bool) for item in items):
        name = "uint64" if max(items) >= 1 << 63 and min(items) >= 0 else "int64"
        try:
            return ("number", name), [np.array(items, name)]
        except OverflowError:
            raise TypeError(f"{where}: whole numbers of more than 64 bits are none of ours") from None
    if _is((int, float, np.integer, np.floating), items) and not any(isinstance(item, bool) for item in items):
        return ("number", "float64"), [np.array([_float(item, where) for item in items])]
    if not _is((list, tuple, np.ndarray), items) or any(getattr(item, "ndim", 1) == 0 for item in items):
        raise TypeError(f"{where}: objects that are neither texts, bytes, numbers nor lists of these")
    counts = counts_of([len(item) for item in items], where)
    if any(isinstance(item, list | tuple) or item.dtype.kind in "OUS" for item in items):
        what, rest = _objects([part for item in items for part in _parts(item)], f"{where}[]")
        return ("list", what), [counts, *rest]
    filled = [array for array in items if array.size] or items[:1]
    kinds = {array.dtype for array in filled}
    dtype = np.result_type(*kinds)
    if not all(np.can_cast(kind, dtype, "safe") and _is_exact(kind, dtype) for kind in kinds):
        raise TypeError(f"{where}: arrays of {' and '.join(sorted(map(str, kinds)))}")
    flat = np.ma.concatenate if any(np.ma.isMaskedArray(array) for array in filled) else np.concatenate
    what, rest = columns(flat([array.astype(dtype, copy=False) for array in filled])[: int(counts.sum())], f"{where}[]")
    return ("list", what), [counts, *rest]


def _parts(item):
    return item.tolist() if isinstance(item, np.ndarray) else item


def _float(item, where):
    value = float(item)
    if isinstance(item, int | np.integer) and int(value) != item:
        raise TypeError(f"{where}: {item} is no floating point number, as others are")
    return value


def _is_exact(kind, dtype):
    """Whether all numbers of a kind are told apart as others."""
    return kind == dtype or dtype.kind != "f" or kind.kind == "f" or kind.itemsize < dtype.itemsize


def _joined(parts, where):
    lengths = counts_of([len(part) for part in parts], where)
    return [lengths, np.frombuffer(b"".join(parts), np.uint8)]


def _is_masked(array):
    return isinstance(array, np.ma.MaskedArray)


def noted(array, what, notes):
    """An array of whole numbers as times, where notes say so and numpy has such."""
    note = notes.get("arrow", "")
    if what[0] != "number":
        return array
    if note == "date32[day]":
        return array.astype("M8[D]")
    for name, kind in (("timestamp", "M8"), ("date64", "M8"), ("duration", "m8")):
        if note.startswith(name):
            unit = note.removeprefix(f"{name}[").partition(",")[0].rstrip("]")
            return array.view(f"{kind}[{unit}]")
    return array


def array(what, columns, count):
    """The array of a type, of the next columns: of jagged ones with arrays or texts as objects in it."""
    kind = what[0]
    if kind == "number":
        return next(columns)
    if kind == "array":
        inner = array(what[1], columns, count * what[2])
        return inner.reshape(count, what[2], *inner.shape[1:])
    if kind == "optional":
        there = next(columns)
        inner = array(what[1], columns, int(there.sum()))
        if inner.dtype.kind != "O" and inner.dtype.names is None:
            data = np.zeros((count, *inner.shape[1:]), inner.dtype)
            data[there] = np.ma.getdata(inner)
            mask = np.ones(data.shape, bool)
            mask[there] = np.ma.getmaskarray(inner)
            return np.ma.MaskedArray(data, mask)
        out = np.full(count, None, object)
        for i, item in zip(np.flatnonzero(there).tolist(), inner, strict=True):
            out[i] = item
        return out
    if kind == "record":
        parts = [(name, array(inner, columns, count)) for name, inner in what[1]]
        dtype = [(name, part.dtype, part.shape[1:]) for name, part in parts]
        out = np.ma.empty(count, dtype) if any(_is_masked(part) for _, part in parts) else np.empty(count, dtype)
        for name, part in parts:
            out[name] = part
        return out
    ends = offsets(next(columns))
    out = np.empty(count, object)
    if kind == "list":
        inner = array(what[1], columns, int(ends[-1]))
        for i in range(count):
            out[i] = inner[ends[i] : ends[i + 1]]
        return out
    data = next(columns).tobytes()
    parts = (data[ends[i] : ends[i + 1]] for i in range(count))
    if kind == "text":
        parts = (part.decode("utf-8", "surrogateescape") for part in parts)
    out[:] = list(parts)
    return out
