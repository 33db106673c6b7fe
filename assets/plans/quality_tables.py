"""Write quality plans to the tables quality_plans (the plan and its replay) and quality_pools (its pools)."""

import math
from typing import Any

import numpy as np
import pyarrow as pa

from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.plans.quality_requirements import QualityPlan, QualityRequirement
from fleetcast.models.plan.quality_milp import replica_capacity_per_s


def write_quality_plans(
    settings: RunSettings, requirement: QualityRequirement, plans: list[QualityPlan], name: str | None = None
) -> None:
    """Write quality_plans and quality_pools of a requirement, under its name or `name`."""
    place = {"trace": settings.trace, "question": name or requirement.name}
    rows = [quality_plan_row(requirement, plan) for plan in plans]
    pools = [row for plan in plans for row in quality_pool_rows(plan)]
    settings.lake.write("quality_plans", pa.Table.from_pylist(rows, SCHEMAS["quality_plans"]), **place)
    settings.lake.write("quality_pools", pa.Table.from_pylist(pools, SCHEMAS["quality_pools"]), **place)


def quality_plan_row(requirement: QualityRequirement, plan: QualityPlan) -> dict[str, Any]:
    """Return a plan as a row of quality_plans."""
    offer, answer = plan.market.offers[plan.rule], plan.answer
    (p95_low, p95_high), (quality_low, quality_high) = plan.served.intervals()
    budget = requirement.budget_usd_per_hour
    return {
        "plan": plan.name,
        "plan_kind": plan.kind,
        "rule": plan.rule,
        "answers_source": plan.market.source,
        "judge": plan.market.name,
        "judge_skill": plan.market.judging.judge.skill,
        "judge_llm": plan.market.judging.llm,
        "shadow_share": plan.market.judging.shadow_share,
        "thresholds": ", ".join(f"{t:.6g}" for t in offer.thresholds[answer.point]),
        "requests_per_s": plan.market.quality_config.requests_per_s,
        "required_quality": requirement.quality,
        "required_latency_s": requirement.latency_s,
        "budget_usd_per_hour": None if math.isinf(budget) else budget,
        "usd_per_hour": answer.usd_per_hour,
        "promised_quality": float(offer.quality[answer.point]),
        "p95_by_tables_s": answer.latency_s,
        "quality": plan.served.quality,
        "quality_low": quality_low,
        "quality_high": quality_high,
        "p95_s": _finite(plan.served.p95_s),
        "p95_low_s": _finite(p95_low),
        "p95_high_s": _finite(p95_high),
    }


def quality_pool_rows(plan: QualityPlan) -> list[dict[str, Any]]:
    """Return a plan's rows of quality_pools: equal replicas, with the load and the latency of their llm."""
    offer, served = plan.market.offers[plan.rule], plan.served
    capacity = plan.answer.instances * replica_capacity_per_s(offer, plan.answer.point, plan.answer.within_s)
    rows = []
    for n in np.flatnonzero(plan.answer.instances):
        shape, count = plan.market.shapes[n], int(plan.answer.instances[n])
        at = served.llms.index(shape.llm)
        rows.append({
            "plan": plan.name,
            "llm": shape.llm,
            "gpu": shape.gpu,
            "tensor_parallel": shape.tensor_parallel,
            "pipeline_parallel": shape.pipeline_parallel,
            "instances": count,
            "gpus": count * shape.gpus,
            "usd_per_hour": count * float(offer.usd_per_hour[n]),
            "load_share": float(capacity[n] / max(capacity[offer.llm == offer.llm[n]].sum(), 1e-12)),
            "stage_share": served.leg_s[at].size / served.answer_latency_s.size,
            "shadow_share": served.shadow_legs[at] / served.answer_latency_s.size,
            "final_answer_share": float((served.kept == at).mean()),
            "leg_p95_s": float(np.quantile(served.leg_s[at], 0.95)) if served.leg_s[at].size else None,
        })  # fmt: skip
    return rows


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
