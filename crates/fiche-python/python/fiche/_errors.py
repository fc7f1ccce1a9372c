"""What can go wrong and has no class in Python."""


class _Known:
    """An error that knows what it is about."""

    def __init__(self, message="", *, what=None, pos=None, block=None, record=None, event=None):
        super().__init__(message)
        self.what = what
        self.pos = pos
        self.block = block
        self.record = record
        self.event = event


class CorruptError(_Known, ValueError):
    """The bytes are not what was written.

    `what` is the structure by its name in the format's specification; where it is known, `pos` is the position
    in the file in bytes, `block` the number of the block, `record` the number of the record, `event` that of an event.
    """

    __module__ = "fiche"


class UnsupportedError(_Known, ValueError):
    """Written by a newer version, or with a codec that this build does not have."""

    __module__ = "fiche"


class MissingError(_Known, OSError):
    """A file that the archive needs, a dictionary, was not found."""

    __module__ = "fiche"


class ChangedError(_Known, OSError):
    """The file is not the one that was opened."""

    __module__ = "fiche"


class BusyError(_Known, OSError):
    """Somebody else is writing to it."""

    __module__ = "fiche"


class PoisonedError(_Known, OSError):
    """A write failed earlier, and nothing more is written."""

    __module__ = "fiche"

