"""Write a CronJob that applies a plan's steps to objects without a timetable of their own.

The steps are lines of a ConfigMap: seconds since 1970, the object, its patch. Each minute the job applies the
last step of each object that has begun. So a missed run is made up by the next one, and no step comes back a
year later, as a cron schedule would.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from fleetcast.assets.plans.export_options import ExportOptions, Manifest
from fleetcast.assets.plans.manifest_yaml import LiteralText

STEP_SCRIPT = """\
now=$(date -u +%s)
awk -v now="$now" '$1 <= now { step[$2] = $3 } END { for (name in step) print name, step[name] }' "$STEPS" | {
  status=0
  while read -r object patch; do
    kubectl patch "$object" --namespace "$NAMESPACE" --type merge --patch "$patch" || status=1
  done
  exit $status
}
"""


class PatchStep(NamedTuple):
    """From an instant on, the patch of an object (resource/name); JSON without spaces."""

    start: datetime
    target: str
    patch: str


def build_step_job(
    name: str, group: str, resource: str, steps: Sequence[PatchStep], options: ExportOptions
) -> list[Manifest]:
    """Return the ConfigMap of the steps, the rights to patch one resource, and the CronJob."""
    lines = [
        f"{int(step.start.timestamp())} {step.target} {step.patch}\n"
        for step in sorted(steps, key=lambda step: step.start)
    ]
    metadata = {"name": name, "namespace": options.namespace, "labels": {"fleetcast/mode": options.mode}}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": options.namespace}
    rule = {"apiGroups": [group], "resources": [resource], "verbs": ["get", "patch"]}
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {"steps": LiteralText("".join(lines))},
        },
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": metadata,
            "rules": [rule],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": role,
            "subjects": [subject],
        },
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": metadata,
            "spec": _every_minute(name, options),
        },
    ]


def _every_minute(name: str, options: ExportOptions) -> dict[str, Any]:
    container = {
        "name": "steps",
        "image": options.image,
        "command": ["sh", "-c", LiteralText(STEP_SCRIPT)],
        "env": [
            {"name": "STEPS", "value": "/plan/steps"},
            {"name": "NAMESPACE", "value": options.namespace},
        ],
        "volumeMounts": [{"name": "plan", "mountPath": "/plan"}],
    }
    pod = {
        "serviceAccountName": name,
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "plan", "configMap": {"name": name}}],
    }
    job = {"backoffLimit": 0, "activeDeadlineSeconds": 55, "template": {"spec": pod}}
    return {
        "schedule": "* * * * *",
        "timeZone": "Etc/UTC",
        "concurrencyPolicy": "Forbid",
        "successfulJobsHistoryLimit": 1,
        "failedJobsHistoryLimit": 1,
        "jobTemplate": {"spec": job},
    }
