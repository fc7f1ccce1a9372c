"""A bar on standard error."""

import sys


class Bar:
    """Called with bytes done and bytes in all."""

    def __init__(self, what, unit="B"):
        self._what = what
        self._unit = unit
        self._bar = None
        self._told = -1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._bar is not None:
            self._bar.close()
        elif self._told >= 0:
            print(file=sys.stderr)

    def __call__(self, done, total):
        if self._bar is None and self._told < 0:
            try:
                from tqdm.auto import tqdm
            except ImportError:
                pass
            else:
                self._bar = tqdm(desc=self._what, total=total, unit=self._unit, unit_scale=True)
        if self._bar is not None:
            self._bar.update(done - self._bar.n)
            return
        percent = 100 * done // total if total else 0
        if percent != self._told:
            self._told = percent
            print(f"\r{self._what} {percent} %", end="", file=sys.stderr, flush=True)
