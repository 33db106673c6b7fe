"""Schemas of what clusters accept, as facts, and a check of an object against them.

Written down from kedacore/keda config/crd/bases/keda.sh_scaledobjects.yaml and keda.sh reference
scaledobject-spec 2.22 (limits, triggers as texts); Kubernetes API reference autoscaling/v2 and v1; llm-d
autoscaling internal/annotations and its samples (managed, model-id, variant-cost; wva_desired_replicas);
kubernetes-sigs/karpenter pkg/apis/crds/autoscaling.x-k8s.io_capacitybuffers.yaml (v1beta1) with its two
validation rules; Ray Serve schema ScaleDeploymentRequest and the path of its REST route.
"""

import re
from typing import Any

DNS = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
COUNT, TEXT, TEXTS = "count", "text", "texts"
REFERENCE = {"!name": TEXT, "apiVersion": TEXT, "kind": TEXT, "envSourceContainerName": TEXT}
TRIGGER = {
    **{"!type": TEXT, "!metadata": TEXTS, "name": TEXT, "metricType": TEXT, "useCachedMetrics": "yes or no"},
    "authenticationRef": {"!name": TEXT, "kind": TEXT},
}
METRIC = {
    "!type": TEXT,
    "external": {
        "!metric": {"!name": TEXT, "selector": {"matchLabels": TEXTS}},
        "!target": {"!type": TEXT, "averageValue": TEXT, "value": TEXT},
    },
}
SPECS: dict[tuple[str, str], dict[str, Any]] = {
    ("keda.sh/v1alpha1", "ScaledObject"): {
        **{"!scaleTargetRef": REFERENCE, "!triggers": [TRIGGER], "minReplicaCount": COUNT},
        **{"maxReplicaCount": COUNT, "idleReplicaCount": COUNT, "pollingInterval": COUNT},
        **{"cooldownPeriod": COUNT, "initialCooldownPeriod": COUNT},
        "fallback": {"!failureThreshold": COUNT, "!replicas": COUNT, "behavior": TEXT},
    },
    ("autoscaling/v2", "HorizontalPodAutoscaler"): {
        "!scaleTargetRef": {"!kind": TEXT, "!name": TEXT, "apiVersion": TEXT},
        **{"minReplicas": COUNT, "!maxReplicas": COUNT, "metrics": [METRIC]},
    },
    ("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer"): {
        **{"provisioningStrategy": TEXT, "replicas": COUNT, "percentage": COUNT, "limits": TEXTS},
        "podTemplateRef": {"!name": TEXT},
        "scalableRef": {"!kind": TEXT, "!name": TEXT, "apiGroup": TEXT},
    },
}


def faults(one: dict[str, Any]) -> list[str]:
    """Every fault for which its cluster would refuse an object; empty where it is accepted."""
    kind = one.get("apiVersion"), one.get("kind")
    metadata = one.get("metadata", {})
    found = [] if DNS.fullmatch(metadata.get("name", "")) else [f"name {metadata.get('name')}"]
    labels = metadata.get("labels", {})
    found += [f"label {key}" for key, value in labels.items() if not LABEL.fullmatch(value)]
    found += _shape(metadata.get("annotations", {}), TEXTS, "annotations")
    if kind == ("v1", "ConfigMap"):
        return found + _shape(one["data"], TEXTS, "data")
    if kind not in SPECS:
        return [*found, f"no such kind: {kind}"]
    return found + _shape(one["spec"], SPECS[kind], "spec") + _rules(kind[1], one["spec"])


def _shape(value: Any, wanted: Any, at: str) -> list[str]:
    if isinstance(wanted, list):
        found = [_shape(each, wanted[0], f"{at}[{n}]") for n, each in enumerate(value)]
        return [fault for faults_of in found for fault in faults_of]
    if wanted == COUNT:
        return [] if type(value) is int and 0 <= value < 2**31 else [f"{at}: {value!r} is no int32 from 0"]
    if wanted == TEXT:
        return [] if isinstance(value, str) else [f"{at}: {value!r} is no text"]
    if wanted == TEXTS:
        return [f"{at}.{key}: {one!r} is no text" for key, one in value.items() if not isinstance(one, str)]
    if not isinstance(wanted, dict):
        return []
    known = {key.lstrip("!"): inner for key, inner in wanted.items()}
    found = [f"{at} has no {key[1:]}" for key in wanted if key[0] == "!" and key[1:] not in value]
    found += [f"{at} knows no {key}" for key in value if key not in known]
    for key in set(value) & set(known):
        found += _shape(value[key], known[key], f"{at}.{key}")
    return found


def _rules(kind: str, spec: dict[str, Any]) -> list[str]:
    """Rules of a webhook or of the schema beyond the shape."""
    found = []
    if kind == "ScaledObject":
        names = [one["name"] for one in spec["triggers"] if "name" in one]
        found += ["trigger names repeat"] if len(set(names)) < len(names) else []
        found += ["more at least than at most"] if spec["minReplicaCount"] > spec["maxReplicaCount"] else []
        found += ["no replica at most"] if spec["maxReplicaCount"] < 1 else []
        for one in spec["triggers"]:
            needs = {"cron": {"timezone", "start", "end", "desiredReplicas"}, "external": {"scalerAddress"}}
            if lacking := needs.get(one["type"], set()) - set(one["metadata"]):
                found.append(f"{one['type']} lacks {lacking}")
            if one["type"] == "cron" and one["metadata"]["start"] == one["metadata"]["end"]:
                found.append("a cron that starts when it ends")
    if kind == "HorizontalPodAutoscaler":
        found += [] if 1 <= spec["minReplicas"] <= spec["maxReplicas"] else ["HPA limits"]
    if kind == "CapacityBuffer":
        referred = [name for name in ("podTemplateRef", "scalableRef") if name in spec]
        found += [] if len(referred) == 1 else ["needs one of podTemplateRef and scalableRef"]
        if "podTemplateRef" in spec and not {"replicas", "limits"} & set(spec):
            found.append("podTemplateRef without replicas or limits")
    return found
