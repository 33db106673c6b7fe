"""What Rill accepts of a project, as facts of its parser, and a check of a project against them.

Written down from rilldata/rill runtime/parser: parse_rillyaml.go, parse_node.go (fields of every file, what a
folder means), parse_metrics_view.go, parse_explore.go, parse_partial_field_selector.go, parse_model.go and
parser.go (references from SQL by the bare name of a table; a model that refers to itself is a cycle), and
runtime/drivers/duckdb/config.go. Rill refuses unknown keys in metrics views, explores and rill.yaml.
"""

import functools
import json
from pathlib import Path
from typing import Any

import duckdb
import yaml

COMMON = {"version", "type", "name", "namespace", "refs", "parser", "connector", "sql", "dev", "prod"}
PROJECT = {
    *("compiler", "display_name", "description", "ai_instructions", "ai_connector", "theme"),
    *("olap_connector", "connectors", "env", "models", "metrics_views", "explores", "canvases", "apis"),
    *("migrations", "features", "public_paths", "ignore_paths", "mock_users", "environment_overrides"),
    *("dev", "prod"),
}
CONNECTOR = {
    *("driver", "managed", "pool_size", "cpu", "memory_limit_gb", "read_write_ratio", "boot_queries"),
    *("init_sql", "log_queries", "path"),
}
VIEW = {
    *("display_name", "description", "model", "database", "database_schema", "table", "timeseries"),
    *("watermark", "smallest_time_grain", "first_day_of_week", "first_month_of_year", "dimensions"),
    *("measures", "security", "cache"),
}
DIMENSION = {"name", "display_name", "description", "column", "expression", "unnest", "uri"}
MEASURE = {
    *("name", "display_name", "description", "type", "expression", "window", "per", "requires"),
    *("format_preset", "format_d3", "format_d3_locale", "valid_percent_of_total", "treat_nulls_as"),
}
EXPLORE = {
    *("display_name", "description", "banner", "metrics_view", "dimensions", "measures", "theme"),
    *("time_ranges", "time_zones", "lock_time_zone", "allow_custom_time_range", "defaults", "security"),
}
TYPED = {"metrics_view": VIEW, "explore": EXPLORE, "connector": CONNECTOR}
DEAR = {"dimensions": DIMENSION, "measures": MEASURE}


def faults(folder: Path) -> list[str]:
    """Everything in a project that Rill's parser would refuse; empty where it takes it."""
    found = _keys(_read((folder / "rill.yaml").read_text()), PROJECT, "rill.yaml")
    models = {path.stem.lower(): path for path in folder.rglob("*.sql")}
    for name, path in models.items():
        found += [f"{path.name}: {fault}" for fault in _model(path.read_text(), models) if fault] + (
            [f"{path.name} lies in no folder of models"] if path.parent.name != "models" else []
        )
        found += [f"{name} lies beside a YAML file of its name"] if path.with_suffix(".yaml").exists() else []
    files = [path for path in folder.rglob("*.yaml") if path.name != "rill.yaml"]
    read = {path: _read(path.read_text()) for path in files}
    views = {path.stem.lower() for path, content in read.items() if content.get("type") == "metrics_view"}
    for path, content in read.items():
        kind = content.get("type")
        if kind not in TYPED:
            found.append(f"{path.name}: no type {kind}")
            continue
        found += _keys(content, TYPED[kind] | COMMON, path.name)
        found += (
            [f"{path.name}: version {content['version']!r}"]
            if type(content.get("version", 1)) is not int
            else []
        )
        if kind == "metrics_view":
            found += [f"{path.name}: {fault}" for fault in _view(content, set(models))]
        if kind == "explore":
            found += [] if str(content.get("metrics_view")).lower() in views else [f"{path.name}: of no view"]
            for key in ("dimensions", "measures"):
                found += (
                    []
                    if content.get(key, "*") == "*" or isinstance(content[key], list)
                    else [f"{path.name}: {key}"]
                )
        if kind == "connector" and content.get("driver") != "duckdb":
            found.append(f"{path.name}: driver {content.get('driver')}")
    return found


@functools.cache  # a project is checked again after each of its faults
def _read(text: str) -> dict[str, Any]:
    return yaml.load(text, yaml.CSafeLoader)


def _keys(content: dict[str, Any], known: set[str], where: str) -> list[str]:
    return [f"{where} has the key {key}" for key in content if key not in known]


def _model(sql: str, models: dict[str, Path]) -> list[str]:
    """One select, whose tables are no other model and not itself."""
    parsed = _parse(sql)
    if parsed.get("error") or len(parsed["statements"]) != 1:
        return [f"is no select: {parsed.get('error_message')}"]
    return [f"refers to the model {name}" for name in _tables(parsed) if name.lower() in models]


@functools.cache
def _parse(sql: str) -> dict[str, Any]:
    with duckdb.connect() as con:
        return json.loads(con.execute("select json_serialize_sql(?)", [sql]).fetchone()[0])


def _tables(node: Any) -> list[str]:
    """The bare names of the tables that a statement reads."""
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    own = [node["table_name"]] if isinstance(node, dict) and node.get("type") == "BASE_TABLE" else []
    return own + [name for one in inner for name in _tables(one)]


def _view(content: dict[str, Any], models: set[str]) -> list[str]:
    found = [] if str(content.get("model")).lower() in models else [f"of no model: {content.get('model')}"]
    names = [str(content["timeseries"]).lower()] if "timeseries" in content else []
    for key, known in DEAR.items():
        for one in content.get(key, ()):
            found += _keys(one, known, key)
            found += [f"{k}: {v!r} is no text" for k, v in one.items() if not isinstance(v, str)]
            names.append(one["name"].lower())
    found += [f"{name} is there twice" for name in set(names) if names.count(name) > 1]
    found += [f"{one['name']}: column or expression" for one in content.get("dimensions", ())
              if ("column" in one) == ("expression" in one)]  # fmt: skip
    found += [] if content.get("measures") else ["no measure"]
    return found + [
        f"{one['name']} has no expression" for one in content.get("measures", ()) if not one.get("expression")
    ]
