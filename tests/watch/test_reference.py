"""What is learned from source samples, and what is refused."""

import pytest
import torch

import note_tta as tta
from benchmarks.trust.common import source_model


def watch(model, source):
    return tta.Watch(tta.NOTE(model), source=source)


def test_canaries_are_varied_and_answered_right(digits, source):
    reference = watch(digits, source).reference
    assert reference.canaries.dtype == torch.uint8 and len(reference.canaries) == 64
    assert int(reference.answers.bincount(minlength=10).min()) >= 4
    x = reference.canaries.float() / 255
    with torch.no_grad():
        chances = digits(x).softmax(1)
    assert torch.equal(chances.argmax(1), reference.answers)
    torch.testing.assert_close(chances.amax(1), reference.chances, atol=1e-4, rtol=1e-4)


def test_labels_say_how_large_the_error_is(digits, source):
    reference = watch(digits, source).reference
    with torch.no_grad():
        wrong = sum(int((digits(x).argmax(1) != y).sum()) for x, y in source)
    assert reference.labelled and reference.samples == 1200
    assert reference.error == pytest.approx(100 * wrong / 1200)


def test_without_labels_confidence_says_it(digits, source):
    reference = watch(digits, [x for x, _ in source]).reference
    assert not reference.labelled
    assert 0 < reference.error < 10


def test_what_was_learned_is_read_from_a_file(digits, source, tmp_path):
    first = watch(digits, source)
    first.reference.save(tmp_path / "source.pt")
    assert watch(digits, tmp_path / "source.pt").reference.is_same(first.reference)


def test_a_file_of_another_model_is_refused(digits, source, tmp_path):
    watch(digits, source).reference.save(tmp_path / "source.pt")
    other = source_model("iabn")
    with torch.no_grad():
        next(other.parameters()).add_(1)
    with pytest.raises(ValueError, match="belongs to another model"):
        watch(other, tmp_path / "source.pt")


def test_a_file_that_is_none_is_refused(digits, tmp_path):
    (tmp_path / "source.pt").write_bytes(b"no file of ours")
    with pytest.raises(ValueError, match=r"is not a file that watch\.reference\.save wrote"):
        watch(digits, tmp_path / "source.pt")
    with pytest.raises(FileNotFoundError):
        watch(digits, tmp_path / "absent.pt")


def test_too_few_samples_are_refused(digits, source):
    with pytest.raises(ValueError, match="source must have at least 32 samples, got 8"):
        watch(digits, [source[0][0][:8]])


def test_labels_in_some_batches_are_refused(digits, source):
    with pytest.raises(ValueError, match="labels in every batch or in none"):
        watch(digits, [source[0], source[1][0]])


def test_what_is_no_batch_is_refused(digits):
    with pytest.raises(TypeError, match="source must yield batches x or"):
        watch(digits, ["cat.png"])


def test_methods_on_batch_statistics_are_asked_as_they_answer(source):
    assert tta.Watch(tta.TENT(source_model("iabn")), source=source).reference.own_statistics


def test_iabn_is_asked_as_it_answers(digits, source):
    assert not watch(digits, source).reference.own_statistics


def test_labels_of_another_shape_are_refused(digits, source):
    (x, y), *_ = source
    with pytest.raises(ValueError, match=rf"a batch of {len(x)} inputs with labels of shape \({len(x)}, 1\)"):
        tta.Watch(tta.NOTE(digits), source=[(x, y[:, None])])


def test_labels_that_are_not_the_models_are_named(digits, source):
    wrong = [(x, torch.full_like(y, 99)) for x, y in source]
    with pytest.raises(ValueError, match="answers no source sample as it is labelled: are these labels"):
        tta.Watch(tta.NOTE(digits), source=wrong)
