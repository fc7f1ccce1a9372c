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
