from collections.abc import Callable, Sequence
from os import PathLike
from typing import IO, Any, Literal

STEP: int

__all__ = ["main", "pack", "unpack"]

def pack(
    source: str | PathLike[str],
    output: str | PathLike[str] | IO[bytes],
    *,
    columns: Sequence[str] | None = None,
    access: Literal["event", "block", "scan"] = "event",
    key: Sequence[str] = (),
    threads: int | None = None,
    verify: bool = False,
    overwrite: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> dict[str, Any]: ...
def unpack(
    source: str | PathLike[str],
    output: str | PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    compression: str = "zstd",
    overwrite: bool = True,
    progress: Callable[[int, int], object] | None = None,
) -> int: ...
def main(arguments: Sequence[str] | None = None) -> int: ...
