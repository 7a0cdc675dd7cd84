"""`note-tta doctor`: what is active on this machine, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from ..nn import native

app = typer.Typer(add_completion=False)


@app.command()
def doctor() -> None:
    """Tell what is active here: versions, the fused kernel, threads, devices and the data root."""
    findings = _findings()
    margin = max(map(len, findings)) + 2
    for name, state in findings.items():
        first, *others = state.split("\n")
        typer.echo(f"{name:<{margin}}{first}")
        for line in others:
            typer.echo(" " * margin + line)


def _findings() -> dict[str, str]:
    import platform

    import torch

    from .. import __version__
    from ..data import resolve_root
    from ..nn import native

    root = resolve_root()
    return {
        "note-tta": __version__,
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "fast path": _fast_path(native.kernel()),
        "threads": f"{torch.get_num_threads()} (torch.get_num_threads; OMP_NUM_THREADS sets it)",
        "device": _devices(),
        "data root": f"{root}{'' if root.is_dir() else ' (does not exist yet)'}",
    }


def _fast_path(kernel: native.Kernel) -> str:
    if kernel.active:
        return (
            f"on: fused IABN kernel, {kernel.isa} instructions, threads: {kernel.threads}\n{kernel.reason}\n"
            "float32, bfloat16 and float16 on the CPU take it; other dtypes and devices take the plain formula"
        )
    if kernel.switched_off:
        return f"off: {kernel.reason}\nthe plain formula runs instead, to the same results"
    return (
        f"off: {kernel.reason}\n"
        "the plain formula runs instead, to the same results but several times slower\n"
        "install a C compiler (gcc or clang) and then the package again: pip install --force-reinstall ."
    )


def _devices() -> str:
    import torch

    if not torch.cuda.is_available():
        return "CPU only (torch.cuda.is_available() is False)"
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return f"CPU and CUDA: {', '.join(names)}; on CUDA the plain formula runs"
