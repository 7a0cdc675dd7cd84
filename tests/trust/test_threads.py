"""Threads: methods on separate models do not disturb each other, whatever both are doing."""

import threading

import pytest
import torch
from networks import images, make

import note_tta as tta


@pytest.mark.parametrize("name", sorted(tta.METHODS))
def test_two_methods_in_two_threads_answer_as_one_after_the_other(name):
    keywords = {"augmentations": 2} if name == "cotta" else {}
    streams = [images(192, seed=seed).split(16) for seed in (1, 2)]

    def answers(method, stream):
        return torch.cat([method(part) for part in stream])

    expected = [answers(make(name, seed, **keywords), stream) for seed, stream in enumerate(streams)]
    methods = [make(name, seed, **keywords) for seed in range(2)]
    found, together = [None, None], threading.Barrier(2)

    def work(place):
        together.wait()
        found[place] = answers(methods[place], streams[place])

    threads = [threading.Thread(target=work, args=(place,)) for place in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert torch.equal(found[0], expected[0]) and torch.equal(found[1], expected[1])
