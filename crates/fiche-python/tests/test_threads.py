"""Readers in many threads, behind forks, and in other processes."""

import io
import multiprocessing
import os
import random
import subprocess
import sys
import threading
import time

import pytest

import fiche


def test_many_threads_read_one_reader(reader, content):
    whole = b"".join(content.values())
    wrong = []

    def read(seed):
        source = random.Random(seed)
        for _ in range(300):
            start = source.randrange(len(whole))
            size = source.randrange(20_000)
            if reader[start : start + size] != whole[start : start + size]:
                wrong.append(start)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong


def test_file_objects_are_read_by_many_threads(packed, content):
    whole = b"".join(content.values())
    with packed.open("rb") as file:
        reader = fiche.open(file, cache=0)
        wrong = []

        def read(seed):
            source = random.Random(seed)
            for _ in range(100):
                start = source.randrange(len(whole))
                if reader[start : start + 99] != whole[start : start + 99]:
                    wrong.append(start)

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert not wrong


def test_others_run_while_it_reads():
    """A long read keeps nobody else waiting: with the interpreter's lock held, this thread would get no turn."""
    words = random.Random(1).choices([b"rain ", b"roof ", b"on ", b"the "], k=1_500_000)
    out = io.BytesIO()
    fiche.pack({"text": b"".join(words)}, out, method="bzip2", block=1 << 20)
    reader = fiche.open(out.getvalue(), cache=0)
    begun, ended, turns = threading.Event(), threading.Event(), 0

    def read():
        begun.set()
        reader[:]
        ended.set()

    before = sys.getswitchinterval()
    # A thread gives the lock away only where it waits or releases it.
    sys.setswitchinterval(1000)
    try:
        thread = threading.Thread(target=read)
        thread.start()
        assert begun.wait(20)
        while not ended.is_set():
            turns += 1
            time.sleep(0.001)
        thread.join()
    finally:
        sys.setswitchinterval(before)
    assert turns > 10


def child(reader, names, queue):
    queue.put([reader.records[name].read() for name in names])


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_readers_go_on_in_other_processes(reader, content, method):
    context = multiprocessing.get_context(method)
    names = list(content)[:5]
    assert reader.records[names[0]].read() == content[names[0]]
    queue = context.Queue()
    process = context.Process(target=child, args=(reader, names, queue))
    process.start()
    assert queue.get(timeout=60) == [content[name] for name in names]
    process.join()


def test_a_fork_while_others_read(reader, content):
    """The child has none of the threads that may have held something."""
    stop = threading.Event()
    record = reader.records["folder/059.txt"]

    def read():
        while not stop.is_set():
            reader[:50_000]
            record.read()

    threads = [threading.Thread(target=read) for _ in range(3)]
    [thread.start() for thread in threads]
    try:
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                good = reader[:100] == b"".join(content.values())[:100]
                good = good and record.read() == content["folder/059.txt"]
                os._exit(0 if good else 1)
            deadline = time.monotonic() + 30
            while (done := os.waitpid(pid, os.WNOHANG)) == (0, 0):
                assert time.monotonic() < deadline, "the child hangs"
                time.sleep(0.01)
            assert done[1] == 0
    finally:
        stop.set()
        [thread.join() for thread in threads]


def test_the_module_brings_nothing_along():
    program = (
        "import sys, os, io, collections.abc; before = set(sys.modules); import fiche;"
        "print(sorted(m for m in set(sys.modules) - before if not m.startswith('fiche')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
