"""The contract holds for every method, and its checks fail if a method breaks it."""

import math
import threading
import warnings
from functools import partial

import pytest
import torch
from networks import images, make, network
from torch import nn

import note_tta as tta
from note_tta.checks import CHECKS, CLASSES, check_method, equal, example_images, example_network
from note_tta.methods.batch import BatchMethod
from note_tta.methods.interval import IntervalMethod
from note_tta.methods.method import Method
from note_tta.methods.norm import affine_parameters, norm_tensors, nothing
from note_tta.methods.objectives import entropy

NAMES = sorted(tta.METHODS)
FEW_VIEWS = {"cotta": {"augmentations": 2}}


@pytest.mark.parametrize("name", NAMES)
def test_every_method_keeps_the_contract(name):
    check_method(tta.METHODS[name], **FEW_VIEWS.get(name, {}))


@pytest.mark.parametrize(
    "make",
    [
        partial(tta.NOTE, interval=16, delay=16, learn_from=8, warm_start=10),
        lambda model: tta.NOTE(model, tta.Reservoir(16), interval=10),
    ],
    ids=["delay", "reservoir"],
)
def test_note_keeps_the_contract_in_other_settings(make):
    check_method(make)


class LearnsFirst(BatchMethod):
    """Takes its step, then answers."""

    def forward(self, x):
        super().forward(x)
        return self.predict(x)

    def objective(self, logits):
        return 100 * entropy(logits)


class LearnsFirstAtTheEndOfAnInterval(tta.NOTE):
    """Answers again after an update, so only a batch that ends an interval shows it."""

    batch_free = False

    def forward(self, x):
        super().forward(x)
        return self.predict(x)


class ChangesItsInput(Method):
    """Scales the caller's samples in place."""

    def forward(self, x):
        return self.predict(x.mul_(2))


class SetsTheThreads(Method):
    """Sets the number of threads of the whole process."""

    def forward(self, x):
        torch.set_num_threads(torch.get_num_threads() + 1)
        return self.predict(x)


class IgnoresPause(BatchMethod):
    """Learns while it is paused."""

    def forward(self, x):
        self.paused = False
        return super().forward(x)

    def objective(self, logits):
        return entropy(logits)


class ChangesTheCallersTensor(Method):
    """Writes into a tensor that it shares."""

    def __init__(self, model):
        super().__init__(model, nothing)
        self.shared = next(self.backbone.module.parameters())

    def forward(self, x):
        with torch.no_grad():
            self.shared.mul_(1.001)
        self.backbone._watch()
        return self.predict(x)


class SwitchesTheCallersMode(Method):
    """Runs the caller's own model, in train mode."""

    def __init__(self, model):
        super().__init__(model, nothing)
        self.callers = [model]

    def forward(self, x):
        self.callers[0].train()
        return self.predict(x)


class LeavesTrainMode(Method):
    """Leaves `model` in train mode."""

    def __init__(self, model):
        super().__init__(model, norm_tensors)

    def forward(self, x):
        self.model.train()
        return self.predict(x)


class UsesGlobalRandomness(Method):
    """Draws from torch's global generator."""

    def __init__(self, model):
        super().__init__(model, nothing)

    def forward(self, x):
        torch.rand(1)
        return self.predict(x)


class ForgetsToReset(Method):
    """Keeps a sum in a plain attribute, which is not saved in a state."""

    def __init__(self, model):
        super().__init__(model, nothing)
        self.sum = torch.zeros(CLASSES)

    def forward(self, x):
        logits = self.predict(x)
        answers = logits + self.sum
        if not self.paused:
            self.sum = self.sum + logits.mean(0)
        return answers


class SharesWithItsForks(Method):
    """Keeps its sum in an object that every fork shares."""

    class Sum:
        def __init__(self):
            self.value = torch.zeros(CLASSES)

        def state_dict(self):
            return {"value": self.value.clone()}

        def load_state_dict(self, state):
            self.value = state["value"]

        def __deepcopy__(self, memo):
            return self

        def __reduce__(self):
            return SharesWithItsForks.Sum, ()

    def __init__(self, model):
        super().__init__(model, nothing)
        self.sum = self.part("sum", self.Sum())

    def forward(self, x):
        logits = self.predict(x)
        answers = logits + self.sum.value
        if not self.paused:
            self.sum.value = self.sum.value + logits.mean(0)
        return answers


class CountsPositions(Method):
    """Its answers depend on the position in the batch."""

    def __init__(self, model):
        super().__init__(model, nothing)

    def forward(self, x):
        return self.predict(x) + torch.arange(len(x))[:, None] * torch.eye(CLASSES)[0]


class LetsBadSamplesIn(Method):
    """Averages over the whole batch, including bad samples."""

    def __init__(self, model):
        super().__init__(model, nothing)

    def __call__(self, x):
        usable = torch.isfinite(x).flatten(1).all(1)
        answers = super().__call__(x)
        return answers + (~usable).float().mean()

    def forward(self, x):
        return self.predict(x)


class DependsOnTheBatch(Method):
    """Claims to be batch-free, but centres every batch."""

    batch_free = True

    def __init__(self, model):
        super().__init__(model, nothing)

    def forward(self, x):
        return self.predict(x - x.mean(0))


class TakesAnyState(Method):
    """Loads any state."""

    def __init__(self, model):
        super().__init__(model, affine_parameters)

    def forward(self, x):
        return self.predict(x)

    def load_state_dict(self, state):
        self._load(state)


class LosesASetting(Method):
    """Does not keep the keywords of its constructor."""

    def __init__(self, model, strength=1.0):
        super().__init__(model, nothing)

    def forward(self, x):
        return self.predict(x)


class StoresWhilePaused(IntervalMethod):
    """Fills its memory while it is paused."""

    def __init__(self, model):
        super().__init__(model, norm_tensors, tta.FIFO(8), interval=8)

    def receive(self, x, logits, near):
        for sample in x if self.paused else ():
            self.memory.add(sample, 0)
        return super().receive(x, logits, near)

    def learn(self, draft, x):
        draft.predict(x, momentum=0.1)


BROKEN = {
    LearnsFirst: "the method learned from the batch before it answered",
    LearnsFirstAtTheEndOfAnInterval: "the method learned from the batch before it answered",
    ChangesItsInput: "the samples that were given were changed",
    SetsTheThreads: "number of threads was changed",
    IgnoresPause: "a paused method learned",
    StoresWhilePaused: "a paused method learned or stored something",
    ChangesTheCallersTensor: "a call changed the caller's model",
    SwitchesTheCallersMode: "a call changed the caller's model",
    LeavesTrainMode: "left in train mode",
    UsesGlobalRandomness: "global generator was used",
    ForgetsToReset: "answers after reset are not those at the start",
    SharesWithItsForks: "a pickled or copied method answers differently",
    CountsPositions: "depend on the position in the batch",
    LetsBadSamplesIn: "changed their neighbours' answers",
    DependsOnTheBatch: "answers differ for batches of",
    TakesAnyState: "was accepted",
    LosesASetting: "strength is not kept as an attribute",
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_a_broken_method_fails(broken):
    threads = torch.get_num_threads()
    with pytest.raises(AssertionError, match=BROKEN[broken]):
        check_method(broken)
    torch.set_num_threads(threads)


class Answers(Method):
    """The smallest method: it has no constructor of its own."""

    def forward(self, x):
        return self.predict(x)


def test_a_method_without_a_constructor_of_its_own_passes():
    check_method(Answers)


class PassesSettingsOn(tta.NOTE):
    """A method with one own setting, whose first argument has another name."""

    def __init__(self, net, *, strength=1.0, **settings):
        super().__init__(net, **settings)
        self.strength = strength


def test_a_method_may_pass_settings_on_to_the_class_above():
    check_method(PassesSettingsOn, interval=16)
    method, other = (
        PassesSettingsOn(network("iabn"), interval=16, strength=2.0),
        PassesSettingsOn(network("iabn")),
    )
    assert method.settings()["interval"] == 16 and method.settings()["strength"] == 2.0
    method(images(70))
    other.load_state_dict(method.state_dict())
    assert (other.interval, other.strength) == (16, 2.0)
    assert torch.equal(other(images(20)), method(images(20)))


def test_a_method_that_raises_fails_by_the_name_of_the_check():
    class Raises(tta.Source):
        def reset(self):
            raise RuntimeError("no way back")

    with pytest.raises(AssertionError, match="leaves_the_callers_model_alone: RuntimeError: no way back"):
        check_method(Raises)


def test_the_checks_take_a_model_and_settings_of_ones_own():
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
    check_method(tta.Source, model)
    with pytest.raises(AssertionError, match="no norm layer"):
        check_method(tta.NOTE, model)
    assert len(CHECKS) == len({check.__name__ for check in CHECKS})


def test_the_example_network_is_the_same_every_time_and_leaves_the_global_generator_alone():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    one, other = example_network(), example_network()
    assert torch.equal(torch.get_rng_state(), before)
    assert equal(one.state_dict(), other.state_dict())
    assert example_images(2).shape == (2, 3, 8, 8)


@pytest.mark.parametrize("name", NAMES)
def test_works_under_the_callers_no_grad(name):
    method, twin = make(name), make(name)
    with torch.no_grad():
        answer = method(images(130))
    assert torch.equal(answer, twin(images(130)))
    assert equal(method.state_dict(), twin.state_dict())


class Overflowing(nn.Module):
    """Its logits overflow for samples whose first pixel is above 100."""

    def __init__(self):
        super().__init__()
        self.body = network("iabn")

    def forward(self, x):
        wild = (x[:, 0, 0, 0] > 100).view(-1, 1)
        return self.body(x.clamp(-5, 5)) + torch.where(wild, torch.inf, 0.0)


@pytest.mark.parametrize("name", ["source", "note"])
def test_finite_samples_and_answers_whose_sums_overflow_are_not_bad(name):
    model = nn.Sequential(nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3, bias=False)).eval()
    nn.init.constant_(model[2].weight, 0.25)
    huge = torch.full((5, 2, 2, 2), 1e38)  # their sum is infinite, and so is that of the answers, 2e38 each
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        method = tta.METHODS[name](model)
    assert not huge.sum().isfinite() and not model(huge).sum().isfinite()
    assert torch.equal(method(huge), model(huge).detach())
    assert method.counters["rejected_samples"] == 0
    huge[3, 1, 0, 1], huge[4, 0] = -torch.inf, torch.nan
    assert method(huge).isnan().any(dim=1).tolist() == [False, False, False, True, True]
    assert method.counters["rejected_samples"] == 2


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_whose_logits_are_not_finite_counts_as_bad(name):
    x = images(60)
    clean = torch.cat([x[:7], x[8:]])
    x[7, 0, 0, 0] = 1000
    method, twin = make(name, model=Overflowing()), make(name, model=Overflowing())
    logits, expected = method(x), twin(clean)
    assert logits[7].isnan().all() and method.counters["rejected_samples"] == 1
    torch.testing.assert_close(torch.cat([logits[:7], logits[8:]]), expected)
    assert equal(method.state_dict()["parts"], twin.state_dict()["parts"])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "x", [torch.zeros(2, 3, 8, 8, dtype=torch.uint8), [[1.0]], torch.zeros(2, 3, 8, 8).long()]
)
def test_what_is_not_a_floating_point_tensor_is_refused(name, x):
    with pytest.raises(TypeError, match="x must be"):
        make(name)(x)


@pytest.mark.parametrize("name", NAMES)
def test_double_precision_input_is_taken(name):
    assert torch.equal(make(name)(images(9).double()), make(name)(images(9)))


@pytest.mark.parametrize("name", NAMES)
def test_large_values_are_answered_where_the_model_can(name):
    """A table with values in the millions must not lead to NaN."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    table = torch.randn(500, 4) * torch.tensor([5e5, 1.0, 1.0, 1.0]) + torch.tensor([2e6, 0.0, 0.0, 0.0])
    model.train()
    for _ in range(50):
        model(table)
    if name in ("note", "note_iid"):
        tta.convert_iabn(model)
    if tta.METHODS[name].needs_images or name == "unmix_tns":
        with pytest.raises(ValueError, match=r"images|BatchNorm2d"):
            make(name, model=model.eval(), **({"source": [table]} if name == "petta" else {}))(table)
        return
    method = make(name, model=model.eval(), **({"source": [table]} if name == "eata" else {}))
    assert torch.isfinite(method(table)).all()
    assert method.counters["rejected_samples"] == method.counters["unlearned_samples"] == 0


def test_one_channel_far_beyond_the_source_is_not_learned_from():
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3)).eval()
    model[0].running_mean[0], model[0].running_var[0] = 2e6, 25e10
    method = tta.ONDA(model)
    rows = torch.randn(40, 4)
    rows[:, 0] = 2e6
    rows[:, 2] *= 1e5
    assert torch.isfinite(method(rows)).all()
    assert method.counters["unlearned_samples"] == 40 and method.counters["updates"] == 0
    assert float(method.model[0].running_var[2]) == 1.0


def test_an_infinite_reach_learns_from_every_sample():
    for reach, unlearned in ((5.0, 40), (math.inf, 0)):
        method = tta.NOTE(tta.convert_iabn(network("bn")), reach=reach)
        method(1e6 * images(40))
        assert method.counters["unlearned_samples"] == unlearned


def test_samples_in_a_row_are_counted_anew_after_a_reset():
    """Each half alone is too short for the warning."""
    method = tta.NOTE(network("iabn"), interval=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        method(1e6 * images(3))
        method.reset()
        method(1e6 * images(3))
    with pytest.warns(RuntimeWarning, match="the last 4 samples were answered but not learned from"):
        method(1e6 * images(1))


@pytest.mark.parametrize("name", NAMES)
def test_a_foreign_state_is_refused_and_changes_nothing(name):
    method = make(name)
    method(images(70))
    before = method.state_dict()
    other = make("onda" if name != "onda" else "source").state_dict()
    for state, message in [
        (other, "the state belongs to"),
        ({}, "expected a dict"),
        (before | {"parts": {"stranger": {}}}, "'parts' does not fit"),
        (before | {"counters": {}}, "'counters' does not fit"),
        (before | {"model": {"stranger": torch.zeros(1)}}, "'model' does not fit"),
        (make(name, seed=1).state_dict(), "the state belongs to another model"),
        (before | {"version": 99}, "the state has format version 99, but this library reads up to"),
        ({"method": "NOTE", "progress": 3, "model": {}}, "was saved by version 0.1"),
    ]:
        with pytest.raises(ValueError, match=message):
            method.load_state_dict(state)
        assert equal(method.state_dict(), before)


@pytest.mark.parametrize("name", NAMES)
def test_two_threads_on_one_method_take_turns(name):
    x = images(96)
    method = make(name)
    failures = []

    def work():
        try:
            for part in x.split(8):
                assert torch.isfinite(method(part)).all()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not failures and method.counters["samples"] == 192


@pytest.mark.parametrize("name", NAMES)
def test_repr_tells_what_it_is_doing(name):
    method = make(name)
    method(images(70))
    text = repr(method)
    total = sum(p.numel() for p in method.model.parameters())
    assert type(method).__name__ in text and f"% of the model's {total}" in text and "samples 70" in text


@pytest.mark.parametrize("name", NAMES)
def test_a_model_that_is_no_module_is_refused(name):
    with pytest.raises(TypeError, match=r"model must be an nn\.Module, got str"):
        tta.METHODS[name]("model", **({"source": []} if tta.METHODS[name].needs_source else {}))


@pytest.mark.parametrize("name", NAMES)
def test_says_what_it_is_and_needs(name):
    kind = tta.METHODS[name]
    assert kind.title and kind.__doc__ and kind.passes and kind.keeps
    assert kind.trained_with in ("bn", "iabn")
    assert bool(kind.citation) == (name != "source")


def test_methods_are_found_by_name(tmp_path, monkeypatch):
    assert tta.methods.find_method("tent") is tta.TENT
    (tmp_path / "my_methods.py").write_text(
        "import note_tta as tta\n\n\nclass Mine(tta.Source):\n    pass\n\n\ndef other():\n    pass\n"
    )
    monkeypatch.chdir(tmp_path)
    assert tta.methods.find_method("my_methods:Mine").__name__ == "Mine"
    for name, message in {
        "nothing": "unknown method 'nothing'; known are source, .*, or your own module:Class",
        "absent_module:Mine": "cannot import absent_module for the method",
        "my_methods:Absent": "my_methods has no Absent to make a method with",
        "my_methods:other": "is not a subclass of note_tta.Method",
        "note+glow": "unknown wrapper 'glow' in 'note\\+glow'; known are filter",
    }.items():
        with pytest.raises(ValueError, match=message):
            tta.methods.find_method(name)
