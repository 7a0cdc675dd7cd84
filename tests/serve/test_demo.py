import asyncio

import torch

import note_tta as tta
from note_tta.serve.demo import CALM, DRIFTING, Camera, demo_model, make_cameras, run_cameras
from note_tta.serve.desk import Desk
from note_tta.serve.gathering import Gathering
from note_tta.serve.limits import Limits


def test_the_embedded_network_reads_digits_it_was_not_trained_on():
    model, classes = demo_model()
    camera = make_cameras(1)[0]
    images, labels = camera._images, camera._labels
    right = (model(images).argmax(1) == labels).float().mean()
    assert right > 0.9 and len(classes) == 10


def test_cameras_drift_in_turns_and_send_what_a_camera_sends():
    camera = make_cameras(3)[2]
    strengths = []
    for _ in range((CALM + DRIFTING) // 4):
        picture = camera.look(4)
        assert picture.shape == (4, 1, 32, 32)
        assert torch.equal((picture * 255).round() / 255, picture)
        strengths.append(camera.strength())
    assert min(strengths) == 0 and max(strengths) > 0.4
    assert 0.2 < sum(s == 0 for s in strengths) / len(strengths) < 0.5


def test_cameras_have_drifts_of_their_own():
    cameras = make_cameras(100)
    assert len({camera.name for camera in cameras}) == 100
    assert {camera.kind for camera in cameras} == {"faded", "lit", "noisy", "dark", "blurred", "broken"}


def test_cameras_are_answered():
    model, _ = demo_model()
    images, labels = torch.rand(200, 1, 32, 32), torch.arange(200) % 10
    cameras = [Camera(number, images, labels) for number in range(3)]
    desk = Desk(tta.Fleet(model), Limits())
    gathering = Gathering(desk, Limits())

    async def a_while():
        feed = asyncio.create_task(run_cameras(gathering, cameras))
        while len(desk.records) < 3:
            assert not feed.done()
            await asyncio.sleep(0.05)
        feed.cancel()

    asyncio.run(asyncio.wait_for(a_while(), 30))
    gathering.close()
    assert {record.samples >= 4 for record in desk.records.values()} == {True}
