"""What a pod asks for: the annotation ``mooring.dev/request.fpga``.

    [{"beside":0},{"beside":0},{"beside":1},{}]

One FPGA an entry, in order. ``beside`` is the index of one of the pod's interfaces: the FPGA is to be under the same
PCIe switch as that interface's VF. ``{}`` is any FPGA.
"""

from mooring import names
from mooring.errors import AnnotationError
from mooring.parsing import parse

KEY = f"{names.REQUEST_OF}fpga"
_MOST_FPGAS = 64
# For each FPGA the interface that it is to lie beside, None for anywhere.
Request = tuple[int | None, ...]


def read_fpga_request(text: str, interfaces: int) -> Request:
    """Read the annotation's value for a pod with so many interfaces; raise AnnotationError."""
    found = []
    for item in parse(text, KEY, AnnotationError).items(_MOST_FPGAS):
        beside = item.fields({"beside"}).optional("beside", lambda value: value.integer(0, _MOST_FPGAS))
        if beside is not None and beside >= interfaces:
            item.at("beside", beside).fail(f"there is no interface {beside}: the pod asks for {interfaces}")
        found.append(beside)
    return tuple(found)
