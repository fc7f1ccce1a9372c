import io
import os
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeAlias, TypedDict, TypeVar, final, overload

from . import codec as codec

from _typeshed import ReadableBuffer, StrPath, SupportsRead, SupportsWrite, WriteableBuffer

__all__ = [
    "BusyError",
    "ChangedError",
    "CorruptError",
    "File",
    "MissingError",
    "PoisonedError",
    "Reader",
    "Record",
    "Records",
    "Stream",
    "UnsupportedError",
    "Writer",
    "advise",
    "codec",
    "dict_build",
    "open",
    "pack",
]

__version__: str

_T = TypeVar("_T")
_Name: TypeAlias = str | bytes
_Progress: TypeAlias = Callable[[int, int | None], object]

class _SeekableFile(Protocol):
    def read(self, size: int, /) -> ReadableBuffer: ...
    def seek(self, offset: int, whence: int, /) -> int | None: ...

class _Dictionary(TypedDict):
    digest: str
    logical_bytes: int
    file: str | None

class _Info(TypedDict):
    kind: Literal["archive"]
    method: str
    level: int
    filters: list[str]
    block_bytes: int
    logical_bytes: int
    stored_bytes: int
    compressed_bytes: int
    blocks: int
    chapters: int
    dictionary_bytes: int
    model_bytes: int
    index_bytes: int
    checksum_bytes: int
    envelope_bytes: int
    record_bytes: int
    superseded_bytes: int
    records: int
    dictionaries: list[_Dictionary]
    content_crc64: str
    writer: str

class _StreamInfo(TypedDict):
    kind: str
    logical_bytes: int
    stored_bytes: int
    index_bytes: int
    units: int
    lines: int | None

class _Damage(TypedDict):
    what: str
    content: tuple[int, int] | None

class _Hit(TypedDict):
    number: int
    name: str

class _Report(TypedDict):
    blocks: int
    bytes: int
    damage: list[_Damage]
    records: list[_Hit]
    cut_off_append: int | None

class _Packed(TypedDict):
    records: int
    input_bytes: int
    logical_bytes: int
    stored_bytes: int
    equal_files: int
    equal_bytes: int
    skipped: list[tuple[str, str]]
    changed: list[str]
    sockets: list[str]
    seconds: float

class _Way(TypedDict):
    options: dict[str, Any]
    stored_bytes: int
    stored_error: float
    reads_per_second: float
    bytes_per_read: float
    pack_seconds: float
    best_to_read: bool
    best_to_write: bool
    recommended: list[str]

class _Advice(TypedDict):
    content_bytes: int
    threads: int
    read_bytes: int
    ways: list[_Way]

class _Known:
    what: str | None
    pos: int | None
    block: int | None
    record: int | None
    event: int | None
    def __init__(
        self,
        message: str = "",
        *,
        what: str | None = None,
        pos: int | None = None,
        block: int | None = None,
        record: int | None = None,
        event: int | None = None,
    ) -> None: ...

class CorruptError(_Known, ValueError): ...
class UnsupportedError(_Known, ValueError): ...
class MissingError(_Known, OSError): ...
class ChangedError(_Known, OSError): ...
class BusyError(_Known, OSError): ...
class PoisonedError(_Known, OSError): ...

class File(io.RawIOBase):
    def __init__(self, source: Reader | Record) -> None: ...
    def readinto(self, buffer: WriteableBuffer) -> int: ...
    def read(self, size: int | None = -1) -> bytes: ...
    def seek(self, offset: int, whence: int = 0) -> int: ...

@final
class Reader:
    def __new__(
        cls,
        source: StrPath | ReadableBuffer | _SeekableFile,
        *,
        cache: int = ...,
        dicts: Sequence[StrPath] = ...,
        keep: StrPath | None = None,
    ) -> Self: ...
    @property
    def fetched(self) -> tuple[int, int] | None: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, key: int, /) -> int: ...
    @overload
    def __getitem__(self, key: slice, /) -> bytes: ...
    def read_at(self, offset: int, size: int) -> bytes: ...
    def readinto_at(self, offset: int, buffer: WriteableBuffer) -> int: ...
    def read_many(self, reads: Sequence[tuple[int, int]]) -> list[bytes]: ...
    def plan(self, reads: Sequence[tuple[int, int]]) -> list[tuple[int, int]]: ...
    def file(self) -> File: ...
    @property
    def records(self) -> Records: ...
    def info(self) -> _Info: ...
    def verify(
        self, *, threads: int | None = None, progress: _Progress | None = None
    ) -> _Report: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _value: BaseException | None,
        _trace: TracebackType | None,
    ) -> None: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class Stream:
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, key: int, /) -> int: ...
    @overload
    def __getitem__(self, key: slice, /) -> bytes: ...
    def read_at(self, offset: int, size: int) -> bytes: ...
    def readinto_at(self, offset: int, buffer: WriteableBuffer) -> int: ...
    def read_many(self, reads: Sequence[tuple[int, int]]) -> list[bytes]: ...
    def line(self, number: int) -> bytes: ...
    def plan(self, reads: Sequence[tuple[int, int]]) -> list[tuple[int, int]]: ...
    def file(self) -> File: ...
    def info(self) -> _StreamInfo: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _value: BaseException | None,
        _trace: TracebackType | None,
    ) -> None: ...

@final
class Record:
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __bytes__(self) -> bytes: ...
    @overload
    def __getitem__(self, key: int, /) -> int: ...
    @overload
    def __getitem__(self, key: slice, /) -> bytes: ...
    def read(self) -> bytes: ...
    def read_at(self, offset: int, size: int) -> bytes: ...
    def readinto_at(self, offset: int, buffer: WriteableBuffer) -> int: ...
    def read_many(self, reads: Sequence[tuple[int, int]]) -> list[bytes]: ...
    def file(self) -> File: ...
    @property
    def name(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def number(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def range(self) -> tuple[int, int] | None: ...
    @property
    def target(self) -> str | None: ...
    @property
    def link(self) -> int | None: ...
    @property
    def mode(self) -> int | None: ...
    @property
    def mtime_ns(self) -> int | None: ...
    @property
    def mtime(self) -> float | None: ...
    @property
    def uid(self) -> int | None: ...
    @property
    def gid(self) -> int | None: ...
    @property
    def attributes(self) -> dict[str, bytes]: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class Records(Mapping[_Name | int, Record]):
    def __len__(self) -> int: ...
    def __getitem__(self, key: _Name | int, /) -> Record: ...
    def __contains__(self, key: object, /) -> bool: ...
    def __iter__(self) -> Iterator[str | int]: ...
    def find(self, name: _Name) -> Record | None: ...
    @overload
    def get(self, key: _Name | int, default: None = None) -> Record | None: ...
    @overload
    def get(self, key: _Name | int, default: _T) -> Record | _T: ...
    def prefix(self, prefix: _Name) -> Iterator[Record]: ...
    def keys(self) -> KeysView[str | int]: ...  # type: ignore[override]
    def values(self) -> ValuesView[Record]: ...
    def items(self) -> ItemsView[str | int, Record]: ...  # type: ignore[override]
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class Writer:
    def __new__(
        cls,
        output: StrPath | SupportsWrite[bytes],
        *,
        method: str | None = None,
        level: int | None = None,
        filters: Sequence[str] = ...,
        block: int = ...,
        dict: str | int | os.PathLike[str] | None = None,
        learn: ReadableBuffer | Iterable[ReadableBuffer] | None = None,
        align_records: bool = False,
        threads: int | None = None,
        overwrite: bool = False,
    ) -> Self: ...
    def add(self, name: _Name, data: ReadableBuffer | SupportsRead[bytes]) -> int: ...
    def write(self, data: ReadableBuffer) -> int: ...
    def tell(self) -> int: ...
    def close(self) -> None: ...
    def discard(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        _value: BaseException | None,
        _trace: TracebackType | None,
    ) -> None: ...

def open(
    source: StrPath | ReadableBuffer | _SeekableFile,
    *,
    cache: int = ...,
    dicts: Iterable[StrPath] = (),
    keep: StrPath | None = None,
    index: StrPath | ReadableBuffer | _SeekableFile | None = None,
) -> Reader | Stream | Any: ...  # Any: which of them it is, who opens it knows
def pack(
    input: StrPath | Sequence[StrPath] | Mapping[str, ReadableBuffer] | Mapping[bytes, ReadableBuffer],
    output: StrPath | SupportsWrite[bytes],
    *,
    method: str | None = None,
    level: int | None = None,
    filters: Sequence[str] = (),
    block: int = ...,
    dict: str | int | os.PathLike[str] | None = None,
    records: str = "files",
    align_records: bool = False,
    exclude: Iterable[str] = (),
    keep_going: bool = False,
    threads: int | None = None,
    overwrite: bool = False,
    progress: bool | _Progress | None = None,
) -> _Packed: ...
def advise(
    input: StrPath | Sequence[StrPath] | Mapping[str, ReadableBuffer] | Mapping[bytes, ReadableBuffer],
    *,
    methods: Iterable[str | tuple[str, int | None]] = (),
    blocks: Iterable[int] = (),
    dicts: str | Iterable[int | str] = (),
    read: int = ...,
    records: str = "files",
    exclude: Iterable[str] = (),
    threads: int | None = None,
    progress: bool | _Progress | None = None,
) -> _Advice: ...
def dict_build(
    input: StrPath | Sequence[StrPath] | Mapping[str, ReadableBuffer] | Mapping[bytes, ReadableBuffer],
    output: StrPath,
    *,
    size: int = ...,
    sample: int = 1024,
    cover: bool = False,
    exclude: Iterable[str] = (),
    overwrite: bool = False,
) -> str: ...
