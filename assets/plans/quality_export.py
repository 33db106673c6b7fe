"""Export a quality plan as JSON, or as KEDA objects that keep its replicas.

A pool is the deployment LLM-GPU, with its number of GPUs, and with its pipeline stages where it has any. A
router needs the thresholds, and each pool's share of the load of its llm: both are in the JSON.
"""

import json
from collections.abc import Sequence

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.plans.cluster_workloads import dns_label
from fleetcast.models.aliases import Row
from fleetcast.models.world.toml_dataclasses import require_known, suggest_name

QUALITY_POOL_COLUMNS = (
    "llm",
    "gpu",
    "tensor_parallel",
    "pipeline_parallel",
    "instances",
    "gpus",
    "usd_per_hour",
)
QUALITY_SHARE_COLUMNS = ("load_share", "stage_share", "shadow_share", "final_answer_share", "leg_p95_s")


def find_quality_plan(settings: RunSettings, question: str, plan: str = "chosen") -> tuple[Row, list[Row]]:
    """Return a plan of a question, and its pools; ValueError names the known ones where there is none."""
    key = {"trace": settings.trace, "question": question}
    rows, pools = (
        settings.lake.sql(f"from {table} where trace = $trace and question = $question", **key).to_pylist()
        for table in ("quality_plans", "quality_pools")
    )
    found = next((row for row in rows if row["plan"] == plan), None)
    if found is None:
        known = [row["plan"] for row in rows] or settings.lake.sql(
            "select distinct question from quality_plans where trace = $trace", trace=settings.trace
        )["question"].to_pylist()
        what = f"plan {plan!r} of the question {question}" if rows else f"question {question!r} of quality"
        raise ValueError(
            f"The trace {settings.trace!r} has no {what}. {suggest_name(plan if rows else question, known)} "
            f"Make a plan with {settings.command('plan quality')}, which prints the name of its question."
        )
    return found, [row for row in pools if row["plan"] == plan]


def quality_plan_to_json(plan: Row, pools: Sequence[Row]) -> str:
    """Return a plan as JSON: its predictions, its results in the replay, and its pools."""
    fields = {name: value for name, value in plan.items() if name not in ("thresholds", "plan_kind")}
    thresholds = [float(text) for text in plan["thresholds"].split(", ")]
    columns = (*QUALITY_POOL_COLUMNS, *QUALITY_SHARE_COLUMNS)
    rows = [{name: row[name] for name in columns} for row in pools]
    return json.dumps({**fields, "thresholds": thresholds, "pools": rows}, indent=2)


def render_quality_scaled_objects(plan: Row, pools: Sequence[Row]) -> str:
    """Return one KEDA ScaledObject per pool as YAML documents, with the same replicas at every hour."""
    return "---\n".join(_scaled_object(plan, row) for row in pools)


def _scaled_object(plan: Row, row: Row) -> str:
    parts = [row["llm"], row["gpu"], f"x{row['tensor_parallel'] * row['pipeline_parallel']}"]
    parts += [f"pp{row['pipeline_parallel']}"] if row["pipeline_parallel"] > 1 else []
    name = dns_label("-".join(parts))
    return f"""\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: {name}
  labels:
    fleetcast/question: {dns_label(plan["question"])}
    fleetcast/plan: {dns_label(plan["plan"])}
spec:
  scaleTargetRef:
    name: {name}
  minReplicaCount: {row["instances"]}
  maxReplicaCount: {row["instances"]}
  triggers:
    - type: cron
      metadata:
        timezone: Etc/UTC
        start: "0 0 * * *"
        end: "59 23 * * *"
        desiredReplicas: "{row["instances"]}"
"""


QUALITY_FORMATS = {"json": quality_plan_to_json, "k8s": render_quality_scaled_objects}


def export_quality_plan(settings: RunSettings, question: str, format_: str) -> str:
    """Return the chosen plan of a question in one of QUALITY_FORMATS; ConfigError for another format."""
    require_known(format_, QUALITY_FORMATS, "format of a plan for quality", "--format")
    return QUALITY_FORMATS[format_](*find_quality_plan(settings, question))
