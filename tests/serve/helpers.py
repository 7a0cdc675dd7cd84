"""What the tests of the service share: a small model, a real server on a free port, a client that follows no rules."""

import http.client
import socket
import threading
import time
from contextlib import contextmanager
from urllib.parse import urlsplit

import torch
from torch import nn

import note_tta as tta
from note_tta.serve.server import make_server


def small_model() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)]
    return tta.convert_iabn(nn.Sequential(*layers).eval())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def running(fleet, *, token=None, **options):
    """The address of a server around a fleet, as long as the block lasts."""
    port = free_port()
    server = make_server(fleet, "127.0.0.1", port, token=token, **options)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)


def ask(address, verb, path, body=None, **headers):
    """A request as it is: status, headers, content."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=20)
    connection.request(verb, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response.status, response.headers, content


def same(one, other):
    """Whether two states are the same, tensors to rounding."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, torch.Tensor):
        return torch.allclose(one.double(), other.double(), atol=1e-5)
    return one == other
