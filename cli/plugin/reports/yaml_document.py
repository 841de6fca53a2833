"""Documents of JSON's types as YAML. Pure."""

from collections.abc import Mapping

import yaml

_FOLD_NEVER = 1 << 30


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes a value that occurs twice twice, as kubectl does."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def dump(document: Mapping[str, object]) -> str:
    """Return a document as block style YAML in its own order; its values are dicts, lists and JSON's scalars."""
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=_FOLD_NEVER)
    return text
