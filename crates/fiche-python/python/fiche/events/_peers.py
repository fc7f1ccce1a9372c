"""Other ways to keep events: what a tree takes there, and how fast it is read. Those that are not installed are left out."""

import os
import pathlib
import pickle
import statistics
import time

import numpy as np

from . import create
from . import open as _open

# Events that are taken together.
BATCH = 3000


def seconds(work, least=0.2, most=2000):
    """Seconds that work takes, called with 0, 1, 2 ... for a while."""
    work(0)
    count, some, passed, start = 0, 1, 0, time.perf_counter()
    while count < most and passed < least:
        for i in range(count + 1, count + 1 + some):
            work(i)
        count += some
        passed = time.perf_counter() - start
        # What takes a microsecond is not to be timed with a look at the clock each.
        some = min(2 * some if passed < least / 50 else some, max(1, most - count))
    return passed / count


class Fiche:
    name = "fiche"

    def __init__(self, table, source, folder):
        self.path = folder / "events.fiche"
        if source is None:
            with create(self.path, overwrite=True, threads=1) as writer:
                writer.extend(table)
        self.stored = self.path.stat().st_size
        self.events = _open(self.path.read_bytes(), threads=1)

    def one(self, i):
        return self.events[i]

    def batch(self, numbers):
        return self.events.take(numbers, library="pa")

    def scan(self):
        return self.events.arrays(library="pa")


class Uproot:
    name = "uproot"

    def __init__(self, table, source, folder):
        import uproot

        path, tree = source
        # Else what was read once would come from memory.
        self.tree = uproot.open(path, array_cache=None)[tree]
        self.names = [name for name in table.column_names if name in self.tree.keys(recursive=True, full_paths=True)]
        self.stored = None

    def one(self, i):
        return self.tree.arrays(self.names, entry_start=i, entry_stop=i + 1, library="ak")

    batch = None

    def scan(self):
        return self.tree.arrays(self.names, library="ak")


class Parquet:
    name = "Parquet zstd"
    options: dict[str, int] = {}

    def __init__(self, table, source, folder):
        import pyarrow.parquet as pq

        path = folder / f"table-{len(self.options)}.parquet"
        pq.write_table(table, path, compression="zstd", **self.options)
        self.stored = path.stat().st_size
        self.file = pq.ParquetFile(path, memory_map=True)
        groups = [self.file.metadata.row_group(i).num_rows for i in range(self.file.num_row_groups)]
        self.ends = np.cumsum(groups)

    def one(self, i):
        group = int(np.searchsorted(self.ends, i, "right"))
        first = int(self.ends[group - 1]) if group else 0
        return self.file.read_row_group(group, use_threads=False).slice(i - first, 1).to_pylist()

    def batch(self, numbers):
        return self.file.read().take(numbers)

    def scan(self):
        return self.file.read(use_threads=False)


class Groups(Parquet):
    name = "Parquet zstd, groups of 1,024"
    options = {"row_group_size": 1024}


class Lance:
    name = "Lance"

    def __init__(self, table, source, folder):
        import lance

        path = folder / "table.lance"
        lance.write_dataset(table, path)
        self.stored = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        self.data = lance.dataset(path)

    def one(self, i):
        return self.data.take([i]).to_pylist()

    def batch(self, numbers):
        return self.data.take(numbers)

    def scan(self):
        return self.data.to_table()


class Vortex:
    name = "Vortex"

    def __init__(self, table, source, folder):
        import pyarrow as pa
        import vortex

        self.array = lambda numbers: vortex.array(pa.array(numbers))
        path = str(folder / "table.vortex")
        vortex.io.write(table, path)
        self.stored = os.path.getsize(path)
        self.file = vortex.open(path)

    def one(self, i):
        return self.batch([i]).to_pylist()

    def batch(self, numbers):
        # It takes them in increasing order, each once.
        numbers = np.unique(np.asarray(numbers, np.uint64))
        return self.file.scan(indices=self.array(numbers)).read_all().to_arrow_table()

    def scan(self):
        return self.file.scan().read_all().to_arrow_table()


class Records:
    """Each event as bytes, which is all that it knows: pickled, here."""

    group = 1

    def __init__(self, table, source, folder):
        from array_record.python import array_record_module as module

        path = str(folder / f"records-{self.group}")
        writer = module.ArrayRecordWriter(path, f"group_size:{self.group},zstd")
        rows = table.to_pylist()
        self.raw = 0
        for row in rows:
            bytes_ = pickle.dumps(row, 5)
            self.raw += len(bytes_)
            writer.write(bytes_)
        writer.close()
        self.stored = os.path.getsize(path)
        self.reader = module.ArrayRecordReader(path)
        self.count = len(rows)

    def one(self, i):
        return pickle.loads(self.reader.read([i])[0])

    def batch(self, numbers):
        return [pickle.loads(record) for record in self.reader.read([int(i) for i in numbers])]

    def scan(self):
        return [pickle.loads(record) for record in self.reader.read(0, self.count)]


class Records1(Records):
    name = "ArrayRecord, groups of 1"


class Records256(Records):
    name, group = "ArrayRecord, groups of 256", 256


class Hdf5:
    """Fields of numbers only: lists have no columns there."""

    name = "HDF5 gzip"

    def __init__(self, table, source, folder):
        import h5py
        import pyarrow as pa

        path = folder / "table.h5"
        with h5py.File(path, "w") as file:
            for name in table.column_names:
                column = table[name]
                if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)) or column.null_count:
                    raise ValueError("lists, texts or what may be missing")
                file.create_dataset(name.replace("/", "|"), data=column.to_numpy(), compression="gzip", shuffle=True)
        self.stored = path.stat().st_size
        self.file = h5py.File(path)

    def one(self, i):
        return {name: data[i] for name, data in self.file.items()}

    def batch(self, numbers):
        numbers = np.unique(numbers)
        return {name: data[numbers] for name, data in self.file.items()}

    def scan(self):
        return {name: data[:] for name, data in self.file.items()}


TILED = [Fiche, Parquet, Lance, Vortex]
PEERS = [Fiche, Uproot, Parquet, Groups, Lance, Vortex, Records1, Records256, Hdf5]


def times(table, source, folder, rounds=3, peers=None, skipped=None):
    """Times of each way to keep a table: medians of rounds in which all of them come.

    `source` is the path of a file of ROOT and the name of its tree, of which the folder has `events.fiche` already; or `None`. `skipped` is called with the name of what
    is left out, and why. Returns of each its name, events, bytes, and the seconds that an event takes, some together, and all.
    """
    made = {}
    for peer in peers or PEERS:
        try:
            made[peer.name] = peer(table, source, pathlib.Path(folder))
        except Exception as error:
            if skipped is not None:
                skipped(peer.name, error)
    random = np.random.default_rng(7)
    # As a list: taking one out of an array would take a third of the time of the fastest.
    numbers = random.integers(0, len(table), 1 << 16).tolist()
    batch = random.integers(0, len(table), BATCH)
    found = {peer: {"one": [], "batch": [], "scan": []} for peer in made}
    for _ in range(rounds):
        for peer, it in made.items():
            found[peer]["one"].append(seconds(lambda i, one=it.one: one(numbers[i]), most=1 << 15))
            if it.batch is not None:
                found[peer]["batch"].append(seconds(lambda _, it=it: it.batch(batch)))
            found[peer]["scan"].append(seconds(lambda _, it=it: it.scan()))
    rows = []
    for peer, it in made.items():
        middle = {what: statistics.median(took) if took else None for what, took in found[peer].items()}
        rows.append({"who": peer, "events": len(table), "stored": it.stored, **middle})
    return rows
