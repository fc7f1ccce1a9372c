from collections.abc import Callable, Sequence
from os import PathLike
from typing import IO, Any, Literal

STEP: int

__all__ = ["compare", "export", "ls", "main", "repack", "trees"]

def trees(path: str | PathLike[str]) -> dict[str, Any]: ...
def repack(
    source: str | PathLike[str],
    output: str | PathLike[str] | IO[bytes],
    *,
    branches: Sequence[str] = (),
    access: Literal["event", "block", "scan"] = "event",
    threads: int | None = None,
    verify: bool = False,
    overwrite: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> dict[str, Any]: ...
def compare(
    source: str | PathLike[str],
    *,
    branches: Sequence[str] = (),
    access: Literal["event", "block", "scan"] = "event",
    rounds: int = 3,
    times: bool = True,
    verify: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> dict[str, Any]: ...
def export(
    source: str | PathLike[str],
    output: str | PathLike[str],
    *,
    tree: str | None = None,
    kind: Literal["TTree", "RNTuple"] | None = None,
    branches: Sequence[str] = (),
    codec: Literal["none", "zlib", "lzma", "lz4", "zstd"] = "zstd",
    level: int | None = None,
    verify: bool = False,
    overwrite: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> dict[str, Any]: ...
def ls(path: str | PathLike[str], stream: IO[str] | None = None) -> None: ...
def main(arguments: Sequence[str] | None = None) -> int: ...
