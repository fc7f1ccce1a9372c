"""Archives that several tests read."""

import getpass
import random
import shutil
import socket
import subprocess
import time

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


def skip(what):
    """Says so where it is counted."""
    print(f"SKIP: {what}")
    pytest.skip(what)


class Web:
    """A folder that nginx serves, and what it was asked for."""

    def __init__(self, folder):
        self.folder, self._log = folder, folder / "access.log"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        (folder / "www").mkdir()
        temporary = "".join(
            f"{kind}_temp_path {folder}/tmp;"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        (folder / "nginx.conf").write_text(
            f"daemon off; user {getpass.getuser()}; pid {folder}/pid; error_log {folder}/error.log; events {{}}"
            f"http {{ log_format short '$status $body_bytes_sent'; access_log {self._log} short; {temporary}"
            f"server {{ listen 127.0.0.1:{port}; root {folder}/www; }} }}"
        )
        self._process = subprocess.Popen(
            ["nginx", "-e", folder / "error.log", "-c", folder / "nginx.conf"]
        )
        self._url = f"http://127.0.0.1:{port}"
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.05)
        raise RuntimeError((folder / "error.log").read_text())

    def put(self, name, path):
        shutil.copy(path, self.folder / "www" / name)
        return f"{self._url}/{name}"

    def asked(self):
        """Status and bytes of each answer since the last time."""
        # It is written behind the answer.
        time.sleep(0.1)
        lines = self._log.read_text().splitlines()
        self._log.write_text("")
        return [tuple(map(int, line.split())) for line in lines]

    def stop(self):
        self._process.terminate()
        self._process.wait()


@pytest.fixture(scope="session")
def web(tmp_path_factory):
    if shutil.which("nginx") is None:
        skip("nginx")
    web = Web(tmp_path_factory.mktemp("web"))
    yield web
    web.stop()


@pytest.fixture(scope="session")
def s3():
    """A client of a store on this machine, which the environment leads to."""
    try:
        import boto3
        from moto.server import ThreadedMotoServer
    except ImportError:
        skip("the Python modules moto and boto3")
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_REGION", "us-east-1")
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="pages")
        yield client
    server.stop()
