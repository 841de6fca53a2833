"""Times as the API server writes them. Pure."""

from datetime import datetime


def unix_time(text: str | None, otherwise: float) -> float:
    """Return an RFC 3339 time as UNIX seconds; ``otherwise`` if the text is not a time."""
    try:
        read = datetime.fromisoformat(text or "")
        return otherwise if read.tzinfo is None else read.timestamp()
    except (ValueError, OverflowError):
        return otherwise
