"""Archives and records as files."""

import io

# Bytes that are read for lines at once, and that are looked through for the end of one.
AHEAD = 64 << 10
LINE = 4 << 10


class File(io.RawIOBase):
    """A reader or a record as a binary file that is read and sought, whose lines may be gone through.

    It has a position, and so belongs to one thread; the source it reads from may have many files. Wrap it in
    `io.BufferedReader` where reads are small and in order.

    >>> import fiche, io
    >>> out = io.BytesIO()
    >>> report = fiche.pack({"a": b"one\\ntwo\\n"}, out)
    >>> with fiche.open(out.getvalue()).records["a"].file() as file:
    ...     file.seek(4), file.read(), file.read()
    (4, b'two\\n', b'')
    """

    def __init__(self, source):
        self._source = source
        self._len = len(source)
        self._at = 0
        # What was looked at ahead, and where that begins.
        self._ahead = 0, b""

    @property
    def size(self):
        """Its length in bytes."""
        return self._len

    def readable(self):
        return True

    def seekable(self):
        return True

    def _check(self):
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def readinto(self, buffer):
        self._check()
        with memoryview(buffer) as view, view.cast("B") as room:
            size = min(len(room), max(self._len - self._at, 0))
            if size:
                self._source.readinto_at(self._at, room[:size])
        self._at += size
        return size

    def peek(self, size=0):
        """Some of the next bytes, which are read yet: those of lines are looked for in them."""
        self._check()
        start, data = self._ahead
        if not start <= self._at < start + len(data):
            start, data = self._at, self._source.read_at(self._at, min(AHEAD, max(self._len - self._at, 0)))
            self._ahead = start, data
        return data[self._at - start : self._at - start + max(size, LINE)]

    def read(self, size=-1):
        self._check()
        left = max(self._len - self._at, 0)
        size = left if size is None or size < 0 else min(size, left)
        start, data = self._ahead
        if start <= self._at and self._at + size <= start + len(data):
            data = data[self._at - start : self._at - start + size]
        else:
            data = self._source.read_at(self._at, size) if size else b""
        self._at += size
        return data

    def readall(self):
        return self.read()

    def seek(self, offset, whence=io.SEEK_SET):
        self._check()
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._len}.get(whence)
        if base is None:
            raise ValueError(f"invalid whence ({whence})")
        if base + offset < 0:
            raise ValueError(f"negative seek position {base + offset}")
        self._at = base + offset
        return self._at

    def tell(self):
        self._check()
        return self._at
