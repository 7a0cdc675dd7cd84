"""The example on Ray Serve: two shards, one of them killed in mid-stream."""

import importlib.util
import logging
import os
import signal
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("ray.serve", reason="Ray Serve is not installed")

import note_tta as tta
from note_tta.fleet.codec import Codec
from note_tta.methods.packed import plain
from note_tta.serve import Client

from .helpers import free_port, same, small_model

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def example():
    spec = importlib.util.spec_from_file_location("serve_on_ray", ROOT / "examples" / "serve_on_ray.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["serve_on_ray"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["serve_on_ray"]


@pytest.fixture
def cluster(monkeypatch):
    import ray
    from ray import serve

    path = os.pathsep.join([str(ROOT), str(ROOT / "examples")])
    patience = {  # on a busy machine a proxy takes longer to start than Ray waits, which then kills it
        "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "120",
        "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "120",
    }
    for name, value in patience.items():
        monkeypatch.setenv(name, value)
    environment = {"env_vars": {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", **patience}}
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        runtime_env=environment,
    )
    yield ray
    serve.shutdown()
    ray.shutdown()


def test_a_killed_shard_comes_back_with_its_streams(example, cluster, tmp_path):
    from ray import serve

    port = free_port()
    example.deploy("tests.serve.helpers:small_model", tmp_path, 2, None, port)
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (300, 1, 8, 8), generator=generator).float() / 255
    client = Client(f"http://127.0.0.1:{port}", timeout=120)
    feeds = {name: client.feed(name, patience=180) for name in ("a", "b", "c", "d", "e", "f")}
    used = {example.zlib.crc32(name.encode()) % 2 for name in feeds}
    assert used == {0, 1}
    for start in range(0, 300, 10):
        if start == 150:
            shard = serve.get_deployment_handle("shard-0", "streams")
            os.kill(shard.process.remote().result(), signal.SIGKILL)
        for feed in feeds.values():
            feed(x[start : start + 10])
    whole = tta.NOTE(small_model())
    for part in x.split(64):
        whole(part)
    for name in feeds:
        assert same(plain(Codec().decode(client.state(name))), whole.state_dict()), name
    assert len(list(tmp_path.iterdir())) == 2
