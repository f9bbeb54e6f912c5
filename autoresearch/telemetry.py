"""Clocks, temperature, throttling and energy of the GPU while it is timed, from NVML."""

from __future__ import annotations

from typing import Any

# Reasons that make a timing worthless, and not merely slower: NVML's names for them.
_SPOILING = (
    "nvmlClocksEventReasonHwSlowdown",
    "nvmlClocksEventReasonSwThermalSlowdown",
    "nvmlClocksEventReasonHwThermalSlowdown",
    "nvmlClocksEventReasonHwPowerBrakeSlowdown",
)


class Telemetry:
    """Reads the GPU that CUDA lists first; where NVML does not answer, it says so instead of failing."""

    def __init__(self) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(_bus_id())
            self._nvml: Any = pynvml
        except Exception as error:  # noqa: BLE001 (NVML and the driver have their own kinds)
            self._nvml, self.missing = None, f"{type(error).__name__}: {error}"

    def read(self) -> dict[str, Any]:
        """SM and memory clock in MHz, temperature in C, throttle reasons as a bit mask; or why not."""
        if self._nvml is None:
            return {"missing": self.missing}
        nvml, handle = self._nvml, self._handle
        return {
            "sm_mhz": self._ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            "memory_mhz": self._ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
            "temperature_c": self._ask(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            "throttle": self._ask(lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)),
        }

    def spoiled(self, reading: dict[str, Any]) -> bool:
        """Whether the GPU was slowed down by heat or power while this was read."""
        reasons = reading.get("throttle")
        if self._nvml is None or not isinstance(reasons, int):
            return False
        return any(reasons & int(getattr(self._nvml, name, 0)) for name in _SPOILING)

    def millijoules(self) -> int | None:
        """The energy counter, or None where the GPU has none."""
        if self._nvml is None:
            return None
        value = self._ask(lambda: self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))
        return value if isinstance(value, int) else None

    def driver(self) -> str | None:
        """The driver's version."""
        return None if self._nvml is None else self._ask(self._nvml.nvmlSystemGetDriverVersion)

    def _ask(self, question: Any) -> Any:
        try:
            return question()
        except Exception:  # noqa: BLE001 (readings that a driver lacks)
            return None


def _bus_id() -> str:
    """NVML counts all GPUs, CUDA only those that it may see: the bus tells them apart."""
    from amk.runtime.cuda.driver import call, driver

    cuda = driver()
    call(cuda.cuInit, 0)
    bus = call(cuda.cuDeviceGetPCIBusId, 32, call(cuda.cuDeviceGet, 0))
    return str(bus.split(b"\0")[0].decode())
