"""What README and the site's first page show equals what the tested pages show."""

import re
from pathlib import Path

from tests.docs.pages import ROOT, commands, files, section

README = "../README.md"


def test_the_readme_has_its_parts_in_the_order_of_a_readers_questions() -> None:
    """What it is and its status, why, how to try it, what it promises, beside what, and when to take something else."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    before, *headings = re.split(r"^## ", text, flags=re.MULTILINE)
    assert "**Status:**" in before
    assert "Reports from real hardware: 0 " in before
    assert [part.splitlines()[0] for part in headings] == [
        "The problem",
        "Features",
        "Try it",
        "First pod",
        "Install",
        "What it promises",
        "Compared with other systems",
        "Compatibility",
        "When not to use Mooring",
        "Documentation and help",
        "Licence",
    ]


def test_every_file_and_section_that_the_files_at_the_top_link_exists() -> None:
    """`mkdocs build --strict` checks the links of docs/, these tests those of the pages that stand beside it."""
    missing = []
    for page in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "MAINTAINERS.md"):
        for link in re.findall(r"\]\((?!https?:)([^)]+)\)", (ROOT / page).read_text(encoding="utf-8")):
            path, _, anchor = link.partition("#")
            if not (ROOT / path).exists() or (anchor and anchor not in _anchors(ROOT / path)):
                missing.append(f"{page}: {link}")
    assert missing == []


def test_the_changelog_has_no_relative_links() -> None:
    """The site shows it in another folder: a link would be right in one of both places only."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((?!https?:)[^)]+\)", text) == []


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, made as mkdocs and code hosts make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readmes_promises_are_those_of_the_architecture() -> None:
    """A promise that is new or gone is new or gone in the table, and InfiniBand has no rates there."""
    rows = re.findall(r"^\| (\d)\. .+ \| (.+?) \|$", section(README, "What it promises"), re.MULTILINE)
    promises = re.findall(r"^(\d)\. ", section("architecture.md", "What it promises"), re.MULTILINE)
    assert [number for number, _ in rows] == promises
    assert dict(rows)["8"] == "no: it has no rates"


def test_the_readme_installs_by_three_commands_of_the_installation_page() -> None:
    """The README has only commands that the installation's test types."""
    typed = commands("install.md", "The cluster's part")
    shown = commands(README, "Install")
    assert len(shown) == 3
    assert [command for command in typed if command in shown] == shown


def test_the_readmes_first_pod_is_the_quick_starts() -> None:
    """The manifest that a test runs is the one that README shows."""
    assert files(README, "First pod")[0] == files("quick-start.md", "Your first pod")[0]


def test_the_first_page_of_the_site_shows_the_readmes_first_pod() -> None:
    """A part without its marks would be empty."""
    page, readme = ((ROOT / path).read_text(encoding="utf-8") for path in ("docs/index.md", "README.md"))
    assert '--8<-- "README.md:first-pod"' in page
    begin, end = (f"<!-- --8<-- [{mark}:first-pod] -->\n" for mark in ("start", "end"))
    assert readme.partition(begin)[2].partition(end)[0].strip()


def test_the_first_page_of_the_site_leads_to_every_page() -> None:
    """A reader who asks for a subject finds its page there; the site's menu names each page once, but for history."""
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    first, *others = re.findall(r"- ([\w-]+\.md)$", config, re.MULTILINE)
    others += re.findall(
        r"^  ([\w-]+\.md)$", config.partition("not_in_nav: |\n")[2].partition("\ntheme")[0], re.MULTILINE
    )
    assert (first, others[0]) == ("index.md", "quick-start.md")
    assert sorted(others) == sorted({path.name for path in (ROOT / "docs").glob("*.md")} - {first})
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", section("index.md", "Documentation")))
    assert set(others) - linked == set()
