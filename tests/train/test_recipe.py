import math

import pytest
from torch import nn
from torch.optim import SGD, Adam

from note_tta.data import DATASETS
from note_tta.train import Recipe
from note_tta.train.loop import make_optimizer


@pytest.mark.parametrize(
    ("dataset", "epochs", "lr", "batch_size", "optimizer", "schedule"),
    [
        ("cifar10", 200, 0.1, 128, "sgd", "cosine"),
        ("cifar100", 200, 0.1, 128, "sgd", "cosine"),
        ("imagenet", 30, 0.001, 256, "sgd", "constant"),
        ("kitti", 50, 0.1, 64, "adam", "cosine"),
        ("harth", 100, 0.1, 64, "sgd", "cosine"),
        ("extrasensory", 100, 0.1, 64, "sgd", "cosine"),
    ],
)
def test_the_papers_values(dataset, epochs, lr, batch_size, optimizer, schedule):
    recipe = DATASETS[dataset].recipe
    assert (recipe.epochs, recipe.lr, recipe.batch_size) == (epochs, lr, batch_size)
    assert (recipe.optimizer, recipe.schedule) == (optimizer, schedule)
    assert recipe.pretrained == (dataset in ("imagenet", "kitti"))


def test_mnist_and_what_must_not_be_mirrored():
    assert (DATASETS["mnist"].recipe.epochs, DATASETS["mnist"].recipe.lr) == (100, 0.1)
    assert not any(
        DATASETS[name].recipe.flip for name in ("mnist", "digits", "harth", "hapt", "extrasensory")
    )


def test_cosine():
    recipe = Recipe(epochs=1, lr=0.2)
    assert recipe.lr_at(0, 10) == 0.2
    assert recipe.lr_at(5, 10) == pytest.approx(0.1)
    assert recipe.lr_at(10, 10) == pytest.approx(0.0)
    assert Recipe(epochs=1, lr=0.2, schedule="constant").lr_at(9, 10) == 0.2


def test_optimizers():
    model = nn.Linear(2, 2)
    sgd = make_optimizer(Recipe(epochs=1, lr=0.3, weight_decay=0.1), model)
    assert isinstance(sgd, SGD)
    group = sgd.param_groups[0]
    assert (group["lr"], group["momentum"], group["nesterov"], group["weight_decay"]) == (0.3, 0.9, True, 0.1)
    assert not make_optimizer(Recipe(epochs=1, lr=0.3, momentum=0), model).param_groups[0]["nesterov"]
    assert isinstance(make_optimizer(Recipe(epochs=1, lr=0.3, optimizer="adam"), model), Adam)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epochs": -1}, "epochs must be a whole number of at least 0, got -1"),
        ({"epochs": 1.5}, "epochs must be a whole number"),
        ({"batch_size": 1}, "batch_size must be a whole number of at least 2, got 1"),
        ({"crop_padding": -1}, "crop_padding must be a whole number of at least 0"),
        ({"lr": 0.0}, "lr must be positive, got 0.0"),
        ({"lr": math.nan}, "lr must be positive, got nan"),
        ({"lr": math.inf}, "lr must be positive, got inf"),
        ({"momentum": 1.0}, "momentum must be at least 0 and under 1, got 1.0"),
        ({"weight_decay": -0.1}, "weight_decay must be at least 0, got -0.1"),
        ({"optimizer": "lion"}, "optimizer must be 'sgd' or 'adam', got 'lion'"),
        ({"crop_fill": "white"}, "crop_fill must be 'reflect' or 'black', got 'white'"),
        ({"schedule": "step"}, "schedule must be 'cosine' or 'constant', got 'step'"),
    ],
)
def test_bad_values(wrong, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**{"epochs": 1, "lr": 0.1, **wrong})
