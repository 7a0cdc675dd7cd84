"""Where the published archives are, what their checksums are, and where they belong in the data root."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Archive:
    """One published file.

    Attributes:
        url: its address, HTTPS.
        md5: its published checksum, or None where the publisher gives none.
        kind: how to unpack it; `file` is kept as it is.
        into: folder under the data root that it is unpacked into.
        provides: a path under the data root that is there once it is unpacked.
        size: rough size of the download, for people.
    """

    url: str
    md5: str | None
    kind: Literal["tar", "zip", "file"]
    into: str
    provides: str
    size: str

    @property
    def name(self) -> str:
        """The file's name, without what the address carries around it."""
        return self.url.rsplit("/", 1)[1].split("?")[0].replace("+", "_")


_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_KITTI = "https://s3.eu-central-1.amazonaws.com/avg-kitti/"
_UCI = "https://archive.ics.uci.edu/static/public/"
_IMAGENET_C = "https://zenodo.org/records/2235448/files/"


def _mnist(stem: str, md5: str, size: str) -> Archive:
    name = f"{stem}-ubyte.gz"
    return Archive(_MNIST + name, md5, "file", "MNIST/raw", f"MNIST/raw/{name}", size)


ARCHIVES: Mapping[str, tuple[Archive, ...]] = {
    "cifar10": (
        Archive(
            "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
            "c58f30108f718f92721af3b95e74349a",
            "tar",
            "",
            "cifar-10-batches-py/test_batch",
            "163 MB",
        ),
        Archive(
            "https://zenodo.org/records/2535967/files/CIFAR-10-C.tar",
            "56bf5dcef84df0e2308c6dcbcbbd8499",
            "tar",
            "",
            "CIFAR-10-C/labels.npy",
            "2.9 GB",
        ),
    ),
    "cifar100": (
        Archive(
            "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
            "eb9058c3a382ffc7106e4002c42a8d85",
            "tar",
            "",
            "cifar-100-python/test",
            "161 MB",
        ),
        Archive(
            "https://zenodo.org/records/3555552/files/CIFAR-100-C.tar",
            "11f0ed0f1191edbf9fa23466ae6021d3",
            "tar",
            "",
            "CIFAR-100-C/labels.npy",
            "2.9 GB",
        ),
    ),
    "mnist": (
        _mnist("train-images-idx3", "f68b3c2dcbeaaa9fbdd348bbdeb94873", "10 MB"),
        _mnist("train-labels-idx1", "d53e105ee54ea40749a09fcbcd1e9432", "29 kB"),
        _mnist("t10k-images-idx3", "9fb629c4189551a2d022fa330f9573f3", "1.6 MB"),
        _mnist("t10k-labels-idx1", "ec29112dd5afa0611ce80d1b7f02629c", "5 kB"),
        Archive(
            "https://zenodo.org/records/3239543/files/mnist_c.zip",
            "4b34b33045869ee6d424616cd3a65da3",
            "zip",
            "",
            "mnist_c/identity/test_labels.npy",
            "228 MB",
        ),
    ),
    "imagenet": tuple(
        Archive(f"{_IMAGENET_C}{group}.tar", md5, "tar", "ImageNet-C", f"ImageNet-C/{proof}/5", size)
        for group, md5, proof, size in (
            ("noise", "e80562d7f6c3f8834afb1ecf27252745", "gaussian_noise", "21 GB"),
            ("blur", "2d8e81fdd8e07fef67b9334fa635e45c", "defocus_blur", "7 GB"),
            ("weather", "33ffea4db4d93fe4a428c40a6ce0c25d", "snow", "12 GB"),
            ("digital", "89157860d7b10d5797849337ca2e5c03", "contrast", "7 GB"),
        )
    ),
    "kitti": (
        Archive(
            f"{_KITTI}data_object_label_2.zip",
            None,
            "zip",
            "kitti/object",
            "kitti/object/training/label_2",
            "5 MB",
        ),
        Archive(
            f"{_KITTI}data_object_image_2.zip",
            None,
            "zip",
            "kitti/object",
            "kitti/object/training/image_2",
            "12 GB",
        ),
        Archive(
            f"{_KITTI}data_tracking_label_2.zip",
            None,
            "zip",
            "kitti/tracking",
            "kitti/tracking/training/label_02",
            "2 MB",
        ),
        Archive(
            f"{_KITTI}data_tracking_image_2.zip",
            None,
            "zip",
            "kitti/tracking",
            "kitti/tracking/training/image_02",
            "15 GB",
        ),
    ),
    "harth": (Archive(f"{_UCI}779/harth.zip", None, "zip", "", "harth/S029.csv", "134 MB"),),
    "extrasensory": (
        Archive(
            "https://extrasensory.ucsd.edu/data/primary_data_files/ExtraSensory.per_uuid_features_labels.zip",
            None,
            "zip",
            "ExtraSensory.per_uuid_features_labels",
            "ExtraSensory.per_uuid_features_labels/4FC32141-E888-4BFF-8804-12559A491D8C.features_labels.csv.gz",
            "215 MB",
        ),
    ),
    "hapt": (
        Archive(
            f"{_UCI}341/smartphone+based+recognition+of+human+activities+and+postural+transitions.zip",
            None,
            "zip",
            "HAPT",
            "HAPT/RawData/labels.txt",
            "80 MB",
        ),
    ),
    "digits": (),
}

NOTES: Mapping[str, str] = {
    "imagenet": (
        "the clean pictures need an account at https://image-net.org; unpack them as "
        "imagenet/train/<wnid>/ and imagenet/val/<wnid>/ under the data root"
    ),
    "kitti": "KITTI's licence: CC BY-NC-SA 3.0; rain is rendered when frames are read, or once by prepare",
    "extrasensory": (
        "the publisher's site may answer over http only; if so, fetch the zip from extrasensory.ucsd.edu "
        "yourself and unpack it as ExtraSensory.per_uuid_features_labels/; CC BY-NC-SA 4.0"
    ),
    "hapt": "non-commercial use; cite Reyes-Ortiz et al. 2016",
    "digits": "part of scikit-learn: nothing to download",
}
