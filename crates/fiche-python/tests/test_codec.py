"""Single pieces, and arrays of them."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fiche
from fiche import codec


@settings(deadline=None)
@given(data=st.binary(max_size=3000), method=st.sampled_from(codec.METHODS))
def test_frames_come_back(data, method):
    frame = codec.compress(data, method)
    assert codec.decompress(frame) == data
    assert codec.size(frame) == len(data)
    assert len(frame) <= len(data) + 15


def test_what_compresses_does():
    # Of 24 bytes, as some methods look at units of 8.
    data = b"the rain on these roofs " * 1000
    for method in codec.METHODS[:-1]:
        first, last, usual = codec.levels(method)
        for level in {first, last, usual}:
            frame = codec.compress(bytearray(data), method, level)
            assert len(frame) < len(data) / 5 and codec.decompress(memoryview(frame)) == data


def test_wrong_frames_and_options():
    frame = codec.compress(b"x" * 1000)
    for bad in [b"", frame[:-1], frame[:5], bytes([frame[0] ^ 1]) + frame[1:], os.urandom(50)]:
        with pytest.raises(fiche.CorruptError) as caught:
            codec.decompress(bad)
        assert caught.value.what == "frame"
    with pytest.raises(MemoryError):
        codec.decompress(frame, max_size=999)
    for wrong in [("best", None), ("zstd", 99), ("hybrid", None)]:
        with pytest.raises(ValueError):
            codec.compress(b"", *wrong)
    with pytest.raises(TypeError):
        codec.compress("text")


def test_arrays_are_compressed_by_id():
    numcodecs = pytest.importorskip("numcodecs", reason="SKIP: numcodecs")
    numpy = pytest.importorskip("numpy")
    array = (numpy.arange(10_000, dtype="i4") % 7).reshape(100, 100)
    made = numcodecs.get_codec({"id": "fiche", "method": "lz4", "level": 9})
    assert made.get_config() == {"id": "fiche", "method": "lz4", "level": 9}
    encoded = made.encode(array)
    assert len(encoded) < array.nbytes
    assert (numpy.frombuffer(made.decode(encoded), "i4") == array.ravel()).all()
    out = numpy.empty_like(array)
    made.decode(encoded, out=out)
    assert (out == array).all()
    with pytest.raises(ValueError):
        numcodecs.get_codec({"id": "fiche", "method": "best"})


def test_zarr_arrays_are_written_with_it_and_read_in_an_archive(tmp_path):
    zarr = pytest.importorskip("zarr", reason="SKIP: zarr")
    numpy = pytest.importorskip("numpy")
    from fiche.numcodecs import Fiche

    array = numpy.arange(40_000, dtype="f8").reshape(200, 200)
    store = tmp_path / "array.zarr"
    made = zarr.create_array(
        store, shape=array.shape, chunks=(50, 50), dtype="f8", compressors=Fiche("zstd", 5), zarr_format=2
    )
    made[:] = array
    assert (zarr.open_array(store)[:] == array).all()
    fiche.pack(store, tmp_path / "array.fiche")
    pytest.importorskip("fsspec", reason="SKIP: fsspec")
    url = f"fiche://array.zarr::file://{tmp_path}/array.fiche"
    inside = zarr.open_array(url, mode="r")
    assert (inside[60:70, 60:140] == array[60:70, 60:140]).all()


def test_xarray_reads_a_data_set_in_an_archive(tmp_path):
    xarray = pytest.importorskip("xarray", reason="SKIP: xarray")
    pytest.importorskip("zarr", reason="SKIP: zarr")
    numpy = pytest.importorskip("numpy")
    data = xarray.Dataset({"rain": (("x", "y"), numpy.arange(600.0).reshape(20, 30))})
    data.to_zarr(tmp_path / "rain.zarr", zarr_format=2)
    fiche.pack(tmp_path / "rain.zarr", tmp_path / "rain.fiche")
    url = f"fiche://rain.zarr::file://{tmp_path}/rain.fiche"
    assert xarray.open_zarr(url).load().equals(data)
