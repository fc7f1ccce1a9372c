"""Events that come from files of ROOT and Parquet, and become such again."""

import importlib.util
import json
import pathlib

import fiche
import fiche.events
import numpy as np
import pytest

from test_events import same

ak = pytest.importorskip("awkward", reason="SKIP: awkward could not be installed")


@pytest.fixture
def tree(tmp_path):
    uproot = pytest.importorskip("uproot", reason="SKIP: uproot could not be installed")
    path = tmp_path / "run.root"
    random = np.random.default_rng(3)
    counts = random.integers(0, 5, 500)
    mass = random.normal(91.2, 2.5, 500).astype("f4")
    mass[7] = np.frombuffer(b"\x01\x02\xc0\x7f", "f4")[0]
    with uproot.recreate(path) as file:
        events = {
            "run": np.full(500, 3, "i4"),
            "mass": mass,
            "jet": ak.zip({"pt": ak.unflatten(random.exponential(30, counts.sum()), counts)}),
            "grid": np.arange(1500, dtype="f8").reshape(500, 3),
        }
        types = {"run": "i4", "mass": "f4", "jet": "var * {pt: float64}", "grid": ("f8", (3,))}
        file.mktree("events", types)
        file["events"].extend(events)
        file.mkrntuple("tuple", {"x": np.arange(3), "y": [[1, 2], [], [3]]})
    return path


def test_trees_of_root_are_repacked_bit_by_bit(tree, tmp_path, capsys):
    import uproot
    from fiche.events import root

    out = tmp_path / "out.fiche"
    assert root.main(["repack", str(tree), "-o", str(out)]) == 1
    assert "2 trees: events, tuple" in capsys.readouterr().err
    assert root.main(["repack", f"{tree}:events", "-o", str(out), "--verify"]) == 0
    assert "bit by bit" in capsys.readouterr().out
    events = fiche.events.open(out)
    source = uproot.open(tree)["events"].arrays()
    for name in events.keys():
        assert same(events[name], source[name]), name
    assert root.main(["repack", f"{tree}:events", "-o", str(out)]) == 1
    assert root.main(["repack", f"{tree}:events", "-o", str(out), "-f", "--branches", "j*"]) == 0
    assert fiche.events.open(out).keys() == [name for name in events.keys() if name.startswith("j")]
    assert root.main(["repack", f"{tree}:events", "-o", str(out), "-f", "--branches", "q"]) == 1
    assert root.main(["repack", f"{tree}:tuple", "-o", str(out), "-f", "--verify"]) == 0
    assert [fiche.events.open(out)[i]["y"] for i in range(3)] == [[1, 2], [], [3]]
    assert root.main(["ls", str(tree)]) == 0
    assert "mass" in capsys.readouterr().out
    cut = tmp_path / "cut.root"
    cut.write_bytes(tree.read_bytes()[:3000])
    before = sorted(tmp_path.iterdir())
    assert root.main(["repack", f"{cut}:events", "-o", str(tmp_path / "no.fiche")]) == 1
    assert sorted(tmp_path.iterdir()) == before


def test_a_difference_is_found_when_verified(tree, tmp_path, monkeypatch):
    from fiche.events import root

    source = root._Read.array
    turn = []

    def array(self, start, stop):
        array = source(self, start, stop)
        turn.append(self.branch.name)
        # What is read the last time, to be compared, has another last bit.
        if turn.count("mass") == 5 and turn[-1] == "mass":
            bits = np.asarray(array).copy()
            bits.view("u4")[3] ^= 1
            return ak.Array(bits)
        return array

    monkeypatch.setattr(root._Read, "array", array)
    with pytest.raises(fiche.CorruptError, match="mass differs"):
        root.repack(f"{tree}:events", tmp_path / "out.fiche", verify=True)


def test_branches_that_cannot_be_read_go_in_as_bytes(tree, tmp_path, monkeypatch):
    from fiche.events import root

    source = root._Read.columns

    def columns(self, start, stop):
        if self.branch.name == "grid":
            raise NotImplementedError("no way to read it")
        return source(self, start, stop)

    monkeypatch.setattr(root._Read, "columns", columns)
    report = root.repack(f"{tree}:events", tmp_path / "out.fiche", verify=True)
    assert report["unread"] == {"grid": "NotImplementedError: no way to read it"}
    stored = b"".join(fiche.events.open(tmp_path / "out.fiche")["grid"].to_list())
    assert stored == np.arange(1500, dtype=">f8").tobytes()


def test_events_become_trees_of_root_again(tree, tmp_path, capsys):
    import uproot
    from fiche.events import root

    there, back, again = tmp_path / "there.fiche", tmp_path / "back.root", tmp_path / "again.fiche"
    assert root.main(["repack", f"{tree}:events", "-o", str(there), "-q"]) == 0
    assert root.main(["export", str(there), "-o", str(back), "--verify", "--codec", "lz4"]) == 0
    assert "a TTree" in capsys.readouterr().out
    was, now = (uproot.open(path)["events"] for path in (tree, back))
    # The counter of lists counts them still, and NaNs have their bits.
    assert {name: branch.typename for name, branch in was.items()} == {name: branch.typename for name, branch in now.items()}
    assert now["jet_pt"].count_branch.name == "njet"
    assert now["mass"].array(library="np").tobytes() == was["mass"].array(library="np").tobytes()
    assert now["grid"].array(library="np").shape == (500, 3)
    # As the header of each piece that is compressed says.
    assert b"L4\x01" in back.read_bytes() and b"ZS\x01" not in back.read_bytes()
    root.repack(f"{back}:events", again, verify=True)
    assert fiche.events.open(again).typenames() == fiche.events.open(there).typenames()
    # What is there stays, unless it may go.
    before = back.read_bytes()
    assert root.main(["export", str(there), "-o", str(back)]) == 1
    assert back.read_bytes() == before
    assert root.main(["export", str(there), "-o", str(back), "-f", "--branches", "m*", "--tree", "masses"]) == 0
    assert uproot.open(back)["masses"].keys() == ["mass"]
    assert root.main(["export", str(there), "-o", str(tmp_path / "no.root"), "--branches", "q"]) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.fiche", "back.root", "run.root", "there.fiche"]


def test_any_events_become_tuples_of_root(tmp_path):
    import uproot
    from fiche.events import root

    events = {
        "deep": ak.Array([[[1, 2], []], [], [[3]]]),
        "names": ak.Array([["a", "bc"], [], [""]]),
        "maybe": ak.Array([1.5, None, 2.5]),
        "point": ak.Array([{"x": 1, "y": 2.0}] * 3),
        "blob": ak.Array([b"\xff\x00", b"", b"a"]),
        "half": np.array([1.5, np.inf, -0.0], "f2"),
        "a/long.name": np.arange(3),
        "b/long.name": np.arange(3),
    }
    with fiche.events.create(tmp_path / "any.fiche") as writer:
        writer.extend(events)
    with pytest.raises(TypeError, match="deep has var \\* var"):
        root.export(tmp_path / "any.fiche", tmp_path / "any.root", kind="TTree")
    report = root.export(tmp_path / "any.fiche", tmp_path / "any.root", verify=True)
    assert (report["kind"], report["verified"]) == ("RNTuple", 3)
    assert report["renamed"] == {"a/long.name": "long_name", "b/long.name": "long_name_2"}
    found = uproot.open(tmp_path / "any.root")["events"].arrays()
    assert found["deep"].to_list() == [[[1, 2], []], [], [[3]]]
    assert found["blob"].to_list() == [[255, 0], [], [97]]
    assert found["half"].to_list() == [1.5, np.inf, 0.0] and np.signbit(found["half"][2])
    assert found["point"]["y"].to_list() == [2.0] * 3
    assert {row["branch"] for row in root.compare(tmp_path / "any.root", times=False)["branches"]} == set(found.fields)
    for events in ({"x": np.arange(0)}, {"x": ak.Array([[[1]]])[:0]}):
        with fiche.events.create(tmp_path / "none.fiche", overwrite=True) as writer:
            writer.extend(events)
        assert root.export(tmp_path / "none.fiche", tmp_path / "none.root", verify=True, overwrite=True)["events"] == 0


def test_a_difference_of_a_tree_that_was_written_is_found(tree, tmp_path, monkeypatch):
    from fiche.events import _export, root

    root.repack(f"{tree}:events", tmp_path / "out.fiche")
    extend = _export._Tree.extend

    def other(self, arrays):
        mass = np.asarray(arrays["mass"]).copy()
        mass.view("u4")[7] ^= 1
        extend(self, arrays | {"mass": ak.Array(mass)})

    monkeypatch.setattr(_export._Tree, "extend", other)
    with pytest.raises(fiche.CorruptError, match="mass differs"):
        root.export(tmp_path / "out.fiche", tmp_path / "out.root", verify=True)
    assert not (tmp_path / "out.root").exists()


def test_a_tree_of_root_is_compared_with_what_it_takes_here(tree, capsys):
    from fiche.events import root

    report = root.compare(f"{tree}:events", rounds=1, verify=True)
    rows = {row["branch"]: row for row in report["branches"]}
    assert rows["grid"]["bytes"] == 12_000 and rows["run"]["coding"] == "one value"
    assert report["root"] == sum(row["root"] for row in rows.values())
    # But for what files have beside their columns.
    stored = sum(row["stored_bytes"] for row in rows.values())
    assert stored < report["bytes"] < stored + report["model_bytes"] + 4096
    ways = {row["who"]: row for row in report["times"]}
    assert {"fiche", "uproot"} <= set(ways) and not set(ways) & set(report["skipped"])
    assert all(row["one"] > 0 and row["events"] == 500 for row in ways.values())
    assert root.main(["compare", f"{tree}:events", "--sizes", "--branches", "jet*"]) == 0
    told = capsys.readouterr().out
    assert "jet_pt" in told and "ROOT's baskets" in told and "uproot" not in told
    assert root.main(["compare", f"{tree}:events", "--sizes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["events"] == 500


def test_the_example_shows_a_peak(tmp_path, capsys):
    uproot = pytest.importorskip("uproot", reason="SKIP: uproot could not be installed")
    path = pathlib.Path(__file__).parents[1] / "examples" / "mass_peak.py"
    spec = importlib.util.spec_from_file_location("mass_peak", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    # Back to back, two muons have twice the momentum of one as their mass.
    count = 400
    random = np.random.default_rng(5)
    pt, phi = random.normal(45.6, 1, count), random.uniform(-3, 0, count)
    muons = {"pt": np.stack([pt, pt]), "eta": np.zeros((2, count)), "phi": np.stack([phi, phi + np.pi]),
             "charge": np.stack([np.ones(count), -np.ones(count)])}
    lists = {f"Muon_{name}": ak.from_regular(ak.Array(values.T.astype("f4"))) for name, values in muons.items()}
    with uproot.recreate(tmp_path / "nano.root") as file:
        file.mktree("Events", {name: "var * float32" for name in lists})
        file["Events"].extend(lists)
    example.main([str(tmp_path / "nano.root"), "--events", "300", "--svg", str(tmp_path / "peak.svg")])
    told = capsys.readouterr().out
    assert "400 events of" in told and "300 pairs of muons in 300 random events, around 91." in told
    assert (tmp_path / "peak.svg").read_text().count("<rect") == 31
    assert len(fiche.events.open(tmp_path / "nano.fiche")) == 400


def test_files_of_parquet_come_back(tmp_path, capsys):
    pa = pytest.importorskip("pyarrow", reason="SKIP: pyarrow could not be installed")
    import pyarrow.parquet as pq
    from fiche.events import parquet

    count = 5000
    random = np.random.default_rng(8)
    table = pa.table({
        "run": np.arange(count, dtype="u4") // 100,
        # What is missing is so only late.
        "late": pa.array([None if i > 4900 and i % 3 else i / 8 for i in range(count)]),
        "name": [f"name-{i % 17}" for i in range(count)],
        "hits": [[{"x": float(j), "y": [j] * (i % 3)} for j in range(i % 4)] for i in range(count)],
        "at": pa.array(random.integers(0, 10**15, count), pa.timestamp("us")),
        "noise": random.normal(size=count),
    })
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=700)
    out, back = tmp_path / "out.fiche", tmp_path / "back.parquet"
    parquet.STEP, step = 1000, parquet.STEP
    try:
        args = ["pack", str(tmp_path / "in.parquet"), "-o", str(out), "--key", "run,name", "--verify"]
        assert parquet.main(args) == 0
        assert parquet.main(args) == 1
    finally:
        parquet.STEP = step
    told = capsys.readouterr()
    assert "bit by bit" in told.out and "5,000 events, 6 fields" in told.out and str(out) in told.err
    events = fiche.events.open(out)
    assert events.typenames()["late"] == "?float64" and list(events.find(run=7, name="name-0")) == [714, 731, 748, 765, 782, 799]
    assert parquet.main(["unpack", str(out), "-o", str(back)]) == 0
    assert parquet.main(["unpack", str(out), "-o", str(back)]) == 1
    again = pq.read_table(back)
    assert again.to_pylist() == table.to_pylist() and again.schema.field("at").type == pa.timestamp("us")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back.parquet", "in.parquet", "out.fiche"]
    none = parquet.pack(tmp_path / "in.parquet", tmp_path / "no-columns", columns=[])
    assert none["events"] == count == len(fiche.events.open(tmp_path / "no-columns"))
    some = parquet.pack(tmp_path / "in.parquet", tmp_path / "some", columns=["noise", "run"])
    assert some["fields"] == 2 and fiche.events.open(tmp_path / "some").keys() == ["noise", "run"]
    with pytest.raises(KeyError):
        parquet.pack(tmp_path / "in.parquet", tmp_path / "none", columns=["no"])
    for wrong in (tmp_path / "none.parquet", out):
        assert parquet.main(["pack", str(wrong), "-o", str(tmp_path / "none")]) == 1
    assert not (tmp_path / "none").exists()
    # What is not the same is found.
    other = table.set_column(5, "noise", pa.array(np.negative(table["noise"].to_numpy())))
    pq.write_table(other, tmp_path / "in.parquet")
    with pytest.raises(fiche.CorruptError, match="noise differs in events 0 to 5000"):
        parquet._verify(pq.ParquetFile(tmp_path / "in.parquet"), out, table.column_names)


def _root_file(path):
    uproot = pytest.importorskip("uproot", reason="SKIP: uproot could not be installed")
    with uproot.recreate(path, compression=uproot.ZLIB(6)) as file:
        tree = file.mktree("t", {"x": "int32", "y": "float64"})
        tree.extend({"x": np.arange(5000) % 11, "y": np.arange(5000) / 7})
    return uproot


def test_a_tree_of_root_by_its_cycle(tmp_path):
    uproot = _root_file(tmp_path / "c.root")
    from fiche.events import root

    with uproot.update(tmp_path / "c.root") as file:
        file.mktree("t", {"x": "int32"}).extend({"x": np.arange(3)})
    cycles = sorted(key for key in uproot.open(tmp_path / "c.root").keys() if key.startswith("t;"))
    assert len(cycles) == 2
    counts = {}
    for cycle in [*cycles, "t"]:
        counts[cycle] = root.repack(f"{tmp_path / 'c.root'}:{cycle}", tmp_path / "o.fiche", overwrite=True)["events"]
    assert counts == {cycles[0]: 5000, cycles[1]: 3, "t": 3}
    with pytest.raises(KeyError, match="of t it has"):
        root.repack(f"{tmp_path / 'c.root'}:t;9", tmp_path / "o.fiche", overwrite=True)


def test_damaged_baskets_of_root_are_kept_as_they_are(tmp_path):
    _root_file(tmp_path / "d.root")
    from fiche.events import root

    data = bytearray((tmp_path / "d.root").read_bytes())
    at = data.index(b"ZL\x08", data.index(b"ZL\x08") + 3)
    for change, codec in ((b"QQ", "unknown codec"), (b"ZL", "damage")):
        data[at : at + 2] = change
        data[at + 60] ^= 0xFF if codec == "damage" else 0
        (tmp_path / "d.root").write_bytes(data)
        report = root.repack(tmp_path / "d.root", tmp_path / "o.fiche", overwrite=True, verify=True)
        assert len(report["unread"]) == 1, codec
        (name, why), = report["unread"].items()
        assert "as they lie in the file" in why
        kept = fiche.events.open(tmp_path / "o.fiche").arrays(library="np")
        stored = b"".join(kept[name].tolist())
        assert bytes(data[at : at + 200]) in stored
        other = "y" if name == "x" else "x"
        assert np.array_equal(kept[other], np.arange(5000) / 7 if other == "y" else np.arange(5000) % 11)
