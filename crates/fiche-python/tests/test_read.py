"""Reading is what it is for a `bytes` of the same content."""

import io
import mmap
import pickle
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fiche

METHODS = ["hybrid", "rlz-pv", "zstd-dict", "zstd", "zlib", "lz4", "copy"]


@pytest.fixture(scope="session", params=METHODS)
def each(request, content):
    out = io.BytesIO()
    fiche.pack(content, out, method=request.param, block=4096)
    return b"".join(content.values()), fiche.open(out.getvalue())


def test_the_whole_is_the_sum_of_its_records(each, content):
    whole, reader = each
    assert len(reader) == len(whole)
    assert reader[:] == whole
    assert [bytes(record) for record in reader.records.values()] == list(content.values())
    assert dict(reader.records.items()).keys() == content.keys()


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_slices_are_those_of_bytes(each, data):
    whole, reader = each
    place = st.one_of(st.none(), st.integers(-len(whole) - 5, len(whole) + 5))
    step = st.sampled_from([None, 1, 1, 1, 2, -1, 7, -1000])
    key = slice(data.draw(place), data.draw(place), data.draw(step))
    assert reader[key] == whole[key]


@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_many_reads_are_each_read(each, data):
    whole, reader = each
    reads = data.draw(st.lists(st.tuples(st.integers(0, len(whole)), st.integers(0, 9000)), max_size=20))
    reads = [(offset, min(size, len(whole) - offset)) for offset, size in reads]
    assert reader.read_many(reads) == [whole[a : a + n] for a, n in reads]


@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_files_are_those_of_bytesio(each, data):
    whole, reader = each
    ours, theirs = reader.file(), io.BytesIO(whole)
    for _ in range(data.draw(st.integers(1, 8))):
        if data.draw(st.booleans()):
            whence = data.draw(st.sampled_from([0, 1, 2]))
            base = [0, theirs.tell(), len(whole)][whence]
            offset = data.draw(st.integers(-base, len(whole) + 10 - base))
            assert ours.seek(offset, whence) == theirs.seek(offset, whence)
        elif data.draw(st.booleans()):
            size = data.draw(st.integers(-1, 20_000))
            assert ours.read(size) == theirs.read(size)
        else:
            one, other = bytearray(777), bytearray(777)
            assert ours.readinto(one) == theirs.readinto(other)
            assert one == other
        assert ours.tell() == theirs.tell()


def test_files_are_read_by_lines_and_text(reader, content):
    file = io.TextIOWrapper(io.BufferedReader(reader.records["folder/001.txt"].file()))
    assert file.read() == content["folder/001.txt"].decode()
    file = reader.file()
    file.close()
    with pytest.raises(ValueError):
        file.read(1)
    with pytest.raises(ValueError):
        reader.file().seek(-1)


def test_single_bytes_and_records_by_number(reader, content):
    whole = b"".join(content.values())
    assert (reader[0], reader[-1]) == (whole[0], whole[-1])
    names = list(content)
    assert reader.records[3].name == names[3]
    assert reader.records[-1].name == names[-1]
    assert (len(reader.records), reader.records[5].number) == (60, 5)
    assert list(reader.records) == list(reader.records.keys()) == names
    assert [record.name for record in reader.records.prefix("folder/00")] == names[:10]
    assert reader.records.find("folder/00") is None
    assert reader.records.get("none") is None and reader.records.get("none", 7) == 7
    assert reader.records.get(2).name == names[2]
    assert "folder/010.txt" in reader.records and 59 in reader.records
    assert 60 not in reader.records and "no" not in reader.records and None not in reader.records


def test_buffers_of_all_kinds_are_filled(reader, content):
    whole = b"".join(content.values())
    for room in [bytearray(100), memoryview(bytearray(100)), mmap.mmap(-1, 100)]:
        assert reader.readinto_at(50, room) == 100
        assert bytes(room) == whole[50:150]
    assert reader.readinto_at(len(whole), bytearray(0)) == 0
    array = pytest.importorskip("array").array("d", [0.0] * 10)
    assert reader.readinto_at(7, array) == 80
    assert array.tobytes() == whole[7:87]


def test_all_sources_give_the_same(packed, content):
    data = packed.read_bytes()
    with packed.open("rb") as file, tempfile.TemporaryFile() as unbuffered:
        unbuffered.write(data)
        for source in [packed, str(packed), data, bytearray(data), memoryview(data), io.BytesIO(data),
                       file, unbuffered]:
            reader = fiche.open(source)
            assert reader.records["folder/030.txt"].read() == content["folder/030.txt"]


def test_readers_records_and_errors_are_pickled(reader, packed, content):
    again = pickle.loads(pickle.dumps(reader))
    assert again[10:20] == reader[10:20]
    record = pickle.loads(pickle.dumps(reader.records["folder/020.txt"]))
    assert record.read() == content["folder/020.txt"]
    assert len(pickle.loads(pickle.dumps(reader.records))) == 60
    assert len(pickle.loads(pickle.dumps(fiche.open(packed.read_bytes())))) == len(reader)
    error = pickle.loads(pickle.dumps(fiche.CorruptError("text", what="block", pos=3)))
    assert (str(error), error.what, error.pos, error.block) == ("text", "block", 3, None)


def test_a_pickled_reader_notices_another_file(tmp_path, content):
    path = tmp_path / "a.fiche"
    fiche.pack(content, path)
    pickled = pickle.dumps(fiche.open(path))
    fiche.pack({"other": b"content"}, path, overwrite=True)
    with pytest.raises(fiche.ChangedError):
        pickle.loads(pickled)


def test_info_adds_up(reader, packed):
    info = reader.info()
    parts = ["compressed", "dictionary", "model", "index", "checksum", "envelope", "record", "superseded"]
    assert sum(info[f"{part}_bytes"] for part in parts) == info["stored_bytes"] == packed.stat().st_size
    assert (info["method"], info["records"], info["logical_bytes"]) == ("hybrid", 60, len(reader))


def test_a_closed_reader_says_so_and_its_records_go_on(packed, content):
    reader = fiche.open(packed)
    record = reader.records["folder/000.txt"]
    assert record.read() == content["folder/000.txt"]
    with reader:
        assert not reader.closed
    assert reader.closed
    for call in [lambda: reader[0], lambda: reader.read_at(0, 1), lambda: len(reader), lambda: reader.records[0],
                 lambda: reader.info(), lambda: reader.file(), lambda: reader.__enter__(),
                 lambda: reader.verify(), lambda: pickle.dumps(reader)]:
        with pytest.raises(ValueError, match="closed"):
            call()
    assert record.read() == content["folder/000.txt"]
    assert "closed" in repr(reader) and "closed" in repr(reader.records)


def test_metadata_of_files_is_there(tmp_path):
    folder = tmp_path / "in"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "file").write_bytes(b"content")
    (folder / "deep" / "file").chmod(0o640)
    (folder / "link").symlink_to("deep/file")
    (folder / "other").hardlink_to(folder / "deep" / "file")
    (folder / b"odd\xff".decode("utf-8", "surrogateescape")).write_bytes(b"odd")
    fiche.pack(folder, tmp_path / "out.fiche")
    records = fiche.open(tmp_path / "out.fiche").records
    kinds = {record.name: record.kind for record in records.values()}
    assert kinds["in"] == kinds["in/deep"] == "directory"
    file, stat = records["in/deep/file"], (folder / "deep" / "file").stat()
    assert (file.mode, file.mtime_ns, file.uid, file.gid) == (0o640, stat.st_mtime_ns, stat.st_uid, stat.st_gid)
    assert file.mtime == pytest.approx(stat.st_mtime)
    assert (records["in/link"].kind, records["in/link"].target) == ("symlink", "deep/file")
    twin = records["in/other"]
    assert (twin.kind, twin.read(), len(twin)) == ("hardlink", b"content", 7)
    assert records[twin.link].name == "in/deep/file"
    odd = records["in/odd\udcff"]
    assert odd.read() == b"odd" and records[b"in/odd\xff"].number == odd.number
    with pytest.raises(ValueError, match="directory"):
        records["in"].read()
    assert file and records["in"]


def test_lines_of_files(tmp_path):
    """Lines are found without reading byte by byte, and positions are as without them."""

    class Counted(io.BytesIO):
        reads = 0

        def readinto(self, buffer):
            Counted.reads += 1
            return super().readinto(buffer)

        def read(self, size=-1):
            Counted.reads += 1
            return super().read(size)

    text = b"".join(b"line %d %s\n" % (i, b"x" * (i % 300 if i % 50 else 9000)) for i in range(3000)) + b"no end"
    fiche.pack({"t": text}, tmp_path / "t.fiche", method="lz4")
    record = fiche.open(Counted((tmp_path / "t.fiche").read_bytes())).records["t"]
    Counted.reads = 0
    with record.file() as file:
        assert list(file) == text.splitlines(keepends=True)
        assert Counted.reads < 300
        file.seek(5)
        assert file.readline() == text[5:].split(b"\n")[0] + b"\n"
        at = file.tell()
        assert file.read(10) == text[at : at + 10] and file.tell() == at + 10
        assert file.peek(3)[:3] == text[at + 10 : at + 13] and file.tell() == at + 10
        assert file.size == len(text)
        assert io.TextIOWrapper(io.BufferedReader(file)).readline() == text[at + 10 :].split(b"\n")[0].decode() + "\n"


def test_verifying_shows_a_bar(tmp_path, capfd):
    fiche.pack({"a": bytes(3 << 20)}, tmp_path / "a.fiche", method="lz4")
    assert fiche.open(tmp_path / "a.fiche").verify(progress=True)["damage"] == []
    assert "verifying" in capfd.readouterr().err


def test_views_of_the_records_have_a_length_and_can_be_gone_through_again(packed, content):
    with fiche.open(packed) as reader:
        records = reader.records
        keys, values, items = records.keys(), records.values(), records.items()
        assert len(keys) == len(values) == len(items) == len(content)
        for _ in range(2):
            assert list(keys) == list(content) == [record.name for record in values]
            assert [(name, record.read()) for name, record in items] == list(content.items())
        assert "folder/007.txt" in keys and "none" not in keys
        assert keys & {"folder/007.txt", "none"} == {"folder/007.txt"}
        record = records["folder/007.txt"]
        start, stop = record.range
        assert reader.read_many([(start, stop - start)]) == [record.read()]
    with pytest.raises(ValueError):
        records.keys()
