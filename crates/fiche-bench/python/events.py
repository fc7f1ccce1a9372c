"""Events of ROOT files, kept by fiche and by others: sizes, one random event, many at once, all of them.

python events.py FOLDER... -o RESULTS [--rounds 3] [--trees NAME,NAME]

Every tree of every file is repacked and verified; sizes are compared for all of them, times for those of more than 2,000 events. What is
not installed is skipped, and says so.
"""

import argparse
import csv
import math
import pathlib
import shutil
import statistics
import sys
import tempfile

import fiche.events
import numpy as np
import pyarrow as pa
from fiche.events import _peers, root

ACCESSES = ("event", "block", "scan")


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
            row["parquet"] = _peers.Parquet(table, None, folder).stored
    except Exception as error:
        row["parquet"], table = None, None
        print(f"SKIP: Parquet of {path.name}:{name}: {type(error).__name__}: {str(error)[:100]}", file=sys.stderr)
    return row, table


def times(path, name, table, folder, rounds, source=None):
    """Times of each way to keep it; of the same events over and over only of those that are near."""
    def skipped(who, error):
        print(f"SKIP: {who} of {path.name}:{name}: {type(error).__name__}: {str(error)[:100]}", file=sys.stderr)

    peers = _peers.PEERS if source else _peers.TILED
    rows = _peers.times(table, source, folder, rounds, peers, skipped)
    return [{"file": path.name, "tree": name, **row} for row in rows]


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
                    all_times += times(path, name, table, folder, given.rounds, (path, name))
                    clear(folder)
                    if given.tiled:
                        tiles = pa.concat_tables([table] * math.ceil(given.tiled * 1e6 / table.nbytes)).combine_chunks()
                        all_times += times(pathlib.Path(path.name + ", tiled"), name, tiles, folder, given.rounds)
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
              f"{_peers.BATCH:,} random events as one table, all events as one table. ArrayRecord has bytes, which are pickled here; Vortex takes events in increasing order. "
              "Parquet's batch reads the whole file. Medians of rounds in which all of them come.", "",
              "| file | tree | who | stored | a random event, us | events a second, 3,000 together | all, events a second |", "|---|---|---|---|---|---|---|"]
    for row in all_times:
        one = f"{row['one'] * 1e6:.1f}"
        batch = f"{_peers.BATCH / row['batch']:,.0f}" if row["batch"] else ""
        lines.append(f"| {row['file']} | {row['tree']} | {row['who']} | {row['stored'] or ''} | {one} | {batch} | {row['events'] / row['scan']:,.0f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
