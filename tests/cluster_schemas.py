"""Check an object as its API server and its webhooks would: against the published schemas, and their rules.

The schemas are data (cluster_crds.json, which names versions and sources). The rules are of KEDA's admission
webhook and scalers, of the HPA's validation, and of the CapacityBuffer's x-kubernetes-validations. Ray Serve
has none: schema ScaleDeploymentRequest and the path of its REST route.
"""

import json
import re
from pathlib import Path
from typing import Any

DNS = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
SCHEMAS = json.loads((Path(__file__).parent / "cluster_crds.json").read_text())["objects"]
TYPES: dict[str, Any] = {
    "integer": int,
    "string": str,
    "boolean": bool,
    "number": (int, float),
    "object": dict,
    "array": list,
}


def faults(one: dict[str, Any]) -> list[str]:
    """Every fault for which its cluster would refuse an object; empty where it is accepted."""
    metadata = one.get("metadata", {})
    found = [] if DNS.fullmatch(metadata.get("name", "")) else [f"name {metadata.get('name')}"]
    labels = metadata.get("labels", {})
    found += [f"label {key}" for key, value in labels.items() if not LABEL.fullmatch(value)]
    annotations = metadata.get("annotations", {})
    found += [f"annotation {key}" for key, value in annotations.items() if not isinstance(value, str)]
    schema = SCHEMAS.get(f"{one.get('apiVersion')} {one.get('kind')}")
    if schema is None:
        return [*found, f"no such kind: {one.get('apiVersion')} {one.get('kind')}"]
    return found + schema_faults(one, schema, "") + _rules(one["kind"], one.get("spec", {}))


def schema_faults(value: Any, schema: dict[str, Any], at: str) -> list[str]:
    """The faults of a value by a schema; a structural schema knows no fields beyond its properties."""
    if "oneOf" in schema:
        found = [schema_faults(value, one, at) for one in schema["oneOf"]]
        return [] if sum(not faults_of for faults_of in found) == 1 else found[0]
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    is_of = [isinstance(value, TYPES[kind]) and not (kind == "integer" and value is True) for kind in kinds]
    if kinds and not any(is_of):
        return [f"{at}: {value!r} is no {' or '.join(kinds)}"]
    found = [] if value in schema.get("enum", [value]) else [f"{at}: {value!r} is none of {schema['enum']}"]
    if "pattern" in schema and not re.search(schema["pattern"], str(value)):
        found.append(f"{at}: {value!r} does not match")
    if isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        found.append(f"{at}: {value} is out of range")
    if isinstance(value, (list, str)) and len(value) < schema.get("minItems", schema.get("minLength", 0)):
        found.append(f"{at} is too short")
    if isinstance(value, list):
        parts = [schema_faults(one, schema.get("items", {}), f"{at}[{n}]") for n, one in enumerate(value)]
        return found + [fault for faults_of in parts for fault in faults_of]
    return found + _field_faults(value, schema, at) if isinstance(value, dict) else found


def _field_faults(value: dict[str, Any], schema: dict[str, Any], at: str) -> list[str]:
    known, other = schema.get("properties", {}), schema.get("additionalProperties")
    if at == "":
        known = {"apiVersion": {}, "kind": {}, "metadata": {}, **known}
    found = [f"{at} has no {key}" for key in schema.get("required", ()) if key not in value]
    for key, one in value.items():
        if key in known:
            found += schema_faults(one, known[key], f"{at}.{key}")
        elif isinstance(other, dict):
            found += schema_faults(one, other, f"{at}.{key}")
        elif known:
            found.append(f"{at} knows no {key}")
    return found


def _rules(kind: str, spec: dict[str, Any]) -> list[str]:
    """Rules of a webhook or of the schema beyond the shape."""
    found = []
    if kind == "ScaledObject":
        behavior = spec.get("advanced", {}).get("horizontalPodAutoscalerConfig", {}).get("behavior", {})
        for rule in behavior.values():  # ValidateHPAScalingRules
            found += [] if 0 <= rule.get("stabilizationWindowSeconds", 0) <= 3600 else ["window"]
            for policy in rule.get("policies", ()):
                is_valid = policy["value"] > 0 and 0 < policy["periodSeconds"] <= 1800
                found += [] if is_valid and policy["type"] in ("Pods", "Percent") else ["policy"]
        names = [one["name"] for one in spec["triggers"] if "name" in one]
        found += ["trigger names repeat"] if len(set(names)) < len(names) else []
        found += ["more at least than at most"] if spec["minReplicaCount"] > spec["maxReplicaCount"] else []
        found += ["no replica at most"] if spec["maxReplicaCount"] < 1 else []
        for one in spec["triggers"]:
            needs = {"cron": {"timezone", "start", "end", "desiredReplicas"}, "external": {"scalerAddress"}}
            if lacking := needs.get(one["type"], set()) - set(one["metadata"]):
                found.append(f"{one['type']} lacks {lacking}")
            if one["type"] == "cron" and not re.fullmatch(r"\d+", one["metadata"].get("desiredReplicas", "")):
                found.append("desiredReplicas is no whole number")
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
