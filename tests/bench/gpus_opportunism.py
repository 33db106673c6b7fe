"""The opportunistic path in the study's combos, on the paper's GPU types: goodputs and fleets with it.

A request may begin where it will decode, and stays where it was prefilled while less is left there, times a
weight (dispatch/opportunism.py): that under which the twelve combos serve most, by replay, or off.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from gpus_fleets import LONG, WORKLOADS, attaining, fleet_text, goodput, hour_of
from gpus_paper import ATTAINED, CAPS, REPLAYED, scenario_of
from measure import Figures, Target

from fleetcast.assets.studies.rent_fleets import KEEP_WEIGHTS, teams_worth_trying
from fleetcast.assets.studies.rent_query import RentScenario, deployment_prices
from fleetcast.models.aliases import Floats
from fleetcast.models.plan import combos
from fleetcast.models.plan.combos import Combo
from fleetcast.models.world.config import replace_given

ALL = (*WORKLOADS, *LONG)
TARGETS = {
    f"gpus_opportunism_{of}_{what}": Target("", f"{of}, paper's set, weighted over off: {how}")
    for of in ALL
    for what, how in (
        ("goodput_share", "goodput of the twelve combos, in the median"),
        ("best_goodput_share", "of the combo with most tokens per USD"),
        ("usd_share", "USD an hour of the fleet by shares"),
    )
}


def under(setting: RentScenario, weight: float | None) -> RentScenario:
    """The setting with the opportunistic path at a weight, or without it."""
    way = (
        {"opportunism": "off"}
        if weight is None
        else {"opportunism": "weighted", "opportunism_weight": weight}
    )
    replay = replace_given(setting.config.replay, **way)
    return setting._replace(config=dataclasses.replace(setting.config, replay=replay))


def opportunism() -> Figures:
    """Combos' goodput and the fleet by shares at equal attainment, with the opportunistic path or none."""
    figures = Figures()
    print("| | weight | goodput of combos, median | of the best | USD/h off | weighted | in time | fleet |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for of in ALL:
        setting = scenario_of(of)
        teams = teams_worth_trying(setting, deployment_prices(setting))
        ways = {weight: under(setting, weight) for weight in (None, *KEEP_WEIGHTS)}
        rates = {w: np.array([goodput(way, combo) for combo in teams]) for w, way in ways.items()}
        off = rates[None]
        gains = {w: (rate / off - 1)[off > 0] for w, rate in rates.items()}
        weight = max(gains, key=lambda w: np.median(gains[w]))
        per_usd = [combo.tokens_per_usd(setting.load, rate) for combo, rate in zip(teams, off, strict=True)]
        best = int(np.argmax(per_usd))
        usd_off, *_ = fleet_of(of, ways[None], teams, off)
        usd, attained, fleet = fleet_of(of, ways[weight], teams, rates[weight])
        found = {
            "goodput_share": float(np.median(gains[weight])),
            "best_goodput_share": rates[weight][best] / off[best] - 1,
            "usd_share": usd / usd_off - 1,
        }
        figures |= {f"gpus_opportunism_{of}_{what}": share for what, share in found.items()}
        gained = f"{found['goodput_share']:+.1%} | {found['best_goodput_share']:+.1%}, {teams[best].title}"
        at = "off" if weight is None else f"{weight:g}"
        print(f"| {of} | {at} | {gained} | {usd_off:.2f} | {usd:.2f} | {attained:.1%} | {fleet} |")
    return figures


def fleet_of(
    of: str, setting: RentScenario, teams: Sequence[Combo], rates: Floats
) -> tuple[float, float, str]:
    """USD an hour, attainment and words of the cheapest fleet by shares, of these teams or none."""
    whole = [
        (combo, goodput(setting, combo)) for combo in combos.colocated_combos(deployment_prices(setting))
    ]
    options = [(combo, rate) for combo, rate in (*whole, *zip(teams, rates, strict=True)) if rate > 0]
    caps = CAPS if of in WORKLOADS else {}
    rented, met = attaining("shares", setting, options, caps, hour_of(setting, REPLAYED), ATTAINED)
    return rented.usd_per_hour, met["attained"], fleet_text(options, rented.counts)


FUNCTIONS = (opportunism,)
