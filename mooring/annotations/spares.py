"""Room for further members of a group: the annotation ``mooring.dev/spares``, written with the Binding of each member.

    [{"v":1,"uid":"<member's uid>-spare-0","node":"n3","vfs":[…]}]

Each entry is what one spare member would be assigned, in the format of an assignment. The newest of a group counts. It
only reserves room: no node reads it.
"""

from collections.abc import Iterable, Mapping

from mooring import names
from mooring.annotations.assignment import Assignment, assignment_fields, read_assignment_value
from mooring.annotations.group import MOST_SPARES
from mooring.errors import AnnotationError
from mooring.parsing import dump, parse


def dump_spares(assignments: Iterable[Assignment]) -> str:
    """Return the annotation's value."""
    return dump([assignment_fields(assignment) for assignment in assignments])


def read_spares(annotations: Mapping[str, str]) -> tuple[Assignment, ...]:
    """Read the room of a group's spares from a member; raise AnnotationError."""
    text = annotations.get(names.SPARES)
    if text is None:
        return ()
    items = parse(text, names.SPARES, AnnotationError).items(MOST_SPARES)
    return tuple(read_assignment_value(item) for item in items)
