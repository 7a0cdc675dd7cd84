"""Bodies of requests as samples: arrays, JSON, images. Nothing in them is executed; sizes are checked first."""

from __future__ import annotations

import io
import json
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor, nn

from .limits import Limits, Refused

IMAGES = {"image/png": "PNG", "image/jpeg": "JPEG", "image/webp": "WEBP"}
ARRAYS = ("application/x-npy", "application/octet-stream")
TYPES = (*ARRAYS, "application/json", *IMAGES)
_MODES = {1: "L", 3: "RGB"}
_DTYPES = ("uint8", "float16", "float32", "float64")


def samples(body: bytes, content_type: str, channels: int | None, limits: Limits) -> Tensor:
    """The batch `[B, ...]` in float32 that a body holds; bytes 0 to 255 become values from 0 to 1.

    Args:
        body: The request's body.
        content_type: One of `TYPES`.
        channels: The number of channels of the images that the model takes; None if it takes no images.
        limits: How large samples may be.

    Raises:
        Refused: The body is damaged, too large or of another type.

    Example:
        >>> samples(b'{"samples": [[0.5, 1], [2, 3]]}', "application/json", None, Limits())
        tensor([[0.5000, 1.0000],
                [2.0000, 3.0000]])
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind in IMAGES:
        batch = _image(body, IMAGES[kind], channels, limits)
    elif kind == "application/json":
        batch = _numbers(body)
    elif kind in ARRAYS:
        batch = _array(body)
    else:
        raise Refused(415, f"Content-Type must be one of {', '.join(TYPES)}")
    if batch.ndim < 2 or len(batch) == 0:
        raise Refused(422, f"samples must be a batch [B, ...] of at least one, got shape {list(batch.shape)}")
    if len(batch) > limits.samples:
        raise Refused(413, f"{len(batch)} samples are more than the {limits.samples} of one request")
    return batch


def channels_of(model: nn.Module) -> int | None:
    """The number of channels of a model's first convolution; None if the model does not take images."""
    convolution = next((m for m in model.modules() if isinstance(m, nn.Conv1d | nn.Conv2d | nn.Conv3d)), None)
    if isinstance(convolution, nn.Conv2d) and convolution.in_channels in _MODES:
        return convolution.in_channels
    return None


def _array(body: bytes) -> Tensor:
    file = io.BytesIO(body)
    try:
        version = np.lib.format.read_magic(file)
        readers: dict[tuple[int, int], Callable[..., Any]] = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        shape, fortran, dtype = readers[version](file)
        if dtype.name not in _DTYPES or dtype.byteorder == ">":
            raise ValueError(f"its dtype is {dtype.name[:20]}, not one of {', '.join(_DTYPES)}")
        start = file.tell()
        if min(shape, default=1) < 0 or math.prod(shape) * dtype.itemsize != len(body) - start:
            raise ValueError("its size is not what its header says")
        array = np.frombuffer(body, dtype, offset=start).reshape(shape, order="F" if fortran else "C")
    except Exception as error:  # numpy evaluates the header as a literal, which can fail in many ways
        raise Refused(400, f"the body is no npy file of numbers: {_line(error)}") from None
    return _scaled(array)


def _numbers(body: bytes) -> Tensor:
    try:
        content = json.loads(body)
        values = content["samples"] if isinstance(content, dict) else None
        if not isinstance(values, list):
            raise ValueError('it is not {"samples": [[...], ...]}')
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            array = np.array(values)
        if array.dtype.kind not in "iuf":
            raise ValueError("samples hold something other than numbers")
        array = array.astype(np.float32)
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError, RuntimeWarning) as error:
        raise Refused(400, f"the body is no JSON of samples: {_line(error)}") from None
    return torch.from_numpy(array)


def _image(body: bytes, kind: str, channels: int | None, limits: Limits) -> Tensor:
    if channels is None:
        raise Refused(415, "this model takes no images: send an array, application/x-npy")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(body), formats=[kind])
            if image.width * image.height > limits.pixels:
                raise Refused(
                    413,
                    f"{image.width} x {image.height} pixels are more than {limits.pixels:,}: send it smaller",
                )
            if image.mode[0] in "IF":  # Pillow would cut everything above 255 off
                raise Refused(
                    415, "an image has 8 bits per value: send others as an array, application/x-npy"
                )
            pixels = np.asarray(image.convert(_MODES[channels]))
    except Refused:
        raise
    except Image.DecompressionBombError:
        raise Refused(413, f"the image has more than {limits.pixels:,} pixels: send it smaller") from None
    except UnidentifiedImageError:
        raise Refused(400, f"the body is no {kind} image") from None
    except Exception as error:  # a damaged image can raise nearly anything
        raise Refused(400, f"the body is no whole {kind} image: {_line(error)}") from None
    return _scaled(pixels.reshape(*pixels.shape[:2], channels).transpose(2, 0, 1)[None])


def _scaled(array: np.ndarray[Any, Any]) -> Tensor:
    """An array as a tensor, with numpy alone.

    Torch would start a thread pool for the reading thread. With more such threads than cores, those of the
    fleet wait at every step, which made it a third slower.
    """
    if array.dtype == np.uint8:
        return torch.from_numpy(np.divide(array, np.float32(255), dtype=np.float32, order="C"))
    with np.errstate(over="ignore"):
        return torch.from_numpy(np.array(array, np.float32, order="C"))


def _line(error: Exception) -> str:
    """The first line of an error, without text that may come from the body."""
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return "".join(c for c in text[:120] if c.isprintable())
