"""IABN under PyTorch's compilers and exporters, copied and pickled."""

import copy
import io
import pickle
import shutil

import pytest
import torch
from torch import nn

from note_tta import NOTE, PBRS
from note_tta.nn import IABN1d, IABN2d, IABN3d, convert_iabn, native


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), IABN2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), IABN2d(8), nn.Flatten(1)
    )


def compiled_equals_eager(backend):
    torch._dynamo.reset()
    x = torch.randn(4, 3, 12, 12, generator=torch.Generator().manual_seed(3)) * 2 + 1
    for training in (False, True):
        eager = network().train(training)
        fast = torch.compile(copy.deepcopy(eager), fullgraph=True, backend=backend)
        with torch.no_grad():
            torch.testing.assert_close(fast(x), eager(x), atol=1e-5, rtol=1e-5)
        for model in (eager, fast):
            model(x).square().sum().backward()
        for a, b in zip(fast.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad, atol=1e-3, rtol=1e-3)
        for a, b in zip(fast.buffers(), eager.buffers(), strict=True):
            torch.testing.assert_close(a, b)


def test_compile_keeps_one_graph():
    compiled_equals_eager("aot_eager")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
def test_compile_by_inductor():
    compiled_equals_eager("inductor")


@pytest.mark.skipif(not native.kernel().active, reason=f"no kernel: {native.kernel().reason}")
def test_compiled_code_calls_the_operator():
    nodes = []

    def backend(graph, _):
        nodes.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    torch._dynamo.reset()
    model = network().eval()
    with torch.no_grad():
        torch.compile(model, fullgraph=True, backend=backend)(torch.randn(2, 3, 12, 12))
    assert sum("iabn_infer" in node for node in nodes) == 2


def test_transforms_inside_compiled_code_take_the_formula():
    torch._dynamo.reset()
    x, layer = torch.randn(3, 4, 5, 5), IABN2d(4).eval()
    for transformed in (
        torch.func.grad(lambda x: layer(x).square().sum()),
        torch.func.vmap(lambda sample: layer(sample[None])[0]),
    ):
        fast = torch.compile(transformed, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(fast(x), transformed(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("strict", [False, True])
def test_export(strict):
    model, x = network().eval(), torch.randn(2, 3, 12, 12)
    exported = torch.export.export(model, (x,), strict=strict)
    assert "note_tta" not in str(exported.graph), "an exported model must run without this package"
    torch.testing.assert_close(exported.module()(x), model(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.BatchNorm2d(4), (3, 4, 5, 5)),
        (nn.BatchNorm1d(4), (3, 4)),
        (nn.BatchNorm1d(4, momentum=None), (3, 4, 7)),
        (nn.BatchNorm3d(4, affine=False, track_running_stats=False), (3, 4, 2, 3, 4)),
    ],
)
def test_scripting_takes_the_formula(layer, shape):
    model = convert_iabn(nn.Sequential(layer), alpha=1.0)
    scripted = torch.jit.script(copy.deepcopy(model))
    assert "note_tta::" not in str(scripted.inlined_graph)
    for training in (True, False):
        x = torch.randn(shape) * 2 + 1
        found = scripted.train(training)(x)
        torch.testing.assert_close(found, model.train(training)(x), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(scripted.state_dict(), model.state_dict())


def test_scripted_models_save_and_refuse():
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(network().eval()), file)
    file.seek(0)
    x = torch.randn(2, 3, 12, 12)
    torch.testing.assert_close(torch.jit.load(file)(x), network().eval()(x), atol=1e-5, rtol=1e-5)
    with pytest.raises(Exception, match="expected 4D input"):
        torch.jit.script(IABN2d(4))(torch.zeros(2, 4, 3))


def test_tracing_takes_the_formula():
    model, x = network().eval(), torch.randn(2, 3, 12, 12)
    traced = torch.jit.trace(model, x)
    assert "note_tta::" not in str(traced.inlined_graph)
    other = torch.randn(2, 3, 12, 12)
    torch.testing.assert_close(traced(other), model(other), atol=1e-5, rtol=1e-5)


def sensor_network() -> nn.Module:
    return nn.Sequential(nn.Conv1d(3, 4, 3), IABN1d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 10, 5))


def group_norm_network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(400, 5))


@pytest.mark.parametrize(
    ("make", "shape"),
    [(network, (3, 12, 12)), (sensor_network, (3, 12)), (group_norm_network, (3, 12, 12))],
    ids=["images", "sensors", "group norm"],
)
def test_adapted_models_answer_the_same_in_onnxruntime(make, shape, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    method = NOTE(make().eval(), PBRS(8), interval=8, lr=0.01)
    method(torch.randn(32, *shape) + 0.5)
    assert method.counters["updates"] == 4
    file = tmp_path / "model.onnx"
    x = torch.randn(2, *shape)
    batch = torch.export.Dim("batch")
    torch.onnx.export(method.model, (x,), file, dynamo=True, dynamic_shapes=[{0: batch}], verbose=False)
    assert b"note_tta::" not in file.read_bytes()
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    for size in (1, 2, 7):
        x = torch.randn(size, *shape)
        found = torch.from_numpy(session.run(None, {session.get_inputs()[0].name: x.numpy()})[0])
        torch.testing.assert_close(found, method.model(x).detach(), atol=1e-4, rtol=1e-4)


def test_layers_copy_and_pickle():
    for model, x in (
        (network(), torch.randn(2, 3, 12, 12)),
        (IABN1d(4), torch.randn(2, 4, 9)),
        (IABN3d(4), torch.randn(2, 4, 3, 3, 3)),
    ):
        model(x)
        model.eval()
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        for twin in (
            copy.deepcopy(model),
            pickle.loads(pickle.dumps(model)),
            torch.load(file, weights_only=False),
        ):
            assert torch.equal(twin(x), model(x))
