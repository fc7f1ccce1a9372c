"""Archives by their URLs: from nginx, and from a store that speaks S3."""

import concurrent.futures
import http.server
import io
import itertools
import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

import fiche


@pytest.fixture
def url(web, packed):
    return web.put("texts.fiche", packed)


def test_records_come_with_few_requests(web, url, content):
    web.asked()
    with fiche.open(url) as reader:
        assert reader.records["folder/007.txt"].read() == content["folder/007.txt"]
        asked = web.asked()
        assert all(status == 206 for status, _ in asked)
        assert len(asked) <= 4
        assert reader.fetched == (len(asked), sum(size for _, size in asked))
        everything = b"".join(content.values())
        assert reader[:] == everything
        reads = [(offset, 100) for offset in range(0, len(everything) - 100, 5000)]
        assert reader.read_many(reads) == [everything[o : o + n] for o, n in reads]
        assert repr(reader).startswith(f"<fiche.Reader of {url}: ")
        assert reader.verify()["damage"] == []


def test_what_is_kept_on_disk_is_not_fetched_again(web, url, content, tmp_path):
    for requests in (4, 1, 1):
        web.asked()
        with fiche.open(url, keep=tmp_path / "kept") as reader:
            assert reader.records[7].read() == content["folder/007.txt"]
        assert len(web.asked()) <= requests
    # Damage on the way there is found, and fetched again.
    for path in (tmp_path / "kept" / "objects").rglob("*-*"):
        path.write_bytes(b"something else")
    with fiche.open(url, keep=tmp_path / "kept") as reader:
        assert reader.records[7].read() == content["folder/007.txt"]


def test_a_folder_of_the_environment(web, url, content, tmp_path, monkeypatch):
    monkeypatch.setenv("FICHE_CACHE", str(tmp_path / "kept"))
    fiche.open(url)[:]
    web.asked()
    assert fiche.open(url)[:] == b"".join(content.values())
    assert len(web.asked()) == 1
    monkeypatch.setenv("FICHE_CACHE_SIZE", "much")
    with pytest.raises(ValueError, match="FICHE_CACHE_SIZE is much"):
        fiche.open(url)


def test_readers_are_pickled_and_go_on_behind_a_fork(url, content):
    reader = fiche.open(url)
    expected = content["folder/003.txt"]
    again = pickle.loads(pickle.dumps(reader))
    assert again.records[3].read() == expected
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        # The reader that was there before the fork, in the processes behind it.
        globals()["_reader"] = reader
        found = list(pool.map(_read, range(8)))
    assert found == [content[f"folder/{i:03}.txt"] for i in range(8)]
    assert reader.records[3].read() == expected


def _read(number):
    return _reader.records[number].read()  # noqa: F821


def test_threads_read_at_once(url, content):
    reader = fiche.open(url, cache=0)
    names = list(content)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda name: reader.records[name].read(), names))
    assert found == [content[name] for name in names]


def test_one_that_is_replaced_is_an_error(web, packed, content, tmp_path):
    other = tmp_path / "other.fiche"
    fiche.pack({name: text[::-1] for name, text in content.items()}, other, method="lz4")
    fiche.pack(content, tmp_path / "one.fiche", method="copy")
    url = web.put("replaced.fiche", tmp_path / "one.fiche")
    reader = fiche.open(url)
    pickled = pickle.dumps(reader)
    reader.records[0].read()
    web.put("replaced.fiche", other)
    with pytest.raises(fiche.ChangedError):
        reader.records[30].read()
    with pytest.raises(fiche.ChangedError):
        pickle.loads(pickled)


def test_errors_name_what_is_wrong(web, url):
    with pytest.raises(FileNotFoundError, match="not.there.fiche: there is no such object"):
        fiche.open(url.replace("texts", "not-there"))
    with pytest.raises(OSError, match="onnect"):
        fiche.open("http://127.0.0.1:9/x.fiche")
    with pytest.raises(ValueError, match="this is not a fiche file"):
        fiche.open(web.put("plain.txt", __file__))
    half = web.folder / "half"
    half.write_bytes((web.folder / "www" / "texts.fiche").read_bytes()[:-1000])
    with pytest.raises(fiche.CorruptError):
        fiche.open(web.put("half.fiche", half))


def test_a_server_that_ignores_ranges_is_said_to(packed):
    handler = lambda *args: http.server.SimpleHTTPRequestHandler(*args, directory=packed.parent)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(ValueError, match="does not give out parts of files"):
            fiche.open(f"http://127.0.0.1:{server.server_port}/{packed.name}")
        server.shutdown()


def test_a_store_that_speaks_s3(s3, packed, content, monkeypatch):
    s3.upload_file(packed, "pages", "a b/texts.fiche")
    for url in ("s3://pages/a b/texts.fiche", "s3://pages/a%20b/texts.fiche"):
        with fiche.open(url) as reader:
            assert reader.records["folder/041.txt"].read() == content["folder/041.txt"]
            assert reader.fetched[0] <= 4
    with pytest.raises(FileNotFoundError, match="s3://pages/none.fiche"):
        fiche.open("s3://pages/none.fiche")
    with fiche.open("s3://pages/a b/texts.fiche", cache=0) as reader:
        s3.put_object(Bucket="pages", Key="a b/texts.fiche", Body=os.urandom(packed.stat().st_size))
        with pytest.raises(fiche.ChangedError):
            reader[:]


def test_credentials_of_a_profile(s3, packed, content, monkeypatch, tmp_path):
    s3.upload_file(packed, "pages", "texts.fiche", ExtraArgs={"ACL": "public-read"})
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = a\n[lab]\naws_access_key_id = b\naws_secret_access_key = c\n"
    )
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "lab")
    assert fiche.open("s3://pages/texts.fiche").records[1].read() == content["folder/001.txt"]
    monkeypatch.setenv("AWS_PROFILE", "none")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    assert fiche.open("s3://pages/texts.fiche").records[1].read() == content["folder/001.txt"]


@pytest.mark.parametrize("answers", [0, 1])
def test_waiting_for_a_server_can_be_interrupted(answers):
    """Ctrl-C while a server says nothing: at once, or after it has answered the first request."""
    out = io.BytesIO()
    fiche.pack({"noise": os.urandom(400_000)}, out)
    packed = out.getvalue()
    with socket.create_server(("127.0.0.1", 0)) as server:
        def serve():
            for i in itertools.count():
                try:
                    connection = server.accept()[0]
                except OSError:
                    return
                threading.Thread(target=answer, args=(connection, i), daemon=True).start()

        def answer(connection, number):
            with connection:
                connection.recv(10_000)
                if number >= answers:
                    connection.recv(1)
                    return
                tail = packed[-65536:]
                head = (
                    f"HTTP/1.1 206 Partial Content\r\nETag: \"x\"\r\nContent-Length: {len(tail)}\r\n"
                    f"Content-Range: bytes {len(packed) - len(tail)}-{len(packed) - 1}/{len(packed)}\r\n"
                    "Connection: close\r\n\r\n"
                )
                connection.sendall(head.encode() + tail)

        threading.Thread(target=serve, daemon=True).start()
        program = (
            "import fiche, signal, sys\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "print('begun', flush=True)\n"
            "reader = fiche.open(sys.argv[1])\n"
            "print('open', flush=True)\n"
            "reader.read_many([(0, 10), (len(reader) // 2, 10)])\n"
        )
        url = f"http://127.0.0.1:{server.getsockname()[1]}/a.fiche"
        process = subprocess.Popen([sys.executable, "-c", program, url], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        for word in ["begun", "open"][: 1 + answers]:
            assert process.stdout.readline() == f"{word}\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        # A server may say nothing for 20 seconds, five times.
        _, errors = process.communicate(timeout=15)
    assert "KeyboardInterrupt" in errors and process.returncode != 0
