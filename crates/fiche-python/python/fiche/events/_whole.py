"""Files of others that appear under their names when they are whole."""

import contextlib
import os


@contextlib.contextmanager
def whole(output, overwrite=True):
    """A path to write to, which becomes `output` when all went well."""
    output = os.fspath(output)
    if not overwrite and os.path.exists(output):
        raise FileExistsError(f"{output} is there already")
    aside = f"{output}.{os.getpid()}.part"
    try:
        yield aside
        os.replace(aside, output)
    finally:
        if os.path.exists(aside):
            os.unlink(aside)
