"""The families of models that amk reads, one table entry each."""

from amk.model.families.family import Family, Sizes, Traits
from amk.model.families.gemma import GEMMA, GEMMA2, GEMMA3, VAULT_GEMMA
from amk.model.families.granite import GRANITE, HYPERCLOVAX
from amk.model.families.llama import CWM, LLAMA, SEED_OSS
from amk.model.families.mistral import MINISTRAL, MISTRAL
from amk.model.families.olmo import EXAONE4, OLMO2, OLMO3
from amk.model.families.paired import ERNIE45, GLM, GLM4, HELIUM
from amk.model.families.phi import PHI3
from amk.model.families.qwen import QWEN2, QWEN3
from amk.model.families.smollm3 import SMOLLM3

FAMILIES: dict[str, Family] = {
    family.architecture: family
    for family in (
        LLAMA, MISTRAL, MINISTRAL, QWEN2, QWEN3, PHI3, SMOLLM3, GRANITE, OLMO2, OLMO3, GEMMA, GEMMA2, GEMMA3,
        VAULT_GEMMA, GLM, GLM4, HELIUM, ERNIE45, EXAONE4, SEED_OSS, CWM, HYPERCLOVAX,
    )
}  # fmt: skip

__all__ = ["FAMILIES", "Family", "Sizes", "Traits"]
