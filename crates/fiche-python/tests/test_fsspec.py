"""Files in archives, as fsspec and those who build on it read them."""

import io

import pytest

import fiche

fsspec = pytest.importorskip("fsspec", reason="SKIP: fsspec")


@pytest.fixture
def tables(tmp_path):
    path = tmp_path / "tables.fiche"
    fiche.pack(
        {"data/a.csv": b"x,y\n1,2\n3,4\n", "data/deep/b.csv": b"x,y\n5,6\n", "readme": b"hello"}, path
    )
    return path


def test_both_ways_to_name_a_file(tables):
    for url in [f"fiche://data/a.csv::file://{tables}", f"fiche://{tables}/data/a.csv",
                f"fiche://data/a.csv::{tables}"]:
        with fsspec.open(url) as file:
            assert file.read() == b"x,y\n1,2\n3,4\n"
    with fsspec.open(f"fiche://readme::file://{tables}", "rt") as file:
        assert file.read() == "hello"


def test_an_archive_in_another_file_system(tables):
    memory = fsspec.filesystem("memory")
    memory.pipe("/bucket/tables.fiche", tables.read_bytes())
    with fsspec.open("fiche://data/deep/b.csv::memory://bucket/tables.fiche") as file:
        assert file.read() == b"x,y\n5,6\n"
    assert len(fiche.open("memory://bucket/tables.fiche").records) == 3


def test_it_is_a_file_system(tables):
    system = fsspec.filesystem("fiche", fo=str(tables))
    assert sorted(system.ls("", detail=False)) == ["data", "readme"]
    assert sorted(system.ls("data", detail=False)) == ["data/a.csv", "data/deep"]
    assert system.find("") == ["data/a.csv", "data/deep/b.csv", "readme"]
    assert system.glob("**/*.csv") == ["data/a.csv", "data/deep/b.csv"]
    assert system.info("data/a.csv")["size"] == 12
    assert system.isdir("data") and system.isfile("readme") and not system.exists("none")
    assert system.cat("readme") == b"hello" and system.cat_file("readme", 1, -1) == b"ell"
    assert system.cat_ranges(["readme", "data/a.csv"], 0, [2, 3]) == [b"he", b"x,y"]
    assert isinstance(system.cat_ranges(["none"], 0, 1)[0], FileNotFoundError)
    with system.open("data/a.csv") as file:
        assert file.seek(4) == 4 and file.read(3) == b"1,2"
    with pytest.raises(FileNotFoundError):
        system.open("none")
    with pytest.raises(OSError):
        system.open("new", "wb")
    with pytest.raises(ValueError):
        fsspec.filesystem("fiche", fo=str(tables), mode="w")


def test_pandas_reads_a_table(tables):
    pandas = pytest.importorskip("pandas", reason="SKIP: pandas")
    table = pandas.read_csv(f"fiche://data/a.csv::file://{tables}")
    assert table.to_dict("list") == {"x": [1, 3], "y": [2, 4]}


def test_pyarrow_reads_a_table(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="SKIP: pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"n": list(range(1000)), "s": [str(i) for i in range(1000)]})
    out = io.BytesIO()
    parquet.write_table(table, out)
    fiche.pack({"t.parquet": out.getvalue()}, tmp_path / "a.fiche")
    system = fsspec.filesystem("fiche", fo=str(tmp_path / "a.fiche"))
    assert parquet.read_table("t.parquet", filesystem=system).equals(table)
    assert parquet.read_table(pyarrow.PythonFile(fiche.open(tmp_path / "a.fiche").records[0].file())).equals(table)


def test_links_are_followed_and_names_may_look_like_archives(tmp_path):
    (tmp_path / "in" / "old.fiche").mkdir(parents=True)
    (tmp_path / "in" / "old.fiche" / "a").write_bytes(b"in a folder that is called so")
    (tmp_path / "in" / "one").symlink_to("two")
    (tmp_path / "in" / "two").symlink_to("./old.fiche/../old.fiche/a")
    (tmp_path / "in" / "folder").symlink_to("old.fiche")
    (tmp_path / "in" / "nowhere").symlink_to("none")
    (tmp_path / "in" / "round").symlink_to("round")
    (tmp_path / "in" / "hard").hardlink_to(tmp_path / "in" / "old.fiche" / "a")
    with open(tmp_path / "in" / "holes", "wb") as file:
        file.seek(1 << 20)
        file.write(b"end")
    fiche.pack(tmp_path / "in", tmp_path / "a.fiche")
    system = fsspec.filesystem("fiche", fo=str(tmp_path / "a.fiche"))
    text = b"in a folder that is called so"
    assert system.cat_file("in/one") == text and system.cat_file("in/old.fiche/a") == text
    with system.open("in/old.fiche/a") as file:
        assert file.read() == text
    info = system.info("in/one")
    assert (info["type"], info["size"], info["islink"]) == ("file", len(text), True)
    assert info["destination"] == "two" and not system.info("in/old.fiche/a")["islink"]
    assert system.isdir("in/folder") and system.isfile("in/one")
    for broken in ["in/nowhere", "in/round"]:
        assert system.info(broken)["type"] == "link"
        with pytest.raises(FileNotFoundError):
            system.open(broken)
    paths = ["in/one", "in/holes", "in/hard", "in/nowhere", "in/holes", "in/one"]
    starts, ends = [3, -3, None, 0, 0, -3], [8, None, 4, 9, 4, -9]
    found = system.cat_ranges(paths, starts, ends)
    assert isinstance(found.pop(3), FileNotFoundError)
    assert found == [text[3:8], b"end", text[:4], bytes(4), b""]
    with pytest.raises(FileNotFoundError):
        system.cat_ranges(paths, starts, ends, on_error="raise")
    several = system.cat(["in/one", "in/hard", "in/nowhere"], on_error="omit")
    assert several == {"in/one": text, "in/hard": text}
    assert system.cat("in/o*") == {"in/one": text}


def test_what_is_damaged_is_told_of_each_that_is_asked_for(tmp_path):
    pieces = {str(n): bytes([n]) * 20_000 for n in range(9)}
    fiche.pack(pieces, tmp_path / "a.fiche", method="copy", block=16384)
    damaged = bytearray((tmp_path / "a.fiche").read_bytes())
    damaged[damaged.find(b"\x04" * 50)] ^= 1
    (tmp_path / "a.fiche").write_bytes(damaged)
    system = fsspec.filesystem("fiche", fo=str(tmp_path / "a.fiche"))
    found = system.cat_ranges(list(pieces), 0, 20_000)
    wrong = [name for name, piece in zip(pieces, found) if isinstance(piece, fiche.CorruptError)]
    assert wrong and wrong == [n for n in pieces if isinstance(system.cat(pieces, on_error="return")[n], Exception)]
    assert all(piece == pieces[name] for name, piece in zip(pieces, found) if name not in wrong)
    assert "4" in wrong and len(wrong) < 4


def test_few_requests_for_many_records(web, tmp_path):
    pieces = {f"{n:03}.txt": str(n).encode() * 2000 for n in range(300)}
    fiche.pack(pieces, tmp_path / "a.fiche")
    url = web.put("many.fiche", tmp_path / "a.fiche")
    web.asked()
    system = fsspec.filesystem("fiche", fo=url, target_protocol="http")
    names = list(pieces)[::3]
    assert system.cat(names) == {name: pieces[name] for name in names}
    assert len(web.asked()) <= 12
    system.clear_instance_cache()
    assert system.cat_ranges(names, 5, 9) == [pieces[name][5:9] for name in names]
