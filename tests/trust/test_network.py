"""Nothing is fetched at import, nor while a stream is answered."""

import subprocess
import sys

SCRIPT = """
import socket, sys
class Blocked(socket.socket):
    def __init__(self, *arguments, **keywords):
        raise RuntimeError("a socket was opened")
socket.socket = Blocked
socket.create_connection = socket.getaddrinfo = lambda *a, **k: (_ for _ in ()).throw(RuntimeError("network"))
import pkgutil, importlib, torch, note_tta as tta
for module in pkgutil.walk_packages(tta.__path__, "note_tta."):
    if module.name != "note_tta.nn._iabn":  # the kernel, which is no Python module
        importlib.import_module(module.name)
for name in tta.__all__:
    getattr(tta, name)
from torch import nn
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))
stream = [(torch.rand(64, 1, 4, 4), torch.zeros(64).long())] * 2
print(tta.evaluate(tta.NOTE(tta.convert_iabn(model)), stream).samples)
try:
    socket.socket()
except RuntimeError as error:
    print(error)
"""


def test_no_network_at_import_nor_while_adapting():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300)
    assert done.stdout.split("\n")[:2] == ["128", "a socket was opened"], done.stderr
