"""Archives that several tests read."""

import random

import pytest

import fiche


def words(seed, count):
    """Text that compresses as text does."""
    source = random.Random(seed)
    dictionary = ["".join(source.choices("etaoinshrdlu", k=source.randint(2, 9))) for _ in range(500)]
    return " ".join(source.choices(dictionary, k=count)).encode()


@pytest.fixture(scope="session")
def content():
    """Names and what they stand for."""
    return {f"folder/{i:03}.txt": words(i, 50 + 40 * i) for i in range(60)}


@pytest.fixture(scope="session")
def packed(content, tmp_path_factory):
    path = tmp_path_factory.mktemp("archives") / "texts.fiche"
    fiche.pack(content, path)
    return path


@pytest.fixture
def reader(packed):
    with fiche.open(packed) as reader:
        yield reader
