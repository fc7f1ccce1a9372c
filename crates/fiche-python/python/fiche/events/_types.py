"""Types as tuples, and columns in the order of types.

A type is `("number", name)`, `("optional", type)`, `("list", type)`, `("array", type, length)`, `("record", [(name, type), ...])`,
`("text",)` or `("bytes",)`; what was given without any item is `("unknown",)`, and has no columns. Its columns are arrays: of numbers their values; of what may be missing whether it is there, and
those of what is there; of lists how many items each has, as uint32, and those of all items; of texts and bytes the lengths, and all bytes.
"""

import re

import numpy as np

PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def quoted(name):
    """A name between quotes, as types have them in their text."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}
    shown = (escapes.get(c) or (c if c.isprintable() else f"\\u{{{ord(c):x}}}") for c in name)
    return '"' + "".join(shown) + '"'


def text(what):
    """The text of a type."""
    kind = what[0]
    if kind == "number":
        return what[1]
    if kind == "optional":
        return f"option[{text(what[1])}]"
    if kind == "list":
        return f"var * {text(what[1])}"
    if kind == "array":
        return f"{what[2]} * {text(what[1])}"
    if kind == "record":
        fields = (f"{name if PLAIN.match(name) else quoted(name)}: {text(inner)}" for name, inner in what[1])
        return "{" + ", ".join(fields) + "}"
    if kind == "unknown":
        return "bool"
    return "string" if kind == "text" else "bytes"


def width(what):
    """How many columns a type has."""
    kind = what[0]
    if kind == "unknown":
        return 0
    if kind == "number":
        return 1
    if kind in ("optional", "list"):
        return 1 + width(what[1])
    if kind == "array":
        return width(what[1])
    if kind == "record":
        return sum(width(inner) for _, inner in what[1])
    return 2


def dtypes(what):
    """The kinds of numbers of all columns."""
    kind = what[0]
    if kind == "number":
        return [np.dtype(what[1])]
    if kind == "optional":
        return [np.dtype(bool), *dtypes(what[1])]
    if kind == "list":
        return [np.dtype(np.uint32), *dtypes(what[1])]
    if kind == "array":
        return dtypes(what[1])
    if kind == "record":
        return [dtype for _, inner in what[1] for dtype in dtypes(inner)]
    return [np.dtype(np.uint32), np.dtype(np.uint8)]


def offsets(counts):
    """Where each list starts, and the last one ends."""
    ends = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:], dtype=np.int64)
    return ends


def counts_of(lengths, where):
    """Counts as they are stored; a list has fewer than 2**32 items."""
    lengths = np.asarray(lengths)
    if lengths.size and int(lengths.max()) >= 1 << 32:
        raise ValueError(f"{where}: a list of more than 4,294,967,295 items")
    return lengths.astype(np.uint32)


def number(array, where):
    """A flat array as it is stored, and the name of its numbers. Bits are kept; the order of bytes is this machine's."""
    dtype = array.dtype
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise TypeError(f"{where}: numbers of {dtype} are none of ours")
    if not dtype.isnative:
        # Not by astype: that could change bits of what is no number.
        array = array.byteswap().view(dtype.newbyteorder())
    return np.ascontiguousarray(array).reshape(-1), array.dtype.name


def is_unknown(what):
    """Whether it is not known of what some of it is."""
    kind = what[0]
    if kind == "record":
        return any(is_unknown(inner) for _, inner in what[1])
    return kind == "unknown" or kind in ("optional", "list", "array") and is_unknown(what[1])


def merged(one, other):
    """A type, with what is unknown of it as another one has it; what may be missing in either may be missing."""
    if one[0] == "unknown":
        return other
    if other[0] == "unknown":
        return one
    if "optional" in (one[0], other[0]):
        inner = [what[1] if what[0] == "optional" else what for what in (one, other)]
        # Where all was known, it stays as it was.
        return ("optional", merged(*inner)) if is_unknown(one) or one[0] == "optional" else one
    if one[0] != other[0] or not is_unknown(one):
        return one
    if one[0] == "record":
        others = dict(other[1])
        return ("record", [(name, merged(inner, others.get(name, inner))) for name, inner in one[1]])
    return (one[0], merged(one[1], other[1]), *one[2:])


def known(what):
    """The same without what is unknown: of that there is nothing, which may be of any type."""
    kind = what[0]
    if kind == "unknown":
        return ("number", "bool")
    if kind in ("optional", "list", "array"):
        return (kind, known(what[1]), *what[2:])
    if kind == "record":
        return (kind, [(name, known(inner)) for name, inner in what[1]])
    return what
