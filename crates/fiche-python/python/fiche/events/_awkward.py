"""Awkward arrays as columns, and back, without a copy of what is in them."""

import awkward as ak
import numpy as np

from ._types import counts_of, number, offsets


def columns(array, where):
    """The type and the columns of an awkward array or a layout of one."""
    return _columns(ak.to_packed(ak.to_layout(array), highlevel=False), where)


def _columns(layout, where):
    content = ak.contents
    if layout.is_unknown:
        return ("number", "float64"), [np.zeros(0)]
    if isinstance(layout, content.NumpyArray):
        from . import _numpy

        return _numpy.columns(np.asarray(layout.data), where)
    if layout.is_option:
        there = ~np.asarray(layout.mask_as_bool(valid_when=False))
        what, rest = _columns(ak.to_packed(layout.project(), highlevel=False), where)
        return ("optional", what), [there, *rest]
    if layout.is_indexed:
        return _columns(ak.to_packed(layout.project(), highlevel=False), where)
    if isinstance(layout, content.RegularArray) and layout.parameter("__array__") is None:
        if layout.size == 0:
            raise TypeError(f"{where}: arrays without items")
        what, rest = _columns(layout.content[: layout.size * len(layout)], where)
        return ("array", what, layout.size), rest
    if layout.is_list:
        layout = layout.to_ListOffsetArray64(True)
        ends = np.asarray(layout.offsets.data)
        counts = counts_of(np.diff(ends), where)
        inner = layout.content[: int(ends[-1])]
        kind = layout.parameter("__array__")
        if kind in ("string", "bytestring"):
            return ("text" if kind == "string" else "bytes",), [counts, np.asarray(inner.data).view(np.uint8)]
        what, rest = _columns(inner, f"{where}[]")
        return ("list", what), [counts, *rest]
    if layout.is_record:
        parts = [
            (name, _columns(layout.content(name), f"{where}.{name}")) for name in layout.fields
        ]
        fields = [(name, what) for name, (what, _) in parts]
        return ("record", fields), [column for _, (_, some) in parts for column in some]
    raise TypeError(f"{where}: {type(layout).__name__} is none of our types")


def array(what, columns, count):
    """The awkward array of a type, of the next columns."""
    return ak.Array(_layout(what, columns, count))


def _layout(what, columns, count):
    content = ak.contents
    kind = what[0]
    if kind == "number":
        return content.NumpyArray(next(columns))
    if kind == "array":
        return content.RegularArray(_layout(what[1], columns, count * what[2]), what[2], count)
    if kind == "optional":
        there = next(columns)
        index = np.where(there, np.cumsum(there) - 1, -1)
        inner = _layout(what[1], columns, int(there.sum()))
        return content.IndexedOptionArray.simplified(ak.index.Index64(index), inner)
    if kind == "record":
        parts = [_layout(inner, columns, count) for _, inner in what[1]]
        return content.RecordArray(parts, [name for name, _ in what[1]], count)
    ends = offsets(next(columns))
    if kind == "list":
        inner = _layout(what[1], columns, int(ends[-1]))
        return content.ListOffsetArray(ak.index.Index64(ends), inner)
    names = ("string", "char") if kind == "text" else ("bytestring", "byte")
    inner = content.NumpyArray(next(columns), parameters={"__array__": names[1]})
    return content.ListOffsetArray(ak.index.Index64(ends), inner, parameters={"__array__": names[0]})


__all__ = ["array", "columns", "number"]
