"""The README's example does what it says."""

import pathlib
import re

import pytest

import fiche

README = pathlib.Path(__file__).parents[3] / "README.md"


@pytest.mark.skipif(not README.exists(), reason="SKIP: the README is not beside the tests")
def test_the_example_runs(tmp_path, monkeypatch):
    pandas = pytest.importorskip("pandas", reason="SKIP: pandas")
    block = re.search(r"```python\n(.*?)```", README.read_text(), re.S)[1]
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.rs").write_text("fn main() {}\n")
    (tmp_path / "logs").write_bytes(bytes(range(256)) * 20_000)
    fiche.pack({"data/a.csv": b"x\n1\n"}, tmp_path / "tables.fiche")
    monkeypatch.chdir(tmp_path)
    names = {"pandas": pandas}
    exec(block.replace("s3://bucket/", f"file://{tmp_path}/"), names)
    assert names["text"] == b"fn main() {}\n"
    assert len(names["piece"]) == 16384 and [len(some) for some in names["many"]] == [99, 512]
    assert names["table"].to_dict("list") == {"x": [1]}
