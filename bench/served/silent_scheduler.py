"""`python -m scheduler` without Events and conditions: the cost of a bind by itself, for the benchmark."""

import sys

from scheduler import __main__ as program
from scheduler.cycle.instructions import Report
from scheduler.server.report_writer import ReportWriter


class Silent(ReportWriter):
    """A writer that drops its reports."""

    def put(self, report: Report) -> None:
        """Take a report and write nothing."""


if __name__ == "__main__":
    # Composed here: the program has no switch for a benchmark.
    vars(program)["ReportWriter"] = Silent
    sys.exit(program.main())
