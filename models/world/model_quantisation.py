"""How a checkpoint is quantised: bits of its weights and cache, and the matrices that stay in 16 bits.

A config.json says it in one of several forms: of vLLM's fp8 and mxfp4, of compressed-tensors, and of NVIDIA's
ModelOpt, which also writes an hf_quant_config.json. In all of them the table of tokens and the output stay in
16 bits.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fleetcast.models.world.toml_dataclasses import ConfigError, shorten_text

FULL_BITS = 16  # of a weight, or of a number in the cache, that is not quantised
METHODS = {  # of quantisation, in small letters: bits of a weight, and of its share of a group's scale
    "fp8": (8, 0.0),
    "mxfp4": (4, 8 / 32),
    "nvfp4": (4, 8 / 16),
}
SCALE_BITS = 16  # of a group's scale in compressed-tensors, of integers
MOST_PATTERNS = 10_000
WRAPPERS = re.compile(r"^(language_model\.|model\.|backbone\.)+")  # before the name of a layer


class Quantisation(NamedTuple):
    """Bits of the weights that are quantised, of their scales and of the cache; which modules are not."""

    bits: int
    scale_bits: float  # for a weight
    cache_bits: int
    kept: frozenset[str]  # modules that are not quantised: parts of their paths
    kept_patterns: re.Pattern[str]

    @classmethod
    def read(
        cls, config: Mapping[str, Any], quantisation: Mapping[str, Any], where: str
    ) -> "Quantisation | None":
        """Return how a checkpoint is quantised; None: it is not. ConfigError for an unknown way."""
        if not (tables := list_tables(config, quantisation)):
            return None
        bits, scale_bits = read_bits(tables, where)
        return cls(bits, scale_bits, read_cache_bits(tables), *kept_modules(tables))

    def covers(self, module: str) -> bool:
        """Return whether the matrices of a module are quantised."""
        names = module.split(".")
        paths = {".".join(names[i:j]) for i in range(len(names)) for j in range(i + 1, len(names) + 1)}
        return self.kept.isdisjoint(paths) and self.kept_patterns.search(module) is None

    def extra_bytes(self, total: int, covered: int) -> float:
        """Return the bytes beyond `bits` for each of `total` weights, of which `covered` are quantised."""
        return ((total - covered) * (FULL_BITS - self.bits) + covered * self.scale_bits) / 8


def list_tables(config: Mapping[str, Any], quantisation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the tables of a config.json and an hf_quant_config.json ({}: none) on quantisation."""
    inner = config.get("text_config")
    own = config.get("quantization_config") or (isinstance(inner, dict) and inner.get("quantization_config"))
    return [table for table in (quantisation.get("quantization"), own) if isinstance(table, dict)]


def read_bits(tables: Sequence[Mapping[str, Any]], where: str) -> tuple[int, float]:
    """Return the bits of a weight and of its scales; ConfigError for an unknown quantisation."""
    for table in tables:
        for key in ("quant_algo", "quant_method"):
            if (method := str(table.get(key)).lower()) in METHODS:
                return METHODS[method]
        groups = table.get("config_groups")
        weights = [
            group["weights"]
            for group in (groups.values() if isinstance(groups, dict) else ())
            if isinstance(group, dict) and isinstance(group.get("weights"), dict)
        ]
        found = {(weight.get("num_bits"), weight.get("group_size")) for weight in weights}
        if len(found) == 1 and (only := found.pop())[0] in (4, 8):
            size = only[1] if isinstance(only[1], int) and only[1] > 0 else None
            return only[0], SCALE_BITS / size if size else 0.0
    named = [table.get(key) for table in tables for key in ("quant_algo", "quant_method") if table.get(key)]
    raise ConfigError(
        f"{where}: the quantisation in its config.json is not known here: "
        f"{shorten_text(', '.join(map(str, named)) or 'it has no name')}. Known: {', '.join(METHODS)}, and 4 "
        "or 8 bits of compressed-tensors. Write all its sizes as a row of llms.toml, or name another llm."
    )


def read_cache_bits(tables: Sequence[Mapping[str, Any]]) -> int:
    """Return the bits of a number in the cache of a checkpoint."""
    for table in tables:
        scheme = table.get("kv_cache_scheme", table.get("kv_cache_quant_algo"))
        bits = scheme.get("num_bits") if isinstance(scheme, dict) else scheme
        if bits == 8 or str(bits).upper() == "FP8":
            return 8
    return FULL_BITS


def kept_modules(tables: Sequence[Mapping[str, Any]]) -> tuple[frozenset[str], re.Pattern[str]]:
    """Return the modules that are not quantised: parts of a module's path, and a pattern.

    Patterns are those of a shell, or regular expressions after `re:`.
    """
    keys = ("modules_to_not_convert", "exclude_modules", "ignore")
    listed = [table[key] for table in tables for key in keys if isinstance(table.get(key), list)]
    names = [WRAPPERS.sub("", str(name)) for names in listed for name in names][:MOST_PATTERNS]
    patterns = [name.removeprefix("re:") for name in names if name.startswith("re:")]
    globs = [name for name in names if not name.startswith("re:") and set(name) & set("*?[")]
    patterns += [rf"(?:^|\.){glob.replace('*', '.*').replace('?', '.')}(?:\.|$)" for glob in globs]
    valid = [pattern for pattern in dict.fromkeys(patterns) if is_pattern(pattern)]
    plain = frozenset(names).difference(globs)
    return plain, re.compile("|".join(f"(?:{pattern})" for pattern in valid) or r"(?!)")


def is_pattern(text: str) -> bool:
    """Return whether a text of a config.json is a regular expression, and one that ends soon.

    A repeated group can take for ever on a short name.
    """
    if re.search(r"\)[*+{]", text):
        return False
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError):
        return False
    return True
