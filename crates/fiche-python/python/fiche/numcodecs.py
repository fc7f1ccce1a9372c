"""fiche's codecs for Zarr and whatever else takes those of numcodecs.

    zarr.create_array(..., compressors=fiche.numcodecs.Fiche("zstd", 9))         # by class
    numcodecs.get_codec({"id": "fiche", "method": "lz4", "level": None})         # by id
"""

from numcodecs.abc import Codec
from numcodecs.compat import ensure_contiguous_ndarray, ndarray_copy

from . import codec


class Fiche(Codec):
    """Compresses chunks into frames of one of fiche's methods; each is checksummed."""

    codec_id = "fiche"

    def __init__(self, method="zstd", level=None):
        if method not in codec.METHODS:
            raise ValueError(f"there is no method {method!r} for single pieces")
        self.method = method
        self.level = level

    def encode(self, buf):
        return codec.compress(ensure_contiguous_ndarray(buf), self.method, self.level)

    def decode(self, buf, out=None):
        data = codec.decompress(ensure_contiguous_ndarray(buf))
        return data if out is None else ndarray_copy(data, out)
