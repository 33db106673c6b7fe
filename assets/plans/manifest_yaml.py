"""Write Kubernetes objects as YAML documents, with texts of several lines as they read."""

from collections.abc import Iterable, Mapping
from typing import Any

import yaml


class LiteralText(str):
    """A text that YAML writes as a block, line by line."""

    __slots__ = ()


class _BlockDumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # anchors save nothing and read badly
        return True


_BlockDumper.add_representer(
    LiteralText, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|")
)


def manifests_to_yaml(manifests: Iterable[Mapping[str, Any]]) -> str:
    """Return objects as YAML documents."""
    return yaml.dump_all(list(manifests), Dumper=_BlockDumper, sort_keys=False, width=110)
