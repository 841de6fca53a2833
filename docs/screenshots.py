"""Make the pictures of the page for README and docs from a running `kubectl mooring ui`, and from an assessment.

    ./run demo --keep                                                    # prints the address
    ./run demo --assess --html assessment.html
    .venv/bin/python docs/screenshots.py ADDRESS assessment.html         # writes docs/pictures/page-*.png

A third argument is another folder for the pictures.
"""

import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

_PICTURES = Path(__file__).parent / "pictures"
# The view's heading by its address; a pod and a group are those of the demo.
_VIEWS = {
    "cluster": "#/cluster?colour=namespace",
    "node": "#/nodes/n1",
    "jobs": "#/jobs",
    "pod": "#/pods/default/gpu-pairs",
    "problems": "#/problems",
}


def main() -> None:
    """Take a picture of each view, as wide as the text of a page."""
    address, assessment, *folders = sys.argv[1:]
    folder = Path(folders[0]) if folders else _PICTURES
    with sync_playwright() as playwright:
        # Root has no sandbox in Chromium.
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 900, "height": 600}, color_scheme="light")
        page.goto(address)
        page.locator("main h1").wait_for()
        for name, view in _VIEWS.items():
            _take(page, view, folder / f"page-{name}.png")
        page.goto(Path(assessment).absolute().as_uri())
        _take(page, "#/assessment", folder / "page-assessment.png")
        browser.close()


def _take(page: Page, view: str, file: Path) -> None:
    page.evaluate("view => { location.hash = view }", view)
    # What is near the screen is drawn in the next frames.
    page.wait_for_timeout(500)
    # The address of the API server is another one at each run.
    page.evaluate("document.querySelectorAll('#state, #taken').forEach(one => { one.hidden = true })")
    page.screenshot(path=str(file))


if __name__ == "__main__":
    main()
