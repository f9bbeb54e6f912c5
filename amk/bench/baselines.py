"""Child process: what a user would run instead, on the same GPU. `python -m amk.bench.baselines`

Every method runs as one CUDA graph per position, with whichever of two ways to call attention is faster there.
Request: {"shape", "positions", "methods"}; rows: {"method", "pos", "ms", "attention"} or {"method", "error"}.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

from amk.bench.child import emit, read_request

METHODS = {
    "cublas": "cuBLAS, one CUDA graph",
    "compile": "torch.compile max-autotune, one CUDA graph",
    "compile_tuned": "torch.compile max-autotune with coordinate descent (as gpt-fast), one CUDA graph",
}
"""What is measured, by the name in the results."""

ATTENTION = {"gqa": False, "grouped": True}
"""Ways to call attention (`Decoder.step`)."""

SAMPLES = 7
SAMPLE_MS = 40.0


def main() -> None:
    """Measure the methods of the request one after the other; one that fails leaves the others alone."""
    import torch

    from amk.bench.torch_decode import Decoder, Shape

    request = read_request()
    decoder = Decoder(Shape(**request["shape"]), max(request["positions"]) + 1)
    with torch.inference_mode():
        for method in request["methods"]:
            try:
                _measure_method(decoder, method, request["positions"])
            except Exception as error:  # noqa: BLE001 - compilers fail in many ways
                emit(method=method, error=f"{type(error).__name__}: {str(error).strip().splitlines()[0]}")


def _measure_method(decoder: Any, method: str, positions: list[int]) -> None:
    parts = _parts(decoder, method)
    for pos in positions:
        times = {name: _graph_ms(partial(decoder.step, parts, pos, grouped)) for name, grouped in ATTENTION.items()}
        best = min(times, key=lambda name: times[name])
        emit(method=method, pos=pos, ms=times[best], attention=best)


def _parts(decoder: Any, method: str) -> Any:
    """The functions of the step, compiled where the method says so."""
    import torch
    from torch._inductor import config

    from amk.bench.torch_decode import Parts

    functions = (decoder.first, decoder.middle, decoder.last)
    if method == "cublas":
        return Parts(*functions)
    torch._dynamo.reset()  # noqa: SLF001 - the only name it has
    config.coordinate_descent_tuning = method == "compile_tuned"
    compiled = (torch.compile(f, mode="max-autotune-no-cudagraphs", fullgraph=True, dynamic=False) for f in functions)
    return Parts(*compiled)


def _graph_ms(step: Callable[[], Any]) -> float:
    """Milliseconds of one replay of `step` as a CUDA graph: median over samples of many replays."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    replays = max(3, int(SAMPLE_MS / max(0.05, _replay_ms(graph, 3))))
    return statistics.median(_replay_ms(graph, replays) for _ in range(SAMPLES))


def _replay_ms(graph: Any, replays: int) -> float:
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(replays):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / replays


if __name__ == "__main__":
    main()
