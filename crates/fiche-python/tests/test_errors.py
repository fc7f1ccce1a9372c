"""Every error arrives as its class, with a message that a person can act on."""

import io
import os
import subprocess
import sys

import pytest

import fiche


def test_reads_outside(reader):
    for offset, size in [(len(reader), 1), (0, len(reader) + 1), (1 << 62, 1), (5, 1 << 62)]:
        with pytest.raises(IndexError, match="bytes"):
            reader.read_at(offset, size)
        with pytest.raises(IndexError):
            reader.read_many([(0, 1), (offset, size)])
    with pytest.raises(IndexError):
        reader.readinto_at(len(reader) - 1, bytearray(2))
    for key in [len(reader), -len(reader) - 1]:
        with pytest.raises(IndexError):
            reader[key]
    for call in [lambda: reader.read_at(-1, 1), lambda: reader.read_at(0, -1), lambda: reader.read_many([(0, -1)]),
                 lambda: reader.readinto_at(-1, bytearray(1))]:
        with pytest.raises(ValueError, match="negative"):
            call()
    with pytest.raises(OverflowError):
        reader.read_at(1 << 70, 1)


def test_buffers_that_cannot_be_filled(reader):
    for buffer in [b"read-only", memoryview(b"read-only"), "text", None, 5]:
        with pytest.raises(TypeError):
            reader.readinto_at(0, buffer)
    with pytest.raises(BufferError):
        reader.readinto_at(0, memoryview(bytearray(10))[::2])


def test_names_that_are_not_there(reader):
    with pytest.raises(KeyError, match="did you mean .*folder/001.txt"):
        reader.records["folder/001.tx"]
    for number in [60, -61, 1 << 40]:
        with pytest.raises(KeyError):
            reader.records[number]
    with pytest.raises(TypeError):
        reader.records[1.5]


def test_files_that_are_no_archives(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        fiche.open(tmp_path / "none.fiche")
    assert caught.value.filename == str(tmp_path / "none.fiche")
    with pytest.raises(ValueError):
        fiche.open(tmp_path)
    for data in [b"", b"no archive", os.urandom(10_000)]:
        with pytest.raises(ValueError) as caught:
            fiche.open(data)
        assert not isinstance(caught.value, fiche.UnsupportedError)
    with pytest.raises(TypeError):
        fiche.open(12.5)


def test_damage_is_named(packed, content):
    data = bytearray(packed.read_bytes())
    for cut in [len(data) - 1, len(data) // 2, 40]:
        with pytest.raises(fiche.CorruptError):
            fiche.open(bytes(data[:cut]))
    out = io.BytesIO()
    fiche.pack(content, out, method="lz4")
    data = bytearray(out.getvalue())
    data[100] ^= 1
    reader = fiche.open(data)
    with pytest.raises(fiche.CorruptError, match="block 0") as caught:
        reader.records["folder/000.txt"].read()
    assert isinstance(caught.value, ValueError)
    assert (caught.value.what, caught.value.block, caught.value.record) == ("stored block", 0, None)
    report = reader.verify()
    assert report["damage"][0]["content"][0] == 0
    assert report["records"][0] == {"number": 0, "name": "folder/000.txt"}


def test_a_file_cut_while_it_is_read(tmp_path):
    path = tmp_path / "a.fiche"
    fiche.pack({"a": os.urandom(200_000)}, path, method="copy")
    reader = fiche.open(path)
    assert len(reader[:10]) == 10
    os.truncate(path, 1000)
    with pytest.raises(OSError):
        reader[150_000:150_100]


def test_file_objects_that_fail(packed):
    class Stops(io.BytesIO):
        broken = False

        def read(self, size=-1):
            if self.broken:
                raise TimeoutError("the line went dead")
            return super().read(size)

    file = Stops(packed.read_bytes())
    reader = fiche.open(file, cache=0)
    assert len(reader[:100]) == 100
    file.broken = True
    with pytest.raises(TimeoutError, match="the line went dead"):
        reader[:100]
    file.broken = False
    file.truncate(100)
    with pytest.raises(OSError):
        reader[:100]


def test_outputs_that_cannot_be_written(tmp_path, content):
    path = tmp_path / "a.fiche"
    path.write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        fiche.pack(content, path)
    with pytest.raises(FileExistsError):
        fiche.Writer(path)
    assert path.read_bytes() == b"mine"
    with pytest.raises(FileNotFoundError):
        fiche.pack(content, tmp_path / "no" / "folder.fiche")
    with pytest.raises(IsADirectoryError):
        fiche.pack(content, tmp_path, overwrite=True)
    with pytest.raises(TypeError):
        fiche.pack(content, 7)
    with pytest.raises(TypeError):
        fiche.pack(7, path)

    class Full(io.RawIOBase):
        def write(self, data):
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError) as caught:
        fiche.pack(content, Full())
    assert caught.value.errno == 28
    assert os.listdir(tmp_path) == ["a.fiche"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="SKIP: /dev/full")
def test_a_full_device(content):
    with pytest.raises(OSError) as caught:
        with open("/dev/full", "wb", buffering=0) as file:
            fiche.pack(content, file)
    assert caught.value.errno == 28


def test_options_that_cannot_be(tmp_path, content):
    path = tmp_path / "a.fiche"
    for options in [
        {"method": "best"},
        {"level": 99},
        {"method": "lz4", "level": 99},
        {"method": "zstd", "dict": 1 << 20},
        {"block": 0},
        {"block": 100},
        {"threads": 0},
        {"records": "pages"},
        {"records": "lines"},
    ]:
        with pytest.raises(ValueError):
            fiche.pack(content, path, **options)
    with pytest.raises(ValueError):
        fiche.pack([], path, exclude=["["])
    with pytest.raises(OSError):
        fiche.pack(content, path, dict=tmp_path / "none.dict")
    assert not os.listdir(tmp_path)


def test_what_progress_raises_stops_it(tmp_path, content):
    class Enough(Exception):
        pass

    def stop(done, total):
        raise Enough

    with pytest.raises(Enough):
        fiche.pack(content, tmp_path / "a.fiche", progress=stop)
    with pytest.raises(Enough):
        fiche.open(fiche_of(content)).verify(progress=stop)
    assert not os.listdir(tmp_path)


def fiche_of(content):
    out = io.BytesIO()
    fiche.pack(content, out)
    return out.getvalue()


def test_an_interruption_leaves_nothing(tmp_path):
    """Ctrl-C while a large archive is packed."""
    (tmp_path / "in").write_bytes(os.urandom(1 << 20) * 64)
    program = (
        "import fiche, os, signal\n"
        # Whoever starts the tests may have chosen to ignore it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def progress(done, total):\n"
        "    if done >= 8 << 20: os.kill(os.getpid(), signal.SIGINT)\n"
        f"fiche.pack({str(tmp_path / 'in')!r}, {str(tmp_path / 'out.fiche')!r}, method='zstd', progress=progress)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "KeyboardInterrupt" in done.stderr
    assert os.listdir(tmp_path) == ["in"]


def test_a_missing_dictionary(tmp_path, content):
    fiche.dict_build(content, tmp_path / "shared.dict", size=16 << 10)
    fiche.pack(content, tmp_path / "a.fiche", method="zstd-dict", dict=tmp_path / "shared.dict")
    assert fiche.open(tmp_path / "a.fiche").records[0].read() == content["folder/000.txt"]
    os.makedirs(tmp_path / "elsewhere")
    os.rename(tmp_path / "shared.dict", tmp_path / "elsewhere" / "shared.dict")
    with pytest.raises(fiche.MissingError) as caught:
        fiche.open(tmp_path / "a.fiche")[:1000]
    assert isinstance(caught.value, OSError) and caught.value.what == "dictionary"
    reader = fiche.open(tmp_path / "a.fiche", dicts=[tmp_path / "elsewhere" / "shared.dict"])
    assert reader.records[0].read() == content["folder/000.txt"]
