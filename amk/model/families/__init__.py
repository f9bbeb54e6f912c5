"""The families of models that amk reads, one table entry each."""

from amk.model.families.family import Family, Sizes, Traits
from amk.model.families.gemma import GEMMA, GEMMA2, GEMMA3
from amk.model.families.granite import GRANITE
from amk.model.families.llama import LLAMA
from amk.model.families.mistral import MINISTRAL, MISTRAL
from amk.model.families.olmo import OLMO2, OLMO3
from amk.model.families.phi import PHI3
from amk.model.families.qwen import QWEN2, QWEN3
from amk.model.families.smollm3 import SMOLLM3

FAMILIES: dict[str, Family] = {
    family.architecture: family
    for family in (
        LLAMA, MISTRAL, MINISTRAL, QWEN2, QWEN3, PHI3, SMOLLM3, GRANITE, OLMO2, OLMO3, GEMMA, GEMMA2, GEMMA3,
    )
}  # fmt: skip

__all__ = ["FAMILIES", "Family", "Sizes", "Traits"]
