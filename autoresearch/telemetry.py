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
    """Reads the first GPU; where NVML does not answer, it says so instead of failing."""

    def __init__(self) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByIndex(0)
            self._nvml: Any = pynvml
        except Exception as error:  # noqa: BLE001 (NVML has its own kinds)
            self._nvml, self.missing = None, str(error)

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

    def _ask(self, question: Any) -> Any:
        try:
            return question()
        except Exception:  # noqa: BLE001 (readings that a driver lacks)
            return None
