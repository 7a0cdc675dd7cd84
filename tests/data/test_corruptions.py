import colorsys

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from note_tta.data.corruptions import CORRUPTIONS, MNIST_CORRUPTIONS, OWN_CORRUPTIONS, VALIDATION_CORRUPTIONS
from note_tta.data.corruptions.blur import _disk, zoom_factors
from note_tta.data.corruptions.engine import BLOCK, corrupt, parameters
from note_tta.data.corruptions.names import PRACTICAL_ORDER
from note_tta.data.corruptions.sampling import bilinear, central_zoom, line_blur
from note_tta.data.corruptions.splashes import edges_of
from note_tta.data.corruptions.textures import frost_textures, ice_texture
from note_tta.data.corruptions.weather import plasma

FURTHER = (*VALIDATION_CORRUPTIONS, *OWN_CORRUPTIONS)
TABLES = [("cifar", name) for name in (*CORRUPTIONS, *FURTHER)] + [
    ("mnist", name) for name in MNIST_CORRUPTIONS
]


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


@pytest.mark.parametrize("name", (*CORRUPTIONS, *FURTHER))
def test_severity_grows(name):
    images = smooth_images(20, 32, 3)
    images = np.clip(images.astype(int) + np.random.default_rng(1).integers(-40, 40, images.shape), 0, 255)
    images = images.astype(np.uint8)
    errors = [
        float(np.abs(corrupt(images, name, severity).astype(int) - images).mean()) for severity in (1, 3, 5)
    ]
    assert min(errors) > 0
    if name not in (
        "glass_blur",
        "snow",
        "frost",
        "elastic_transform",
        "spatter",
        "saturate",
    ):  # these trade one change for another
        assert errors == sorted(errors)


@pytest.mark.parametrize("name", (*CORRUPTIONS, *OWN_CORRUPTIONS))
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
    speckle = [corrupt(np.full_like(grey, level), "speckle_noise", 5).astype(float) for level in (64, 128)]
    assert [each.std() / 255 for each in speckle] == pytest.approx(
        [0.2 * 64 / 255, 0.2 * 128 / 255], rel=0.02
    )
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


def test_saturation_is_changed_in_hsv():
    images = smooth_images(1, 32, 3)
    images[0, 0, 0] = 90  # grey: its hue counts as red
    images[0, 0, 1] = 0
    for severity, (factor, shift) in enumerate([(0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)], 1):
        changed = corrupt(images, "saturate", severity)[0] / 255
        for row, column in [(0, 0), (0, 1), (3, 5), (17, 30), (31, 31)]:
            hue, saturation, value = colorsys.rgb_to_hsv(*(images[0, row, column] / 255))
            expected = colorsys.hsv_to_rgb(hue, min(max(saturation * factor + shift, 0), 1), value)
            np.testing.assert_allclose(changed[row, column], expected, atol=1.01 / 255)
    with pytest.raises(ValueError, match="saturate needs images of three channels"):
        corrupt(smooth_images(1, 32, 1), "saturate", 5)


def test_gaussian_blur_is_a_gaussian():
    images = smooth_images(2, 32, 3)
    expected = ndimage.gaussian_filter(images[1] / 255, (1, 1, 0), mode="nearest", truncate=4)
    np.testing.assert_allclose(corrupt(images, "gaussian_blur", 5)[1] / 255, expected, atol=1.01 / 255)


def test_mud_hides_what_it_covers_and_nothing_else():
    white = np.full((20, 32, 32, 3), 255, np.uint8)
    muddy = corrupt(white, "spatter", 5)
    clean = (muddy == 255).all(axis=3)
    assert 0.5 < clean.mean() < 0.95
    brown = muddy[~clean] / 255
    cover = (1 - brown) / (1 - np.array([63, 42, 20]) / 255)  # how much of each channel is mud
    np.testing.assert_allclose(cover, cover[:, :1].repeat(3, axis=1), atol=0.02)
    assert cover.min() > 0.78


def test_water_adds_pale_light():
    black = np.zeros((20, 32, 32, 3), np.uint8)
    wet = corrupt(black, "spatter", 3).astype(float)
    assert wet.max() == pytest.approx(0.5 * 238, abs=1)
    assert wet[..., 1].sum() == pytest.approx(wet[..., 2].sum())
    assert wet[..., 0].sum() / wet[..., 1].sum() == pytest.approx(175 / 238, abs=0.02)


def test_the_edges_of_a_step():
    """Worked by hand: both columns beside the step have a slope of 400; the first of them is the ridge."""
    step = np.zeros((9, 9), np.uint8)
    step[:, 4:] = 100
    expected = np.zeros((9, 9), bool)
    expected[:, 3] = True
    assert np.array_equal(edges_of(step, 50, 150), expected)
    assert np.array_equal(edges_of(step.T.copy(), 50, 150), expected.T)
    assert not edges_of(np.full((9, 9), 7, np.uint8), 50, 150).any()
    weak = step // 5  # a slope of 80
    assert not edges_of(weak, 50, 150).any()
    assert np.array_equal(edges_of(weak, 50, 75), expected)
    growing = step // 100 * np.arange(20, 110, 10, dtype=np.uint8)[:, None]  # slopes of 100 to 460
    assert edges_of(growing, 350, 350).any(axis=1).tolist() == [False] * 6 + [True] * 3
    assert edges_of(growing, 50, 350).any(axis=1).all()  # what is weak counts where it touches what is strong


def test_night_lets_in_less_light_and_makes_it_grainy():
    grey = np.full((50, 32, 32, 3), 128, np.uint8)
    for severity, exposure in enumerate([0.5, 0.25, 0.12, 0.06, 0.03], 1):
        dark = corrupt(grey, "night", severity) / 255
        light = (dark + 0.5 / 255) ** 2.2  # stored values are cut off
        assert light.mean() == pytest.approx(exposure * (128 / 255) ** 2.2, rel=0.02)
        assert light.std() == pytest.approx(np.sqrt(light.mean() / 2000), rel=0.1)
    assert corrupt(np.zeros((1, 32, 32, 1), np.uint8), "night", 5).max() == 0


def test_what_is_not_reported_on_is_not_among_the_fifteen():
    assert len(CORRUPTIONS) == 15
    assert not set(FURTHER) & set(CORRUPTIONS)
    assert set(PRACTICAL_ORDER) == set(CORRUPTIONS)
    with pytest.raises(ValueError, match="unknown corruption 'saturate' of imagenet"):
        parameters("saturate", 5, "imagenet")


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
        (("fogg", 5), "unknown corruption 'fogg' of cifar; known are gaussian_noise"),
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
    with pytest.raises(ValueError, match="unknown corruption 'snow' of mnist"):
        parameters("snow", 1, "mnist")
