"""Energy counter, clocks and temperature of the benchmarked GPU, from NVML; None wherever NVML does not say."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from amk.runtime.cuda.driver import call, driver


class Nvml:
    """NVML's view of the GPU that CUDA calls `device`; every reading is None where NVML cannot give it."""

    def __init__(self, device: int = 0) -> None:
        import pynvml

        self._api: Any = pynvml
        self._handle: Any = None
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return
        bus = call(driver().cuDeviceGetPCIBusId, 32, call(driver().cuDeviceGet, device))
        self._handle = self._read(lambda: pynvml.nvmlDeviceGetHandleByPciBusId(bus.split(b"\0")[0].decode()))

    def __enter__(self) -> Nvml:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._api.nvmlShutdown()
        except self._api.NVMLError:
            return

    def joules(self) -> float | None:
        """Energy since the driver was loaded."""
        millijoules = self._of_device("nvmlDeviceGetTotalEnergyConsumption")
        return None if millijoules is None else millijoules / 1e3

    def state(self) -> dict[str, float | int | str | None]:
        """Clocks now, temperature, power draw and what holds the clocks back (a bit mask)."""
        api = self._api
        draw = self._of_device("nvmlDeviceGetPowerUsage")
        return {
            "sm_mhz": self._of_device("nvmlDeviceGetClockInfo", api.NVML_CLOCK_SM),
            "memory_mhz": self._of_device("nvmlDeviceGetClockInfo", api.NVML_CLOCK_MEM),
            "temperature_c": self._of_device("nvmlDeviceGetTemperature", api.NVML_TEMPERATURE_GPU),
            "power_w": None if draw is None else draw / 1e3,
            "clock_limits": self._of_device("nvmlDeviceGetCurrentClocksThrottleReasons"),
        }

    def limits(self) -> dict[str, float | int | str | None]:
        """What does not change during a run: driver, power limit, highest clocks."""
        api = self._api
        limit = self._of_device("nvmlDeviceGetEnforcedPowerLimit")
        return {
            "driver": self._read(api.nvmlSystemGetDriverVersion),
            "power_limit_w": None if limit is None else limit / 1e3,
            "max_sm_mhz": self._of_device("nvmlDeviceGetMaxClockInfo", api.NVML_CLOCK_SM),
            "max_memory_mhz": self._of_device("nvmlDeviceGetMaxClockInfo", api.NVML_CLOCK_MEM),
        }

    def _of_device(self, function: str, *args: Any) -> Any:
        if self._handle is None:
            return None
        return self._read(lambda: getattr(self._api, function)(self._handle, *args))

    def _read(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except self._api.NVMLError:
            return None
