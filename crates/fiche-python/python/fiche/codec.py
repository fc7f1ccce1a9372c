"""One piece of bytes compressed alone, into a frame that says all that is needed to decode it.

>>> from fiche import codec
>>> frame = codec.compress(b"to be or not to be, that is to be, or not to be", "zstd", 19)
>>> codec.decompress(frame)
b'to be or not to be, that is to be, or not to be'
"""

from ._fiche import codec_compress as _compress
from ._fiche import codec_decompress as _decompress
from ._fiche import codec_levels as _levels
from ._fiche import codec_size as _size

__all__ = ["METHODS", "compress", "decompress", "levels", "size"]

METHODS = ("zstd", "lz4", "zlib", "lzma", "bzip2", "bewalgo32", "bewalgo64", "lzo", "copy")


def compress(data, method="zstd", level=None):
    """A frame of any bytes-like object: at most 15 bytes longer, and checksummed.

    Raises `ValueError` where there is no such method, or it has no such level.
    """
    return _compress(data, method, level)


def decompress(data, max_size=None):
    """The bytes that a frame stands for.

    Raises `CorruptError` where it is damaged, `MemoryError` where it says that it stands for more than
    `max_size` bytes or than there is memory for.
    """
    return _decompress(data, max_size)


def size(data):
    """How many bytes a frame says that it stands for."""
    return _size(data)


def levels(method):
    """The lowest, the highest and the usual level of a method.

    >>> from fiche import codec
    >>> codec.levels("zstd")
    (-7, 22, 3)
    """
    return _levels(method)
