"""Files of Parquet as files of events, and back: `python -m fiche.events.parquet pack|unpack`."""

import argparse
import itertools
import sys

import pyarrow as pa
import pyarrow.parquet as pq

from .. import CorruptError
from . import _fitted, _types, create
from . import open as _open
from ._arrow import field
from ._command import bar, run
from ._whole import whole

__all__ = ["main", "pack", "unpack"]

# Rows that are read at once.
STEP = 1 << 16


def _joined(one, other, where):
    """The type that has room for values of both: they differ in what may be missing only, and in lists of which none had items."""
    if one == other or other[0] == "unknown":
        return one
    if one[0] == "unknown":
        return other
    if "optional" in (one[0], other[0]):
        inner = [what[1] if what[0] == "optional" else what for what in (one, other)]
        return ("optional", _joined(*inner, where))
    if one[0] == other[0] == "list":
        return ("list", _joined(one[1], other[1], f"{where}[]"))
    if one[0] == other[0] == "array" and one[2] == other[2]:
        return ("array", _joined(one[1], other[1], f"{where}[]"), one[2])
    if one[0] == other[0] == "record" and [name for name, _ in one[1]] == [name for name, _ in other[1]]:
        pairs = zip(one[1], other[1], strict=True)
        return ("record", [(name, _joined(what, that, f"{where}.{name}")) for (name, what), (_, that) in pairs])
    raise TypeError(f"{where} has {_types.text(one)} and {_types.text(other)}")


def _batches(file, names):
    return (pa.Table.from_batches([batch]) for batch in file.iter_batches(STEP, columns=names))


def pack(source, output, *, columns=None, access="event", key=(), threads=None, verify=False, overwrite=False, progress=None):
    """Writes a file of Parquet as a file of events. All rows are read twice: first to see where values are missing.

    Returns what there was: events, fields, bytes in the file of Parquet, and here. Raises `TypeError` for what is none of our types (decimals),
    `CorruptError` where `verify` finds a difference.
    """
    file = pq.ParquetFile(source)
    names = list(columns) if columns is not None else file.schema_arrow.names
    missing = [name for name in names if name not in file.schema_arrow.names]
    if missing:
        raise KeyError(f"there is no column {missing[0]!r}")
    types, notes = {}, {}
    empty = file.schema_arrow.empty_table().select(names)
    for table in itertools.chain([empty], _batches(file, names)):
        for name in names:
            what, _, notes[name] = field(table[name], name)
            types[name] = _joined(types[name], what, name) if name in types else what
    count = file.metadata.num_rows
    writer = create(output, access=access, key=key, threads=threads, overwrite=overwrite)
    writer._field_notes = notes
    with writer:
        writer._begin({name: _types.known(what) for name, what in types.items()})
        for table in _batches(file, names):
            writer.extend(table)
            if progress is not None:
                progress(writer.num_entries, count)
        stored = writer.close()
    if verify:
        _verify(file, output, names)
    of = file.metadata
    parquet = sum(of.row_group(i).column(j).total_compressed_size for i in range(of.num_row_groups) for j in range(of.num_columns))
    return {"events": count, "fields": len(names), "parquet": parquet, "bytes": stored}


def _verify(file, output, names):
    """Compares each row with what is read again, both as what Arrow has, and numbers by their bits."""
    events, at = _open(output), 0
    for table in _batches(file, names):
        again = events.arrays(entry_start=at, entry_stop=at + len(table), library="pa")
        for name in names:
            one, other = (_bits(of[name], name, events) for of in (table, again))
            if len(one) != len(other) or any(a.tobytes() != b.tobytes() for a, b in zip(one, other, strict=True)):
                raise CorruptError(f"{name} differs in events {at} to {at + len(table)}")
        at += len(table)


def _bits(array, name, events):
    """The columns of an array, as events have them."""
    what, columns, _ = field(array, name)
    return _fitted(name, what, columns, events._fields[name][1], len(array))


def unpack(source, output, *, columns=None, compression="zstd", overwrite=True, progress=None):
    """Writes events as a file of Parquet, which appears when it is whole; returns how many they were."""
    events = _open(source)
    schema = events.arrays(columns, entry_stop=0, library="pa").schema
    with whole(output, overwrite) as aside, pq.ParquetWriter(aside, schema, compression=compression) as writer:
        for table, (_, stop) in events.iterate(columns, library="pa", report=True):
            writer.write_table(table)
            if progress is not None:
                progress(stop, len(events))
    return len(events)


def main(arguments=None):
    """The command."""
    parser = argparse.ArgumentParser(prog="fiche.events.parquet", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("pack", help="write a file of Parquet as a file of events")
    command.add_argument("source", metavar="FILE.parquet")
    command.add_argument("-o", "--output", required=True)
    command.add_argument("--columns", help="only these, with commas between them")
    command.add_argument("--access", default="event", choices=["event", "block", "scan"])
    command.add_argument("--key", default="", help="fields that events are to be found by, with commas between them")
    command.add_argument("--threads", type=int)
    command.add_argument("--verify", action="store_true", help="read all again and compare it")
    command.add_argument("-f", "--overwrite", action="store_true")
    command.add_argument("-q", "--quiet", action="store_true")
    command = commands.add_parser("unpack", help="write events as a file of Parquet")
    command.add_argument("source", metavar="FILE.fiche")
    command.add_argument("-o", "--output", required=True)
    command.add_argument("--columns", help="only these, with commas between them")
    command.add_argument("-f", "--overwrite", action="store_true")
    command.add_argument("-q", "--quiet", action="store_true")
    given = parser.parse_args(arguments)
    return run("fiche.events.parquet", _run, given, [pa.ArrowException])


def _run(given):
    names = given.columns.split(",") if given.columns else None
    with bar(given) as shown:
        if given.command == "unpack":
            count = unpack(given.source, given.output, columns=names, overwrite=given.overwrite, progress=shown)
            print(f"{count:,} events")
            return 0
        report = pack(
            given.source,
            given.output,
            columns=names,
            access=given.access,
            key=[name for name in given.key.split(",") if name],
            threads=given.threads,
            verify=given.verify,
            overwrite=given.overwrite,
            progress=shown,
        )
    parquet, size = report["parquet"], report["bytes"]
    print(f"{report['events']:,} events, {report['fields']:,} fields, {parquet:,} bytes in Parquet, {size:,} here")
    if given.verify:
        print("all is as Parquet has it, bit by bit")
    return 0


if __name__ == "__main__":
    sys.exit(main())
