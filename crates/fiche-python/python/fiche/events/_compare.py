"""A tree of ROOT beside the same events here, and in other formats."""

import collections
import pathlib
import tempfile

from . import _peers, _types
from . import open as _open


def _codec(branch):
    """What ROOT compressed a branch with."""
    compression = getattr(branch, "compression", None)
    if compression is None or compression.level == 0:
        # Some that write such files leave it out.
        sizes = [getattr(branch, f"{what}compressed_bytes", None) for what in ("", "un")]
        return "?" if None in sizes or sizes[0] < sizes[1] else "none"
    return f"{type(compression).__name__.lower()} {compression.level}"


def _codings(columns):
    """How the columns of a field are coded, in some words."""
    names = {"values": "", "counts": "counts: ", "presence": "presence: "}
    return "; ".join(names[column["of"]] + column["coding"] for column in columns)


def compare(source, *, branches=(), access="event", rounds=3, times=True, verify=False, progress=None):
    """Repacks a tree of a file of ROOT into a folder that is gone afterwards, and says of each branch what it takes there and here; with `times` how fast events are
    read, beside uproot, Parquet, Lance, Vortex, ArrayRecord and HDF5, those of them that are installed.

    Returns a dictionary: of `repack` what it returns, `branches`, `model_bytes`, and `times`: of each way the seconds of one random event, of 3,000 together, of all; and what was left out.
    """
    from .root import _find, _leaves, _stored, repack

    path, name, tree = _find(source)
    leaves = _leaves(tree)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        report = repack(f"{path}:{name}", folder / "events.fiche", branches=branches, access=access, verify=verify, progress=progress)
        events = _open(folder / "events.fiche")
        found = events.report()
        report |= {"model_bytes": found["model_bytes"], "branches": [], "times": [], "skipped": {}}
        columns = collections.deque(found["columns"])
        for leaf, (text, what, _) in events._fields.items():
            mine = [columns.popleft() for _ in range(_types.width(what))]
            report["branches"].append({
                "branch": leaf,
                "type": text,
                "bytes": sum(column["bytes"] for column in mine),
                "root": _stored(leaves[leaf]),
                "codec": _codec(leaves[leaf]),
                "stored_bytes": sum(column["stored_bytes"] for column in mine),
                "coding": _codings(mine),
            })
        if times and len(events):
            try:
                table = events.arrays(library="pa")
            except Exception as error:
                report["skipped"]["times"] = f"{type(error).__name__}: {error}"
            else:
                skipped = report["skipped"]
                report["times"] = _peers.times(
                    table, (path, name), folder, rounds, skipped=lambda who, error: skipped.update({who: f"{type(error).__name__}: {error}"})
                )
        return report


def show(report, stream):
    """Prints what `compare` found."""
    rows = [("branch", "type", "bytes", "in ROOT", "codec", "here", "of ROOT's", "coding")]
    for row in report["branches"]:
        root, size = row["root"], row["stored_bytes"]
        ratio = f"{size / root:.3f}" if root else ""
        shown = "?" if root is None else f"{root:,}"
        # Of records the types are long; `--json` has them whole.
        kind = row["type"] if len(row["type"]) <= 40 else row["type"][:37] + "..."
        rows.append((row["branch"], kind, f"{row['bytes']:,}", shown, row["codec"], f"{size:,}", ratio, row["coding"]))
    _table(rows, stream, left=(0, 1, 4, 7))
    root, size = report["root"], report["bytes"]
    beside = "" if root is None else f", {size / root:.3f} of the {root:,} in ROOT's baskets"
    print(f"\n{report['events']:,} events: {size:,} bytes with {report['model_bytes']:,} of models{beside}", file=stream)
    for leaf, why in report["unread"].items():
        print(f"as bytes: {leaf} ({why})", file=stream)
    if report["times"]:
        rows = [("events a second", "bytes", "one at random", f"{_peers.BATCH:,} together", "all")]
        for row in report["times"]:
            batch = f"{_peers.BATCH / row['batch']:,.0f}" if row["batch"] else ""
            stored = f"{row['stored']:,}" if row["stored"] else ""
            rows.append((row["who"], stored, f"{1 / row['one']:,.0f}", batch, f"{row['events'] / row['scan']:,.0f}"))
        print(file=stream)
        _table(rows, stream, left=(0,))
    for who, why in report["skipped"].items():
        print(f"SKIP: {who}: {why.splitlines()[0][:120]}", file=stream)


def _table(rows, stream, left):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = (cell.ljust(width) if i in left else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths, strict=True)))
        print("  ".join(cells).rstrip(), file=stream)
