import math

import numpy as np
import pytest

from note_tta.data.rain import drop_density, extinction, render_rain, road_depth, terminal_speed

GREY = np.full((60, 90, 3), 90, np.uint8)


def test_the_physics_follows_the_formulas():
    assert extinction(200) == pytest.approx(0.312 * 200**0.67 / 1000)
    assert drop_density(np.array([2.0], np.float32), 50)[0] == pytest.approx(
        8000 * math.exp(-4.1 * 50**-0.21 * 2), rel=1e-5
    )
    speeds = terminal_speed(np.array([0.1, 1, 2, 5], np.float32))
    assert (np.diff(speeds) > 0).all()
    assert 3.5 < speeds[1] < 4.5


def test_depth_falls_towards_the_camera():
    depth = road_depth(100, 20)
    assert (np.diff(depth[:, 0]) <= 0).all()
    assert depth[:50].min() == 80.0


def test_distance_takes_the_contrast_away():
    image = np.zeros((64, 64, 3), np.uint8)
    image[:, ::2] = 200
    near = render_rain(image, rate=200, depth=np.full((64, 64), 0.1, np.float32))
    far = render_rain(image, rate=200, depth=np.full((64, 64), 150, np.float32))

    def contrast(picture):
        return float(picture[:, ::2].mean() - picture[:, 1::2].mean())

    assert contrast(far) < 0.4 * contrast(near)
    expected = 200 * math.exp(-extinction(200) * 0.1)
    assert contrast(near) == pytest.approx(expected, rel=0.05)  # nothing fits between camera and scene


def test_more_rain_changes_more():
    changes = [np.abs(render_rain(GREY, rate=rate).astype(int) - GREY).mean() for rate in (0, 10, 50, 200)]
    assert changes[0] == 0
    assert changes == sorted(changes)
    assert len(set(changes)) == 4


def test_rain_is_seeded():
    image = np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)
    assert np.array_equal(render_rain(image, seed=3), render_rain(image, seed=3))
    assert not np.array_equal(render_rain(image, seed=3), render_rain(image, seed=4))


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match=r"image must be uint8 \[H, W, 3\], got float64"):
        render_rain(np.zeros((4, 4, 3)))
    with pytest.raises(ValueError, match="rate must lie between 0 and 500 mm/hr, got -1"):
        render_rain(GREY, rate=-1)
    with pytest.raises(ValueError, match=r"depth must be \[60, 90\] in metres"):
        render_rain(GREY, depth=np.zeros((60, 91), np.float32))
    with pytest.raises(ValueError, match="finite and not negative"):
        render_rain(GREY, depth=np.full((60, 90), np.nan, np.float32))
