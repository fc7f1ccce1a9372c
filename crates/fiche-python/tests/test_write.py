"""What is written is what is read."""

import io
import os
import struct
import threading

import pytest

import fiche


def test_a_writer_takes_bytes_and_files(tmp_path):
    path = tmp_path / "a.fiche"
    with fiche.Writer(path, method="zstd", level=3) as writer:
        assert writer.add("a", b"first") == 0
        assert writer.add(b"b\xff", memoryview(b"second")) == 1
        assert writer.add("c", io.BytesIO(b"x" * 3_000_000)) == 2
        assert writer.write(b"of no record") == 12
        assert writer.tell() == 3_000_023
        with pytest.raises(ValueError, match="two records"):
            writer.add("a", b"again")
        assert not path.exists()
    assert writer.closed
    with pytest.raises(ValueError, match="closed"):
        writer.add("d", b"late")
    records = fiche.open(path).records
    assert (records["a"].read(), records[b"b\xff"].read(), len(records["c"])) == (b"first", b"second", 3_000_000)


def test_numbers_are_filtered(tmp_path):
    numbers = b"".join(struct.pack("<d", i / 8) for i in range(20_000))
    path, plain = tmp_path / "a.fiche", tmp_path / "plain.fiche"
    fiche.pack({"a": numbers}, plain, method="bewalgo64")
    fiche.pack({"a": numbers}, path, method="bewalgo64", filters=["shuffle:8"])
    assert path.stat().st_size < plain.stat().st_size
    assert fiche.open(path).info()["filters"] == ["shuffle:8"]
    assert fiche.open(path).records["a"].read() == numbers
    with fiche.Writer(path, filters=("delta:8", "bitshuffle:8"), overwrite=True) as writer:
        writer.add("a", numbers)
    reader = fiche.open(path)
    assert (reader.info()["method"], reader[81:99]) == ("zstd", numbers[81:99])
    with pytest.raises(ValueError, match="filters are"):
        fiche.pack({"a": numbers}, path, filters=["delta:3"], overwrite=True)
    with pytest.raises(ValueError, match="without a dictionary"):
        fiche.pack({"a": numbers}, path, method="hybrid", filters=["delta:4"], overwrite=True)


def test_an_exception_leaves_no_archive(tmp_path):
    with pytest.raises(RuntimeError):
        with fiche.Writer(tmp_path / "a.fiche") as writer:
            writer.add("a", b"first")
            raise RuntimeError
    writer = fiche.Writer(tmp_path / "b.fiche")
    writer.add("a", b"first")
    writer.discard()
    del writer
    fiche.Writer(tmp_path / "c.fiche").add("never closed", b"...")
    assert os.listdir(tmp_path) == []


def test_many_threads_add(tmp_path, content):
    path = tmp_path / "a.fiche"
    with fiche.Writer(path, learn=list(content.values()), align_records=True) as writer:
        names = list(content)

        def add(part):
            for name in names[part::4]:
                writer.add(name, content[name])

        threads = [threading.Thread(target=add, args=(part,)) for part in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    reader = fiche.open(path)
    assert reader.info()["method"] == "hybrid"
    assert {name: record.read() for name, record in reader.records.items()} == content


def test_folders_are_packed_as_the_command_does(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for i in range(20):
        (folder / f"{i}.txt").write_bytes(b"line one\nline two\n" * (i + 1))
    (folder / "left.out").write_bytes(b"...")
    told = []
    report = fiche.pack(folder, tmp_path / "a.fiche", exclude=["*.out"], progress=lambda *p: told.append(p))
    assert report["records"] == 21 and report["input_bytes"] == sum(18 * (i + 1) for i in range(20))
    assert report["stored_bytes"] == (tmp_path / "a.fiche").stat().st_size
    assert told and told[-1][0] == told[-1][1]
    report = fiche.pack([folder / "1.txt", folder / "2.txt"], tmp_path / "b.fiche", records="lines")
    names = list(fiche.open(tmp_path / "b.fiche").records)
    assert report["records"] == len(names) == 12


def test_the_same_for_any_number_of_threads(content):
    outs = [io.BytesIO() for _ in range(3)]
    for threads, out in enumerate(outs, 1):
        fiche.pack(content, out, threads=threads)
    assert outs[0].getvalue() == outs[1].getvalue() == outs[2].getvalue()


def test_small_and_empty_inputs():
    for content in [{}, {"empty": b""}, {"a": b"", "b": b"x"}]:
        for method in [None, "hybrid", "rlz-zz", "zstd", "copy"]:
            out = io.BytesIO()
            fiche.pack(content, out, method=method)
            reader = fiche.open(out.getvalue())
            assert {name: record.read() for name, record in reader.records.items()} == content


def test_a_bar_is_shown(content, capfd):
    fiche.pack(content, io.BytesIO(), progress=True)
    assert "packing" in capfd.readouterr().err


def test_advice_is_what_packing_gives(content):
    told = []
    advice = fiche.advise(content, methods=["lz4", ("zstd", 3), "hybrid"], progress=lambda *p: told.append(p))
    assert advice["content_bytes"] == sum(map(len, content.values()))
    assert {mark for way in advice["ways"] for mark in way["recommended"]} == {
        "small", "fast to read", "fast to write"
    }
    assert told[-1][0] == told[-1][1]
    sizes = [way["stored_bytes"] for way in advice["ways"]]
    assert sizes == sorted(sizes) and len(sizes) == 3
    for way in advice["ways"]:
        out = io.BytesIO()
        stored = fiche.pack(content, out, **way["options"])["stored_bytes"]
        # Names are counted by neither, for they are not files.
        assert abs(stored - way["stored_bytes"]) < 0.05 * stored + 2000
    for wrong in [{"methods": ["best"]}, {"methods": [("lz4", 99)]}, {"blocks": [0]}, {"threads": 0}]:
        with pytest.raises(ValueError):
            fiche.advise(content, **wrong)
    with pytest.raises(ValueError):
        fiche.advise({})


def test_what_is_packed_is_never_what_is_written(tmp_path):
    path = tmp_path / "only"
    path.write_bytes(b"the only copy")
    with pytest.raises(ValueError, match="only is what is written"):
        fiche.pack(path, path, overwrite=True)
    with pytest.raises(ValueError, match="only is what is written"):
        fiche.dict_build([path], path, overwrite=True)
    assert path.read_bytes() == b"the only copy" and os.listdir(tmp_path) == ["only"]
    # In a folder the archive itself is left out, also as long as it is not whole.
    for _ in range(2):
        fiche.pack(tmp_path, tmp_path / "all.fiche", overwrite=True)
        names = [record.name for record in fiche.open(tmp_path / "all.fiche").records.values()]
        assert names == [tmp_path.name, f"{tmp_path.name}/only"]


def test_one_pattern_is_a_pattern(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_bytes(b"a")
    (tmp_path / "in" / "b.rst").write_bytes(b"b")
    out = io.BytesIO()
    fiche.pack(tmp_path / "in", out, exclude="*.txt")
    assert [record.name for record in fiche.open(out.getvalue()).records.values()] == ["in", "in/b.rst"]


def test_an_input_that_fails_spoils_nothing_else(tmp_path):
    class Fails(io.RawIOBase):
        def __init__(self, good):
            self.good = good

        def read(self, size=-1):
            if self.good <= 0:
                raise OSError("the line is cut")
            self.good -= size
            return bytes(size)

    out = io.BytesIO()
    with fiche.Writer(out, method="lz4") as writer:
        writer.add("a", b"first")
        with pytest.raises(OSError, match="the line is cut"):
            writer.add("b", Fails(3 << 20))
        writer.add("b", b"second")
    assert fiche.open(out.getvalue()).records["b"].read() == b"second"
    # Beyond what is read ahead half of it is there already: then nothing that could be mistaken for an archive is made.
    writer = fiche.Writer(tmp_path / "half", method="lz4")
    with pytest.raises(OSError, match="the line is cut"):
        writer.add("b", Fails(20 << 20))
    with pytest.raises(fiche.PoisonedError):
        writer.add("c", b"third")
    with pytest.raises(fiche.PoisonedError):
        writer.close()
    del writer
    assert not (tmp_path / "half").exists()


def test_a_writer_that_is_called_by_what_it_writes_to_says_so():
    class Nosy(io.BytesIO):
        def write(self, data):
            if made:
                seen.append(pytest.raises(ValueError, made[0].tell))
            return super().write(data)

    seen, made, out = [], [], Nosy()
    writer = fiche.Writer(out, method="copy", threads=1)
    made.append(writer)
    writer.add("a", bytes(1 << 20))
    writer.close()
    assert seen and "called by what it reads from" in str(seen[0].value)


def test_a_writer_is_its_process_s(tmp_path):
    writer = fiche.Writer(tmp_path / "w.fiche", threads=2)
    writer.add("a", b"before" * 100_000)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            writer.add("b", b"child")
        except ValueError as error:
            status = 0 if "another process" in str(error) else 2
        if not writer.closed:
            status = 3
        del writer
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    writer.add("b", b"after")
    writer.close()
    records = fiche.open(tmp_path / "w.fiche").records
    assert [record.name for record in records.values()] == ["a", "b"]


def test_errors_name_the_file(tmp_path):
    fiche.pack({"a": b"abc" * 1000}, tmp_path / "a.fiche")
    cut = tmp_path / "cut.fiche"
    cut.write_bytes((tmp_path / "a.fiche").read_bytes()[:-7])
    with pytest.raises(fiche.CorruptError, match="cut.fiche: damaged") as caught:
        fiche.open(cut)
    assert caught.value.pos is not None
