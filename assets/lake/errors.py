"""What a lake refuses, in one line with the remedy."""


class LakeError(ValueError):
    """The lake cannot do what was asked; the message is one line with the remedy."""


class StoreError(LakeError, OSError):
    """A bucket cannot do what was asked. An OSError too: for libraries that ask it is their disk."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ChangedError(StoreError):
    """An object is no longer as it was when it was looked at."""
