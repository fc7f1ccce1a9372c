"""Arrays of Arrow as columns, and back."""

import re

import numpy as np
import pyarrow as pa

from ._types import counts_of, offsets


# What a field is noted to be that is kept as whole numbers.
NOTE = "arrow"


def field(array, where):
    """The type, the columns and the notes of a field: times are whole numbers, and a note says of what."""
    kind = array.type
    if not pa.types.is_temporal(kind) or pa.types.is_interval(kind):
        return *columns(array, where), {}
    whole = pa.int32() if kind.bit_width == 32 else pa.int64()
    return *columns(array.cast(whole), where), {NOTE: str(kind)}


def temporal(note):
    """The type of a note; None for one that is none."""
    if found := re.fullmatch(r"timestamp\[(s|ms|us|ns)(?:, tz=(.+))?\]", note):
        return pa.timestamp(found[1], found[2])
    if found := re.fullmatch(r"(time32|time64|duration)\[(s|ms|us|ns)\]", note):
        return {"time32": pa.time32, "time64": pa.time64, "duration": pa.duration}[found[1]](found[2])
    return {"date32[day]": pa.date32(), "date64[ms]": pa.date64()}.get(note)


def noted(array, notes):
    """An array as what notes say of its field."""
    kind = temporal(notes.get(NOTE, ""))
    return array if kind is None else array.cast(kind)


def table(events):
    """What Arrow has of events as a table: a table, batches, or structs."""
    if isinstance(events, pa.RecordBatchReader):
        return events.read_all()
    if isinstance(events, pa.ChunkedArray) and pa.types.is_struct(events.type):
        return pa.Table.from_struct_array(events)
    if isinstance(events, pa.StructArray):
        return pa.RecordBatch.from_struct_array(events)
    if not isinstance(events, pa.Table | pa.RecordBatch):
        raise TypeError(f"events are a table of Arrow, batches or structs, not {type(events).__name__}")
    return events


def _never(_):
    # What older versions do not know.
    return False


def _usual(array):
    """Arrays that are laid out in another way, as those that mean the same."""
    kind = array.type
    for is_view, usual in (("is_string_view", pa.large_string()), ("is_binary_view", pa.large_binary())):
        if getattr(pa.types, is_view, _never)(kind):
            return array.cast(usual)
    if getattr(pa.types, "is_run_end_encoded", _never)(kind):
        import pyarrow.compute as pc

        return pc.run_end_decode(array)
    return array


def columns(array, where):
    """The type and the columns of an array of Arrow."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    array = _usual(array)
    kind = array.type
    if pa.types.is_dictionary(kind):
        return columns(array.dictionary_decode(), where)
    if pa.types.is_null(kind):
        return ("optional", ("unknown",)), [np.zeros(len(array), bool)]
    if array.null_count:
        there = array.is_valid()
        what, rest = columns(array.filter(there), where)
        return ("optional", what), [there.to_numpy(zero_copy_only=False), *rest]
    if pa.types.is_struct(kind):
        parts = [
            (field.name, columns(part, f"{where}.{field.name}"))
            for field, part in zip(kind, array.flatten(), strict=True)
        ]
        fields = [(name, what) for name, (what, _) in parts]
        return ("record", fields), [column for _, (_, some) in parts for column in some]
    if pa.types.is_fixed_size_list(kind):
        what, rest = columns(array.flatten(), f"{where}[]")
        return ("array", what, kind.list_size), rest
    if getattr(pa.types, "is_list_view", _never)(kind) or getattr(pa.types, "is_large_list_view", _never)(kind):
        import pyarrow.compute as pc

        # Lists that may lie in any order: one behind the other.
        what, rest = columns(array.flatten(), f"{where}[]")
        return ("list", what), [counts_of(pc.list_value_length(array).to_numpy(), where), *rest]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        ends = array.offsets.to_numpy()
        inner = array.values if not pa.types.is_map(kind) else _entries(array)
        inner = inner.slice(int(ends[0]), int(ends[-1] - ends[0]))
        what, rest = columns(inner, f"{where}[]")
        return ("list", what), [counts_of(np.diff(ends), where), *rest]
    for is_it, large, name in (
        (pa.types.is_string, pa.string(), "text"),
        (pa.types.is_large_string, pa.large_string(), "text"),
        (pa.types.is_binary, pa.binary(), "bytes"),
        (pa.types.is_large_binary, pa.large_binary(), "bytes"),
    ):
        if is_it(kind):
            wide = np.int64 if large in (pa.large_string(), pa.large_binary()) else np.int32
            return (name,), _bytes(array, wide, where)
    if pa.types.is_fixed_size_binary(kind):
        data = np.frombuffer(array.buffers()[1] or b"", np.uint8)
        start, size = array.offset * kind.byte_width, len(array) * kind.byte_width
        return ("array", ("number", "uint8"), kind.byte_width), [data[start : start + size].copy()]
    if pa.types.is_boolean(kind):
        return ("number", "bool"), [array.to_numpy(zero_copy_only=False)]
    if pa.types.is_integer(array.type) or pa.types.is_floating(array.type):
        values = array.to_numpy(zero_copy_only=False)
        return ("number", values.dtype.name), [values]
    raise TypeError(f"{where}: {kind} is none of our types")


def _entries(array):
    return pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])


def _bytes(array, wide, where):
    _, ends, data = array.buffers()
    if ends is None:
        return [np.zeros(0, np.uint32), np.zeros(0, np.uint8)]
    ends = np.frombuffer(ends, wide)[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]]
    return [counts_of(np.diff(ends), where), data]


def array(what, columns, count):
    """The array of a type, of the next columns."""
    kind = what[0]
    if kind == "number":
        return pa.array(next(columns))
    if kind == "array":
        return pa.FixedSizeListArray.from_arrays(array(what[1], columns, count * what[2]), what[2])
    if kind == "optional":
        there = next(columns)
        index = pa.array(np.cumsum(there) - 1, mask=~there)
        return array(what[1], columns, int(there.sum())).take(index)
    if kind == "record":
        parts = [array(inner, columns, count) for _, inner in what[1]]
        names = [name for name, _ in what[1]]
        if not parts:
            return pa.array([{}] * count, pa.struct([]))
        return pa.StructArray.from_arrays(parts, names=names)
    ends = offsets(next(columns))
    if kind == "list":
        inner = array(what[1], columns, int(ends[-1]))
        return pa.LargeListArray.from_arrays(pa.array(ends), inner)
    data = next(columns)
    made = pa.large_string() if kind == "text" else pa.large_binary()
    array_of = pa.Array.from_buffers(made, count, [None, pa.py_buffer(ends), pa.py_buffer(data)])
    if kind == "text":
        # Who takes a table counts on it that texts are UTF-8.
        array_of.validate(full=True)
    return array_of
