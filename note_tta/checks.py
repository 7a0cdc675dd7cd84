"""The contract of all methods, as a function that you can run on your own method."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .methods.method import COUNTERS, Method
from .methods.states import keywords
from .nn.iabn import convert_iabn

CLASSES = 5
SHAPE = (3, 8, 8)
Make = Callable[[], Method]


def check_method(method: Callable[..., Method], model: nn.Module | None = None, **settings: Any) -> None:
    """Check that a method keeps the contract.

    Args:
        method: The class, or any callable that makes a method from a model.
        model: A model for `[B, 3, 8, 8]` images to run the checks on; None means a small network with IABN.
        **settings: Keywords of the method.

    Raises:
        AssertionError: The method breaks the contract. The message says how.

    Example:
        >>> import note_tta as tta
        >>> tta.check_method(tta.NOTE, interval=16)
    """
    settings = _with_source(method, settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for check in CHECKS:
            network = copy.deepcopy(model).eval() if model is not None else example_network()
            modes = _modes()
            try:
                check(partial(method, network, **settings), network)
            except AssertionError:
                raise
            except Exception as error:
                raise AssertionError(f"{check.__name__}: {type(error).__name__}: {error}") from error
            _require(
                _modes() == modes, "torch's gradient mode, default dtype or number of threads was changed"
            )


def example_network(seed: int = 0) -> nn.Module:
    """Make a small classifier of 3x8x8 images with IABN and dropout, with running statistics from data."""
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
        layers += [nn.Conv2d(8, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(8, CLASSES)]
        model = nn.Sequential(*layers)
        for _ in range(20):
            model.train()(torch.rand(32, *SHAPE, generator=generator))
    with torch.no_grad():
        model.get_parameter("9.weight").mul_(8)
    return convert_iabn(model).eval()


def example_images(count: int, seed: int = 1) -> Tensor:
    """Make images that drift: each has its own gain and offset."""
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(count, *SHAPE, generator=g)
    gain = torch.rand(count, 1, 1, 1, generator=g) + 0.5
    return x * gain + torch.rand(count, 3, 1, 1, generator=g) - 0.5


def equal(a: Any, b: Any) -> bool:
    """Whether two nested states are equal, bit by bit."""
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return isinstance(b, list | tuple) and len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)


def look(model: nn.Module) -> dict[str, Any]:
    """Return everything in a model that a method must not change."""
    return {
        "tensors": {name: tensor.detach().clone() for name, tensor in model.state_dict().items()},
        "modes": [module.training for module in model.modules()],
        "gradients": [(p.requires_grad, p.grad is None) for p in model.parameters()],
        "attributes": [sorted(key for key in vars(m) if not key.startswith("_")) for m in model.modules()],
        "hooks": [
            [len(hooks) for key, hooks in sorted(vars(module).items()) if key.endswith("_hooks")]
            for module in model.modules()
        ],
    }


def answers_every_sample(make: Make, model: nn.Module) -> None:
    """A batch of any size is counted, and answered with finite logits that carry no graph."""
    for size in (1, 2, 64, 130):
        method, x = make(), example_images(size)
        logits = method(x)
        counted = method.counters
        _require(logits.ndim == 2 and len(logits) == size, f"{size} samples got shape {tuple(logits.shape)}")
        _require(bool(torch.isfinite(logits).all()), f"{size} finite samples got answers that are not finite")
        _require(not logits.requires_grad, "answers carry a graph")
        _require(torch.equal(x, example_images(size)), "the samples that were given were changed")
        _require(
            set(counted) == set(COUNTERS), f"the counters must be {sorted(COUNTERS)}, got {sorted(counted)}"
        )
        _require(counted["samples"] == size, f"{size} samples were counted as {counted['samples']}")


def answers_before_it_learns(make: Make, model: nn.Module) -> None:
    """The first answers equal those of a copy that cannot learn: it is paused, or its `learn` does nothing.

    The number of these answers is the method's `room()`, so that the method learns after the last one.
    """
    count = min(make().room(), 64)
    x = example_images(count)
    first = make()(x)
    paused = make()
    paused.pause()
    before = paused.state_dict()
    answers = paused(x)
    after = paused.state_dict()
    _require(after["counters"]["samples"] == count, "samples are not counted while paused")
    same = all(_random_apart(before[key], after[key]) for key in ("model", "parts"))
    _require(same, "a paused method learned or stored something")
    _require(torch.equal(first, answers), "the method learned from the batch before it answered (pause)")
    inner = make()
    if hasattr(inner.inner, "learn"):
        inner.inner.learn = lambda *_, **__: True
        _require(torch.equal(first, inner(x)), "the method learned from the batch before it answered (learn)")


def leaves_the_callers_model_alone(make: Make, model: nn.Module) -> None:
    """No tensor, flag, mode, hook or attribute of the caller's model changes, not even in train mode."""
    for training in (False, True):
        model.train(training)
        for index, parameter in enumerate(model.parameters()):
            parameter.requires_grad_(index % 2 == 0)
        before = look(model)
        method = make()
        _require(equal(look(model), before), "making the method changed the caller's model")
        for part in example_images(200).split(50):
            method(part)
            _require(equal(look(model), before), "a call changed the caller's model")
        method.reset()
        _require(equal(look(model), before), "reset changed the caller's model")
    model.eval()


def keeps_eval_mode_and_global_randomness(make: Make, model: nn.Module) -> None:
    """Torch's global generator is not used, and `model` stays in eval mode."""
    method = make()
    state = torch.get_rng_state()
    for part in example_images(130).split(65):
        method(part)
    _require(torch.equal(torch.get_rng_state(), state), "torch's global generator was used: take your own")
    _require(method.model is method.model, "method.model is a new object at every access")
    _require(not any(m.training for m in method.model.modules()), "method.model was left in train mode")


def shares_one_model(make: Make, model: nn.Module) -> None:
    """Two methods on one model, taking turns, answer as each does alone."""
    streams = [example_images(150, seed=3), example_images(150, seed=4)]
    alone = [
        [method(part) for part in stream.split(50)]
        for method, stream in zip((make(), make()), streams, strict=True)
    ]
    both = make(), make()
    for turn in range(3):
        for which in (0, 1):
            answers = both[which](streams[which].split(50)[turn])
            _require(torch.equal(answers, alone[which][turn]), "two methods on one model disturb each other")


def resets_to_the_exact_start(make: Make, model: nn.Module) -> None:
    """`reset` restores state and answers exactly."""
    method = make()
    start = method.state_dict()
    first = [method(part).clone() for part in example_images(200).split(50)]
    method.reset()
    _require(equal(method.state_dict(), start), "the state after reset is not the one at construction")
    again = [method(part) for part in example_images(200).split(50)]
    _require(all(map(torch.equal, first, again)), "answers after reset are not those at the start")


def resumes_exactly(make: Make, model: nn.Module) -> None:
    """A method that loads a saved state answers like the one that saved it, even if it had learned something else."""
    x = example_images(200)
    for cut in (1, 37, 64, 130):
        method = make()
        method(x[:cut])
        state = method.state_dict()
        _require_plain(state)
        file = io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        twin = make()
        twin(example_images(70, seed=9))
        twin.load_state_dict(torch.load(file, weights_only=True))
        _require(equal(twin.state_dict(), state), "a loaded state is not the one that was saved")
        for part in x[cut:].split(29):
            _require(torch.equal(method(part), twin(part)), f"answers differ after resuming at sample {cut}")
        _require(equal(method.state_dict(), twin.state_dict()), f"states differ after resuming at {cut}")


def pickles(make: Make, model: nn.Module) -> None:
    """A pickled or copied method gives the same answers."""
    method = make()
    method(example_images(70))
    twins = [pickle.loads(pickle.dumps(method)), copy.deepcopy(method)]
    answers = method(example_images(70, seed=5))
    for twin in twins:
        same = torch.equal(twin(example_images(70, seed=5)), answers)
        _require(same, "a pickled or copied method answers differently")


def forks(make: Make, model: nn.Module) -> None:
    """A fork continues from the same state, and neither changes the other."""
    method, x = make(), example_images(130, seed=5)
    method(example_images(70))
    expected = method.fork()(x)
    fork = method.fork()
    before = method.state_dict()
    _require(torch.equal(fork(x), expected), "two forks answer differently")
    _require(equal(method.state_dict(), before), "a fork's samples changed the method it was forked from")
    _require(torch.equal(method(x), expected), "a fork and its origin answer differently")


def refuses_foreign_states(make: Make, model: nn.Module) -> None:
    """The state of another model, another method or a newer version is refused and changes nothing."""
    method = make()
    method(example_images(70))
    before = method.state_dict()
    for difference in ({"fingerprint": "another"}, {"method": "Another"}, {"version": 10**6}):
        foreign = {**before, **difference}
        if "inner" in foreign and "fingerprint" in difference:
            foreign["inner"] = {**before["inner"], **difference}
        _require_refusal(partial(method.load_state_dict, foreign), f"a state with {difference} was accepted")
        _require(equal(method.state_dict(), before), "a refused state changed the method")


def turns_bad_samples_away(make: Make, model: nn.Module) -> None:
    """A sample with NaN or Inf is answered with NaN, is counted, and has no effect."""
    for poison in (torch.nan, torch.inf, -torch.inf):
        x = example_images(100)
        clean = torch.cat([x[:10], x[11:70], x[72:]])
        x[10, 0, 0, 0] = x[70:72, 1] = poison
        method, twin = make(), make()
        logits = torch.cat([method(part) for part in x.split(50)])
        expected = torch.cat([twin(clean[:49]), twin(clean[49:])])
        bad = torch.zeros(100, dtype=torch.bool)
        bad[[10, 70, 71]] = True
        _require(bool(logits[bad].isnan().all()), f"samples with {poison} were not answered with NaN")
        same = torch.equal(logits[~bad], expected)
        _require(same, f"samples with {poison} changed their neighbours' answers")
        _require(method.counters["rejected_samples"] == 3, "bad samples were not counted in rejected_samples")
        ours, theirs = method.state_dict(), twin.state_dict()
        _require(equal(ours["model"], theirs["model"]), f"samples with {poison} entered the model")
        _require(equal(ours["parts"], theirs["parts"]), f"samples with {poison} entered a part of the method")


def refuses_wrong_shapes(make: Make, model: nn.Module) -> None:
    """A shape that the model does not accept raises `ValueError` before anything changes."""
    method = make()
    method(example_images(20))
    before = method.state_dict()
    for shape in ((4, 5, 8, 8), (4, 3, 8), (3, 8), (4, 3, 8, 8, 8)):
        x = torch.rand(shape, generator=torch.Generator().manual_seed(0))
        _require_refusal(partial(method, x), f"samples of shape {shape} were accepted")
        _require(equal(method.state_dict(), before), f"samples of shape {shape} changed the method")
    _require(len(method(torch.zeros(0, *SHAPE))) == 0, "an empty batch must be answered with zero rows")
    _require(equal(method.state_dict(), before), "an empty batch changed the method")


def answers_whatever_the_position(make: Make, model: nn.Module) -> None:
    """A sample's answer does not depend on its position in the batch.

    The order may matter to a batch-free method, and to one that says so with `uses_order`.
    """
    if make().batch_free or make().uses_order:
        return
    x = example_images(8)
    order = torch.tensor([3, 7, 0, 5, 1, 6, 2, 4])
    straight, turned = make()(x), make()(x[order])
    slack = 0.1 * float(straight.std()) + 1e-6
    far = float((turned - straight[order]).abs().max())
    _require(far <= slack, f"answers depend on the position in the batch: they differ by {far:.3g}")


def is_batch_free_where_it_says_so(make: Make, model: nn.Module) -> None:
    """A method that says it is batch-free gives the same answers for all batch boundaries."""
    if not make().batch_free:
        return
    x = example_images(200)
    whole = make()
    expected = whole(x)
    for size in (1, 7, 64):
        method = make()
        answers = torch.cat([method(part) for part in x.split(size)])
        near = torch.allclose(answers, expected, atol=1e-4, rtol=1e-4)
        _require(near, f"answers differ for batches of {size}")
        _require(method.counters == whole.counters, f"counters differ for batches of {size}")
        ours, theirs = method.state_dict()["model"], whole.state_dict()["model"]
        close = all(torch.allclose(ours[name], theirs[name], atol=1e-4, rtol=1e-4) for name in ours)
        _require(close, f"the adapted tensors differ for batches of {size}")


def notices_a_changed_backbone(make: Make, model: nn.Module) -> None:
    """If a frozen tensor was changed, the next call raises an error."""
    method = make()
    method(example_images(4))
    frozen = {id(t) for t in model.parameters()} & {id(t) for t in method.backbone.module.parameters()}
    for parameter in model.parameters():
        if id(parameter) in frozen:
            with torch.no_grad():
                parameter.add_(0.0)
            call = partial(method, example_images(4))
            return _require_refusal(call, "a frozen tensor was changed, and the method did not notice")


def keeps_its_settings(make: Make, model: nn.Module) -> None:
    """Each keyword of the constructor is an attribute of the same name, from which settings are saved."""
    method = make().inner
    own = () if type(method).__init__ is Method.__init__ else keywords(type(method))
    missing = [name for name in own if not hasattr(method, name)]
    _require(not missing, f"{', '.join(missing)} is not kept as an attribute of the same name")


CHECKS: tuple[Callable[[Make, nn.Module], None], ...] = (
    answers_every_sample,
    leaves_the_callers_model_alone,
    answers_before_it_learns,
    keeps_eval_mode_and_global_randomness,
    shares_one_model,
    resets_to_the_exact_start,
    resumes_exactly,
    pickles,
    forks,
    refuses_foreign_states,
    turns_bad_samples_away,
    refuses_wrong_shapes,
    answers_whatever_the_position,
    is_batch_free_where_it_says_so,
    notices_a_changed_backbone,
    keeps_its_settings,
)
"""Every check, in the order in which they run."""


def _modes() -> tuple[object, ...]:
    """Return torch's global settings: gradient mode, default dtype, number of threads."""
    return torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_num_threads()


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def _require_refusal(call: Callable[[], object], message: str) -> None:
    try:
        call()
    except ValueError:
        return
    raise AssertionError(message)


def _require_plain(value: Any) -> None:
    if isinstance(value, dict | list | tuple):
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            _require_plain(item)
    else:
        plain = value is None or isinstance(value, Tensor | str | int | float | bool)
        _require(plain, f"a state must hold only tensors and plain values, got {type(value).__name__}")


def _random_apart(before: Any, after: Any) -> bool:
    """Whether the states of two parts are equal, except for generators, which answers may also use."""
    if isinstance(before, dict) and isinstance(after, dict):
        if set(before) == {"state"}:
            return True
        return before.keys() == after.keys() and all(_random_apart(before[key], after[key]) for key in before)
    return equal(before, after)


def _with_source(method: Callable[..., Method], settings: dict[str, Any]) -> dict[str, Any]:
    """Add source samples to the settings if the class needs them and none were given."""
    if getattr(method, "needs_source", False) and "source" not in settings:
        return {**settings, "source": [example_images(64, seed=seed) for seed in (20, 21)]}
    return settings
