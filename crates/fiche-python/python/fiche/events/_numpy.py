"""Arrays of numpy as columns, and back."""

import numpy as np

from ._types import counts_of, number, offsets


def columns(array, where):
    """The type and the columns of an array, of whose first axis each event has one item."""
    array = np.asanyarray(array)
    if isinstance(array, np.ma.MaskedArray):
        there = ~np.ma.getmaskarray(array).reshape(len(array), -1).any(axis=1)
        what, rest = columns(np.asarray(array.data)[there], where)
        return ("optional", what), [there, *rest]
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
    if array.dtype.kind == "O":
        return _objects(list(array), where)
    if array.dtype.kind == "U":
        return _objects(array.tolist(), where)
    if array.dtype.kind == "S":
        return _objects(array.tolist(), where)
    values, name = number(array, where)
    return ("number", name), [values]


def _objects(items, where):
    """Of any things of Python's: all texts, all bytes, or all arrays, and some may be missing."""
    there = np.array([item is not None for item in items], bool)
    if not there.all():
        what, rest = _objects([item for item in items if item is not None], where)
        return ("optional", what), [there, *rest]
    if items and all(isinstance(item, str) for item in items):
        parts = [item.encode("utf-8", "surrogateescape") for item in items]
        return ("text",), _joined(parts, where)
    if items and all(isinstance(item, bytes | bytearray | memoryview) for item in items):
        return ("bytes",), _joined([bytes(item) for item in items], where)
    if items and all(isinstance(item, bool | np.bool_) for item in items):
        return ("number", "bool"), [np.array(items, bool)]
    if items and all(isinstance(item, int | np.integer) and not isinstance(item, bool) for item in items):
        return ("number", "int64"), [np.array(items, np.int64)]
    if items and all(isinstance(item, int | float | np.number) for item in items):
        return ("number", "float64"), [np.array(items, np.float64)]
    arrays = [np.asarray(item) for item in items]
    filled = [array for array in arrays if array.size]
    if not arrays or any(array.ndim == 0 for array in arrays):
        raise TypeError(f"{where}: objects that are neither texts, bytes, numbers nor lists of these")
    kinds = {array.dtype for array in filled}
    if len(kinds) > 1:
        kinds = {np.result_type(*kinds)}
    dtype = kinds.pop() if kinds else arrays[0].dtype
    if filled:
        flat = np.concatenate([array.astype(dtype, copy=False) for array in filled])
    else:
        flat = np.zeros((0, *arrays[0].shape[1:]), dtype)
    what, rest = columns(flat, f"{where}[]")
    return ("list", what), [counts_of([len(array) for array in arrays], where), *rest]


def _joined(parts, where):
    lengths = counts_of([len(part) for part in parts], where)
    return [lengths, np.frombuffer(b"".join(parts), np.uint8)]


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
            data[there] = inner
            mask = np.zeros(data.shape, bool)
            mask[~there] = True
            return np.ma.MaskedArray(data, mask)
        out = np.full(count, None, object)
        out[there] = list(inner)
        return out
    if kind == "record":
        parts = [(name, array(inner, columns, count)) for name, inner in what[1]]
        out = np.empty(count, [(name, part.dtype, part.shape[1:]) for name, part in parts])
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
