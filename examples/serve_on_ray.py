"""The service on several machines: Ray Serve assigns streams by id, and restarts shards that die.

    pip install 'note-tta[ray]'
    python examples/serve_on_ray.py my_package:make_model /shared/streams --shards 4

A shard is the application of `note_tta.serve` with its own folder in the store, which all machines must share.
The entrance sends every request to the shard of its stream, so each stream is in only one place. When a machine
dies, Ray starts its shards elsewhere. They find their streams in the store, and clients continue from the last
durable sample. Set NOTE_TTA_TOKEN if other machines can reach the service. The number of shards is fixed; to
change it, move the streams with GET and PUT /streams/{id}/state.
"""

import argparse
import os
import time
import zlib
from pathlib import Path
from typing import Any

import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

import note_tta as tta
from note_tta.models.user_model import make_model
from note_tta.serve import create_app

Answer = tuple[int, list[tuple[bytes, bytes]], bytes]


class Shard:
    """A part of the streams: one fleet, one folder, one process.

    Args:
        model: The network, as `module:function`.
        folder: The folder that keeps its streams when the process ends.
        token: The token that requests must send.
    """

    def __init__(self, model: str, folder: str, token: str | None) -> None:
        self.app = create_app(tta.Fleet(tta.convert_iabn(make_model(model)), spill=folder), token=token)

    async def ask(self, scope: dict[str, Any], body: bytes) -> Answer:
        """Let the application answer one request."""
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        content = b"".join(message.get("body", b"") for message in sent[1:])
        return sent[0]["status"], sent[0]["headers"], content

    def process(self) -> int:
        """Return the process id of the shard."""
        return os.getpid()


@serve.deployment(max_ongoing_requests=1000)
class Entrance:
    """Forwards requests to the shard of their stream."""

    def __init__(self, *shards: Any) -> None:
        self.shards = shards

    async def __call__(self, request: Request) -> Response:
        """Answer one request; 503 while the shard of its stream restarts."""
        _, _, rest = request.url.path.partition("/streams/")
        stream = rest.partition("/")[0]
        if not stream:
            return JSONResponse({"reason": "name a stream in the path: /streams/{id}/…"}, 404)
        scope = {
            "type": "http",
            "method": request.method,
            "path": request.url.path,
            "query_string": request.scope["query_string"],
            "headers": list(request.scope["headers"]),
        }
        shard = self.shards[zlib.crc32(stream.encode()) % len(self.shards)]
        try:
            status, headers, content = await shard.ask.remote(scope, await request.body())
        except ray.exceptions.RayError:
            return JSONResponse(
                {"reason": "this stream's shard is restarting: try again later"}, 503, {"Retry-After": "1"}
            )
        response = Response(content, status)
        response.raw_headers = headers
        return response


def deploy(model: str, store: Path, shards: int, token: str | None, port: int) -> None:
    """Start the shards and the entrance on the cluster that Ray is connected to."""
    parts = []
    for number in range(shards):
        folder = store.resolve() / f"{number:03}-of-{shards:03}"
        options = {"name": f"shard-{number}", "num_replicas": 1, "max_ongoing_requests": 1000}
        parts.append(serve.deployment(Shard, **options).bind(model, str(folder), token))
    serve.start(http_options={"port": port})
    serve.run(Entrance.bind(*parts), name="streams")


def main() -> None:
    """Serve until the process is stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", help="your network, as module:function")
    parser.add_argument("store", type=Path, help="a folder that all machines share")
    parser.add_argument("--shards", type=int, default=2, help="the number of shards")
    parser.add_argument("--port", type=int, default=8000, help="the port to listen on")
    parser.add_argument("--address", help="the address of a running Ray cluster; by default, start one here")
    arguments = parser.parse_args()
    ray.init(address=arguments.address)
    deploy(
        arguments.model, arguments.store, arguments.shards, os.environ.get("NOTE_TTA_TOKEN"), arguments.port
    )
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
