"""Files of ROOT as files of events, by uproot.

    python -m fiche.events.root ls FILE
    python -m fiche.events.root repack FILE[:TREE] -o OUT [--branches PATTERN] [--access event] [--verify]
    python -m fiche.events.root compare FILE[:TREE] [--branches PATTERN] [--access event] [--json]
    python -m fiche.events.root export FILE.fiche -o OUT.root [--tree NAME] [--kind TTree] [--verify]

`ls` shows trees and what uproot makes of their branches. `repack` writes all branches of a tree, or those that patterns name, as fields; what uproot
cannot read goes in as the bytes that are stored for each event, or for each basket where these have no bounds, and is named. With
`--verify` all is read again and compared, bit by bit, with what uproot gives. `compare` says what each branch takes there and here, and how fast events are read, beside other formats that are installed.
`export` writes events as a TTree or an RNTuple.
"""

import argparse
import fnmatch
import json
import sys

import numpy as np

from .. import CorruptError
from . import _compare, _types, create, open
from ._awkward import columns as _columns
from ._command import bar, run
from ._compare import compare
from ._export import CODECS, export

__all__ = ["compare", "export", "ls", "main", "repack", "trees"]

STEP = 32 << 20


def _uproot():
    try:
        import uproot
    except ImportError as error:
        raise SystemExit("files of ROOT are read by uproot and awkward: pip install 'fiche[root]'") from error
    return uproot


def trees(path):
    """The trees of a file of ROOT, by their names: TTrees and RNTuples."""
    file = _uproot().open(path)
    found = {}
    for name, kind in file.classnames(recursive=True).items():
        if kind in ("TTree", "TNtuple", "TNtupleD", "ROOT::RNTuple", "ROOT::Experimental::RNTuple"):
            name = name.partition(";")[0]
            found.setdefault(name, file[name])
    return found


def _leaves(tree):
    """The branches of a tree that have values of their own, by their full names."""
    if not hasattr(tree, "branches"):
        return {name: tree[name] for name in tree.keys(recursive=False)}
    return {
        name: tree[name] for name in tree.keys(recursive=True, full_paths=True) if not tree[name].branches
    }


class _Raw:
    """A branch that uproot cannot read: the bytes of each event, where baskets tell where these are, else those of baskets; and where these cannot be
    decompressed, as they lie in the file."""

    def __init__(self, branch, count, why):
        self.branch, self.why = branch, why
        uproot = _uproot()
        self._each = uproot.AsJagged(uproot.AsDtype("u1"), header_bytes=0)
        try:
            self._read(0, count)
        except Exception:
            self._each = None
        self._basket = self._plain
        try:
            for number in range(getattr(branch, "num_baskets", 0)):
                self._plain(number)
        except (MemoryError, OSError):
            raise
        except Exception:
            self._basket = self._stored
            self.why += "; its baskets as they lie in the file"

    def _plain(self, number):
        return np.asarray(self.branch.basket(number).raw_data)

    def _stored(self, number):
        start, size = int(self.branch.member("fBasketSeek")[number]), int(self.branch.member("fBasketBytes")[number])
        return np.asarray(self.branch.file.source.chunk(start, start + size).raw_data)

    def _read(self, start, stop):
        import awkward as ak

        array = self.branch.array(self._each, entry_start=start, entry_stop=stop, library="ak")
        array = ak.to_packed(ak.values_astype(array, np.uint8))
        if array.ndim != 2 or len(array) != stop - start:
            raise TypeError("no bytes of events")
        return array

    def bytes(self, start, stop):
        """The same as an awkward array."""
        from ._awkward import array

        what, columns = self.columns(start, stop)
        return array(what, iter(columns), stop - start)

    def columns(self, start, stop):
        if self._each is not None:
            import awkward as ak

            array = self._read(start, stop)
            counts = np.asarray(ak.num(array, axis=1)).astype(np.uint32)
            return ("bytes",), [counts, np.asarray(ak.flatten(array))]
        if not hasattr(self.branch, "entry_offsets"):
            raise TypeError(f"{self.branch.name}: neither uproot reads it nor has it baskets: {self.why}")
        # All bytes of a basket are with its first event.
        counts, parts = np.zeros(stop - start, np.uint32), []
        for number, first in enumerate(self.branch.entry_offsets[:-1]):
            if start <= first < stop and self.branch.entry_offsets[number + 1] > first:
                data = self._basket(number)
                counts[first - start] = len(data)
                parts.append(data.view(np.uint8))
        return ("bytes",), [counts, np.concatenate(parts) if parts else np.zeros(0, np.uint8)]


class _Read:
    """A branch that uproot can read."""

    def __init__(self, branch):
        self.branch = branch
        self.why = None

    def array(self, start, stop):
        array = self.branch.array(entry_start=start, entry_stop=stop, library="ak")
        if len(array) != stop - start:
            raise ValueError(f"{len(array)} of {stop - start} events are there")
        return array

    def columns(self, start, stop):
        return _columns(self.array(start, stop), getattr(self.branch, "name", ""))


def _branch(branch, count):
    """How a branch of a tree of so many events is read; some are only found out about when they are."""
    try:
        read = _Read(branch)
        what, _ = read.columns(0, count)
    except (MemoryError, OSError):
        raise
    except Exception as error:
        return _Raw(branch, count, f"{type(error).__name__}: {error}".splitlines()[0]), ("bytes",)
    return read, what


def _wanted(names, patterns):
    if not patterns:
        return list(names)
    chosen = [name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    unknown = [pattern for pattern in patterns if not fnmatch.filter(names, pattern)]
    if unknown:
        raise KeyError(f"there is no branch {unknown[0]!r}")
    return chosen


def _notes(branch):
    """What ROOT says of a branch."""
    notes = {}
    for about, value in (("title", getattr(branch, "title", "")), ("typename", getattr(branch, "typename", ""))):
        if isinstance(value, str) and value:
            notes[about] = value
    counter = getattr(branch, "count_branch", None)
    if counter is not None:
        notes["counter"] = counter.name
    return notes


def _stored(branch):
    """Bytes that a branch takes in its file; None where that cannot be told."""
    try:
        return sum(branch.basket_compressed_bytes(i) for i in range(branch.num_baskets)) or None
    except Exception:
        return None


def repack(source, output, *, branches=(), access="event", threads=None, verify=False, overwrite=False, progress=None):
    """Writes a tree as a file of events. `source` is `FILE` or `FILE:TREE`; a name is needed where there are several trees.

    Returns what there was: events, fields, bytes in memory, in ROOT's baskets (None where that cannot be told) and here, and branches that are
    bytes, with the reasons. Raises `KeyError` for what is not there, `CorruptError` where `verify` finds a difference.
    """
    path, name, tree = _find(source)
    leaves = _leaves(tree)
    found = {leaf: _branch(leaves[leaf], int(tree.num_entries)) for leaf in _wanted(list(leaves), branches)}
    count = int(tree.num_entries)
    report = {"tree": name, "events": count, "fields": len(found), "raw": 0, "unread": {}}
    stored = [_stored(leaves[leaf]) for leaf in found]
    report["root"] = None if None in stored else sum(stored)
    writer = create(output, access=access, threads=threads, overwrite=overwrite, notes={"root": f"{path}:{name}"})
    writer._field_notes = {leaf: _notes(leaves[leaf]) for leaf in found}
    with writer:
        writer._begin({leaf: what for leaf, (_, what) in found.items()})
        for leaf, (branch, _) in found.items():
            if branch.why is not None:
                report["unread"][leaf] = branch.why
        for start, stop in _steps(found, count):
            columns = []
            for leaf, (branch, what) in found.items():
                columns += _same(leaf, branch.columns(start, stop), what, stop - start)
            report["raw"] += sum(column.nbytes for column in columns)
            writer._writer.extend(stop - start, columns)
            writer.num_entries += stop - start
            if progress is not None:
                progress(stop, count)
        if count == 0:
            writer._writer.extend(0, [np.zeros(0, kind) for _, what in found.values() for kind in _types.dtypes(what)])
        report["bytes"] = writer.close()
    if verify:
        _verify(output, found, count)
        report["verified"] = count
    return report


def _find(source):
    path, colon, name = str(source).rpartition(":")
    if not colon or name.startswith("//") or "\\" in name:
        path, name = str(source), ""
    found = trees(path)
    if name:
        plain, _, cycle = name.partition(";")
        if plain not in found:
            raise KeyError(f"there is no tree {name!r} in {path}: it has {', '.join(found) or 'none'}")
        if not cycle:
            return path, name, found[plain]
        file = _uproot().open(path)
        cycles = [key for key in file.keys(recursive=True) if key.partition(";")[0] == plain]
        if name not in cycles:
            raise KeyError(f"there is no tree {name!r} in {path}: of {plain} it has {', '.join(cycles)}")
        return path, name, file[name]
    if not found:
        raise KeyError(f"{path} has no trees")
    if len(found) != 1:
        raise KeyError(f"{path} has {len(found)} trees: {', '.join(found)}; say which, as {path}:NAME")
    return path, *next(iter(found.items()))


def _same(leaf, found, wanted, count):
    from . import _fitted

    return _fitted(leaf, *found, wanted, count)


def _steps(found, count):
    """Ranges of events that take some memory."""
    if count == 0:
        return
    some = min(count, 256)
    each = 0
    for branch, _ in found.values():
        _, columns = branch.columns(0, some)
        each += sum(column.nbytes for column in columns)
    step = max(1, int(STEP * some / max(each, 1)))
    for start in range(0, count, step):
        yield start, min(start + step, count)


def _records(array):
    """Tuples as records, whose names are those of its places: that is what they are here."""
    import awkward as ak

    def record(part, continuation, **_):
        if not part.is_record or not part.is_tuple:
            return None
        made = continuation()
        return ak.contents.RecordArray(made.contents, made.fields, len(made))

    return ak.transform(record, array)


def _bits(array):
    """Floating point numbers as whole ones: so that what is no number is the same only if all of its bits are."""
    import awkward as ak

    def bits(part, **_):
        if not part.is_numpy or part.dtype.kind != "f" and part.dtype.isnative:
            return None
        data = np.ascontiguousarray(part.data)
        if not data.dtype.isnative:
            data = data.byteswap().view(data.dtype.newbyteorder())
        if data.dtype.kind == "f":
            data = data.view(f"u{data.dtype.itemsize}")
        return ak.contents.NumpyArray(data, parameters=part.parameters)

    return ak.transform(bits, array)


def _is_same(one, other):
    import awkward as ak

    return ak.array_equal(_bits(one), _bits(other), dtype_exact=True, check_parameters=False)


def _verify(output, found, count):
    """All fields as arrays, beside those that uproot gives; and some events on their own."""
    import awkward as ak

    events = open(output)
    if len(events) != count or events.keys() != list(found):
        raise CorruptError(f"{output}: other events or fields than were written")
    for start, stop in _steps(found, count):
        stored = events.arrays(entry_start=start, entry_stop=stop, library="ak")
        alone = sorted({start, stop - 1, *np.linspace(start, stop - 1, 64).astype(int).tolist()})
        singly = [events.event(number) for number in alone]
        for leaf, (branch, _) in found.items():
            if branch.why is None:
                array = _records(branch.array(start, stop))
            else:
                array = branch.bytes(start, stop)
            if not _is_same(array, stored[leaf]):
                raise CorruptError(f"{output}: {leaf} differs in events {start} to {stop}")
            expected = ak.to_list(array[np.array(alone) - start])
            # By what they are printed as: what is no number does not equal itself.
            for number, event, value in zip(alone, singly, expected, strict=True):
                if event[leaf] != value and repr(event[leaf]) != repr(value):
                    raise CorruptError(f"{output}: {leaf} differs in event {number}, read on its own")


def ls(path, stream=None):
    """Prints the trees of a file: branches, their types, and what they take in the file."""
    stream = stream or sys.stdout
    found = trees(path)
    if not found:
        print("no trees", file=stream)
    for name, tree in found.items():
        leaves = _leaves(tree)
        print(f"{name}: {int(tree.num_entries):,} events, {len(leaves):,} branches", file=stream)
        width = max([len(leaf) for leaf in leaves] + [6])
        for leaf, branch in leaves.items():
            read, what = _branch(branch, int(tree.num_entries))
            stored = _stored(branch)
            size = "?" if stored is None else f"{stored:,}"
            shown = _types.text(what) if read.why is None else f"bytes; not read: {read.why}"
            print(f"  {leaf:{width}}  {size:>12}  {shown}", file=stream)


def main(arguments=None):
    """The command."""
    parser = argparse.ArgumentParser(prog="fiche.events.root", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("ls", help="show trees and branches")
    command.add_argument("file")
    command = commands.add_parser("repack", help="write a tree as a file of events")
    _of_tree(command)
    command.add_argument("-o", "--output", required=True)
    command.add_argument("--threads", type=int)
    command.add_argument("--verify", action="store_true", help="read all again and compare it with what uproot gives")
    command.add_argument("-f", "--overwrite", action="store_true")
    command = commands.add_parser("compare", help="show what branches take there and here, and how fast events are read")
    _of_tree(command)
    command.add_argument("--verify", action="store_true", help="read all again and compare it with what uproot gives")
    command.add_argument("--rounds", type=int, default=3, help="times are medians of so many")
    command.add_argument("--sizes", action="store_true", help="no times")
    command.add_argument("--json", action="store_true")
    command = commands.add_parser("export", help="write events as a tree of ROOT")
    command.add_argument("source", metavar="FILE.fiche")
    command.add_argument("-o", "--output", required=True)
    command.add_argument("--tree", help="its name")
    command.add_argument("--kind", choices=["TTree", "RNTuple"], help="a TTree where all fields have a place in one, unless this says otherwise")
    command.add_argument("--branches", action="append", default=[], metavar="PATTERN")
    command.add_argument("--codec", default="zstd", choices=list(CODECS))
    command.add_argument("--level", type=int)
    command.add_argument("--verify", action="store_true", help="read all again and compare it")
    command.add_argument("-f", "--overwrite", action="store_true")
    command.add_argument("-q", "--quiet", action="store_true")
    given = parser.parse_args(arguments)
    return run("fiche.events.root", {"ls": _ls, "repack": _repack, "compare": _show, "export": _export}[given.command], given)


def _of_tree(command):
    command.add_argument("source", metavar="FILE[:TREE]")
    command.add_argument("--branches", action="append", default=[], metavar="PATTERN")
    command.add_argument("--access", default="event", choices=["event", "block", "scan"])
    command.add_argument("-q", "--quiet", action="store_true")


def _ls(given):
    ls(given.file)
    return 0


def _repack(given):
    with bar(given) as shown:
        report = repack(
            given.source,
            given.output,
            branches=given.branches,
            access=given.access,
            threads=given.threads,
            verify=given.verify,
            overwrite=given.overwrite,
            progress=shown,
        )
    raw, root, size = report["raw"], report["root"], report["bytes"]
    print(f"{report['events']:,} events, {report['fields']:,} fields, {raw:,} bytes of values")
    beside = "" if root is None else f", {size / root:.3f} of ROOT's {root:,}"
    print(f"{size:,} bytes{beside}")
    for leaf, why in report["unread"].items():
        print(f"as bytes: {leaf} ({why})")
    if given.verify:
        print("all is as uproot reads it, bit by bit")
    return 0


def _show(given):
    with bar(given) as shown:
        report = compare(
            given.source,
            branches=given.branches,
            access=given.access,
            rounds=max(1, given.rounds),
            times=not given.sizes,
            verify=given.verify,
            progress=shown,
        )
    if given.json:
        print(json.dumps(report, indent=1))
    else:
        _compare.show(report, sys.stdout)
    return 0


def _export(given):
    with bar(given) as shown:
        report = export(
            given.source,
            given.output,
            tree=given.tree,
            kind=given.kind,
            branches=given.branches,
            codec=given.codec,
            level=given.level,
            verify=given.verify,
            overwrite=given.overwrite,
            progress=shown,
        )
    print(f"{report['events']:,} events, {report['fields']:,} fields, {report['bytes']:,} bytes in {report['tree']}, {'an' if report['kind'] == 'RNTuple' else 'a'} {report['kind']}")
    for name, made in report["renamed"].items():
        print(f"{name} is {made} there")
    if given.verify:
        print("all is as it was, as uproot reads it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
