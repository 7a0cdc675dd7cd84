import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from note_tta.data.corruptions import (
    BLOCK,
    CORRUPTIONS,
    MNIST_CORRUPTIONS,
    corrupt,
    frost_textures,
    parameters,
)
from note_tta.data.corruptions.blur import _disk, zoom_factors
from note_tta.data.corruptions.sampling import bilinear, central_zoom, line_blur
from note_tta.data.corruptions.textures import ice_texture
from note_tta.data.corruptions.weather import plasma

TABLES = [("cifar", name) for name in CORRUPTIONS] + [("mnist", name) for name in MNIST_CORRUPTIONS]


def smooth_images(count, size, channels, seed=0):
    noise = np.random.default_rng(seed).normal(size=(count, size, size, channels))
    smooth = ndimage.gaussian_filter(noise, (0, 2, 2, 0))
    smooth = (smooth - smooth.min()) / (smooth.max() - smooth.min())
    return np.rint(smooth * 255).astype(np.uint8)


@pytest.mark.parametrize(("table", "name"), TABLES)
def test_same_seed_same_bytes_whatever_the_division(table, name):
    images = smooth_images(BLOCK + 20, 28 if table == "mnist" else 32, 1 if table == "mnist" else 3)
    severity = 1 if table == "mnist" else 5
    whole = corrupt(images, name, severity, table=table, seed=7)
    first = corrupt(images[:BLOCK], name, severity, table=table, seed=7)
    rest = corrupt(images[BLOCK:], name, severity, table=table, seed=7, first_block=1)
    assert np.array_equal(whole, np.concatenate([first, rest]))
    assert whole.dtype == np.uint8
    assert whole.shape == images.shape
    assert not np.array_equal(whole, images)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_severity_grows(name):
    images = smooth_images(20, 32, 3)
    images = np.clip(images.astype(int) + np.random.default_rng(1).integers(-40, 40, images.shape), 0, 255)
    images = images.astype(np.uint8)
    errors = [
        float(np.abs(corrupt(images, name, severity).astype(int) - images).mean()) for severity in (1, 3, 5)
    ]
    assert min(errors) > 0
    if name not in ("glass_blur", "snow", "frost", "elastic_transform"):  # these trade one change for another
        assert errors == sorted(errors)


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("size", [64, 224])
def test_imagenet_parameters_work_at_any_square_size(name, size):
    images = smooth_images(1, size, 3)
    changed = corrupt(images, name, 3, table="imagenet")
    assert changed.shape == images.shape
    assert not np.array_equal(changed, images)


@pytest.mark.parametrize("name", ["gaussian_noise", "shot_noise", "glass_blur", "snow", "frost", "fog"])
def test_another_seed_draws_other_noise(name):
    images = smooth_images(3, 32, 3)
    assert not np.array_equal(corrupt(images, name, 5, seed=0), corrupt(images, name, 5, seed=1))


def test_noise_has_the_published_strength():
    grey = np.full((50, 32, 32, 3), 128, np.uint8)
    gaussian = corrupt(grey, "gaussian_noise", 5).astype(float)
    assert gaussian.std() / 255 == pytest.approx(0.10, rel=0.02)
    shot = corrupt(grey, "shot_noise", 5).astype(float)
    assert shot.std() / 255 == pytest.approx(np.sqrt(128 / 255 / 50), rel=0.02)
    impulse = corrupt(grey, "impulse_noise", 5)
    assert (impulse == 255).mean() == pytest.approx(0.035, rel=0.1)
    assert (impulse == 0).mean() == pytest.approx(0.035, rel=0.1)


def test_light_follows_its_formulas():
    images = smooth_images(4, 32, 3)
    unit = images / 255
    value = unit.max(axis=3, keepdims=True)
    expected = unit * (np.minimum(value + 0.3, 1) / value)
    np.testing.assert_allclose(corrupt(images, "brightness", 5) / 255, expected, atol=1.01 / 255)
    means = unit.mean(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(
        corrupt(images, "contrast", 5) / 255, (unit - means) * 0.15 + means, atol=1.01 / 255
    )
    black = np.zeros((1, 32, 32, 3), np.uint8)
    assert corrupt(black, "brightness", 5).min() == 76


def test_jpeg_and_pixelate_are_pillows_own():
    images = smooth_images(2, 32, 3)
    small = Image.fromarray(images[1]).resize((20, 20), Image.Resampling.BOX)
    expected = np.asarray(small.resize((32, 32), Image.Resampling.BOX))
    assert np.array_equal(corrupt(images, "pixelate", 5)[1], expected)
    assert corrupt(images, "jpeg_compression", 5)[0].std() > 0


def test_blur_keeps_the_mean_and_lowers_the_contrast():
    images = smooth_images(4, 32, 3)
    for name in ("defocus_blur", "motion_blur", "zoom_blur"):
        blurred = corrupt(images, name, 5).astype(float)
        assert blurred.mean() == pytest.approx(images.mean(), abs=4)
        assert blurred.std() < images.std()


def test_the_defocus_kernel_is_a_normalised_disk():
    for radius, sigma in ((0.3, 0.4), (1.5, 0.1), (10, 0.5)):
        kernel = _disk(radius, sigma)
        assert kernel.sum() == pytest.approx(1, abs=1e-5)
        assert np.allclose(kernel, kernel[::-1, ::-1])
        assert np.allclose(kernel, kernel.T)


def test_glass_copies_colours_from_nearby_and_mnist_swaps_them():
    image = np.arange(32 * 32, dtype=np.uint16).reshape(1, 32, 32, 1)
    codes = np.concatenate([image // 256, image % 256, np.zeros_like(image)], axis=3).astype(np.uint8)
    changed = corrupt(codes, "glass_blur", 1)  # sigma 0.05: no smoothing at all
    decoded = changed[0, ..., 0].astype(int) * 256 + changed[0, ..., 1]
    rows, columns = np.divmod(decoded, 32)
    assert np.array_equal(decoded[:2], image[0, :2, :, 0])  # the near border stays
    moved_rows, moved_columns = rows - np.arange(32)[:, None], columns - np.arange(32)
    assert moved_rows.max() <= 0
    assert set(np.unique(moved_columns)) >= {-1, 0}
    assert (moved_rows != 0).mean() > 0.3


def test_line_blur_smears_one_way_along_its_angle():
    image = np.zeros((1, 21, 21, 1), np.float32)
    image[0, 10, 10] = 1
    blurred = line_blur(image, 3, 2.0, np.array([0.0]))[0, ..., 0]
    assert blurred.sum() == pytest.approx(1)
    assert np.flatnonzero(blurred.sum(axis=1)).tolist() == [10]
    assert np.flatnonzero(blurred[10]).tolist() == list(range(4, 11))
    assert (np.diff(blurred[10, 4:11]) > 0).all()


@pytest.mark.parametrize("factor", [1.01, 1.25, 1.2500000000000002, 1.3])
def test_central_zoom_matches_scipy(factor):
    image = smooth_images(1, 32, 1).astype(np.float32)
    inside = int(np.ceil(32 / factor))
    first = (32 - inside) // 2
    zoomed = ndimage.zoom(image[0, first : first + inside, first : first + inside, 0], factor, order=1)
    trim = (len(zoomed) - 32) // 2
    np.testing.assert_allclose(
        central_zoom(image, factor)[0, ..., 0], zoomed[trim : trim + 32, trim : trim + 32], atol=1e-3
    )


@pytest.mark.parametrize(
    ("table", "counts", "lasts"),
    [
        ("cifar", [7, 12, 16, 21, 26], [1.06, 1.11, 1.15, 1.20, 1.25]),
        ("imagenet", [12, 16, 11, 13, 11], [1.11, 1.15, 1.20, 1.24, 1.30]),
    ],
)
def test_zoom_factors_are_those_of_the_makers_ranges(table, counts, lasts):
    factors = [zoom_factors(*parameters("zoom_blur", severity, table)) for severity in range(1, 6)]
    assert [len(each) for each in factors] == counts
    assert [each[-1] for each in factors] == pytest.approx(lasts, abs=1e-9)
    assert all(each[0] == 1 for each in factors)


def test_the_last_zoom_of_cifars_severity_5_enlarges_to_33_pixels():
    last = zoom_factors(*parameters("zoom_blur", 5, "cifar"))[-1]
    inside = int(np.ceil(32 / last))
    assert round(inside * last) == 33
    assert round(inside * 1.25) == 32  # half a pixel away from the rounded factor


@pytest.mark.parametrize(
    ("border", "mode"), [("mirror", "mirror"), ("reflect", "reflect"), ("zero", "constant")]
)
def test_bilinear_matches_scipy(border, mode):
    image = smooth_images(2, 12, 1).astype(np.float32)
    generator = np.random.default_rng(0)
    reach = 10.99 if border == "zero" else 30
    rows, columns = generator.uniform(0 if border == "zero" else -20, reach, (2, 2, 12, 12)).astype(
        np.float32
    )
    sampled = bilinear(image, rows, columns, border)[..., 0]
    for i in range(2):
        expected = ndimage.map_coordinates(image[i, ..., 0], [rows[i], columns[i]], order=1, mode=mode)
        np.testing.assert_allclose(sampled[i], expected, atol=1e-3)


def test_plasma_fills_the_unit_range_and_is_smoother_with_faster_decay():
    rough = plasma(5, 32, 1.2, np.random.default_rng(0))
    smooth = plasma(5, 32, 3.0, np.random.default_rng(0))
    for clouds in (rough, smooth):
        assert clouds.min() == 0.0
        assert clouds.max() == 1.0
    assert np.abs(np.diff(smooth, axis=1)).mean() < np.abs(np.diff(rough, axis=1)).mean()
    with pytest.raises(ValueError, match="size must be a power of two of at least 2, got 28"):
        plasma(1, 28, 2.0, np.random.default_rng(0))


def test_mnist_warps_keep_the_centre():
    image = np.zeros((8, 28, 28, 1), np.uint8)
    image[:, 12:16, 12:16] = 255
    for name in ("shear", "rotate", "scale"):
        changed = corrupt(image, name, 1, table="mnist").astype(float)[..., 0]
        for one in changed:
            centre = ndimage.center_of_mass(one)
            assert centre == pytest.approx((13.5, 13.5), abs=0.2)
    moved = corrupt(image, "translate", 1, table="mnist").astype(float)[..., 0]
    shifts = {tuple(round(float(c) - 13.5) for c in ndimage.center_of_mass(one)) for one in moved}
    assert shifts <= {(3, 3), (3, -3), (-3, 3), (-3, -3)}
    assert len(shifts) > 1


def test_mnist_marks_are_where_they_should_be():
    black = np.zeros((6, 28, 28, 1), np.uint8)
    striped = corrupt(black, "stripe", 1, table="mnist")[0, ..., 0]
    assert np.flatnonzero(striped[0]).tolist() == [*range(7), *range(21, 28)]
    dotted = corrupt(black, "dotted_line", 1, table="mnist")[..., 0]
    used = np.flatnonzero(dotted.max(axis=(0, 1)))
    assert used.tolist() == [c for c in range(28) if c // 2 % 2 == 0]
    zigzag = corrupt(black, "zigzag", 1, table="mnist")[..., 0]
    assert np.flatnonzero(zigzag.max(axis=(0, 1))).tolist() == list(range(2, 26))
    assert corrupt(black, "spatter", 1, table="mnist").max() <= 63


def test_canny_finds_the_outline_of_a_square():
    image = np.zeros((2, 28, 28, 1), np.uint8)
    image[0, 8:20, 8:20] = 255
    edges = corrupt(image, "canny_edges", 1, table="mnist")[..., 0]
    assert edges[1].max() == 0  # the other image stays empty: nothing leaks between images
    assert set(np.unique(edges)) == {0, 255}
    assert edges[0, 12:16, 12:16].max() == 0
    assert 6 <= np.flatnonzero(edges[0, 14]).min() <= 9
    assert edges[0].astype(bool).sum() == pytest.approx(4 * 12, abs=14)


def test_frost_takes_published_textures_only_where_all_are(tmp_path):
    textures, origin = frost_textures(tmp_path)
    assert (len(textures), origin) == (5, "procedural")
    (tmp_path / "frost").mkdir()
    for number in range(1, 6):
        picture = Image.fromarray(np.full((200, 220, 3), 40 * number, np.uint8))
        picture.save(tmp_path / "frost" / f"frost{number}.png")
        expected = "published" if number == 5 else "procedural"
        assert frost_textures(tmp_path)[1] == expected
    textures, _ = frost_textures(tmp_path)
    grey = np.zeros((40, 32, 32, 3), np.uint8)
    frosted = corrupt(grey, "frost", 5, textures=textures)
    assert {int(one.max()) for one in frosted} == {int(0.45 * 40 * n + 1e-3) for n in range(1, 6)}
    (tmp_path / "frost" / "frost2.png").write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"frost2.png: not a readable picture"):
        frost_textures(tmp_path)


def test_procedural_ice_is_seeded_and_varied():
    assert np.array_equal(ice_texture(1, 64), ice_texture(1, 64))
    assert not np.array_equal(ice_texture(1, 64), ice_texture(2, 64))
    assert ice_texture(0, 128).std() > 15


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fogg", 5), "unknown corruption 'fogg' for cifar; known are: gaussian_noise"),
        (("fog", 0), "severity must be 1, 2, 3, 4 or 5, got 0"),
    ],
)
def test_unknown_names_and_severities_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        corrupt(np.zeros((1, 32, 32, 3), np.uint8), *arguments)


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ((1, 32, 30, 3), np.uint8, "images must be square, of at least 8 pixels, got 32x30"),
        ((1, 4, 4, 3), np.uint8, "at least 8 pixels, got 4x4"),
        ((1, 32, 32, 4), np.uint8, "images must be uint8 of shape"),
        ((1, 32, 32, 3), np.float32, "got float32"),
        ((32, 32, 3), np.uint8, r"got uint8 \[32, 32, 3\]"),
    ],
)
def test_wrong_images_are_refused(shape, dtype, message):
    with pytest.raises(ValueError, match=message):
        corrupt(np.zeros(shape, dtype), "fog", 5)


def test_mnist_has_one_severity():
    assert parameters("fog", 1, "mnist") == (3, 1.4, 256)
    with pytest.raises(ValueError, match="MNIST-C has a single severity, 1, got 5"):
        parameters("fog", 5, "mnist")
    with pytest.raises(ValueError, match="unknown corruption 'snow' for mnist"):
        parameters("snow", 1, "mnist")
