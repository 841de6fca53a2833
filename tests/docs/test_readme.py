"""What README and the site's first page show equals what the tested pages show."""

import re

from tests.docs.pages import ROOT, commands, files, section

README = "../README.md"


def test_the_readme_leads_from_the_picture_to_eight_links() -> None:
    """What it is, how to try it, beside what, what it needs, how to install it, a pod, and eight pages to read on."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    before, *headings = re.split(r"^## ", text, flags=re.MULTILINE)
    assert before.index("[start:picture]") < before.index("**Status:**")
    assert [one.splitlines()[0] for one in headings] == [
        "Try it",
        "Beside other systems",
        "Requirements and compatibility",
        "Install",
        "First pod",
        "Documentation",
        "Licence",
    ]
    assert len(re.findall(r"\]\(", section(README, "Documentation"))) == 8


def test_the_readme_installs_by_six_commands_of_the_installation_page() -> None:
    """The README has only commands that the installation's test types."""
    typed = [
        command for heading in ("The cluster's part", "Each node's part") for command in commands("install.md", heading)
    ]
    shown = commands(README, "Install")
    assert len(shown) == 6
    assert [command for command in typed if command in shown] == shown


def test_the_readmes_first_pod_is_the_quick_starts() -> None:
    """The manifest that a test runs is the one that README shows."""
    assert files(README, "First pod")[0] == files("quick-start.md", "Your first pod")[0]


def test_the_first_page_of_the_site_shows_parts_of_the_readme_that_exist() -> None:
    """The picture, the table and the first pod are taken from README: a part without its marks would be empty."""
    page, readme = (ROOT / path for path in ("docs/index.md", "README.md"))
    for part in ("picture", "peers", "first-pod"):
        assert f'--8<-- "README.md:{part}"' in page.read_text(encoding="utf-8")
        begin, end = (f"<!-- --8<-- [{mark}:{part}] -->\n" for mark in ("start", "end"))
        assert readme.read_text(encoding="utf-8").partition(begin)[2].partition(end)[0].strip()


def test_the_first_page_of_the_site_leads_to_every_page() -> None:
    """A reader who asks for a subject finds its page there; the site's menu names each page once."""
    menu = re.findall(r"- ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    first, *others = menu
    assert first == "index.md"
    assert sorted(others) == sorted({path.name for path in (ROOT / "docs").glob("*.md")} - {first})
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", section("index.md", "Documentation")))
    assert set(others) - linked == set()
