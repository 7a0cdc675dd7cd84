import hashlib
import http.server
import io
import threading
import urllib.request
import zipfile

import pytest

from note_tta.data import DATASETS, BadData
from note_tta.data import download as module
from note_tta.data.download import download, download_archive, open_https
from note_tta.data.record import Archive


def zipped(content=b"payload" * 20_000):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as bundle:
        bundle.writestr("inner/data.bin", content)
    return buffer.getvalue()


class Server(http.server.ThreadingHTTPServer):
    def __init__(self, body):
        super().__init__(("127.0.0.1", 0), Handler)
        self.body, self.ranges, self.cut, self.ranged = body, [], None, True


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        body, asked = self.server.body, self.headers.get("Range")
        self.server.ranges.append(asked)
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.server.ranged else 0
        if start >= len(body):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.end_headers()
        self.wfile.write(body[start : self.server.cut])

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    server = Server(zipped())
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def opener(server):
    def open_here(request):
        here = urllib.request.Request(
            f"http://127.0.0.1:{server.server_port}/x", headers=dict(request.header_items())
        )
        return urllib.request.urlopen(here, timeout=20)

    return open_here


def archive(server, md5="right", packed=True):
    checksum = hashlib.md5(server.body).hexdigest() if md5 == "right" else md5
    address = "https://example.org/files/data.zip?download=1"
    return Archive(address, "place/inner", "1 MB", checksum, into="place", packed=packed)


def test_an_archive_is_fetched_checked_and_unpacked(tmp_path, server, opener):
    seen = []
    said = download_archive(archive(server), tmp_path, opener=opener, progress=lambda *now: seen.append(now))
    assert said == "data.zip: done (checksum right)"
    assert (tmp_path / "place" / "inner" / "data.bin").read_bytes() == b"payload" * 20_000
    assert seen[-1] == ("data.zip", len(server.body), len(server.body))
    assert [entry.name for entry in (tmp_path / "downloads").iterdir()] == [".lock"]
    again = download_archive(archive(server), tmp_path, opener=opener)
    assert again == "data.zip: already there (place/inner)"
    assert server.ranges == [None]


def test_a_stopped_download_goes_on_where_it_was(tmp_path, server, opener):
    server.cut = 50_000
    with pytest.raises(OSError, match="run the same command to continue"):
        download_archive(archive(server), tmp_path, opener=opener)
    part = tmp_path / "downloads" / "data.zip.part"
    assert part.stat().st_size == 50_000
    assert not (tmp_path / "place").exists()
    server.cut = None
    download_archive(archive(server), tmp_path, opener=opener)
    assert server.ranges == [None, "bytes=50000-"]
    assert (tmp_path / "place" / "inner" / "data.bin").exists()


def test_a_server_without_ranges_starts_anew(tmp_path, server, opener):
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / "data.zip.part").write_bytes(b"old")
    server.ranged = False
    assert "done" in download_archive(archive(server), tmp_path, opener=opener)


def test_a_complete_part_needs_no_more_bytes(tmp_path, server, opener):
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / "data.zip.part").write_bytes(server.body)
    assert "done" in download_archive(archive(server), tmp_path, opener=opener)


def test_a_wrong_checksum_removes_the_file(tmp_path, server, opener):
    with pytest.raises(BadData, match=r"data.zip.part: MD5 is [0-9a-f]+, published is 123"):
        download_archive(archive(server, md5="123"), tmp_path, opener=opener)
    assert not (tmp_path / "downloads" / "data.zip.part").exists()
    assert not (tmp_path / "place").exists()


def test_no_published_checksum_is_said(tmp_path, server, opener):
    said = download_archive(archive(server, md5=None), tmp_path, opener=opener, keep=True)
    assert said == "data.zip: done (no published checksum to compare with)"
    assert (tmp_path / "downloads" / "data.zip").exists()


def test_a_plain_file_goes_to_its_place(tmp_path, server, opener):
    download_archive(archive(server, packed=False), tmp_path, opener=opener)
    assert (tmp_path / "place" / "data.zip").read_bytes() == server.body


def test_errors_of_the_net_are_one_line(tmp_path, server, opener):
    server.body = b""
    (tmp_path / "downloads").mkdir()
    with pytest.raises(OSError, match="answered 416"):
        download_archive(archive(server, md5=None), tmp_path, opener=opener)

    def unreachable(request):
        raise urllib.error.URLError("no route to host")

    with pytest.raises(OSError, match=r"cannot reach https://example.org.*no route to host"):
        download_archive(archive(server), tmp_path, opener=unreachable)


def test_only_https_is_opened():
    with pytest.raises(ValueError, match=r"only https addresses are fetched, not http://example\.org/"):
        open_https(urllib.request.Request("http://example.org/"))
    with pytest.raises(ValueError, match="only https addresses are fetched, not file:///etc/passwd"):
        open_https(urllib.request.Request("file:///etc/passwd"))
    with pytest.raises(ValueError, match="only https"):
        module._HttpsOnly().redirect_request(None, None, 302, "", {}, "http://example.org/")


def test_every_archive_is_https_and_has_its_own_name():
    every = [archive for record in DATASETS.values() for archive in record.archives]
    assert all(archive.url.startswith("https://") for archive in every)
    assert len({archive.name for archive in every}) == len(every)
    assert all(archive.md5 is None or len(archive.md5) == 32 for archive in every)


def test_unknown_datasets_are_named(tmp_path):
    with pytest.raises(ValueError, match="unknown dataset 'svhn'"):
        download("svhn", tmp_path)
    assert download("digits", tmp_path) == []
