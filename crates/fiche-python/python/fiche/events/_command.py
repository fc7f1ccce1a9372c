"""What the commands of modules have in common."""

import contextlib
import os
import sys

from .. import CorruptError
from .._progress import Bar


def run(module, work, given, errors=()):
    """The status that a command ends with; errors are told in a line."""
    try:
        return work(given)
    except BrokenPipeError:
        # Whoever reads has enough; what is left to be written is not written at the end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print(f"{module}: interrupted", file=sys.stderr)
        return 130
    except (KeyError, ValueError, TypeError, OSError, CorruptError, *errors) as error:
        print(f"{module}: {error.args[0] if isinstance(error, KeyError) else error}", file=sys.stderr)
        return 1


def bar(given):
    """A bar where somebody looks."""
    return Bar("events", " events") if not given.quiet and sys.stderr.isatty() else contextlib.nullcontext()
