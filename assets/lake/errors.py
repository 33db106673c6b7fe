"""Errors of the lake; each message is one line with the remedy."""


class LakeError(ValueError):
    """The lake cannot do what was requested; the message is one line with the remedy."""


class StoreError(LakeError, OSError):
    """A bucket cannot do what was requested. Also an OSError, since libraries use the bucket as a disk."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ChangedError(StoreError):
    """An object was replaced or removed since it was opened."""
