"""Build the fused IABN kernel: plain C, no Python or torch headers, loaded with ctypes at run time.

Everything else about the package stands in pyproject.toml. Without a working C compiler the install goes on
without the kernel, and the library computes the same in plain PyTorch.
"""

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext


class BuildKernel(build_ext):
    """Name the shared object without Python's version in it, for it does not use Python."""

    def get_ext_filename(self, fullname: str) -> str:
        """`note_tta.nn._iabn` becomes `note_tta/nn/_iabn.so`."""
        return fullname.replace(".", "/") + ".so"

    def get_export_symbols(self, ext: Extension) -> list[str]:
        """No `PyInit_` function is exported."""
        return list(ext.export_symbols)


class PortableWheel(bdist_wheel):
    """One wheel a platform serves every Python and every torch."""

    def get_tag(self) -> tuple[str, str, str]:
        """Keep the platform's tag only."""
        return "py3", "none", super().get_tag()[2]


setup(
    ext_modules=[
        Extension(
            "note_tta.nn._iabn",
            sources=["note_tta/nn/_iabn.c"],
            depends=["note_tta/nn/_iabn_isa.h", "note_tta/nn/_iabn_sweeps.h"],
            # No contraction: which products become fused multiply-adds would depend on how many channels are
            # looked at together, and so the last bit of a result on the number of threads.
            extra_compile_args=[
                "-O3",
                "-g0",
                "-std=gnu11",
                "-fno-math-errno",
                "-fno-trapping-math",
                "-ffp-contract=off",
                "-fvisibility=hidden",
            ],
            libraries=["m"],
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildKernel, "bdist_wheel": PortableWheel},
)
