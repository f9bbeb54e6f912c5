"""Optuna's TPE sampler over the knobs. Its study is refilled from the history, so the journal stays the only truth."""

from __future__ import annotations

import warnings
from typing import Any

from amk.errors import UsageError
from autoresearch.proposers.base import Proposal, Stateless, View, knobs
from autoresearch.space import Space


class OptunaSampler(Stateless):
    """Tree-structured Parzen estimator; each knob's values are numbered, so that near ones count as near."""

    name = "optuna"

    def __init__(self) -> None:
        try:
            import optuna
        except ImportError:
            raise UsageError("proposer optuna: not installed; pip install 'amk[research]'") from None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna = optuna

    def propose(self, view: View) -> Proposal | None:
        """Ask the sampler."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # multivariate TPE is marked experimental
            seed = view.rng.randrange(1 << 31)
            sampler = self._optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=6)
        study = self._optuna.create_study(sampler=sampler, direction="minimize")
        for score, _, setting in view.scored():
            study.add_trial(self._finished(view.space, setting, score))
        asked = study.ask(self._distributions(view.space))
        setting = {k.name: k.values[asked.params[k.name]] for k in view.space}
        return Proposal(knobs(setting), view.incumbent[0], "optuna TPE")

    def _distributions(self, space: Space) -> dict[str, Any]:
        integers = self._optuna.distributions.IntDistribution
        return {knob.name: integers(0, len(knob.values) - 1) for knob in space}

    def _finished(self, space: Space, setting: dict[str, int], score: float) -> Any:
        params = {knob.name: knob.values.index(setting[knob.name]) for knob in space}
        return self._optuna.trial.create_trial(params=params, distributions=self._distributions(space), value=score)
