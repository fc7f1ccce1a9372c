"""The example of the guide, with PyTorch."""

import importlib
import multiprocessing
import pathlib
import re
import sys

import pytest

from conftest import skip

GUIDE = pathlib.Path(__file__).parents[3] / "docs" / "guide" / "src" / "python.md"


@pytest.fixture
def records(tmp_path, monkeypatch):
    try:
        import torch.utils.data  # noqa: F401
    except ImportError:
        skip("torch, which is too large to be installed for every run: make soak does")
    [code] = re.findall(r"```python\n(import torch\n.*?)```", GUIDE.read_text(), re.DOTALL)
    # As a module, so that workers that are started anew find the class.
    (tmp_path / "example_for_torch.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("example_for_torch", None)
    return importlib.import_module("example_for_torch").Records


@pytest.mark.parametrize("context", [None, "fork", "forkserver"])
def test_workers_read_batches_of_records(records, packed, content, context):
    import torch.utils.data

    loader = torch.utils.data.DataLoader(
        records(packed),
        batch_size=7,
        shuffle=True,
        num_workers=0 if context is None else 2,
        multiprocessing_context=context and multiprocessing.get_context(context),
        collate_fn=list,
    )
    for _ in range(2):
        found = [text for batch in loader for text in batch]
        assert sorted(found) == sorted(content.values())


def test_by_url(records, web, packed, content):
    import torch.utils.data

    url = web.put("torch.fiche", packed)
    loader = torch.utils.data.DataLoader(records(url), batch_size=10, num_workers=2, collate_fn=list)
    assert [text for batch in loader for text in batch] == list(content.values())


def test_a_batch_is_one_call(records, packed, content, monkeypatch):
    calls = []
    data = records(packed)
    whole = list(content.values())
    assert len(data) == 60 and data[5] == whole[5]
    reader = data.archive

    class Counted:
        def read_many(self, reads):
            calls.append(len(reads))
            return reader.read_many(reads)

    data.archive = Counted()
    assert data.__getitems__([1, 5, 59]) == [whole[1], whole[5], whole[59]]
    assert calls == [3]
