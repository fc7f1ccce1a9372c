"""Events from Python: what goes in comes out, by every library."""

import os
import pickle
import threading

import fiche
import fiche.events
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

ak = pytest.importorskip("awkward", reason="SKIP: awkward could not be installed")

DTYPES = ["bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]


def arrays_of(depth):
    """Any number arrays with what may be around them: a function of how many items there are to a layout."""
    number = st.builds(
        lambda dtype, seed: (lambda n: _numbers(dtype, seed, n)), st.sampled_from(DTYPES), st.integers(0, 2**32)
    )
    text = st.builds(lambda seed, kind: (lambda n: _texts(seed, kind, n)), st.integers(0, 2**32), st.booleans())
    if depth == 0:
        return number | text
    inner = arrays_of(depth - 1)
    return st.one_of(
        number,
        text,
        st.builds(lambda inner, seed: (lambda n: _list(inner, seed, n)), inner, st.integers(0, 2**32)),
        st.builds(lambda inner, size: (lambda n: _array(inner, size, n)), inner, st.integers(1, 4)),
        st.builds(lambda inner, seed: (lambda n: _option(inner, seed, n)), inner, st.integers(0, 2**32)),
        st.builds(lambda a, b: (lambda n: _record(a, b, n)), inner, inner),
    )


def _numbers(dtype, seed, n):
    random = np.random.default_rng(seed)
    data = random.integers(0, 256, n * np.dtype(dtype).itemsize, np.uint8)
    if dtype == "bool":
        data &= 1
    if seed % 3 == 0:
        data[:] = seed % 2
    return ak.contents.NumpyArray(data.view(dtype))


def _offsets(seed, n):
    counts = np.random.default_rng(seed).integers(0, 4, n)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _list(inner, seed, n):
    ends = _offsets(seed, n)
    return ak.contents.ListOffsetArray(ak.index.Index64(ends), inner(int(ends[-1])))


def _texts(seed, is_text, n):
    ends = _offsets(seed, n)
    random = np.random.default_rng(seed)
    data = random.integers(32, 127 if is_text else 256, int(ends[-1])).astype(np.uint8)
    names = ("string", "char") if is_text else ("bytestring", "byte")
    content = ak.contents.NumpyArray(data, parameters={"__array__": names[1]})
    return ak.contents.ListOffsetArray(ak.index.Index64(ends), content, parameters={"__array__": names[0]})


def _array(inner, size, n):
    return ak.contents.RegularArray(inner(n * size), size, n)


def _option(inner, seed, n):
    there = np.random.default_rng(seed).integers(0, 2, n).astype(bool)
    if n:
        # All there is another type where it comes from Arrow.
        there[0] = False
    index = np.where(there, np.cumsum(there) - 1, -1)
    return ak.contents.IndexedOptionArray.simplified(ak.index.Index64(index), inner(int(there.sum())))


def _record(a, b, n):
    return ak.contents.RecordArray([a(n), b(n)], ["a", "any name"], n)


def same(a, b):
    """Whether two awkward arrays have the same types and values, to the last bit."""
    one, other = (ak.to_packed(ak.to_layout(array), highlevel=False) for array in (a, b))
    if ak.type(a).content != ak.type(b).content:
        return False
    return ak.to_list(_bits(one)) == ak.to_list(_bits(other))


def _bits(layout):
    """Floating point numbers as whole ones, so that what is no number equals itself."""

    def bits(part, **_):
        if part.is_numpy and part.dtype.kind == "f":
            data = np.ascontiguousarray(part.data)
            return ak.contents.NumpyArray(data.view(f"u{data.dtype.itemsize}"))
        return None

    return ak.transform(bits, layout)


def written(events, **options):
    """A file of events in memory, open."""
    import io

    out = io.BytesIO()
    with fiche.events.create(out, **options) as writer:
        writer.extend(events)
    return fiche.events.open(out.getvalue())


@settings(deadline=None, max_examples=60)
@given(arrays_of(2), arrays_of(2), st.integers(1, 40), st.sampled_from(["event", "block", "scan"]))
def test_awkward_arrays_come_back(a, b, count, access):
    events = ak.Array(ak.contents.RecordArray([a(count), b(count)], ["first", "second"], count))
    reader = written(events, access=access)
    assert len(reader) == count
    back = reader.arrays(library="ak")
    assert same(back, events)
    assert same(reader.arrays(["second"], entry_start=1)["second"], events["second"][1:])
    numbers = [count - 1, 0, -1, count // 2, 0]
    assert same(reader.take(numbers, library="ak"), events[numbers])
    for number in {0, count // 2, count - 1}:
        one = reader[number]
        expected = ak.to_list(events[number])
        assert one == expected or repr(one) == repr(expected)


@settings(deadline=None, max_examples=40)
@given(arrays_of(2), st.integers(1, 30))
def test_tables_of_arrow_come_back(a, count):
    pa = pytest.importorskip("pyarrow", reason="SKIP: pyarrow could not be installed")
    events = ak.Array(ak.contents.RecordArray([a(count)], ["x"], count))
    reader = written(events)
    table = reader.arrays(library="pa")
    # Of what may be missing, and never is, a table says nothing.
    again = written(table, fields=reader.typenames())
    assert same(again.arrays(library="ak"), events)
    assert pa.table(reader).equals(table) or "float16" in str(reader.typenames()) or _has_nan(table)


def _has_nan(table):
    return "nan" in str(table.to_pydict())


def test_arrays_of_numpy_come_back_with_their_bits():
    random = np.random.default_rng(7)
    jagged = np.empty(50, object)
    jagged[:] = [random.normal(size=i % 4).astype("f4") for i in range(50)]
    events = {
        "nan": np.frombuffer(random.bytes(400), "f8"),
        "big": random.integers(0, 99, 50).astype(">i4"),
        "matrix": random.normal(size=(50, 2, 3)),
        "jagged": jagged,
        "name": np.array([f"{i}é" for i in range(50)]),
        "raw": [bytes(i) for i in range(50)],
        "half": np.frombuffer(random.bytes(100), "f2"),
        "pair": np.frombuffer(random.bytes(300), [("a", "i2"), ("b", "f4")]),
        "masked": np.ma.MaskedArray(np.arange(50), np.arange(50) % 3 == 0),
    }
    reader = written(events)
    back = reader.arrays(library="np")
    assert back["nan"].tobytes() == events["nan"].tobytes()
    assert back["half"].tobytes() == events["half"].tobytes()
    assert back["big"].dtype == "i4" and (back["big"] == events["big"]).all()
    assert back["matrix"].shape == (50, 2, 3) and (back["matrix"] == events["matrix"]).all()
    assert all((a == b).all() and a.dtype == b.dtype for a, b in zip(back["jagged"], jagged, strict=True))
    assert back["name"].tolist() == events["name"].tolist() and back["raw"].tolist() == events["raw"]
    assert back["pair"].dtype == events["pair"].dtype and back["pair"].tobytes() == events["pair"].tobytes()
    assert back["masked"].tolist() == events["masked"].tolist()
    assert reader[4]["big"] == int(events["big"][4]) and reader[3]["masked"] is None
    assert [type(value) for value in reader[1].values()] == [float, int, list, list, str, bytes, float, dict, int]
    assert reader["big"].tolist() == events["big"].tolist()
    assert reader[5:9]["big"].tolist() == events["big"][5:9].tolist()
    assert reader[::-7]["big"].tolist() == events["big"][::-7].tolist()
    assert reader[events["big"] > 50]["big"].tolist() == events["big"][events["big"] > 50].tolist()


def test_what_is_missing_stays_missing():
    masked = np.ma.MaskedArray
    written_and_read = lambda events: written(events).arrays(library="np")["x"].tolist()
    assert written_and_read({"x": masked([[1, 2], [3, 4]], [[0, 1], [0, 0]])}) == [[1, None], [3, 4]]
    assert written_and_read({"x": masked(np.zeros((0, 2)), np.zeros((0, 2)))}) == []
    jagged = written({"x": [masked([1, 2], [0, 1]), np.array([3])]})
    assert jagged.typenames() == {"x": "var * ?int64"} and jagged[0] == {"x": [1, None]}
    again = written(jagged.arrays(library="np"))
    assert again.typenames() == jagged.typenames() and again[0] == jagged[0]
    lists = ak.Array([{"x": [1, 2]}, {"x": None}, {"x": [3, 4]}])
    assert [part if part is None else part.tolist() for part in written(lists).arrays(library="np")["x"]] == [[1, 2], None, [3, 4]]
    record = ak.Array([{"x": {"a": None, "b": 1}}, {"x": {"a": 2, "b": 3}}])
    assert written(record).arrays(library="np")["x"].tolist() == [(None, 1), (2, 3)]
    pa = pytest.importorskip("pyarrow", reason="SKIP: pyarrow could not be installed")
    assert written({"x": pa.array([1, None, 2**53 + 1])})[2] == {"x": 2**53 + 1}


def test_nothing_is_lost_where_kinds_differ():
    for lossy in (
        [2**53 + 1, 0.5],
        [np.array([2**63 + 1], "u8"), np.array([-1])],
        [1 + 2j],
        [["ab"], ["c", 1]],
        [True, 2],
        ["a", b"a"],
        [1, "a"],
    ):
        with pytest.raises((TypeError, OverflowError)):
            written({"x": lossy})
    with pytest.raises(ValueError, match="does not have"):
        written({"x": np.array([2**53 + 1])}, fields={"x": "float64"})
    for value, kind in [(-1, "uint64"), (-1, "uint8"), (128, "int8"), (2**32, "uint32"), (2**11 + 1, "float16"), (1.0, "int32")]:
        with pytest.raises(ValueError, match="x has"):
            written({"x": [value]}, fields={"x": kind})
    with pytest.raises(ValueError, match="does not have"):
        written({"x": np.array([2**63], "u8")}, fields={"x": "int64"})
    assert written({"x": [200, 0]}, fields={"x": "uint8"})[0] == {"x": 200}
    assert written({"x": np.array([2**53])}, fields={"x": "float64"})[0] == {"x": 2.0**53}
    assert written({"x": [[b"ab\0"], [b"c", b"d"], []]})[0] == {"x": [b"ab\0"]}
    assert bytes(written({"x": np.array([b"ab\0"], "S3")})[0]["x"]) == b"ab\0"
    assert written({"x": [2**63, 1]}).typenames() == {"x": "uint64"}
    assert written({"x": []}, fields={"x": "string"}).typenames() == {"x": "string"}
    assert written({"x": [None, None]}, fields={"x": "?string"})[1] == {"x": None}
    assert written({"x": np.arange(300)}).take(np.array([1, -1], np.int8), library="np")["x"].tolist() == [1, 299]


def test_halves_are_the_numbers_that_numpy_says():
    bits = np.arange(1 << 16, dtype=np.uint16)
    reader = written({"x": bits.view("f2")})
    for number in range(0, 1 << 16, 37):
        expected = float(bits.view("f2")[number])
        assert reader[number]["x"] == expected or expected != expected


def test_frames_of_pandas_come_back():
    pd = pytest.importorskip("pandas", reason="SKIP: pandas could not be installed")
    frame = pd.DataFrame({"a": [1, 2, 3], "b": [0.5, None, 1.5], "c": ["x", None, "z"]})
    back = written(frame).arrays(library="pd")
    assert back["a"].tolist() == [1, 2, 3] and back["c"].tolist()[::2] == ["x", "z"]
    assert back["b"].isna().tolist() == [False, True, False]
    flat = written({"a": np.arange(5)}).arrays(library="pd")
    assert flat["a"].dtype == np.int64 and len(flat) == 5


def test_events_come_some_at_a_time(tmp_path):
    path = tmp_path / "e.fiche"
    with fiche.events.create(path, {"n": "uint32", "x": "var * ?float64"}, notes={"run": 7}) as writer:
        writer.extend({"n": np.arange(10, dtype="u2"), "x": [[1.0] * (i % 3) for i in range(10)]})
        writer.extend({"n": np.arange(10, 15, dtype="u4"), "x": [[]] * 5})
        assert not path.exists()
    reader = fiche.events.open(path)
    assert reader.typenames() == {"n": "uint32", "x": "var * ?float64"} and reader.notes == {"run": "7"}
    seen = list(reader.iterate(["n"], step_size=4, report=True, library="np"))
    assert [report for _, report in seen] == [(0, 4), (4, 8), (8, 12), (12, 15)]
    assert np.concatenate([some["n"] for some, _ in seen]).tolist() == list(range(15))
    assert len(list(reader.iterate(step_size="1 kB"))) == 1
    assert reader[2] == {"n": 2, "x": [1.0, 1.0]} and reader[-1] == {"n": 14, "x": []}
    assert reader.keys() == ["n", "x"] and reader.num_entries == 15


def test_events_are_added_and_found(tmp_path):
    path = tmp_path / "runs"
    kinds = {"run": "uint32", "stream": "string", "pt": "var * float32", "hit": "{x: int8, y: float64}"}

    def some(start, stop):
        numbers = range(start, stop)
        return {
            "run": [i // 10 for i in numbers],
            "stream": [f"stream-{i % 3}" for i in numbers],
            "pt": [np.full(i % 4, 0.5, "f4") for i in numbers],
            # Fields of records may come in any order.
            "hit": ak.Array([{"y": i / 4, "x": i % 100} for i in numbers]),
        }

    with fiche.events.create(path, kinds, key=["stream", "run"], access="block") as writer:
        writer.extend(some(0, 1000))
    before = fiche.events.open(path)
    with fiche.events.append(path) as writer:
        assert writer.num_entries == 1000
        with pytest.raises(fiche.BusyError):
            fiche.events.append(path)
        writer.extend(some(1000, 1400))
    stored = path.read_bytes()
    with pytest.raises(ZeroDivisionError), fiche.events.append(path) as writer:
        writer.extend(some(0, 100_000))
        raise ZeroDivisionError
    assert path.read_bytes() == stored
    events = fiche.events.open(path)
    assert (len(before), len(events), events.key) == (1000, 1400, ["run", "stream"])
    assert ak.to_list(events.arrays()["hit"]) == [{"x": i % 100, "y": i / 4} for i in range(1400)]
    assert list(events.find(run=123, stream="stream-1")) == [1231, 1234, 1237]
    assert list(events.find(run=np.uint32(3), stream=b"stream-0")) == [30, 33, 36, 39]
    assert list(events.find(stream="stream")) == [] and len(events.find(stream="stream-2")) == 466
    for wrong, error in [({"run": 0.5}, ValueError), ({"run": -1}, ValueError), ({"run": "7"}, ValueError),
                         ({"run": 2**70}, ValueError), ({"pt": 1}, ValueError), ({"px": 1}, KeyError)]:
        with pytest.raises(error):
            events.find(**wrong)
    with pytest.raises(ValueError):
        fiche.events.create(tmp_path / "none", {"pt": "var * int8"}, key="pt")
    report = events.report()
    assert (report["access"], report["segments"], report["stored_bytes"]) == ("block", 2, len(stored))
    assert report["columns"][0]["column"] == "run" and report["columns"][0]["bytes"] == 5600
    out = {"run": np.zeros(3, np.uint32)}
    assert events.take([7, 1399, 7], out=out) is out and list(out["run"]) == [0, 139, 0]
    wide = events.take([700], out={"run": np.zeros(1, np.int64)})
    assert list(wide["run"]) == [70]
    for wrong in (5, True, None):
        with pytest.raises(ValueError, match="never"):
            events.find(stream=wrong)
    missing = written({"x": np.ma.masked_array([5.0, 1.0], [False, True])})
    with pytest.raises(TypeError):
        missing.take([0, 1], out={"x": np.zeros(2)})
    pid = os.fork() if (child := fiche.events.append(path)) else 0
    if pid == 0:
        child.abort()
        os._exit(0)
    os.waitpid(pid, 0)
    child.extend(some(0, 10))
    child.close()
    assert len(fiche.events.open(path)) == 1410 and fiche.events.open(path)[1409]["run"] == 0
    events = fiche.events.open(path)
    for wrong, error in [({"run": np.zeros(2, np.uint32)}, ValueError), ({"run": np.zeros(3, np.int8)}, TypeError),
                         ({"pt": np.zeros(3)}, TypeError), ({"px": np.zeros(3)}, KeyError)]:
        with pytest.raises(error):
            events.take([1, 2, 3], out=wrong)


def test_what_is_wrong_is_told(tmp_path):
    path = tmp_path / "e.fiche"
    with pytest.raises(ValueError, match="is no type"):
        fiche.events.create(path, {"x": "float33"})
    with pytest.raises(ValueError, match="'z' is no|z.* are new"), fiche.events.create(path) as writer:
        writer.extend({"x": np.arange(3)})
        writer.extend({"z": np.arange(3)})
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="x has float64, not int64"), fiche.events.create(path) as writer:
        writer.extend({"x": np.arange(3)})
        writer.extend({"x": np.arange(3) / 2})
    with pytest.raises(ValueError, match="other numbers"), fiche.events.create(path) as writer:
        writer.extend({"x": np.arange(3), "y": np.arange(4)})
    with pytest.raises(TypeError, match="complex"), fiche.events.create(path) as writer:
        writer.extend({"x": np.zeros(3, complex)})
    assert list(tmp_path.iterdir()) == []
    with fiche.events.create(path) as writer:
        writer.extend({"x": np.arange(3)})
    with pytest.raises(FileExistsError):
        fiche.events.create(path, {"x": "int8"})
    reader = fiche.events.open(path)
    for wrong in (3, -4, 1 << 70):
        with pytest.raises((IndexError, OverflowError)):
            reader[wrong]
    with pytest.raises(IndexError):
        reader.take([0, 3])
    with pytest.raises(KeyError, match="'y'"):
        reader.arrays(["y"])
    with pytest.raises(TypeError):
        reader.take([0.5])
    with pytest.raises(ValueError, match="library"):
        reader.arrays(library="R")
    damaged = bytearray(path.read_bytes())
    damaged[70] ^= 1
    with pytest.raises(fiche.CorruptError):
        fiche.events.open(bytes(damaged)).arrays()
    with pytest.raises((ValueError, fiche.CorruptError)):
        fiche.events.open(b"")


def test_files_without_events_or_fields(tmp_path):
    empty = written({"x": np.zeros(0), "s": np.zeros((0, 3), "u1")})
    assert len(empty) == 0 and empty.arrays(library="np")["s"].shape == (0, 3)
    assert len(empty.take([])) == 0
    with fiche.events.create(tmp_path / "none", {}):
        pass
    none = fiche.events.open(tmp_path / "none")
    assert (len(none), none.keys()) == (0, [])


def test_readers_are_pickled_forked_and_used_from_threads(tmp_path):
    path = tmp_path / "e.fiche"
    with fiche.events.create(path) as writer:
        writer.extend({"x": np.arange(10_000), "y": np.arange(10_000) % 7})
    reader = fiche.events.open(path)
    assert pickle.loads(pickle.dumps(reader))[77]["x"] == 77
    with pytest.raises(TypeError):
        pickle.dumps(fiche.events.open(path.read_bytes()))
    wrong = []

    def work(seed):
        random = np.random.default_rng(seed)
        for number in random.integers(0, 10_000, 300).tolist():
            if reader[number] != {"x": number, "y": number % 7}:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert wrong == []
    before = reader._reader
    child = os.fork()
    if child == 0:
        # It was opened again, once.
        found = reader[123]["x"] == 123 and reader._reader is not before and reader._reader is reader._reader
        os._exit(0 if found else 1)
    assert reader._reader is before
    assert os.waitpid(child, 0)[1] == 0


def test_times_are_times_again(tmp_path):
    import datetime

    pa = pytest.importorskip("pyarrow", reason="SKIP: pyarrow could not be installed")
    pd = pytest.importorskip("pandas", reason="SKIP: pandas could not be installed")
    moment = datetime.datetime(2026, 11, 23, 15, 30, 1, 234567, datetime.timezone.utc)
    table = pa.table({
        "at": pa.array([moment, None, moment], pa.timestamp("us", "Europe/Vienna")),
        "day": pa.array([datetime.date(1969, 7, 20)] * 3),
        "clock": pa.array([datetime.time(1, 2, 3)] * 3, pa.time32("s")),
        "took": pa.array([1, -2, 3], pa.duration("ns")),
        "plain": pa.array([1, 2, 3], pa.timestamp("ms")),
    })
    path = tmp_path / "times"
    with fiche.events.create(path) as writer:
        writer.extend(table)
    events = fiche.events.open(path)
    assert events.typenames()["at"] == "?int64" and events.field_notes("at") == {"arrow": "timestamp[us, tz=Europe/Vienna]"}
    assert events.arrays(library="pa").equals(table)
    assert events.arrays(library="pd").equals(table.to_pandas())
    plain = events.arrays(["day", "plain", "took"], library="np")
    assert [array.dtype.str for array in plain.values()] == ["<M8[D]", "<M8[ms]", "<m8[ns]"]
    with fiche.events.append(path) as writer:
        writer.extend(table)
        with pytest.raises(ValueError, match="plain has timestamp"):
            writer.extend(table.set_column(4, "plain", pa.array([1, 2, 3], pa.timestamp("us"))))
    assert fiche.events.open(path).arrays(library="pa").equals(pa.concat_tables([table, table]).combine_chunks())
    frame = pd.DataFrame({"t": pd.to_datetime(["2026-01-01", "2026-01-02"]), "d": pd.to_timedelta([1, 2], "s")})
    back = written(frame).arrays(library="pd")
    assert back.equals(frame) and list(back.dtypes) == list(frame.dtypes)
    days = np.array(["2026-01-01", "2026-01-02"], "M8[s]")
    assert (written({"t": days}).arrays(library="np")["t"] == days).all()
    with pytest.raises(TypeError, match="none of our types"):
        written({"t": pa.array([[1]], pa.list_(pa.timestamp("s")))})


def test_whatever_is_damaged_is_an_error_of_ours(tmp_path):
    """Any flipped bit is told as damage, with the event where that is known, and never as another value."""
    path = tmp_path / "e.fiche"
    with fiche.events.create(path) as writer:
        writer.extend({"x": np.arange(300) ** 2, "s": [f"text {i % 7}" for i in range(300)], "l": [[i] * (i % 3) for i in range(300)]})
    whole = path.read_bytes()
    expected = fiche.events.open(whole).arrays(library="pa")
    located = refused = 0
    for at in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        try:
            found = fiche.events.open(bytes(damaged)).arrays(library="pa")
        except (fiche.CorruptError, fiche.UnsupportedError) as error:
            refused += 1
            located += getattr(error, "event", None) is not None
        else:
            assert found == expected, at
        try:
            verified = fiche.events.open(bytes(damaged)).verify()
        except (fiche.CorruptError, fiche.UnsupportedError):
            continue
        ranges = [damage["events"] for damage in verified["damage"]]
        assert verified["events"] + sum(end - first for first, end in ranges) == 300
        assert bool(ranges) == (verified["events"] < 300)
    told = []
    assert fiche.events.open(whole).verify(threads=2, progress=lambda *n: told.append(n))["damage"] == []
    assert told[-1] == (300, 300)
    assert refused > 0.9 * len(whole) / 3 and located > 50, (refused, located)


def test_events_that_are_not_there_are_named(tmp_path):
    events = written({"x": np.arange(10)})
    for number in (10, -11, 1 << 40):
        with pytest.raises(IndexError, match=f"no event {number}: there are 10"):
            events[number]
    assert "x" in events and "y" not in events and {"x": 3} in events


def test_two_fields_of_a_name_are_refused(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="SKIP: pyarrow could not be installed")
    pd = pytest.importorskip("pandas", reason="SKIP: pandas could not be installed")
    twice = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    for events in (twice, pd.DataFrame({0: [1], "0": [2]})):
        with pytest.raises(ValueError, match="two fields are called"):
            written(events)
    with pytest.raises(TypeError, match="one str for all events"):
        written({"x": "abc"})
    with pytest.raises(TypeError, match="x: whole numbers of more than 64 bits"):
        written({"x": [1, 2**64]})


def test_what_may_be_missing_is_found_and_kept():
    pd = pytest.importorskip("pandas", reason="SKIP: pandas could not be installed")
    large = 2**53 + 1
    events = written(
        {
            "n": pd.array([large, None, 3, large] * 50, "Int64"),
            "b": pd.array([True, None, False, True] * 50, "boolean"),
            "s": ["info", None, "", "infos"] * 50,
            "x": np.arange(200) % 5,
        }
    )
    frame = events.arrays(library="pd")
    assert str(frame["n"].dtype) == "Int64" and frame["n"][0] == large and frame["n"][1] is pd.NA
    assert str(frame["b"].dtype) == "boolean" and frame["b"].isna().sum() == 50
    assert events.find(n=large).tolist() == [i for i in range(200) if i % 4 in (0, 3)]
    assert events.find(s="info").tolist() == list(range(0, 200, 4))
    assert events.find(s="").tolist() == list(range(2, 200, 4))
    assert events.find(s="info", x=0).tolist() == list(range(0, 200, 20))
    assert events.find(s="nothing").tolist() == [] and events.find(n=4).tolist() == []


def test_steps_are_told_in_usual_words():
    events = written({"x": np.arange(10_000)})
    for step, count in (("10 kB", 1250), ("10kb", 1250), ("8 KiB", 1024), (77, 77), ("0.008 MB", 1000)):
        assert len(next(iter(events.iterate(step_size=step, library="np")))["x"]) == count, step
    for step in (0, -5, "many", "1 XB", "1.2.3 MB"):
        with pytest.raises(ValueError, match="a step"):
            events.iterate(step_size=step)
    with pytest.raises(KeyError):
        events.iterate(["y"])


def test_values_are_put_only_where_there_is_room_for_them():
    events = written({"x": np.array([2**53 + 1, 5])})
    out = {"x": np.zeros(2, "f8")}
    with pytest.raises(ValueError, match="float64 does not have"):
        events.take([0, 1], out=out)
    assert events.take([1, 1], out=out)["x"].tolist() == [5, 5]
    with pytest.raises(ValueError, match="not given together"):
        events.take([0], ["x"], out=out)
    with pytest.raises(TypeError, match="array of numpy"):
        events.take([0], out={"x": [0]})


def test_types_wait_for_values(tmp_path):
    path = tmp_path / "e.fiche"
    with fiche.events.create(path) as writer:
        writer.extend({"x": [[], []], "t": [None, None], "n": [1, 2]})
        assert writer.num_entries == 2
        writer.extend({"x": [[]], "t": ["a"], "n": [3]})
        writer.extend({"x": [[1.5, 2.5]], "t": [None], "n": [4]})
    events = fiche.events.open(path)
    assert events.typenames() == {"x": "var * float64", "t": "?string", "n": "int64"}
    assert [events[i] for i in range(4)] == [
        {"x": [], "t": None, "n": 1},
        {"x": [], "t": None, "n": 2},
        {"x": [], "t": "a", "n": 3},
        {"x": [1.5, 2.5], "t": None, "n": 4},
    ]
    with fiche.events.create(tmp_path / "none") as writer:
        writer.extend({"x": [[], []]})
    assert [event["x"] for event in fiche.events.open(tmp_path / "none")] == [[], []]


def test_whatever_arrow_has_of_events(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="SKIP: pyarrow could not be installed")
    table = pa.table({"x": [1, 2, 3], "s": ["a", None, "c"]})
    structs = pa.StructArray.from_arrays([table["x"].chunk(0), table["s"].chunk(0)], ["x", "s"])
    for events in (
        pa.RecordBatchReader.from_batches(table.schema, table.to_batches()),
        table.to_batches()[0],
        structs,
        pa.chunked_array([structs, structs[:0]]),
    ):
        assert written(events).arrays(library="pa").to_pylist() == table.to_pylist()
    with pytest.raises(TypeError, match="a table of Arrow"):
        written(table["x"])

    class Capsule:
        def __init__(self, array):
            self.array = array

        def __arrow_c_array__(self, requested_schema=None):
            return self.array.__arrow_c_array__(requested_schema)

    texts = pa.array(["one", "two", "a text that is longer than twelve"])
    views = {
        "x": Capsule(pa.array([1, 2, 3])),
        "v": texts.cast(pa.string_view()),
        "l": pa.array([[1], [], [2, 3]], pa.list_view(pa.int32())),
        "r": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([7, 8])),
    }
    turned = pa.ListViewArray.from_arrays(pa.array([1, 0, 0], pa.int32()), pa.array([2, 0, 1], pa.int32()), pa.array([1, 2, 3]))
    assert [event["l"] for event in written({"l": turned})] == [[2, 3], [], [1]]
    events = written(views)
    assert events[2] == {"x": 3, "v": "a text that is longer than twelve", "l": [2, 3], "r": 8}
    assert [event["r"] for event in events] == [7, 7, 8]


def test_a_writer_is_its_process_s(tmp_path):
    path = tmp_path / "e.fiche"
    writer = fiche.events.create(path)
    writer.extend({"x": np.arange(1000)})
    child = os.fork()
    if child == 0:
        status = 1
        try:
            writer.extend({"x": np.arange(3)})
        except ValueError as error:
            status = 0 if "another process" in str(error) else 2
        del writer
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    writer.extend({"x": np.arange(5)})
    writer.close()
    assert len(fiche.events.open(path)) == 1005


def test_a_reader_is_pickled_where_it_was_opened(tmp_path, monkeypatch):
    with fiche.events.create(tmp_path / "e.fiche") as writer:
        writer.extend({"x": np.arange(3)})
    fiche.pack({"a": b"abc"}, tmp_path / "a.fiche")
    monkeypatch.chdir(tmp_path)
    events, archive = fiche.events.open("e.fiche"), fiche.open("a.fiche")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert len(pickle.loads(pickle.dumps(events))) == 3
    assert pickle.loads(pickle.dumps(archive)).records["a"].read() == b"abc"


