"""The service as a process: how it starts, what it refuses, how it ends."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import note_tta as tta
from note_tta.serve import Client, server
from note_tta.serve.desk import Desk
from note_tta.serve.limits import Refused

from .helpers import free_port, running, small_model

ROOT = Path(__file__).parents[2]


def command(*arguments, **options):
    code = "from note_tta.__main__ import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, "serve", *arguments], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
    )  # fmt: skip


def until_ready(process, port):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            return Client(f"http://127.0.0.1:{port}").ask("GET", "/readyz")
        except ConnectionError:
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
    raise TimeoutError


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "error: name your network with --model module:function, or use --demo\n"),
        (
            ("--demo", "--model", "a:b"),
            "error: name your network with --model module:function, or use --demo\n",
        ),
        (("--demo", "--host", "0.0.0.0"), "error: others can reach 0.0.0.0: give a token"),
        (("--model", "tests.serve.nothing:here"), "error: cannot import tests.serve.nothing"),
    ],
)
def test_a_users_mistake_is_one_line(arguments, message):
    process = command(*arguments)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2 and message in err and "Traceback" not in err


def test_a_missing_package_names_the_command():
    code = "import sys; sys.modules['starlette'] = None; from note_tta.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "serve", "--demo"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "error: note_tta.serve needs starlette: pip install 'note-tta[serve]'\n"


def test_the_client_needs_neither_torch_nor_the_services_packages():
    code = (
        "import sys\nfor name in ('torch', 'starlette', 'uvicorn', 'PIL'): sys.modules[name] = None\n"
        "from note_tta.serve import Client; Client()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_free_port_is_told_and_every_address_of_this_machine_is_answered_at():
    process = command("--model", "tests.serve.helpers:small_model", "--host", "127.0.0.2", "--port", "0")
    try:
        line = process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.2:[1-9]\d*/", line).group()
        assert Client(address).ask("GET", "/streams")["count"] == 0
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_sigterm_answers_what_is_under_way_writes_all_and_ends(tmp_path, x):
    port = free_port()
    options = ("--model", "tests.serve.helpers:small_model", "--store", str(tmp_path), "--port", str(port))
    process = command(*options, env={**os.environ, "OMP_NUM_THREADS": "1"})
    until_ready(process, port)
    sent, stop = [0] * 4, threading.Event()

    def send(number):
        client = Client(f"http://127.0.0.1:{port}")
        while not stop.is_set():
            try:
                sent[number] = client.send(f"cam-{number}", x[:3])["samples"]
            except Exception:
                return

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    page = Client(f"http://127.0.0.1:{port}")._connection  # an open page does not keep the service up
    page.request("GET", "/live")
    page.getresponse().readline()
    time.sleep(0.5)
    start = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.wait(30)
    taken = time.monotonic() - start
    stop.set()
    for thread in threads:
        thread.join(10)
    page.close()
    assert process.returncode in (0, -signal.SIGTERM), process.communicate()
    assert taken < 10
    process.communicate()
    with tta.Fleet(small_model(), spill=tmp_path) as fleet:
        found = [fleet.counters(f"cam-{number}")["samples"] for number in range(4)]
    assert min(sent) > 0
    assert all(there >= told for there, told in zip(found, sent, strict=True)), (found, sent)


def test_what_still_waits_at_the_end_is_told_so(monkeypatch, x, capfd):
    monkeypatch.setattr(server, "DRAIN", 0.2)
    monkeypatch.setattr(
        Desk, "answer", lambda desk, requests: time.sleep(2) or [Refused(422, "slow")] * len(requests)
    )
    answers = []

    def send(address):
        with pytest.raises(Refused) as refused:
            Client(address).send("cam-1", x[:3])
        answers.append(refused.value.status)

    with running(tta.Fleet(small_model())) as address:
        threads = [threading.Thread(target=send, args=(address,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
    for thread in threads:
        thread.join(10)
    assert answers == [503] * 3
    assert "Traceback" not in capfd.readouterr().err
