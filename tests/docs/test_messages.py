"""Every text that the programs can print has its entry in the catalogue, and no entry is of no use."""

from typing import get_args, get_type_hints

from advertiser.formats import vf_events
from docs.hooks import catalogue, texts
from scheduler.cycle.instructions import Report

# The longest remedies: whoever looks up a message is in a hurry.
_MOST_WORDS = 28

# Strings of two words that are not messages: by their beginning, with the reason.
NOT_PRINTED = {
    "A support bundle of Mooring, made by": "a file that support-bundle writes",
    "#!": "the forwarder's own source; what it prints has entries",
    "HTTP/1.1 …": "the head of an HTTP answer",
    "CONNECT … HTTP/1.1": "the head of a request",
    "import sys; open(": "a program for a subprocess",
    "# ": "files that mooring-node writes",
    "[Service] Environment=": "likewise",
    "options ib_core netns_mode=": "likewise, by the advertiser",
    "text/plain; version=": "a media type",
    "Content-Type": "a request's head",
    "Precondition failed": "read in an answer of the API server's",
    "Version RunPodSandbox": "names of CRI methods",
    "GetContainerEvents StreamPodSandboxes": "names of CRI methods",
    "ListImages ImageStatus": "likewise",
    "scored ": "a column's name",
    "kubectl mooring": "a program's name",
    "Show which pods hold": "a command's help",
    "No new pod gets a drained": "likewise",
    "Report what goes wrong with the VFs": "likewise",
    "What `kubectl mooring assess --share` has read": "a file that assess --share writes",
    "apiVersion kind metadata spec": "words that assess --share keeps",
    "True False Unknown": "likewise",
    "cpu memory pods": "likewise",
    "apps batch policy": "likewise",
    "sys bus pci": "likewise",
    "#compdef kubectl-mooring": "a shell's script, as those of bash and fish",
    "grep -sH": "a command's arguments",
    "Device Minor": "read in a file of NVIDIA's driver",
    "GPU Excluded": "likewise",
    "GPU UUID": "likewise",
    "bridges from the root": "a column's name",
    r"\bnot implemented": "read in an answer of an IPAM plugin",
    "netns exclusive": "read in the answer of `rdma system show`",
}


def patterns() -> set[str]:
    """Return the texts of all entries, as patterns."""
    return {texts.normal(text) for entry in _entries() for text in entry.texts}


def _entries() -> list[catalogue.Entry]:
    return catalogue.entries(catalogue.SOURCE.read_text(encoding="utf-8"))


def printed() -> list[texts.Text]:
    source = [text for text in texts.texts() if not text.pattern.startswith(tuple(NOT_PRINTED))]
    return [*source, *texts.forwarded(), *texts.policies()]


def test_every_text_that_can_be_printed_has_an_entry() -> None:
    """A reader finds each message that a program prints."""
    listed = patterns()
    missing = sorted({f"{text.pattern!r} ({text.place})" for text in printed() if text.pattern not in listed})
    assert missing == [], "add a line '- `text …`: what to do' to docs/messages.txt:\n" + "\n".join(missing)


def test_every_events_reason_has_an_entry() -> None:
    """The reasons by which a person filters events; a condition's reasons appear in the event `FailedScheduling`."""
    section = catalogue.SOURCE.read_text(encoding="utf-8").split("### Events by reason\n", 1)[1].split("\n### ", 1)[0]
    listed = {text for entry in catalogue.entries(section) for text in entry.texts}
    of_vfs = {vf_events.LOST_REASON, vf_events.RESET_REASON, vf_events.DEVICES_REASON, vf_events.RATES_REASON}
    of_vfs.add(vf_events.PORT_REASON)
    conditions = {"Unschedulable", "InvalidRequest"}
    assert listed == {*get_args(get_type_hints(Report)["reason"]), "FailedScheduling", *of_vfs} | conditions


def test_every_entry_is_a_text_of_the_code() -> None:
    """An entry whose message no longer exists, or is reworded, is an error: a reader could never find it."""
    in_code = {text.pattern for text in [*texts.strings(), *texts.forwarded(), *texts.policies()]}
    assert sorted(patterns() - in_code) == []


def test_an_entry_is_short_and_lists_each_text_once() -> None:
    """A remedy is one or two sentences; what needs more is on the page that it links to."""
    too_long = [entry.texts[0] for entry in _entries() if len(entry.remedy.split()) > _MOST_WORDS]
    twice = [entry.texts for entry in _entries() if len(set(entry.texts)) < len(entry.texts) or not entry.texts]
    assert (too_long, twice) == ([], [])


def test_the_page_has_an_anchor_for_each_entry_and_names_who_prints_it() -> None:
    """Sections keep the anchors that other pages link to, also beside an entry of the same words."""
    page = catalogue.render(
        "## Of a pod\n- `not enough free RDMA bandwidth`: Wait.\n- `pod bound`, `pod not bound`\n- `of a pod`: Above.\n"
    )
    assert "## Of a pod {#of-a-pod}" in page
    assert "#### `not enough free RDMA bandwidth` {#not-enough-free-rdma-bandwidth}\n\nWait.\n" in page
    assert "#### `pod bound` {#pod-bound}\n\n`pod not bound`\n\nscheduler: `scheduler/server/" in page
    assert "#### `of a pod` {#of-a-pod-2}" in page
