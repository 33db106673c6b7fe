"""Three apps on one llm: what it is worth to plan by bucket, known from what apps answered yesterday."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from gpus_fleets import WORKLOADS, hour_of, pools_of, setting_of
from measure import Figures, Target

from fleetcast.assets.studies.rent_fleets import RentOptions, build_rent_offer, team_pools
from fleetcast.assets.studies.rent_query import RentScenario, deployment_prices
from fleetcast.models.metrics import is_tier_slo_met
from fleetcast.models.plan import combos, request_buckets
from fleetcast.models.plan.melange import solve_melange
from fleetcast.models.plan.phase_costs import MeanRequest
from fleetcast.models.plan.rental import RentalPlan
from fleetcast.models.plan.request_buckets import BucketEdges
from fleetcast.models.plan.share_program import solve_shares
from fleetcast.models.plan.solver import DEFAULT_SOLVER
from fleetcast.models.replay.kernel_inputs import TraceArrays
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.trials.capacity import fixed_fleet
from fleetcast.models.trials.goodput import goodput_per_s
from fleetcast.models.world.catalogue import load_catalogue

RUNPOD = {
    "h100-80gb": 3.29,
    "a100-80gb": 1.49,
}  # USD per GPU-hour, medians of 2026-06-01 (afhubbard/gpu-prices)
ATTAINED, REPLAYED, TIMES, LEAST = 0.90, 40_000, 8, 50  # requests that a bucket must have to count
TIER = {"ttft_slo_s": 5.0, "tpot_slo_s": 0.030, "attainment_target_share": ATTAINED}
FACTORS = 1.03 ** np.arange(-16, 8)  # of the load, that a program plans for
EDGES = BucketEdges((512,), (100, 500))
WAYS = {  # how buckets are known, by which programme, whether combos may be rented
    "one bucket": ("one", solve_shares, True),
    "by what apps answered": ("apps", solve_shares, True),
    "by what apps answered, Melange": ("apps", solve_melange, True),
    "by true lengths": ("truth", solve_shares, True),
    "one bucket, together": ("one", solve_shares, False),
    "by what apps answered, together": ("apps", solve_shares, False),
    "by what apps answered, Melange, together": ("apps", solve_melange, False),
}
TARGETS = {
    "gpus_buckets_usd_over_one": Target(
        "", "three apps on one llm: USD by buckets found by apps over one bucket"
    ),
    "gpus_buckets_together_usd_over_one": Target("", "the first without combos"),
    "gpus_buckets_truth_usd_over_one": Target("", "the same with buckets found by the true lengths"),
}


def mixed() -> tuple[RentScenario, TraceArrays, np.ndarray]:
    """The paper's three workloads as apps of one llm, its rates; the trace, and the app of each request."""
    catalogue = load_catalogue().of_era("2023", "here")
    gpus = {
        name: dataclasses.replace(gpu, usd_per_hour=RUNPOD.get(name, gpu.usd_per_hour))
        for name, gpu in catalogue.gpus.items()
    }
    catalogue = dataclasses.replace(catalogue, gpus=gpus)
    own = [setting_of(catalogue, of, RUNPOD, (1, 2), TIMES) for of in WORKLOADS]
    rates = np.array([setting.per_s for setting in own])
    rng = np.random.default_rng(11)
    app = rng.choice(len(own), REPLAYED, p=rates / rates.sum())
    pick = rng.integers(0, own[0].mix.input_tokens.size, REPLAYED)
    tokens = [
        np.stack([getattr(setting.mix, name) for setting in own])[app, pick]
        for name in ("input_tokens", "output_tokens")
    ]
    mix = own[0].mix._replace(input_tokens=tokens[0], output_tokens=tokens[1])
    setting = own[0]._replace(
        mix=mix,
        per_s=float(rates.sum()),
        load=MeanRequest(float(tokens[0].mean()), float(tokens[1].mean())),
        tier=dataclasses.replace(own[0].tier, **TIER),
    )
    return setting, hour_of(setting, REPLAYED), app


def bucketed() -> Figures:
    """The cheapest fleet by each programme that attains the target, one bucket or twelve."""
    setting, trace, app = mixed()
    half = REPLAYED // 2  # the first half is yesterday: its lengths are drawn as those of today
    expected = request_buckets.expected_output_tokens(app, app[:half], trace.output_tokens[:half])
    buckets = {
        "one": np.zeros(REPLAYED, np.int64),
        "apps": EDGES.bucket(trace.input_tokens, expected),
        "truth": EDGES.bucket(trace.input_tokens, trace.output_tokens),
    }
    known = deployment_prices(setting)
    candidates = [
        *combos.colocated_combos(known),
        *combos.filter_combos(combos.disaggregated_combos(known, (1, 2), range(1, 7)), setting.load, 4),
    ]
    measured = {name: goodputs(setting, candidates, trace, bucket) for name, bucket in buckets.items()}
    usd = {}
    print("| | buckets | USD/h | in time | fleet |", "| --- | --- | --- | --- | --- |", sep="\n")
    for way, (name, solve, is_any) in WAYS.items():
        bucket, (present, rate) = buckets[name], measured[name]
        able = [n for n, c in enumerate(candidates) if (rate[:, n] > 0).any() and (is_any or not c.prefill)]
        options = [(candidates[n], float(rate[:, n].max())) for n in able]
        rented, share = attaining(solve, setting, options, trace, bucket, present, rate[:, able])
        usd[way] = rented.usd_per_hour
        fleet = ", ".join(f"{n} ({c.title})" for (c, _), n in zip(options, rented.counts, strict=True) if n)
        print(f"| {way} | {present.size} | {usd[way]:.2f} | {share:.1%} | {fleet} |")
    one = usd["one bucket"]
    return {
        "gpus_buckets_usd_over_one": usd["by what apps answered"] / one,
        "gpus_buckets_truth_usd_over_one": usd["by true lengths"] / one,
        "gpus_buckets_together_usd_over_one": (
            usd["by what apps answered, together"] / usd["one bucket, together"]
        ),
    }


def goodputs(setting, candidates, trace, bucket) -> tuple[np.ndarray, np.ndarray]:
    """The buckets with enough requests, (b,), and requests/s of each option that serves one alone, (b, n)."""
    present = np.flatnonzero(np.bincount(bucket) >= LEAST)
    rate = np.zeros((present.size, len(candidates)))
    for row, b in enumerate(present):
        tokens = [column[bucket == b] for column in trace[4:6]]
        load = MeanRequest(*(float(column.mean()) for column in tokens))
        for n, combo in enumerate(candidates):
            rate[row, n] = goodput_per_s(
                "llama3.1-8b", team_pools(setting, combo), setting.catalogue, setting.config, setting.tier,
                *tokens,
                combo.per_s(load), None if combo.prefill is None else 1,
            )  # fmt: skip
    return present, rate


def attaining(solve, setting, options: RentOptions, trace, bucket, present, rate) -> tuple[RentalPlan, float]:
    """The cheapest fleet of a programme that attains the target, for less and for more of the load."""
    row = np.searchsorted(present, np.clip(bucket, None, present[-1]))  # rare ones go with the next
    per_s = np.bincount(row, minlength=present.size) / REPLAYED * setting.per_s
    offer, found_by_counts = build_rent_offer(options, {}), {}
    for factor in FACTORS:
        rented = solve(offer, factor * per_s, rate, options=DEFAULT_SOLVER._replace(time_limit_s=2.0))
        given = np.where(rented.counts > 0, rented.shares, 0.0)
        counts = tuple(map(int, rented.counts))
        if counts not in found_by_counts and given.any(axis=1).all():
            found_by_counts[counts] = (
                rented,
                attained(setting, options, counts, trace, request_buckets.distribute_requests(row, given)),
            )
    able = [one for one in found_by_counts.values() if one[1] >= ATTAINED]
    return min(able or found_by_counts.values(), key=lambda one: one[0].usd_per_hour)


def attained(
    setting: RentScenario, options: RentOptions, counts: Sequence[int], trace: TraceArrays, option: np.ndarray
) -> float:
    """Share of requests in time where each option takes what was distributed to it: tiers stand for
    options.
    """
    held = [n for n, count in enumerate(counts) if count]
    names = {f"option{n}": setting.tier for n in held}
    alone = dataclasses.replace(setting.catalogue, tiers=names)
    pools = [pools_of(setting, [options[n]], [counts[n]]) for n in held]
    every = [
        (
            dataclasses.replace(
                pool, **{key: f"{k} {value}" for key in ("name", "then") if (value := getattr(pool, key))}
            ),
            count,
        )
        for k, own in enumerate(pools)
        for pool, count in own
    ]
    fleet = fixed_fleet({"llama3.1-8b": every}, alone, setting.config)
    of_pool = np.repeat(np.arange(len(held)), [len(own) for own in pools])
    fleet = fleet._replace(takes=fleet.takes & (of_pool[:, None] == np.arange(len(held))))
    rules = make_rules(alone, dataclasses.replace(setting.config.replay, spread="weights"), "follow")
    own_trace = trace._replace(tier=np.searchsorted(held, option).astype(np.int16))
    until_s = float(trace.arrival_s[-1]) + 600.0
    outcome = replay_trace(own_trace, fleet, Schedule(np.diff(fleet.slots), hour_s=until_s), rules, until_s)
    times = outcome.first_token_s - trace.arrival_s, outcome.finish_s - trace.arrival_s
    return float(is_tier_slo_met(setting.tier, *times, trace.output_tokens).mean())


FUNCTIONS = (bucketed,)
