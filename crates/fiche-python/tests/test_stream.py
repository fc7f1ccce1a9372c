"""Gzip files are read anywhere: those that anybody wrote, with an index or without."""

import gzip
import io
import subprocess
import threading

import pytest
from conftest import words
from hypothesis import given, settings
from hypothesis import strategies as st

import fiche

TEXT = b"".join(b"%d %s\n" % (i, words(i, i % 40)) for i in range(8000))


@pytest.fixture(scope="module")
def compressed():
    return gzip.compress(TEXT)


@pytest.fixture(scope="module")
def stream(compressed):
    return fiche.open(compressed)


@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_slices_are_those_of_bytes(stream, data):
    place = st.one_of(st.none(), st.integers(-len(TEXT) - 5, len(TEXT) + 5))
    key = slice(data.draw(place), data.draw(place), data.draw(st.sampled_from([None, 1, 2, -1, 7])))
    assert stream[key] == TEXT[key]


def test_it_reads_as_bytes_and_as_files_do(stream):
    assert len(stream) == len(TEXT) and stream[:] == TEXT and stream[-1] == TEXT[-1]
    reads = [(5000, 10), (0, 3), (len(TEXT) - 4, 4), (5, 0)]
    assert stream.read_many(reads) == [TEXT[a : a + n] for a, n in reads]
    room = bytearray(100)
    assert stream.readinto_at(70_000, room) == 100 and room == TEXT[70_000:70_100]
    with io.BufferedReader(stream.file()) as file:
        assert file.readlines() == TEXT.splitlines(keepends=True)
    lines = TEXT.splitlines(keepends=True)
    assert [stream.line(i) for i in (0, 7, 7999)] == [lines[i] for i in (0, 7, 7999)]
    for wrong in (lambda: stream.line(8000), lambda: stream.read_at(len(TEXT), 1), lambda: stream[len(TEXT)]):
        with pytest.raises(IndexError):
            wrong()
    info = stream.info()
    assert info["kind"] == "gzip" and info["logical_bytes"] == len(TEXT) and info["lines"] == 8000


def test_many_threads_read_at_once(stream):
    wrong = []

    def read(start):
        for at in range(start, len(TEXT) - 1000, 70_001):
            if stream.read_at(at, 1000) != TEXT[at : at + 1000]:
                wrong.append(at)

    threads = [threading.Thread(target=read, args=(1000 * i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_index_beside_a_file_is_found_and_held_against_it(tmp_path, compressed):
    path = tmp_path / "x.gz"
    path.write_bytes(compressed)
    subprocess.run(["fiche", "index", path, "--quiet"], check=True)
    index = tmp_path / "x.gz.fidx"
    for stream in (fiche.open(path), fiche.open(compressed, index=index), fiche.open(path, index=index.read_bytes())):
        with stream:
            assert stream[1000:2000] == TEXT[1000:2000]
            assert stream.info()["index_bytes"] == index.stat().st_size
            assert stream.plan([(0, 1)])[0][1] <= len(compressed)
        assert stream.closed
        with pytest.raises(ValueError):
            stream[0]
    path.write_bytes(gzip.compress(TEXT + b"more"))
    with pytest.raises(fiche.ChangedError):
        fiche.open(path)
    index.unlink()
    assert len(fiche.open(path)) == len(TEXT) + 4


def test_files_of_ours_have_their_index_inside(tmp_path):
    (tmp_path / "x").write_bytes(TEXT)
    path = tmp_path / "x.gz"
    subprocess.run(["fiche", "gzip", tmp_path / "x", "-o", path, "--partition", "16K", "--quiet"], check=True)
    assert gzip.open(path).read() == TEXT
    stream = fiche.open(path)
    assert stream.info()["units"] == -(-len(TEXT) // (16 << 10)) and stream[:] == TEXT


def test_damage_is_an_error(compressed):
    hurt = bytearray(compressed)
    hurt[len(hurt) // 2] ^= 1
    for wrong in (bytes(hurt), compressed[:-1], compressed[:1000]):
        with pytest.raises(fiche.CorruptError):
            fiche.open(wrong)
    with pytest.raises(ValueError):
        fiche.open(b"no archive", index=b"")


def test_indexes_are_those_of_indexed_gzip_too(tmp_path, compressed):
    indexed_gzip = pytest.importorskip("indexed_gzip", reason="SKIP: indexed_gzip")
    path, theirs, ours = tmp_path / "x.gz", tmp_path / "theirs", tmp_path / "ours"
    text = TEXT * 8
    path.write_bytes(gzip.compress(text[: len(text) // 3]) + gzip.compress(text[len(text) // 3 :]))
    with indexed_gzip.IndexedGzipFile(str(path), spacing=1 << 18) as file:
        file.build_full_index()
        file.export_index(str(theirs))
    subprocess.run(["fiche", "index", path, "--import", theirs, "--quiet"], check=True)
    stream = fiche.open(path)
    assert stream[:] == text and stream[1_000_000:1_000_100] == text[1_000_000:1_000_100]
    assert stream.info()["units"] > len(text) >> 19
    subprocess.run(["fiche", "index", path, "--export", ours], check=True)
    with indexed_gzip.IndexedGzipFile(str(path), index_file=str(ours)) as file:
        for at in range(0, len(text) - 100, 98_765):
            file.seek(at)
            assert file.read(100) == text[at : at + 100], at
