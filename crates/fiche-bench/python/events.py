"""Events of ROOT files, kept by fiche and by others: sizes, one random event, many at once, all of them.

python events.py FOLDER... -o RESULTS [--rounds 3] [--trees NAME,NAME]

Every tree of every file is repacked and verified; sizes are compared for all of them, times for those of more than 2,000 events. What is
not installed is skipped, and says so.
"""

import argparse
import csv
import math
import os
import pathlib
import pickle
import shutil
import statistics
import sys
import tempfile
import time

import fiche.events
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import uproot
from fiche.events import root

# Trees that are the same events in another file, or under another codec.
ACCESSES = ("event", "block", "scan")
SINGLE, BATCH = 60, 3000


def seconds(work, least=0.2, most=2000):
    """Seconds that work takes, called with 0, 1, 2 ... for a while."""
    work(0)
    count, start = 0, time.perf_counter()
    while count < most and time.perf_counter() - start < least:
        count += 1
        work(count)
    return (time.perf_counter() - start) / count


class Fiche:
    name = "fiche"

    def __init__(self, table, source, folder):
        self.path = folder / "events.fiche"
        if source is None:
            with fiche.events.create(self.path, overwrite=True, threads=1) as writer:
                writer.extend(table)
        self.stored = self.path.stat().st_size
        self.events = fiche.events.open(self.path.read_bytes(), threads=1)

    def one(self, i):
        return self.events[i]

    def batch(self, numbers):
        return self.events.take(numbers, library="pa")

    def scan(self):
        return self.events.arrays(library="pa")


class Uproot:
    name = "uproot"

    def __init__(self, table, source, folder):
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
    options = {}

    def __init__(self, table, source, folder):
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
        return self.file.read().take(pa.array(numbers))

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
        import vortex

        path = str(folder / "table.vortex")
        vortex.io.write(table, path)
        self.vortex, self.stored = vortex, os.path.getsize(path)
        self.file = vortex.open(path)

    def one(self, i):
        return self.batch([i]).to_pylist()

    def batch(self, numbers):
        # It takes them in increasing order, each once.
        numbers = np.unique(np.asarray(numbers, np.uint64))
        return self.file.scan(indices=self.vortex.array(pa.array(numbers))).read_all().to_arrow_table()

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


def codec(tree):
    """What ROOT compressed most branches with."""
    try:
        found = [type(branch.compression).__name__ for branch in tree.values() if branch.compression and branch.compression.level]
        return statistics.mode(found) if found else "none"
    except Exception:
        return ""


def sizes(path, name, folder):
    """What a tree takes in each way; and the table of Arrow that it is, which others are given."""
    row = {"file": path.name, "tree": name}
    for access in reversed(ACCESSES):
        report = root.repack(f"{path}:{name}", folder / "events.fiche", access=access, overwrite=True, verify=access == "event")
        row[access] = report["bytes"]
    row |= {"events": report["events"], "fields": report["fields"], "raw": report["raw"], "root": report["root"]}
    row["unread"] = len(report["unread"])
    row["codec"] = codec(root.trees(path)[name])
    try:
        table = fiche.events.open(folder / "events.fiche").arrays(library="pa")
        if table.num_columns:
            row["parquet"] = Parquet(table, None, folder).stored
    except Exception as error:
        row["parquet"], table = None, None
        print(f"SKIP: Parquet of {path.name}:{name}: {type(error).__name__}: {str(error)[:100]}", file=sys.stderr)
    return row, table


def times(path, name, table, folder, rounds, peers):
    """Times of each peer: medians of rounds in which all of them come."""
    made = {}
    source = (path, name) if peers is PEERS else None
    for peer in peers:
        try:
            made[peer.name] = peer(table, source, folder)
        except Exception as error:
            print(f"SKIP: {peer.name} of {path.name}:{name}: {type(error).__name__}: {str(error)[:100]}", file=sys.stderr)
    random = np.random.default_rng(7)
    numbers = random.integers(0, len(table), 1 << 16)
    batch = random.integers(0, len(table), BATCH)
    found = {peer: {"one": [], "batch": [], "scan": []} for peer in made}
    for _ in range(rounds):
        for peer, it in made.items():
            found[peer]["one"].append(seconds(lambda i: it.one(int(numbers[i])), most=1 << 15))
            if it.batch is not None:
                found[peer]["batch"].append(seconds(lambda i: it.batch(batch)))
            found[peer]["scan"].append(seconds(lambda i: it.scan()))
    rows = []
    for peer, it in made.items():
        middle = {what: statistics.median(took) if took else None for what, took in found[peer].items()}
        rows.append({"file": path.name, "tree": name, "who": peer, "events": len(table), "stored": it.stored, **middle})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="+", type=pathlib.Path)
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tiled", type=int, default=0, metavar="MB", help="times of the same events over and over, so many megabytes, too")
    parser.add_argument("--timed", default="", help="names of files that times are taken of; without it all with 2,000 events or more")
    given = parser.parse_args()
    timed = set(given.timed.split(",")) - {""}
    all_sizes, all_times = [], []
    files = sorted(file for folder in given.folder for file in folder.rglob("*.root"))
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        for path in files:
            try:
                names = list(root.trees(path))
            except Exception as error:
                print(f"SKIP: {path.name}: {type(error).__name__}: {error}", file=sys.stderr)
                continue
            for name in names:
                print(path.name, name, file=sys.stderr)
                row, table = sizes(path, name, folder)
                all_sizes.append(row)
                wanted = path.name in timed if timed else row["events"] >= 2000
                if wanted and table is not None and table.num_columns:
                    all_times += times(path, name, table, folder, given.rounds, PEERS)
                    clear(folder)
                    if given.tiled:
                        tiles = pa.concat_tables([table] * math.ceil(given.tiled * 1e6 / table.nbytes)).combine_chunks()
                        all_times += times(pathlib.Path(path.name + ", tiled"), name, tiles, folder, given.rounds, TILED)
                clear(folder)
    given.output.mkdir(parents=True, exist_ok=True)
    write(given.output / "events-root.csv", all_sizes)
    write(given.output / "events-peers.csv", all_times)
    (given.output / "events-root.md").write_text(text(all_sizes, all_times))


def clear(folder):
    for file in folder.iterdir():
        shutil.rmtree(file) if file.is_dir() else file.unlink()


def write(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
        writer.writeheader()
        writer.writerows(rows)


def mean(values):
    return math.exp(statistics.mean(map(math.log, values))) if values else math.nan


def text(all_sizes, all_times):
    lines = [
        "# Events of ROOT files", "",
        "Every tree of every file, repacked and read again bit by bit. ROOT's bytes are those of the baskets as they are stored, without what the file needs beside "
        "them; ours are whole files. Parquet is pyarrow's, with zstd. Where there is no number, baskets do not tell, or Arrow has no such type.", "",
        "| file | tree | events | fields | values | ROOT's baskets | of | fiche event | of ROOT's | of Parquet | block | scan |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    to_root, to_parquet, seen = [], [], set()
    for row in all_sizes:
        one = row["event"] / row["root"] if row["root"] else None
        two = row["event"] / row["parquet"] if row.get("parquet") else None
        same = row["tree"], row["events"], row["fields"], row["raw"]
        if row["events"] >= 2000 and row["codec"] in ("ZLIB", "ZSTD") and same not in seen:
            seen.add(same)
            to_root += [one] if one else []
            to_parquet += [two] if two else []
        ratios = [f"{ratio:.3f}" if ratio else "" for ratio in (one, two)]
        lines.append(f"| {row['file']} | {row['tree']} | {row['events']} | {row['fields']} | {row['raw']} | {row['root'] or ''} | {row['codec']} | {row['event']} | "
                     f"{ratios[0]} | {ratios[1]} | {row['block']} | {row['scan']} |")
    lines += ["", f"Of trees with 2,000 events or more that ROOT compressed with zlib or zstd, each once, geometric means: {mean(to_root):.3f} of ROOT's baskets, {mean(to_parquet):.3f} of Parquet."]
    if not all_times:
        return "\n".join(lines) + "\n"
    lines += ["",
              "## Times", "",
              "From Python, one thread, files in memory or in the system's cache: a random event with all fields as a dictionary or what comes nearest, "
              f"{BATCH:,} random events as one table, all events as one table. ArrayRecord has bytes, which are pickled here; Vortex takes events in increasing order. "
              "Parquet's batch reads the whole file. Medians of rounds in which all of them come.", "",
              "| file | tree | who | stored | a random event, us | events a second, 3,000 together | all, events a second |", "|---|---|---|---|---|---|---|"]
    for row in all_times:
        one = f"{row['one'] * 1e6:.1f}"
        batch = f"{BATCH / row['batch']:,.0f}" if row["batch"] else ""
        lines.append(f"| {row['file']} | {row['tree']} | {row['who']} | {row['stored'] or ''} | {one} | {batch} | {row['events'] / row['scan']:,.0f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
