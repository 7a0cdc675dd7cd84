"""`note-tta doctor`: what is active on this machine and why, and what works for a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..extras import MissingExtra

if TYPE_CHECKING:
    from ..nn import native

app = typer.Typer(add_completion=False)


@app.command()
def doctor(
    model: Annotated[str | None, typer.Option(help="module:function that makes your model.")] = None,
) -> None:
    """Show what is active here: versions, the fused kernel, threads, devices and the data root.

    With --model, show instead what works for your model: what to convert, which methods accept it, and what to
    expect.

    Example: note-tta doctor --model my_package:make_model
    """
    findings = _findings() if model is None else _model_findings(model)
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
    from ..nn import native

    return {
        "note-tta": __version__,
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "fast path": _fast_path(native.kernel()),
        "threads": f"{torch.get_num_threads()} (torch.get_num_threads; OMP_NUM_THREADS sets it)",
        "device": _devices(),
        "data root": _data_root(),
    }


def _data_root() -> str:
    try:
        from ..data import resolve_root
    except MissingExtra as error:
        return f"none: {error}"
    root = resolve_root()
    return f"{root}{'' if root.is_dir() else ' (does not exist yet)'}"


def _model_findings(name: str) -> dict[str, str]:
    from ..families import FAMILIES, examine
    from ..models.user_model import make_model

    model = make_model(name)
    found = examine(model)
    family = FAMILIES[found.family]
    share = 100 * found.adapting / max(1, found.parameters)
    layers = ", ".join(f"{count} {kind}" for kind, count in found.layers.items()) or "none"
    reasons = dict[str, list[str]]()
    for method, reason in found.refuses.items():
        reasons.setdefault(reason, []).append(method)
    return {
        "model": f"{type(model).__name__}, {found.parameters:,} parameters",
        "norm layers": f"{layers}; {found.adapting:,} affine parameters ({share:.3g} %)",
        "family": f"{family.title} (such as {family.examples})",
        "first": family.convert,
        "works": family.works,
        "expect": family.expect,
        "take it": " ".join(found.takes),
        "need source=": " ".join(found.with_source),
        "refuse it": "\n".join(f"{' '.join(methods)}: {reason}" for reason, methods in reasons.items())
        or "none",
    }


def _fast_path(kernel: native.Kernel) -> str:
    if kernel.active:
        return (
            f"on: fused IABN kernel, {kernel.isa} instructions, threads: {kernel.threads}\n{kernel.reason}\n"
            "it runs for float32, bfloat16 and float16 on the CPU; other dtypes and devices use the plain formula"
        )
    if kernel.switched_off:
        return f"off: {kernel.reason}\nthe plain formula runs instead, with the same results"
    return (
        f"off: {kernel.reason}\n"
        "the plain formula runs instead, with the same results but several times slower\n"
        "install a C compiler (gcc or clang), then install the package again: pip install --force-reinstall ."
    )


def _devices() -> str:
    import torch

    if not torch.cuda.is_available():
        return "CPU only (torch.cuda.is_available() is False)"
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return f"CPU and CUDA: {', '.join(names)}; on CUDA the plain formula runs"
