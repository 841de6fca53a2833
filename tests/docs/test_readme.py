"""What README and the site's first page show equals what the tested pages show."""

from tests.docs.pages import ROOT, commands, files

README = "../README.md"


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
