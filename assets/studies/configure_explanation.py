"""The answer of `fleetcast configure` in sentences: why it is the best, and what others and changes cost."""

from fleetcast.assets.studies.configure_answer import ChangedTraffic, EngineAnswer
from fleetcast.assets.studies.configure_limits import describe_limit
from fleetcast.assets.studies.engine_commands import describe_point
from fleetcast.models.configure.fleet_trials import FleetScore
from fleetcast.models.world.catalogue_entries import BACKEND_TITLES, VLLM


def explain_answer(answer: EngineAnswer) -> list[str]:
    """Return sentences: why it is the best, what the second best loses, what changes with the traffic."""
    best, second, lines = answer.best, answer.second, []
    burst = best.usd_per_million_tokens / answer.bounds[0]
    why = (
        f"why      steady work alone costs {answer.bounds[0]:.3f} USD per million tokens on "
        f"{describe_point(best.point)}; bursts, targets and whole instances make it {burst:.2f} times that"
    )
    if second is not None:
        more = second.usd_per_million_tokens / answer.bounds[1]
        why += f"; on the second best it costs {answer.bounds[1]:.3f}, times {more:.2f}"
    lines.append(why + ".")
    lines += [f"binds    {describe_limit(limit)}." for limit in answer.limits]
    if second is None:
        lines.append("second   no other deployment on the whole hours is within half of its cost again.")
    elif second.usd_per_hour > best.usd_per_hour:
        more = second.usd_per_hour / best.usd_per_hour - 1
        lines.append(f"second   {describe_point(second.point)} costs {more:.0%} more.")
    else:
        lines.append(
            f"second   {describe_point(second.point)} costs as much; {compare_attainment(best, second)}."
        )
    gpus = " and ".join(dict.fromkeys(shape.gpu for shape in best.point.shapes))
    if len(answer.query.backends) > 1:
        lines.append(f"backends {compare_backends(answer)}")
    if VLLM not in answer.query.backends:
        lines.append("defaults vLLM is not one of --backends.")
    elif answer.defaults is None:
        lines.append(f"defaults vLLM's defaults on {gpus} attain with no number of instances.")
    else:
        ratio = answer.defaults.usd_per_hour / best.usd_per_hour
        lines.append(f"defaults vLLM's defaults on {gpus} cost {ratio:.2f} times as much.")
    low, high = answer.interval
    lines.append(
        f"error    {low:.3f} to {high:.3f} USD per million tokens if it is {answer.error_share:.0%} faster "
        "or slower, the median error of its latency profile."
    )
    lines += [f"if       {describe_change(changed)}" for changed in answer.changes]
    return lines


def compare_backends(answer: EngineAnswer) -> str:
    """Return what the cheapest deployment of each other backend costs, and that their order is uncertain."""
    best, cheapest = answer.best, dict[str, FleetScore]()
    for score in answer.search.finalists:
        cheapest.setdefault(score.point.variant.backend, score)
    parts = []
    for backend in answer.query.backends:
        if backend != best.point.variant.backend:
            found = cheapest.get(backend)
            more = "attains with no number of instances"
            if found is not None:
                ratio = found.usd_per_hour / best.usd_per_hour
                more = "costs as much" if ratio <= 1 else f"costs {ratio - 1:.0%} more"
            parts.append(f"{BACKEND_TITLES[backend]} {more}")
    chosen = BACKEND_TITLES[best.point.variant.backend]
    return (
        f"{chosen} is chosen; {'; '.join(parts)}. Kernels say little about which backend is faster: "
        "measure before you change it (data/docs/explanation/accuracy.md)."
    )


def compare_attainment(best: FleetScore, second: FleetScore) -> str:
    """Return what the second of equal cost loses: points of the tier that is furthest below the best's."""
    points = {tier: 100 * (share - second.attained[tier]) for tier, share in best.attained.items()}
    tier = max(points, key=points.__getitem__)
    if points[tier] < 0.05:
        return "it attains no less in any tier"
    worst = f"{tier}, the tier in which it is furthest below the best"
    return f"it attains {points[tier]:.1f} points less of {worst}"


def describe_change(changed: ChangedTraffic) -> str:
    """Return what a change of the traffic does to the choice."""
    best, kept, now_usd = changed.best, changed.kept, changed.present_usd_per_hour
    if best is None:
        return f"{changed.change}: no deployment of those compared attains every tier."
    ratio = "" if now_usd is None else f", at {best.usd_per_hour / now_usd:.2f} times the USD per hour"
    if kept is not None and best.point.kind == kept.point.kind:
        return f"{changed.change}: the same deployment stays the best{ratio}."
    loss = (
        "does not attain"
        if kept is None
        else f"would cost {kept.usd_per_hour / best.usd_per_hour - 1:.0%} more"
    )
    return f"{changed.change}: {describe_point(best.point)} is the best{ratio}; the present one {loss}."
